"""What `describe_chart` reads from real-looking Vega-Lite, Plotly and ECharts specs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.chart_specs import CHART_TYPES, ChartDescription, describe_chart, one_line

REGION = {"field": "region", "type": "nominal"}
MONTH = {"field": "month", "type": "temporal"}
REVENUE = {"field": "revenue", "type": "quantitative", "aggregate": "sum"}


def describe(spec: Any) -> ChartDescription:
    described = describe_chart(spec)
    assert described is not None
    return described


def vega_lite(mark: Any, **encoding: Any) -> dict[str, Any]:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": [{"region": "North", "revenue": 4_100_000}]},
        "mark": mark,
        "encoding": encoding,
    }


# --- Vega-Lite ---


def test_vega_lite_bar_tells_axes_aggregate_and_sort() -> None:
    spec = vega_lite("bar", x={**REGION, "sort": "-y"}, y=REVENUE) | {"title": "Revenue by region"}

    assert describe(spec) == ChartDescription(
        library="vega-lite",
        chart_type="bar",
        title="Revenue by region",
        x="region",
        y=("revenue",),
        aggregate="sum",
        sort="-revenue",
    )


def test_vega_lite_mark_alone_is_enough() -> None:
    assert describe({"mark": "bar"}) == ChartDescription("vega-lite", "bar")


@pytest.mark.parametrize(
    ("mark", "chart_type"),
    [
        ("line", "line"),
        ({"type": "area", "opacity": 0.4}, "area"),
        ({"type": "point", "filled": True}, "scatter"),
        ("rect", "heatmap"),
        ("boxplot", "boxplot"),
        ("geoshape", "map"),
        ({"type": "arc"}, "pie"),
        ({"type": "arc", "innerRadius": 50}, "donut"),
        ({"type": "arc", "innerRadius": float("nan")}, "pie"),
        ("rule", "other"),
    ],
)
def test_vega_lite_marks_get_common_names(mark: Any, chart_type: str) -> None:
    assert describe(vega_lite(mark)).chart_type == chart_type


def test_vega_lite_horizontal_bars_keep_their_categories_in_x() -> None:
    described = describe(vega_lite("bar", x=REVENUE, y={**REGION, "sort": "-x"}))

    assert (described.x, described.y, described.horizontal) == ("region", ("revenue",), True)
    assert described.sort == "-revenue"


def test_vega_lite_scatter_keeps_its_axes() -> None:
    price = {"field": "price", "type": "quantitative"}
    described = describe(vega_lite("point", x=price, y=REGION, color=REGION))

    assert (described.x, described.y, described.horizontal) == ("price", ("region",), False)


def test_vega_lite_bars_split_by_colour_are_stacked() -> None:
    described = describe(vega_lite("bar", x=MONTH, y=REVENUE, color=REGION))

    assert (described.series, described.stacked) == ("region", True)


@pytest.mark.parametrize("stack", [None, False])
def test_vega_lite_stack_can_be_turned_off(stack: Any) -> None:
    spec = vega_lite("bar", x=MONTH, y={**REVENUE, "stack": stack}, color=REGION)

    assert not describe(spec).stacked


def test_vega_lite_bars_side_by_side_are_not_stacked() -> None:
    spec = vega_lite("bar", x=MONTH, y=REVENUE, color=REGION, xOffset=REGION)

    assert (describe(spec).series, describe(spec).stacked) == ("region", False)


def test_vega_lite_colour_by_the_same_field_is_no_series() -> None:
    described = describe(vega_lite("bar", x=REGION, y=REVENUE, color=REGION))

    assert (described.series, described.stacked) == (None, False)


def test_vega_lite_lines_split_by_colour_have_a_series() -> None:
    described = describe(vega_lite("line", x=MONTH, y=REVENUE, color=REGION))

    assert (described.series, described.stacked) == ("region", False)


def test_vega_lite_count_has_no_measure() -> None:
    described = describe(vega_lite("bar", x={**REGION, "sort": "-y"}, y={"aggregate": "count"}))

    assert (described.y, described.aggregate, described.sort) == ((), "count", "-count")


def test_vega_lite_binned_bars_are_a_histogram() -> None:
    age = {"field": "age", "type": "quantitative", "bin": {"maxbins": 20}}
    described = describe(vega_lite("bar", x=age, y={"aggregate": "count"}))

    assert (described.chart_type, described.x, described.aggregate) == ("histogram", "age", "count")


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("ascending", "region"),
        ("descending", "-region"),
        ("y", "revenue"),
        ({"field": "cost", "op": "mean", "order": "descending"}, "-cost"),
        ({"encoding": "y", "order": "ascending"}, "revenue"),
        (["North", "South"], None),
        (None, None),
    ],
)
def test_vega_lite_sort(sort: Any, expected: str | None) -> None:
    assert describe(vega_lite("bar", x={**REGION, "sort": sort}, y=REVENUE)).sort == expected


def test_vega_lite_average_is_a_mean() -> None:
    assert describe(vega_lite("bar", y={**REVENUE, "aggregate": "average"})).aggregate == "mean"


def test_vega_lite_pie_is_broken_down_by_its_colour() -> None:
    described = describe(vega_lite({"type": "arc"}, theta=REVENUE, color=REGION))

    assert (described.x, described.y, described.series) == ("region", ("revenue",), None)
    assert described.aggregate == "sum"


def test_vega_lite_heat_map_measures_its_colour() -> None:
    hour = {"field": "hour", "type": "ordinal"}
    weekday = {"field": "weekday", "type": "ordinal"}
    described = describe(vega_lite("rect", x=hour, y=weekday, color=REVENUE))

    assert (described.x, described.series, described.y) == ("hour", "weekday", ("revenue",))


def test_vega_lite_points_on_a_map() -> None:
    spec = vega_lite(
        "circle",
        longitude={"field": "lon", "type": "quantitative"},
        latitude={"field": "lat", "type": "quantitative"},
        size={"field": "orders", "type": "quantitative"},
    )

    assert (describe(spec).chart_type, describe(spec).y) == ("map", ("orders",))


def test_vega_lite_labels_and_points_over_bars_are_decoration() -> None:
    spec = {
        "title": {"text": ["Revenue", "by region"], "anchor": "start"},
        "encoding": {"x": REGION, "y": REVENUE},
        "layer": [{"mark": "bar"}, {"mark": "point"}, {"mark": {"type": "text", "dy": -5}}],
    }
    described = describe(spec)

    assert (described.chart_type, described.title) == ("bar", "Revenue by region")
    assert (described.x, described.y) == ("region", ("revenue",))


def test_vega_lite_bars_with_a_line_are_a_combination() -> None:
    margin = {"field": "margin", "type": "quantitative", "aggregate": "mean"}
    spec = {
        "encoding": {"x": MONTH},
        "layer": [
            {"mark": "bar", "encoding": {"y": REVENUE}},
            {"mark": {"type": "line", "point": True}, "encoding": {"y": margin}},
        ],
    }
    described = describe(spec)

    assert (described.chart_type, described.x) == ("combo", "month")
    assert described.y == ("revenue", "margin")


def test_vega_lite_facet_operator_gives_the_series() -> None:
    spec = {"facet": {"row": REGION}, "spec": vega_lite("line", x=MONTH, y=REVENUE)}

    assert (describe(spec).chart_type, describe(spec).series) == ("line", "region")


def test_vega_lite_facet_channel_gives_the_series_without_stacking() -> None:
    described = describe(vega_lite("bar", x=MONTH, y=REVENUE, column=REGION))

    assert (described.series, described.stacked) == ("region", False)


@pytest.mark.parametrize("operator", ["concat", "hconcat", "vconcat"])
def test_vega_lite_views_side_by_side_are_told_by_the_first(operator: str) -> None:
    spec = {"title": "Sales", operator: [vega_lite("line", x=MONTH, y=REVENUE), vega_lite("bar")]}

    assert (describe(spec).chart_type, describe(spec).title) == ("line", "Sales")


def test_vega_lite_repeat_names_what_it_repeats() -> None:
    spec = {
        "repeat": {"layer": ["revenue", "cost"]},
        "spec": vega_lite(
            "line", x=MONTH, y={"field": {"repeat": "layer"}, "type": "quantitative"}
        ),
    }

    assert describe(spec).y == ("revenue", "cost")


def test_vega_lite_fold_names_what_it_folds() -> None:
    spec = vega_lite(
        "line",
        x=MONTH,
        y={"field": "amount", "type": "quantitative"},
        color={"field": "what", "type": "nominal"},
    ) | {"transform": [{"fold": ["revenue", "cost"], "as": ["what", "amount"]}]}

    assert (describe(spec).y, describe(spec).series) == (("revenue", "cost"), None)


# --- Plotly ---


def plotly(*traces: Any, **layout: Any) -> dict[str, Any]:
    return {"data": list(traces), "layout": {"template": {"data": {}}, **layout}}


MONTHS = ["2026-01", "2026-02", "2026-03"]


def test_plotly_bar_is_named_by_its_axes() -> None:
    spec = plotly(
        {"type": "bar", "x": ["North", "South"], "y": [4.1, 2.2]},
        title={"text": "Revenue by region"},
        xaxis={"title": {"text": "region"}, "categoryorder": "total descending"},
        yaxis={"title": "revenue"},
    )

    assert describe(spec) == ChartDescription(
        library="plotly",
        chart_type="bar",
        title="Revenue by region",
        x="region",
        y=("revenue",),
        sort="-revenue",
    )


def test_plotly_field_names_on_a_trace_are_taken() -> None:
    described = describe({"data": [{"type": "bar", "x": "region", "y": "revenue"}]})

    assert (described.x, described.y) == ("region", ("revenue",))


def test_plotly_horizontal_bars_keep_their_categories_in_x() -> None:
    spec = plotly(
        {"type": "bar", "orientation": "h", "x": [4.1, 2.2], "y": ["North", "South"]},
        xaxis={"title": {"text": "revenue"}},
        yaxis={"title": {"text": "region"}},
    )

    assert (describe(spec).x, describe(spec).y) == ("region", ("revenue",))
    assert describe(spec).horizontal


@pytest.mark.parametrize(
    ("trace", "chart_type"),
    [
        ({"x": MONTHS, "y": [1, 2, 3]}, "line"),
        ({"type": "scatter", "mode": "lines+markers", "y": [1]}, "line"),
        ({"type": "scattergl", "mode": "markers", "y": [1]}, "scatter"),
        ({"type": "scatter", "fill": "tozeroy", "y": [1]}, "area"),
        ({"type": "pie", "labels": ["a"], "values": [1]}, "pie"),
        ({"type": "pie", "hole": 0.4}, "donut"),
        ({"type": "histogram", "x": [1, 2]}, "histogram"),
        ({"type": "heatmap", "z": [[1]]}, "heatmap"),
        ({"type": "box", "y": [1]}, "boxplot"),
        ({"type": "choropleth", "z": [1]}, "map"),
        ({"type": "indicator", "mode": "gauge+number", "value": 4}, "gauge"),
        ({"type": "indicator", "mode": "number", "value": 4}, "kpi"),
        ({"type": "scatterpolar", "r": [1]}, "radar"),
        ({"type": "surface", "z": [[1]]}, "other"),
    ],
)
def test_plotly_traces_get_common_names(trace: Any, chart_type: str) -> None:
    assert describe(plotly(trace)).chart_type == chart_type


def test_plotly_named_traces_are_several_measures() -> None:
    spec = plotly(
        {"type": "bar", "name": "revenue", "x": MONTHS, "y": [4, 5, 6]},
        {"type": "bar", "name": "cost", "x": MONTHS, "y": [1, 2, 3]},
        barmode="stack",
        xaxis={"title": "month"},
    )

    assert (describe(spec).y, describe(spec).stacked) == (("revenue", "cost"), True)


def test_plotly_legend_title_is_the_series() -> None:
    spec = plotly(
        {"type": "bar", "name": "North", "x": MONTHS, "y": [4, 5, 6]},
        {"type": "bar", "name": "South", "x": MONTHS, "y": [1, 2, 3]},
        barmode="group",
        xaxis={"title": {"text": "month"}},
        yaxis={"title": {"text": "revenue"}},
        legend={"title": {"text": "region"}},
    )
    described = describe(spec)

    assert (described.x, described.y, described.series) == ("month", ("revenue",), "region")
    assert not described.stacked


def test_plotly_express_columns_side_by_side_are_measures() -> None:
    spec = plotly(
        {"type": "scatter", "mode": "lines", "name": "revenue", "y": [4]},
        {"type": "scatter", "mode": "lines", "name": "cost", "y": [1]},
        yaxis={"title": {"text": "value"}},
        legend={"title": {"text": "variable"}},
    )

    assert (describe(spec).y, describe(spec).series) == (("revenue", "cost"), None)


def test_plotly_bars_with_a_line_are_a_combination() -> None:
    spec = plotly(
        {"type": "bar", "name": "revenue", "y": [4]},
        {"type": "scatter", "mode": "lines", "name": "margin", "y": [0.2], "yaxis": "y2"},
    )

    assert (describe(spec).chart_type, describe(spec).y) == ("combo", ("revenue", "margin"))


def test_plotly_stack_group_is_a_stacked_area() -> None:
    described = describe(plotly({"stackgroup": "one", "y": [1]}, {"stackgroup": "one", "y": [2]}))

    assert (described.chart_type, described.stacked) == ("area", True)


def test_plotly_express_pie_is_named_by_its_hover_text() -> None:
    spec = plotly(
        {
            "type": "pie",
            "labels": ["North", "South"],
            "values": {"dtype": "f8", "bdata": "AAAAAAAA8D8="},
            "hovertemplate": "region=%{label}<br>revenue=%{value}<extra></extra>",
        }
    )

    assert (describe(spec).x, describe(spec).y) == ("region", ("revenue",))


def test_plotly_histogram_counts() -> None:
    spec = plotly(
        {"type": "histogram", "x": [31, 42]},
        xaxis={"title": {"text": "age"}},
        yaxis={"title": {"text": "count"}},
    )
    described = describe(spec)

    assert (described.x, described.y, described.aggregate) == ("age", (), "count")


def test_plotly_histogram_of_averages() -> None:
    spec = plotly(
        {"type": "histogram", "histfunc": "avg", "x": ["a"], "y": [1]},
        yaxis={"title": {"text": "price"}},
    )

    assert (describe(spec).y, describe(spec).aggregate) == (("price",), "mean")


def test_plotly_heat_map_measures_its_colour() -> None:
    spec = plotly(
        {"type": "heatmap", "z": [[1]], "colorbar": {"title": {"text": "orders"}}},
        xaxis={"title": "hour"},
        yaxis={"title": "weekday"},
    )
    described = describe(spec)

    assert (described.x, described.series, described.y) == ("hour", "weekday", ("orders",))


def test_plotly_table_lists_its_columns() -> None:
    spec = plotly({"type": "table", "header": {"values": [["region"], "revenue"]}, "cells": {}})

    assert (describe(spec).chart_type, describe(spec).y) == ("table", ("region", "revenue"))


def test_plotly_rows_with_a_layout_beside_them_are_no_figure() -> None:
    assert describe_chart({"data": [{"region": "North"}], "layout": {"columns": 2}}) is None


# --- ECharts ---


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


# --- All libraries ---


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "bar",
        {},
        {"mark": "A+"},
        {"mark": ["bar"]},
        {"data": [[1, 2]]},
        {"series": ["a"]},
        {"series": [{"type": ["bar"]}]},
        {"spec": {"mark": "bar"}},
    ],
)
def test_anything_else_is_no_chart(value: Any) -> None:
    assert describe_chart(value) is None


def test_field_names_are_kept_byte_for_byte() -> None:
    name = "  Umsatz (€)\u00a0[netto] "

    assert describe(vega_lite("bar", y={"field": name, "type": "quantitative"})).y == (name,)


def test_titles_are_put_on_one_line() -> None:
    assert describe({"mark": "bar", "title": "Revenue\n\u202eby\tregion "}).title == (
        "Revenue by region"
    )
    assert one_line("\x00\n") is None


def test_a_deeply_nested_spec_is_read_without_recursion() -> None:
    spec: dict[str, Any] = {"mark": "bar"}
    for _ in range(50_000):
        spec = {"layer": [spec]}

    assert describe_chart(spec) is None


KEYS = st.sampled_from([
    "mark", "type", "encoding", "x", "y", "color", "field", "aggregate", "sort", "stack", "title",
    "text", "layer", "facet", "spec", "repeat", "transform", "fold", "as", "data", "layout",
    "name", "xaxis", "yaxis", "legend", "mode", "hole", "series", "xAxis", "yAxis", "dataset",
    "dimensions", "source", "encode", "radius", "value", "labels", "header", "values",
])  # fmt: skip
WORDS = st.sampled_from(["bar", "line", "pie", "arc", "scatter", "rect", "h", "quantitative", "-y"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


def shaped(**parts: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Specs that a library is recognised by, with anything at all in their parts."""
    return st.builds(dict, st.dictionaries(KEYS, JUNK, max_size=4), **parts)


CHANNELS = st.dictionaries(KEYS, st.dictionaries(KEYS, JUNK, max_size=4) | JUNK, max_size=5)
SPECS = (
    JUNK
    | shaped(mark=WORDS | JUNK, encoding=CHANNELS)
    | shaped(layer=st.lists(shaped(mark=WORDS, encoding=CHANNELS), max_size=3))
    | shaped(data=st.lists(shaped(type=WORDS), max_size=3), layout=JUNK)
    | shaped(series=st.lists(shaped(type=WORDS), max_size=3), dataset=JUNK)
)


@given(SPECS)
def test_no_value_raises_and_types_are_documented(spec: Any) -> None:
    described = describe_chart(spec)

    assert described is None or described.chart_type in CHART_TYPES


@given(SPECS)
def test_names_come_from_the_spec_itself(spec: Any) -> None:
    described = describe_chart(spec)
    names = [] if described is None else [described.x, described.series, *described.y]

    assert all(json.dumps(name) in json.dumps(spec) for name in names if name)
