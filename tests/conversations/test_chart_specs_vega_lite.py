"""What `describe_chart` reads from real-looking Vega-Lite specs."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.chart_specs import ChartDescription, describe_chart

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
