"""The strict kinds of artifacts, their limits, and the pointers of their specs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from conversations.artifacts import (
    Artifact,
    ArtifactError,
    ArtifactLimits,
    check_artifacts,
    find_spec,
    to_stored,
)

LIMITS = ArtifactLimits()
ARTIFACTS: TypeAdapter[list[Artifact]] = TypeAdapter(list[Artifact])
SELECT = "SELECT region, SUM(amount) AS revenue FROM orders GROUP BY region"
BAR = {
    "mark": "bar",
    "encoding": {
        "x": {"field": "region", "type": "nominal"},
        "y": {"field": "revenue", "type": "quantitative"},
    },
}


def kinds(*artifacts: dict[str, Any]) -> list[Artifact]:
    return ARTIFACTS.validate_python(list(artifacts))


def stored(*artifacts: dict[str, Any]) -> list[dict[str, Any]]:
    return to_stored(kinds(*artifacts))


def refusal(artifact: dict[str, Any]) -> dict[str, Any]:
    """The first error that a single artifact is refused with."""
    with pytest.raises(ValidationError) as caught:
        kinds(artifact)
    return dict(caught.value.errors()[0])


def fault(
    *artifacts: dict[str, Any], payload: Any = None, limits: ArtifactLimits = LIMITS
) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        check_artifacts(kinds(*artifacts), payload, limits)
    return caught.value


# --- Kinds ---

ONE_OF_EACH: Sequence[dict[str, Any]] = (
    {"kind": "sql", "sql": SELECT, "title": "By region", "columns": ["region"], "row_count": 4},
    {
        "kind": "chart",
        "title": "By region",
        "chart_type": "bar",
        "x": "region",
        "y": ["revenue"],
        "series": None,
        "aggregate": "sum",
        "sort": "-revenue",
        "stacked": False,
        "data": 1,
        "spec_path": "/charts/0/spec",
    },
    {"kind": "visualization", "id": "v-12", "visualization_type": "table", "columns": ["region"]},
    {"kind": "dashboard", "id": "d-3", "title": "Sales", "items": ["v-12"]},
    {"kind": "definition", "term": "active customer", "meaning": "ordered lately", "sql": "x > 1"},
    {"kind": "file", "file_id": "f-1", "name": "budget.xlsx", "columns": [], "row_count": 120},
)


def test_every_kind_is_taken_in_a_request_model() -> None:
    class Turn(BaseModel):
        artifacts: list[Artifact]

    turn = Turn.model_validate({"artifacts": list(ONE_OF_EACH)})

    assert [one.kind for one in turn.artifacts] == [one["kind"] for one in ONE_OF_EACH]
    check_artifacts(turn.artifacts, {"charts": [{"spec": BAR}]}, LIMITS)


def test_a_request_may_be_validated_as_json_text() -> None:
    artifacts = ARTIFACTS.validate_json(json.dumps(ONE_OF_EACH))

    assert to_stored(artifacts) == stored(*ONE_OF_EACH)


@pytest.mark.parametrize(
    "artifact",
    [
        {"kind": "sql", "sql": "SELECT 1"},
        {"kind": "chart", "chart_type": "bar"},
        {"kind": "visualization", "id": "v-1"},
        {"kind": "dashboard", "id": "d-1"},
        {"kind": "definition", "term": "churn", "meaning": "no order in 90 days"},
        {"kind": "file", "name": "budget.xlsx"},
    ],
)
def test_the_least_that_each_kind_needs(artifact: dict[str, Any]) -> None:
    assert stored(artifact) == [artifact]
    for name in artifact:
        with pytest.raises(ValidationError):
            kinds({key: value for key, value in artifact.items() if key != name})


def test_optional_fields_may_be_null() -> None:
    nulls = dict.fromkeys(("title", "x", "y", "series", "stacked", "data", "spec_path"))

    assert stored({"kind": "chart", "chart_type": "bar", **nulls}) == [
        {"kind": "chart", "chart_type": "bar"}
    ]


def test_sql_is_kept_byte_for_byte() -> None:
    sql = "\n  SELECT 'é\t' -- done\r\n\n"

    assert stored({"kind": "sql", "sql": sql})[0]["sql"] == sql


def test_titles_are_put_on_one_line() -> None:
    assert stored({"kind": "sql", "sql": "SELECT 1", "title": "By\nregion\u2028 "})[0]["title"] == (
        "By region"
    )


def test_an_unknown_kind_is_refused() -> None:
    assert refusal({"kind": "picture", "id": "p"})["type"] == "union_tag_invalid"


def test_an_unknown_field_is_refused() -> None:
    assert refusal({"kind": "sql", "sql": "SELECT 1", "colour": "red"})["type"] == "extra_forbidden"


@pytest.mark.parametrize("field", ["spec", "config", "option", "figure", "layout", "rows"])
def test_a_raw_config_is_sent_to_the_response_payload(field: str) -> None:
    error = refusal({"kind": "chart", "chart_type": "bar", field: BAR})

    assert error["type"] == "raw_config"
    assert f"'{field}'" in error["msg"]
    assert "response_payload" in error["msg"]
    assert "spec_path" in error["msg"]


@pytest.mark.parametrize("data", [[["North", 4]], {"values": []}])
def test_data_is_a_number_and_no_rows(data: Any) -> None:
    error = refusal({"kind": "chart", "chart_type": "bar", "data": data})

    assert error["type"] == "raw_config"
    assert error["loc"] == (0, "chart", "data")
    assert "response_payload" in error["msg"]


@pytest.mark.parametrize("count", [True, -1, 4.0, "4", float("nan"), 2**53])
def test_row_count_is_a_whole_number(count: Any) -> None:
    refusal({"kind": "sql", "sql": "SELECT 1", "row_count": count})


@pytest.mark.parametrize("data", [0, -1, True, "1", 1.0])
def test_data_counts_from_one(data: Any) -> None:
    refusal({"kind": "chart", "chart_type": "bar", "data": data})


@pytest.mark.parametrize("stacked", [1, "true"])
def test_stacked_is_true_or_false(stacked: Any) -> None:
    refusal({"kind": "chart", "chart_type": "bar", "stacked": stacked})


@pytest.mark.parametrize("columns", ["region", [1], [None], {"region": "text"}])
def test_columns_are_names_in_a_list(columns: Any) -> None:
    refusal({"kind": "sql", "sql": "SELECT 1", "columns": columns})


@pytest.mark.parametrize("sql", ["", " \n", None, b"SELECT 1"])
def test_sql_must_not_be_blank(sql: Any) -> None:
    refusal({"kind": "sql", "sql": sql})


@pytest.mark.parametrize("pointer", ["charts/0", "/a~2b", "/a~", "#/charts"])
def test_spec_path_is_a_json_pointer(pointer: str) -> None:
    error = refusal({"kind": "chart", "chart_type": "bar", "spec_path": pointer})

    assert "RFC 6901" in error["msg"]


@pytest.mark.parametrize(
    ("field", "limit"), [("title", 500), ("x", 300), ("aggregate", 300), ("spec_path", 1000)]
)
def test_texts_are_bounded_and_the_error_names_the_limit(field: str, limit: int) -> None:
    error = refusal({"kind": "chart", "chart_type": "bar", field: "/" + "a" * limit})

    assert str(limit) in error["msg"]


def test_an_image_in_a_field_is_refused() -> None:
    image = "data:image/png;base64," + "A" * 1_000_000

    refusal({"kind": "visualization", "id": "v-1", "title": image})
    assert fault({"kind": "sql", "sql": image}).code == "artifact_too_large"


def test_artifacts_are_frozen() -> None:
    with pytest.raises(ValidationError):
        kinds({"kind": "sql", "sql": "SELECT 1"})[0].sql = "SELECT 2"  # type: ignore[union-attr]


# --- Storing ---


def test_stored_has_its_kind_first_and_fields_in_one_order() -> None:
    artifact = {"row_count": 0, "columns": ["region"], "sql": SELECT, "title": "T", "kind": "sql"}

    assert list(stored(artifact)[0]) == ["kind", "sql", "title", "columns", "row_count"]


def test_stored_leaves_out_what_says_nothing_but_keeps_zero_rows() -> None:
    artifact = {"kind": "sql", "sql": "SELECT 1", "title": "", "columns": [], "row_count": 0}

    assert stored(artifact) == [{"kind": "sql", "sql": "SELECT 1", "row_count": 0}]


def test_stored_keeps_a_spec_path_to_the_whole_payload() -> None:
    artifact = {"kind": "chart", "chart_type": "bar", "spec_path": "", "stacked": False}

    assert stored(artifact) == [{"kind": "chart", "chart_type": "bar", "spec_path": ""}]


def test_stored_reads_back_as_it_is() -> None:
    assert stored(*stored(*ONE_OF_EACH)) == stored(*ONE_OF_EACH)


# --- Limits and references ---


def test_too_many_artifacts() -> None:
    error = fault(*[{"kind": "sql", "sql": "SELECT 1"}] * 51)

    assert (error.code, error.location) == ("too_many_artifacts", ("artifacts",))
    assert "50" in error.message


@pytest.mark.parametrize(
    ("artifact", "field", "limit"),
    [
        ({"kind": "sql", "sql": "SELECT 1", "columns": ["c"] * 201}, "columns", 200),
        ({"kind": "chart", "chart_type": "line", "y": ["c"] * 51}, "y", 50),
        ({"kind": "dashboard", "id": "d", "items": ["c"] * 201}, "items", 200),
    ],
)
def test_too_many_names_in_a_list(artifact: dict[str, Any], field: str, limit: int) -> None:
    error = fault(artifact)

    assert (error.code, error.location) == ("too_many_values", ("artifacts", 0, field))
    assert str(limit) in error.message


def test_an_artifact_is_measured_in_bytes_of_compact_json() -> None:
    exact = ArtifactLimits(bytes=len('{"kind":"sql","sql":""}') + 2 * 489)

    check_artifacts(kinds({"kind": "sql", "sql": "é" * 489}), None, exact)
    error = fault({"kind": "sql", "sql": "é" * 490}, limits=exact)

    assert (error.code, error.location) == ("artifact_too_large", ("artifacts", 0))
    assert "1001" in error.message


@pytest.mark.parametrize("data", [1, 3, 9])
def test_data_must_be_another_sql_file_or_visualization(data: int) -> None:
    chart = {"kind": "chart", "chart_type": "bar", "data": data}
    error = fault(chart, {"kind": "sql", "sql": SELECT}, {"kind": "dashboard", "id": "d-3"})

    assert (error.code, error.location) == ("unknown_data", ("artifacts", 0, "data"))


def test_data_may_stand_later_in_the_turn() -> None:
    chart = {"kind": "chart", "chart_type": "bar", "data": 2}

    check_artifacts(kinds(chart, {"kind": "file", "name": "budget.xlsx"}), None, LIMITS)


@pytest.mark.parametrize("numbers", [(1,), (2, 1), (2, 3, 2)])
def test_data_must_not_lead_round_in_a_circle(numbers: tuple[int, ...]) -> None:
    error = fault(*({"kind": "visualization", "id": f"v-{n}", "data": n} for n in numbers))

    assert (error.code, error.location) == ("circular_data", ("artifacts", 0, "data"))


def test_spec_path_must_lead_somewhere_when_there_is_a_payload() -> None:
    chart = {"kind": "chart", "chart_type": "bar", "spec_path": "/charts/1/spec"}

    check_artifacts(kinds(chart), None, LIMITS)
    error = fault(chart, payload={"charts": [{"spec": BAR}]})

    assert (error.code, error.location) == (
        "spec_path_unresolved",
        ("artifacts", 0, "spec_path"),
    )


# --- JSON pointers ---

# The examples of RFC 6901, section 5.
RFC_6901 = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", RFC_6901),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_pointers_of_the_rfc(pointer: str, value: Any) -> None:
    assert find_spec(RFC_6901, pointer) == value


@pytest.mark.parametrize(
    "pointer",
    ["foo", "/bar", "/foo/2", "/foo/-", "/foo/00", "/foo/-1", "/foo/٠", "/foo/0/0", "/a~2b"],
)
def test_pointers_that_lead_nowhere(pointer: str) -> None:
    with pytest.raises(KeyError):
        find_spec(RFC_6901, pointer)


def test_a_spec_that_is_json_text_is_given_as_it_is() -> None:
    payload = {"charts": [{"figure": json.dumps(BAR)}]}

    assert find_spec(payload, "/charts/0/figure") == json.dumps(BAR)
    with pytest.raises(KeyError):
        find_spec(payload, "/charts/0/figure/mark")


def test_a_huge_index_leads_nowhere() -> None:
    with pytest.raises(KeyError):
        find_spec([1], "/" + "9" * 10_000)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1, max_size=4))
def test_every_member_has_a_pointer(members: dict[str, str]) -> None:
    for name, value in members.items():
        token = name.replace("~", "~0").replace("/", "~1")
        assert find_spec({"a": [members]}, f"/a/0/{token}") == value
