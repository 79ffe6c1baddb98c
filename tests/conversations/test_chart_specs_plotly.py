"""What `describe_chart` reads from real-looking Plotly figures."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.chart_specs import ChartDescription, describe_chart

MONTHS = ["2026-01", "2026-02", "2026-03"]


def describe(spec: Any) -> ChartDescription:
    described = describe_chart(spec)
    assert described is not None
    return described


def plotly(*traces: Any, **layout: Any) -> dict[str, Any]:
    return {"data": list(traces), "layout": {"template": {"data": {}}, **layout}}


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
