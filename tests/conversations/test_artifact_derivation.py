"""What is found in a response payload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conversations.artifact_derivation import derive_artifacts
from conversations.artifacts import ArtifactLimits, find_spec

SELECT = "SELECT region, SUM(amount) AS revenue FROM orders GROUP BY region"
BAR = {
    "mark": "bar",
    "encoding": {
        "x": {"field": "region", "type": "nominal"},
        "y": {"field": "revenue", "type": "quantitative"},
    },
}


def derive(payload: Any) -> list[dict[str, Any]]:
    return derive_artifacts(payload, ArtifactLimits())


# --- SQL ---


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


# --- Charts ---

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


# --- Specs that are JSON text ---

FIGURE = {"data": [{"type": "bar", "x": ["North"], "y": [4]}], "layout": {"title": "Sales"}}
DRAWN = {"kind": "chart", "title": "Sales", "chart_type": "bar"}


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"figure": json.dumps(FIGURE)}, "/figure"),
        ({"plotly": json.dumps(FIGURE)}, "/plotly"),
        ({"chart": json.dumps(FIGURE)}, "/chart"),
        ({"charts": [json.dumps(FIGURE)]}, "/charts/0"),
        ({"charts": [{"spec": json.dumps(FIGURE)}]}, "/charts/0/spec"),
        ({"charts": [{"type": "pie", "figure": json.dumps(FIGURE)}]}, "/charts/0/figure"),
        ({"result": {"chart": {"plotly": json.dumps(FIGURE)}}}, "/result/chart/plotly"),
    ],
)
def test_spec_path_leads_to_the_json_text(payload: Any, path: str) -> None:
    assert derive(payload) == [{**DRAWN, "spec_path": path}]
    assert find_spec(payload, path) == json.dumps(FIGURE)


def test_json_texts_are_titled_and_paired_with_queries_as_objects_are() -> None:
    payload = {
        "queries": ["SELECT 1", "SELECT 2"],
        "charts": [{"title": "Own", "figure": json.dumps(FIGURE)}, json.dumps(BAR)],
    }

    assert [(one.get("title"), one.get("data")) for one in derive(payload)[2:]] == [
        ("Own", 1),
        (None, 2),
    ]


def test_the_same_spec_as_an_object_and_as_json_text_is_one() -> None:
    named = {**BAR, "name": "Revenue"}

    assert len(derive({"chart": named, "spec": json.dumps(named, indent=2)})) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "{{ chart }}",
        '{"mark": NaN}',
        '{"mark": "\ud800"}',
        '{"mark": ' + "9" * 10_000 + "}",
        '{"layer": ' * 100_000,
        '{"spec": {"mark": "bar"}}',
        " " + json.dumps(BAR),
        json.dumps([BAR]),
        '"bar"',
    ],
)
def test_any_other_text_is_no_chart(text: str) -> None:
    names = ("chart", "figure", "plotly", "spec", "visualization")

    assert derive({**dict.fromkeys(names, text), "charts": [{"figure": text}, text]}) == []


# --- Saved objects and files ---


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
