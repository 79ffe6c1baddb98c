"""Reads Vega-Lite: a `mark` and an `encoding`, or views of them in layers, facets and repeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from conversations.chart_specs.description import (
    ChartDescription,
    JsonObject,
    as_object,
    as_objects,
    as_text,
    as_texts,
    chart_type_of,
    combined_type,
    distinct,
    first,
    is_positive,
    title_text,
)

# Marks that are not chart types themselves.
_MARKS: Final = {
    "arc": "pie", "circle": "scatter", "errorband": "other", "errorbar": "other",
    "geoshape": "map", "image": "other", "point": "scatter", "rect": "heatmap", "rule": "other",
    "square": "scatter", "text": "other", "tick": "scatter", "trail": "line",
}  # fmt: skip
_MAX_VIEWS: Final = 12  # layers and views inside them
_REPEATS: Final = ("repeat", "row", "column", "layer")
_STACKING: Final = ("color", "fill", "stroke", "detail", "opacity")
_SERIES: Final = (
    *_STACKING, "xOffset", "yOffset", "shape", "strokeDash", "facet", "column", "row",
)  # fmt: skip
_CHANNELS: Final = (
    "x", "y", "theta", "radius", "size", "text", "order", "longitude", "latitude", *_SERIES,
)  # fmt: skip

_StandIns: TypeAlias = dict[tuple[str, str | None], list[str]]


@dataclass(frozen=True, slots=True)
class _View:
    """A view with all that it inherits.

    `stands_for` holds the fields behind a stand-in: `("repeat", "column")` for a repeated chart's
    `{"repeat": "column"}`, `("fold", "value")` for what a fold puts out.
    """

    spec: JsonObject
    encoding: JsonObject
    stands_for: _StandIns

    def chart_type(self) -> str | None:
        mark = self.spec.get("mark")
        return chart_type_of(mark.get("type") if isinstance(mark, dict) else mark, _MARKS)

    def channel(self, name: str) -> JsonObject:
        return as_object(self.encoding.get(name))

    def names(self, channel: str) -> list[str]:
        field = self.channel(channel).get("field")
        if isinstance(field, dict):
            return self.stands_for.get(("repeat", as_text(field.get("repeat"))), [])
        return self.stands_for.get(("fold", as_text(field)), as_texts(field))

    def name(self, channel: str) -> str | None:
        return first(self.names(channel))

    def measures(self, channel: str) -> bool:
        """Whether a channel carries a quantity rather than a break-down."""
        definition = self.channel(channel)
        if definition.get("bin") or definition.get("timeUnit"):
            return False
        return bool(definition.get("aggregate")) or definition.get("type") == "quantitative"

    def aggregate(self, channel: str) -> str | None:
        how = self.channel(channel).get("aggregate")
        how = next(iter(how), None) if isinstance(how, dict) else how
        return "mean" if how == "average" else as_text(how)


def describe_vega_lite(spec: JsonObject) -> ChartDescription | None:
    """Describe a spec in which some view has a known mark."""
    views = list(_views(spec))
    parts = [_describe_view(view, kind) for view in views if (kind := view.chart_type())]
    if not parts:
        return None
    drawn = [part for part in parts if part.chart_type != "other"] or parts
    return replace(
        drawn[0],
        chart_type=combined_type(part.chart_type for part in parts),
        title=first(title_text(view.spec.get("title")) for view in views),
        x=first(part.x for part in drawn),
        y=distinct(name for part in drawn for name in part.y),
        series=first(part.series for part in drawn),
        aggregate=first(part.aggregate for part in drawn),
        sort=first(part.sort for part in drawn),
        stacked=any(part.stacked for part in drawn),
    )


def _views(spec: JsonObject) -> Iterator[_View]:
    """Yield the spec and the views inside it, outermost first."""
    pending = [(spec, _View({}, {}, {}))]
    for _ in range(_MAX_VIEWS):
        if not pending:
            return
        node, above = pending.pop()
        view = _View(node, above.encoding | _own_encoding(node), above.stands_for | _fields(node))
        yield view
        pending += [(child, view) for child in reversed(_inner_views(node))]


def _inner_views(node: JsonObject) -> list[JsonObject]:
    """All layers, the spec of a facet or repeat, or the first of views set side by side."""
    if "layer" in node:
        return as_objects(node["layer"])
    beside = as_objects(first(node.get(name) for name in ("concat", "hconcat", "vconcat")))
    inner = node.get("spec") if "facet" in node or "repeat" in node else None
    return beside[:1] or as_objects(inner)[:1]


def _own_encoding(node: JsonObject) -> JsonObject:
    encoding = as_object(node.get("encoding"))
    facet = as_object(node.get("facet"))
    facet = {"facet": facet} if "field" in facet else facet
    both = ((name, encoding.get(name, facet.get(name))) for name in _CHANNELS)
    return {name: definition for name, definition in both if definition is not None}


def _fields(node: JsonObject) -> _StandIns:
    repeat = node.get("repeat")
    repeats = repeat if isinstance(repeat, dict) else {"repeat": repeat}
    found: _StandIns = {
        ("repeat", name): names for name in _REPEATS if (names := as_texts(repeats.get(name)))
    }
    for transform in as_objects(node.get("transform")):
        if folded := as_texts(transform.get("fold")):
            named = as_texts(transform.get("as"))
            key, value = named if len(named) == 2 else ("key", "value")
            found |= {("fold", key): [], ("fold", value): folded}
    return found


def _describe_view(view: _View, chart_type: str) -> ChartDescription:
    color = first(name for name in ("fill", "color") if view.names(name)) or "color"
    if chart_type == "pie":
        mark = as_object(view.spec.get("mark"))
        chart_type = "donut" if is_positive(mark.get("innerRadius")) else "pie"
        return _measured(view, chart_type, color, "theta" if view.channel("theta") else "radius")
    if chart_type == "map" or view.channel("longitude"):
        return _measured(view, "map", None, color if view.names(color) else "size")
    if chart_type == "heatmap":
        measure = color if view.channel(color) else "size"
        return replace(_measured(view, chart_type, "x", measure), series=view.name("y"))
    return _describe_cartesian(view, chart_type)


def _measured(view: _View, chart_type: str, by: str | None, measure: str) -> ChartDescription:
    described = ChartDescription("vega-lite", chart_type, y=distinct(view.names(measure)))
    described = replace(described, aggregate=view.aggregate(measure))
    return replace(described, x=view.name(by), sort=_sort(view, by)) if by else described


def _describe_cartesian(view: _View, chart_type: str) -> ChartDescription:
    upright = chart_type == "scatter" or view.measures("y") or not view.measures("x")
    by, measure = ("x", "y") if upright else ("y", "x")
    if chart_type == "bar" and view.channel(by).get("bin"):
        chart_type = "histogram"
    described = _measured(view, chart_type, by, measure)
    series = _series(view, described)
    return replace(
        described,
        series=view.name(series) if series else None,
        stacked=_stacked(view, chart_type, measure, series),
        horizontal=not upright,
    )


def _series(view: _View, described: ChartDescription) -> str | None:
    """Find the channel that splits the marks; a colour by `x` or by the measure splits nothing."""
    taken = {described.x, *described.y}
    for channel in filter(view.encoding.__contains__, _SERIES):
        splits = described.chart_type == "scatter" or not view.measures(channel)
        if splits and view.names(channel) and view.name(channel) not in taken:
            return channel
    return None


def _stacked(view: _View, chart_type: str, measure: str, series: str | None) -> bool:
    """Bars and areas that a colour splits are stacked unless the spec says otherwise."""
    if chart_type not in {"area", "bar", "histogram"}:
        return False
    definition = view.channel(measure)
    if "stack" in definition:
        return definition["stack"] is not None and definition["stack"] is not False
    return series in _STACKING and not (view.channel("xOffset") or view.channel("yOffset"))


def _sort(view: _View, by: str) -> str | None:
    """Read `"-y"` or `{"field": "revenue", "order": "descending"}` as `"-revenue"`."""
    order = view.channel(by).get("sort")
    if isinstance(order, dict):
        channel = as_text(order.get("encoding")) or ""
        key = as_text(order.get("field")) or view.name(channel) or view.aggregate(channel)
        descending = order.get("order") == "descending"
    else:
        word = as_text(order) or ""
        descending = word == "descending" or word.startswith("-")
        channel = by if word in {"ascending", "descending"} else word.removeprefix("-")
        key = view.name(channel) or view.aggregate(channel)
    return f"-{key}" if key and descending else key
