"""Reads Plotly: traces in `data`, named by titles in `layout`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from conversations.chart_specs.description import (
    MAX_PARTS,
    SLICED,
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

# Trace types that are not chart types themselves.
_TRACES: Final = {
    "barpolar": "radar", "box": "boxplot", "choropleth": "map", "choroplethmap": "map",
    "choroplethmapbox": "map", "contour": "heatmap", "densitymap": "map", "densitymapbox": "map",
    "funnelarea": "funnel", "heatmapgl": "heatmap", "histogram2d": "heatmap",
    "histogram2dcontour": "heatmap", "icicle": "treemap", "indicator": "kpi",
    "ohlc": "candlestick", "parcats": "other", "parcoords": "other", "scatter3d": "scatter",
    "scattergeo": "map", "scattergl": "scatter", "scattermap": "map", "scattermapbox": "map",
    "scatterpolar": "radar", "splom": "scatter", "surface": "other",
}  # fmt: skip


def describe_plotly(spec: JsonObject) -> ChartDescription | None:
    """Describe a figure with known traces; without a type they need a layout beside them."""
    traces = [trace for trace in as_objects(spec.get("data")) if _is_trace(trace)]
    typed = any("type" in trace for trace in traces)
    if not traces or not (typed or isinstance(spec.get("layout"), dict)):
        return None
    figure = _Figure(traces, as_object(spec.get("layout")))
    chart_type = combined_type(_trace_type(trace) for trace in traces)
    described = ChartDescription("plotly", chart_type, title=title_text(figure.layout.get("title")))
    if chart_type in SLICED or chart_type in {"map", "kpi", "gauge", "sankey"}:
        role = "locations" if chart_type == "map" else "labels"
        return replace(described, x=figure.name(role), y=figure.values())
    if chart_type == "table":
        return replace(described, y=figure.header())
    if chart_type == "heatmap":
        names = figure.name("x"), figure.name("y")
        return replace(described, x=names[0], series=names[1], y=figure.values())
    return _describe_traces(described, figure)


def _is_trace(trace: JsonObject) -> bool:
    bare = "type" not in trace and ("x" in trace or "y" in trace)
    return bare or chart_type_of(trace.get("type"), _TRACES) is not None


def _trace_type(trace: JsonObject) -> str:
    kind = chart_type_of(trace.get("type"), _TRACES) or "scatter"
    mode = as_text(trace.get("mode")) or "lines"
    if kind == "scatter" and trace.get("type") in (None, "scatter", "scattergl"):
        filled = as_text(trace.get("fill")) not in {None, "none"}
        filled = filled or as_text(trace.get("stackgroup")) is not None
        return "area" if filled else "line" if "lines" in mode else "scatter"
    if kind == "kpi" and "gauge" in mode:
        return "gauge"
    return "donut" if kind == "pie" and is_positive(trace.get("hole")) else kind


@dataclass(frozen=True, slots=True)
class _Figure:
    traces: list[JsonObject]
    layout: JsonObject

    def name(self, role: str) -> str | None:
        """Name what `x`, `y`, `labels` or `values` shows; beside bare arrays a title tells it."""
        axis = as_object(self.layout.get(f"{role}axis"))
        return (
            first(as_text(trace.get(role)) for trace in self.traces)
            or title_text(axis.get("title"))
            or first(_hover_name(trace, role.removesuffix("s")) for trace in self.traces)
            or (self.legend() if role == "labels" else None)
        )

    def legend(self) -> str | None:
        """Read its title; where Plotly Express shows columns side by side, that is "variable"."""
        title = title_text(as_object(self.layout.get("legend")).get("title"))
        return None if title == "variable" else title

    def values(self) -> tuple[str, ...]:
        """Name the measure of a chart without a measure's axis."""
        coloring = (*self.traces, as_object(self.layout.get("coloraxis")))
        bar = first(title_text(as_object(part.get("colorbar")).get("title")) for part in coloring)
        named = (
            title_text(trace.get("title")) or as_text(trace.get("name")) for trace in self.traces
        )
        return tuple(filter(None, [bar or self.name("values") or first(named)]))

    def header(self) -> tuple[str, ...]:
        """Read a table's column names, `["region"]` or `[["region"]]`."""
        cells = as_object(self.traces[0].get("header")).get("values")
        columns = islice(cells if isinstance(cells, list) else [], MAX_PARTS)
        return distinct(name for column in columns for name in as_texts(column)[:1])

    def stacked(self) -> bool:
        bars = sum(_trace_type(trace) in {"bar", "histogram"} for trace in self.traces)
        piled = self.layout.get("barmode") in ("stack", "relative") and bars > 1
        return piled or any(as_text(trace.get("stackgroup")) for trace in self.traces)


def _hover_name(trace: JsonObject, role: str) -> str | None:
    """Find a name in Plotly Express's hover text, `"region=%{x}<br>revenue=%{y}<extra>…"`."""
    hover = (as_text(trace.get("hovertemplate")) or "")[:2000]
    found = re.search(rf"(?:^|>)([^<>=]{{1,300}})=%{{{role}\b", hover)
    return found[1] if found else None


def _describe_traces(described: ChartDescription, figure: _Figure) -> ChartDescription:
    chart_type, traces = described.chart_type, figure.traces
    horizontal = chart_type == "funnel" or any(_lies(trace) for trace in traces)
    by, measure = ("y", "x") if horizontal else ("x", "y")
    function = first(as_text(trace.get("histfunc")) for trace in traces) or "count"
    aggregate = {"avg": "mean"}.get(function, function) if chart_type == "histogram" else None
    y = () if aggregate == "count" else _measures(figure, measure)
    return replace(
        described,
        x=figure.name(by),
        y=y,
        series=figure.legend() if len(traces) > 1 else None,
        aggregate=aggregate,
        sort=_category_order(figure, by, first(y) or aggregate),
        stacked=figure.stacked(),
        horizontal=horizontal and chart_type != "funnel",
    )


def _lies(trace: JsonObject) -> bool:
    counts_y = trace.get("type") == "histogram" and "y" in trace and "x" not in trace
    return trace.get("orientation") == "h" or counts_y


def _measures(figure: _Figure, measure: str) -> tuple[str, ...]:
    """List the names of several traces, unless by the legend they are values of a series."""
    axis = figure.name(measure)
    names = distinct(name for trace in figure.traces for name in as_texts(trace.get("name")))
    if len(names) > 1 and not (figure.legend() and axis):
        return names
    return (axis,) if axis else names


def _category_order(figure: _Figure, by: str, measure: str | None) -> str | None:
    """Read `"total descending"` as `"-revenue"`, `"category ascending"` as `"region"`."""
    axis = as_object(figure.layout.get(f"{by}axis"))
    what, _, order = (as_text(axis.get("categoryorder")) or "").partition(" ")
    key = figure.name(by) if what == "category" else measure if what == "total" else None
    return f"-{key}" if key and order == "descending" else key
