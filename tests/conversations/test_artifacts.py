"""The strict kinds of artifacts, their limits, and what is found in a response payload."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from conversations.artifacts import (
    Artifact,
    ArtifactError,
    ArtifactLimits,
    check_artifacts,
    derive_artifacts,
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


def derive(payload: Any, limits: ArtifactLimits = LIMITS) -> list[dict[str, Any]]:
    return derive_artifacts(payload, limits)


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


def test_a_huge_index_leads_nowhere() -> None:
    with pytest.raises(KeyError):
        find_spec([1], "/" + "9" * 10_000)


# --- Deriving: SQL ---


def test_sql_with_the_rows_beside_it() -> None:
    payload = {
        "sql": SELECT,
        "columns": ["region", "revenue"],
        "rows": [["North", 4], ["South", 2]],
    }

    assert derive(payload) == [
        {"kind": "sql", "sql": SELECT, "columns": ["region", "revenue"], "row_count": 2}
    ]


@pytest.mark.parametrize(
    "result",
    [
        {"rows": [{"region": "North", "revenue": 4}]},
        {"results": [{"region": "North"}, {"revenue": 4}], "row_count": 1},
        {"results": {"columns": ["region", "revenue"], "rows": [["North", 4]]}},
        {"result": {"column_names": ["region", "revenue"], "row_count": 1.0}},
        {"data": {"columns": [{"name": "region"}, {"field": "revenue"}], "data": [["North", 4]]}},
        {"columns": ["region", "revenue"], "rows": 1},
    ],
)
def test_columns_and_row_count_from_where_they_usually_stand(result: dict[str, Any]) -> None:
    assert derive({"sql": SELECT, **result}) == [
        {"kind": "sql", "sql": SELECT, "columns": ["region", "revenue"], "row_count": 1}
    ]


@pytest.mark.parametrize("count", [True, -1, 1.5, float("nan"), float("inf"), "4", None])
def test_a_row_count_that_is_none_is_left_out(count: Any) -> None:
    assert derive({"sql": SELECT, "row_count": count}) == [{"kind": "sql", "sql": SELECT}]


def test_rows_that_were_truncated_are_not_counted() -> None:
    payload = {"sql": SELECT, "rows": [["North"]], "truncated": True}

    assert "row_count" not in derive(payload)[0]


@pytest.mark.parametrize("name", ["query", "sql_query", "generated_sql"])
@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "SELECT now()",
        "-- by region\nSELECT region\nFROM orders",
        "(SELECT a FROM t) UNION (SELECT b FROM u)",
        "WITH r AS (SELECT 1) SELECT * FROM r",
        "with recursive r(n) as materialized (select 1) select n from r",
        "UPDATE orders SET paid = true",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
    ],
)
def test_sql_under_a_name_that_may_mean_something_else(name: str, text: str) -> None:
    assert derive({name: text}) == [{"kind": "sql", "sql": text}]


@pytest.mark.parametrize(
    "text",
    [
        "Revenue by region this year",
        "Select the best customers from Spain",
        "select 5 customers to call",
        "Show me the orders",
        "With whom do we trade?",
        "Update the chart please",
        "Create a table of customers",
        "",
        "   ",
    ],
)
def test_a_question_is_no_sql(text: str) -> None:
    assert derive({"query": text}) == []


def test_a_list_of_queries() -> None:
    payload = {
        "queries": [
            {"title": "Regions", "sql": "SELECT region FROM r", "columns": ["region"], "rows": []},
            {"query": "SELECT month FROM m", "row_count": 12},
            "SELECT 3",
        ]
    }

    assert derive(payload) == [
        {
            "kind": "sql",
            "sql": "SELECT region FROM r",
            "title": "Regions",
            "columns": ["region"],
            "row_count": 0,
        },
        {"kind": "sql", "sql": "SELECT month FROM m", "row_count": 12},
        {"kind": "sql", "sql": "SELECT 3"},
    ]


def test_sql_in_the_rows_of_a_table_is_data() -> None:
    slow = [{"query": "SELECT pg_sleep(9) FROM t", "calls": 3}]
    sql = "SELECT query, calls FROM pg_stat_statements"

    for rows in ("rows", "results", "data", "records"):
        assert [one["sql"] for one in derive({"sql": sql, rows: slow})] == [sql]


def test_the_same_sql_twice_is_one_artifact_with_all_that_is_known() -> None:
    payload = {"sql": SELECT, "queries": [{"sql": SELECT, "title": "By region", "row_count": 4}]}

    assert derive(payload) == [{"kind": "sql", "sql": SELECT, "title": "By region", "row_count": 4}]


def test_sql_some_levels_down() -> None:
    payload = {"response": {"data": {"steps": [{"result": {"sql": SELECT, "row_count": 1}}]}}}

    assert derive(payload) == [{"kind": "sql", "sql": SELECT, "row_count": 1}]


# --- Deriving: charts ---

CHART = {"kind": "chart", "chart_type": "bar", "x": "region", "y": ["revenue"]}


def test_a_chart_shows_the_sql_beside_it() -> None:
    payload = {"sql": SELECT, "charts": [{"title": "Revenue", "spec": BAR}]}

    assert derive(payload)[1] == {
        "kind": "chart",
        "title": "Revenue",
        "chart_type": "bar",
        "x": "region",
        "y": ["revenue"],
        "data": 1,
        "spec_path": "/charts/0/spec",
    }


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (BAR, ""),
        ({"chart": BAR}, "/chart"),
        ({"vega_lite": BAR}, "/vega_lite"),
        ({"charts": [BAR]}, "/charts/0"),
        ({"charts": {"config": BAR}}, "/charts/config"),
        ({"visualizations": [{"type": "bar", "spec": BAR}]}, "/visualizations/0/spec"),
        ({"result": {"output": {"chart": {"spec": BAR}}}}, "/result/output/chart/spec"),
        ({"a/b": {"m~n": [{"chart": BAR}]}}, "/a~1b/m~0n/0/chart"),
        ([{"chart": BAR}], "/0/chart"),
    ],
)
def test_spec_path_leads_to_the_raw_spec(payload: Any, path: str) -> None:
    assert derive(payload) == [{**CHART, "spec_path": path}]
    assert find_spec(payload, path) == BAR


def test_plotly_figures_and_echarts_options() -> None:
    figure = {"data": [{"type": "bar", "x": ["a"], "y": [1]}], "layout": {"title": "Sales"}}
    option = {"series": [{"type": "pie", "data": []}]}
    payload = {
        "plotly": figure,
        "charts": [{"figure": {**figure, "frames": []}}],
        "echarts": option,
    }

    assert [(one["chart_type"], one["spec_path"]) for one in derive(payload)] == [
        ("bar", "/charts/0/figure"),
        ("bar", "/plotly"),
        ("pie", "/echarts"),
    ]


def test_a_chart_of_an_unknown_library_is_told_by_what_stands_beside_it() -> None:
    option = {"dialect": "home-made"}

    assert derive({"charts": [{"title": "Sales", "type": "Bar", "option": option}]}) == [
        {"kind": "chart", "title": "Sales", "chart_type": "bar", "spec_path": "/charts/0/option"}
    ]
    assert derive({"charts": [{"option": option}]})[0]["chart_type"] == "other"


def test_a_chart_may_be_told_in_plain_words() -> None:
    chart = {"type": "line", "x": "month", "y": "revenue", "title": "Trend"}

    assert derive({"chart": chart}) == [
        {
            "kind": "chart",
            "title": "Trend",
            "chart_type": "line",
            "x": "month",
            "y": ["revenue"],
            "spec_path": "/chart",
        }
    ]


def test_settings_of_a_chart_are_no_chart() -> None:
    assert derive({"chart": {"enabled": True}, "spec": {"version": 2}, "figure": {"id": 1}}) == []


def test_the_same_chart_in_two_places_is_one() -> None:
    assert len(derive({"chart": BAR, "charts": [{"spec": dict(reversed(BAR.items()))}]})) == 1


def test_two_charts_with_like_descriptions_stay_two() -> None:
    figures = [{"data": [{"type": "bar", "y": [n]}], "layout": {}} for n in (1, 2)]

    assert len(derive({"figures": figures})) == 2


def test_charts_are_paired_with_as_many_queries() -> None:
    payload = {
        "queries": [{"sql": "SELECT 1"}, {"sql": "SELECT 2"}],
        "charts": [{"spec": BAR}, {"spec": {"mark": "line"}}],
    }

    assert [one.get("data") for one in derive(payload)] == [None, None, 1, 2]


def test_which_of_several_queries_a_chart_shows_is_not_guessed() -> None:
    payload = {"queries": [{"sql": "SELECT 1"}, {"sql": "SELECT 2"}], "chart": BAR}

    assert derive(payload)[2] == {**CHART, "spec_path": "/chart"}


def test_a_chart_shows_the_sql_of_its_own_step() -> None:
    steps = [
        {"sql": f"SELECT {n}", "chart": {"mark": mark}} for n, mark in ((1, "bar"), (2, "line"))
    ]

    assert [(one["kind"], one.get("data")) for one in derive({"steps": steps})] == [
        ("sql", None),
        ("chart", 1),
        ("sql", None),
        ("chart", 3),
    ]


def test_a_chart_that_brings_its_sql_shows_that() -> None:
    payload = {"sql": "SELECT 1", "charts": [{"spec": BAR, "sql": "SELECT 2"}]}

    assert [one.get("data") for one in derive(payload)] == [None, None, 2]


def test_a_chart_shows_the_only_sql_of_the_payload_wherever_it_is() -> None:
    assert derive({"chart": BAR, "debug": {"sql": SELECT}})[0]["data"] == 2


# --- Deriving: saved objects and files ---


def test_saved_visualizations_and_dashboards() -> None:
    payload = {
        "sql": SELECT,
        "visualization": {"id": 12, "title": "Revenue", "type": "table", "columns": ["region"]},
        "dashboard": {"id": "d-3", "name": "Sales", "items": [{"id": 12}, "v-7", None]},
    }

    assert derive(payload)[1:] == [
        {
            "kind": "visualization",
            "id": "12",
            "title": "Revenue",
            "visualization_type": "table",
            "columns": ["region"],
            "data": 1,
        },
        {
            "kind": "dashboard",
            "id": "d-3",
            "title": "Sales",
            "items": ["12", "v-7"],
            "more_items": 1,
        },
    ]


def test_a_chart_shows_the_file_beside_it() -> None:
    payload = {
        "file": {"id": "f-1", "filename": "budget.xlsx", "columns": ["period"], "row_count": 120},
        "chart": BAR,
    }

    assert derive(payload) == [
        {
            "kind": "file",
            "file_id": "f-1",
            "name": "budget.xlsx",
            "columns": ["period"],
            "row_count": 120,
        },
        {**CHART, "data": 1, "spec_path": "/chart"},
    ]


# --- Deriving: limits ---


def test_columns_over_the_limit_are_counted() -> None:
    columns = [f"c{n}" for n in range(5_000)]
    artifact = derive({"sql": SELECT, "columns": columns})[0]

    assert (artifact["columns"], artifact["more_columns"]) == (columns[:200], 4_800)


def test_columns_shrink_until_the_artifact_fits() -> None:
    limits = ArtifactLimits(bytes=1_000)
    artifact = derive({"sql": SELECT, "columns": ["é" * 50] * 100}, limits)[0]

    assert 0 < len(artifact["columns"]) == 100 - artifact["more_columns"]
    check_artifacts(kinds(artifact), None, limits)


def test_names_that_are_too_long_are_left_out_and_counted() -> None:
    artifact = derive({"sql": SELECT, "columns": ["region", "c" * 301]})[0]

    assert (artifact["columns"], artifact["more_columns"]) == (["region"], 1)


def test_sql_over_the_limit_is_left_out_and_its_chart_stays() -> None:
    payload = {"sql": SELECT + " " * 70_000, "chart": BAR}

    assert derive(payload) == [{**CHART, "spec_path": "/chart"}]


def test_no_more_artifacts_than_the_limit() -> None:
    payload = {"queries": [{"sql": f"SELECT {n}"} for n in range(60)], "chart": BAR}
    limits = ArtifactLimits(count=3)

    assert [one["sql"] for one in derive(payload, limits)] == ["SELECT 0", "SELECT 1", "SELECT 2"]
    assert derive(payload, ArtifactLimits(count=0)) == []


def test_a_long_title_is_cut() -> None:
    title = derive({"sql": SELECT, "title": "Sales " * 200})[0]["title"]

    assert len(title) == 500
    assert title.endswith("…")


# --- Deriving: any payload at all ---


@pytest.mark.parametrize("payload", [None, 1, "text", True, [], [[1]], {}, float("nan")])
def test_nothing_to_find(payload: Any) -> None:
    assert derive(payload) == []


def test_deep_nesting_ends_somewhere() -> None:
    payload: Any = {"sql": SELECT}
    for _ in range(50_000):
        payload = {"chart": payload}

    assert derive(payload) == []


@pytest.mark.parametrize("wide", ["rows", "steps", "charts", "queries", "keyed", "figure"])
def test_five_megabytes_take_no_time(wide: str) -> None:
    row = {"sql": SELECT, "region": "North", "revenue": 4_100_000, "x": 1}
    rows = [dict(row, n=n) for n in range(45_000)]
    figure = {"data": [{"type": "bar", "x": [row["region"]], "y": rows}], "layout": {}}
    inner = {"keyed": {str(n): one for n, one in enumerate(rows)}, "figure": figure}
    payload = {"sql": SELECT, wide: inner.get(wide, rows)}
    assert len(json.dumps(payload)) > 5_000_000

    started = time.process_time()
    derive(payload)

    # About 10 ms where this was written; the margin is for slow and busy machines.
    assert time.process_time() - started < 0.25


KEYS = st.sampled_from([
    "sql", "query", "queries", "columns", "rows", "row_count", "results", "data", "title", "id",
    "name", "charts", "chart", "spec", "figure", "visualization", "visualizations", "dashboard",
    "items", "file", "file_id", "type", "x", "y", "a/b", "mark",
])  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([SELECT, "SELECT 1", "bar", "x" * 400])
    | st.sampled_from([BAR, {"series": [{"type": "pie"}]}, {"data": [{"type": "bar"}]}])
)
PAYLOADS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=6)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=40,
)
LIMIT_SETS = st.builds(
    ArtifactLimits,
    count=st.integers(0, 5),
    bytes=st.integers(20, 300),
    columns=st.integers(0, 3),
    y=st.integers(0, 3),
    items=st.integers(0, 3),
)


@settings(max_examples=400, deadline=None)
@given(PAYLOADS, LIMIT_SETS | st.just(LIMITS))
def test_what_is_derived_always_passes_the_checks(payload: Any, limits: ArtifactLimits) -> None:
    derived = derive(payload, limits)
    artifacts = kinds(*derived)

    check_artifacts(artifacts, payload, limits)
    assert to_stored(artifacts) == derived


@given(PAYLOADS)
def test_deriving_twice_gives_the_same(payload: Any) -> None:
    assert derive(payload) == derive(payload)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1, max_size=4))
def test_every_member_has_a_pointer(members: dict[str, str]) -> None:
    for name, value in members.items():
        token = name.replace("~", "~0").replace("/", "~1")
        assert find_spec({"a": [members]}, f"/a/0/{token}") == value
