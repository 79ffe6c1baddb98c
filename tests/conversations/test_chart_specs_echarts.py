"""What `describe_chart` reads from real-looking ECharts options."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.chart_specs import ChartDescription, describe_chart

MONTHS = ["2026-01", "2026-02", "2026-03"]


def describe(spec: Any) -> ChartDescription:
    described = describe_chart(spec)
    assert described is not None
    return described


def test_echarts_series_with_data_of_their_own() -> None:
    spec = {
        "title": {"text": "Revenue and cost", "subtext": "2026"},
        "legend": {},
        "xAxis": {"type": "category", "name": "month", "data": MONTHS},
        "yAxis": {"type": "value", "name": "k€"},
        "series": [
            {"type": "bar", "name": "revenue", "data": [4, 5, 6], "stack": "total"},
            {"type": "bar", "name": "cost", "data": [1, 2, 3], "stack": "total"},
        ],
    }

    assert describe(spec) == ChartDescription(
        library="echarts",
        chart_type="bar",
        title="Revenue and cost",
        x="month",
        y=("revenue", "cost"),
        stacked=True,
    )


def test_echarts_one_series_may_be_an_object() -> None:
    spec = {"xAxis": {"data": MONTHS}, "yAxis": {}, "series": {"type": "line", "name": "revenue"}}

    assert (describe(spec).chart_type, describe(spec).y) == ("line", ("revenue",))


@pytest.mark.parametrize(
    "dataset",
    [
        {"dimensions": ["month", "revenue", "cost"], "source": [["2026-01", 4, 1]]},
        {"dimensions": [{"name": "month"}, {"name": "revenue"}, "cost"]},
        {"source": [["month", "revenue", "cost"], ["2026-01", 4, 1]]},
        {"source": [{"month": "2026-01", "revenue": 4, "cost": 1}]},
        {"source": {"month": MONTHS, "revenue": [4, 5, 6], "cost": [1, 2, 3]}},
        [{"dimensions": ["month", "revenue", "cost"]}, {"transform": {"type": "filter"}}],
    ],
)
def test_echarts_dataset_columns_go_to_the_series_in_turn(dataset: Any) -> None:
    spec = {
        "dataset": dataset,
        "xAxis": {"type": "category"},
        "yAxis": {},
        "series": [{"type": "bar"}, {"type": "bar"}],
    }

    assert (describe(spec).x, describe(spec).y) == ("month", ("revenue", "cost"))


def test_echarts_encode_names_columns_by_name_or_number() -> None:
    spec = {
        "dataset": {"dimensions": ["score", "revenue", "region"]},
        "xAxis": {"type": "category"},
        "yAxis": {},
        "series": [{"type": "bar", "encode": {"x": "region", "y": [1]}}],
    }

    assert (describe(spec).x, describe(spec).y) == ("region", ("revenue",))


def test_echarts_horizontal_bars_keep_their_categories_in_x() -> None:
    spec = {
        "dataset": {"source": [["revenue", "region"], [4, "North"]]},
        "xAxis": {},
        "yAxis": {"type": "category"},
        "series": [{"type": "bar", "encode": {"x": "revenue", "y": "region"}}],
    }
    described = describe(spec)

    assert (described.x, described.y, described.horizontal) == ("region", ("revenue",), True)


@pytest.mark.parametrize(
    ("series", "chart_type"),
    [
        ({"type": "line", "areaStyle": {}}, "area"),
        ({"type": "pie", "radius": "60%"}, "pie"),
        ({"type": "pie", "radius": ["40%", "70%"]}, "donut"),
        ({"type": "pie", "radius": ["0%", "70%"]}, "pie"),
        ({"type": "effectScatter"}, "scatter"),
        ({"type": "gauge"}, "gauge"),
        ({"type": "graph"}, "network"),
        ({"type": "custom"}, "other"),
    ],
)
def test_echarts_series_get_common_names(series: Any, chart_type: str) -> None:
    assert describe({"series": [series]}).chart_type == chart_type


def test_echarts_bars_with_a_line_are_a_combination() -> None:
    spec = {
        "xAxis": [{"type": "category", "data": MONTHS}],
        "yAxis": [{"type": "value"}, {"type": "value"}],
        "series": [
            {"type": "bar", "name": "revenue", "data": [4]},
            {"type": "line", "name": "margin", "yAxisIndex": 1, "data": [0.2]},
        ],
    }

    assert (describe(spec).chart_type, describe(spec).y) == ("combo", ("revenue", "margin"))


def test_echarts_pie_over_a_dataset() -> None:
    spec = {
        "dataset": {"dimensions": ["region", "revenue"]},
        "series": [{"type": "pie", "encode": {"itemName": "region", "value": "revenue"}}],
    }

    assert (describe(spec).x, describe(spec).y) == ("region", ("revenue",))


def test_echarts_scatter_is_named_by_its_axes() -> None:
    spec = {
        "xAxis": {"name": "price"},
        "yAxis": {"name": "rating"},
        "series": [{"type": "scatter", "name": "North", "data": [[1, 2]]}],
    }

    assert (describe(spec).x, describe(spec).y) == ("price", ("rating",))


def test_echarts_heat_map_measures_its_colour() -> None:
    spec = {
        "xAxis": {"type": "category", "name": "hour"},
        "yAxis": {"type": "category", "name": "weekday"},
        "series": [{"type": "heatmap", "name": "orders", "data": [[0, 0, 5]]}],
    }
    described = describe(spec)

    assert (described.x, described.series, described.y) == ("hour", "weekday", ("orders",))


def test_echarts_radar_measures_its_indicators() -> None:
    spec = {
        "radar": {"indicator": [{"name": "price", "max": 5}, {"name": "service"}]},
        "series": [{"type": "radar", "data": []}],
    }

    assert describe(spec).y == ("price", "service")


def test_echarts_dataset_sort() -> None:
    config = {"dimension": "revenue", "order": "desc"}
    spec = {
        "dataset": [{"source": []}, {"transform": {"type": "sort", "config": config}}],
        "series": [{"type": "bar", "datasetIndex": 1}],
    }

    assert describe(spec).sort == "-revenue"
