"""Deriving has limits and an end, and any payload at all can be looked into."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from conversations.artifact_derivation import derive_artifacts
from conversations.artifacts import Artifact, ArtifactLimits, check_artifacts, to_stored

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
CHART = {"kind": "chart", "chart_type": "bar", "x": "region", "y": ["revenue"]}


def derive(payload: Any, limits: ArtifactLimits = LIMITS) -> list[dict[str, Any]]:
    return derive_artifacts(payload, limits)


def test_columns_over_the_limit_are_counted() -> None:
    columns = [f"c{n}" for n in range(5_000)]
    artifact = derive({"sql": SELECT, "columns": columns})[0]

    assert (artifact["columns"], artifact["more_columns"]) == (columns[:200], 4_800)


def test_columns_shrink_until_the_artifact_fits() -> None:
    limits = ArtifactLimits(bytes=1_000)
    artifact = derive({"sql": SELECT, "columns": ["é" * 50] * 100}, limits)[0]

    assert 0 < len(artifact["columns"]) == 100 - artifact["more_columns"]
    check_artifacts(ARTIFACTS.validate_python([artifact]), None, limits)


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


def test_json_text_of_more_than_a_megabyte_is_not_read() -> None:
    text = json.dumps({"mark": "bar", "padding": ""})
    longest = text.replace('""', f'"{"x" * (1_000_000 - len(text))}"')

    assert derive({"spec": longest})[0]["spec_path"] == "/spec"
    assert derive({"spec": longest.replace("x", "xx", 1)}) == []


def test_all_json_texts_together_have_a_limit() -> None:
    texts = [json.dumps({"mark": "bar", "n": n, "padding": "x" * 999_000}) for n in range(7)]

    assert len(derive({"charts": [*texts, json.dumps(BAR)]})) == 6


@pytest.mark.parametrize("name", ["charts", "queries", "files", "dashboards"])
def test_only_so_many_things_are_looked_at_nearest_to_the_top_first(name: str) -> None:
    steps = [{name: [{"n": n}] * 200} for n in range(200)]
    payload = {"steps": steps, "late": {"deep": {"chart": BAR}}, "chart": {"mark": "line"}}

    started = time.process_time()
    assert [one["chart_type"] for one in derive(payload)] == ["line"]

    # About 20 ms where this was written.
    assert time.process_time() - started < 0.25


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


@pytest.mark.parametrize("dataset", [None, {"dimensions": [f"c{n}" for n in range(300)]}])
def test_charts_of_many_series_take_no_time(dataset: Any) -> None:
    axes = {"xAxis": {"type": "category"}, "yAxis": {}, "dataset": dataset}
    series = [{"type": "bar", "name": f"s{n}", "encode": {"y": n}} for n in range(200)]
    charts = [{"title": {"text": f"Chart {n}"}, "series": series, **axes} for n in range(200)]

    started = time.process_time()
    assert len(derive({"charts": charts})) == 50

    # About 30 ms where this was written.
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
        | inner.map(json.dumps)
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
    artifacts = ARTIFACTS.validate_python(derived)

    check_artifacts(artifacts, payload, limits)
    assert to_stored(artifacts) == derived


@given(PAYLOADS)
def test_deriving_twice_gives_the_same(payload: Any) -> None:
    assert derive(payload) == derive(payload)
