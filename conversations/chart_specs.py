"""Reads a raw chart spec and says in a few words what it draws.

Vega-Lite, Plotly and ECharts are recognised by their shape:

    {"mark": "bar", "encoding": {"x": {"field": "region", "type": "nominal", "sort": "-y"},
     "y": {"field": "revenue", "type": "quantitative", "aggregate": "sum"}}}
    → chart_type "bar", x "region", y ("revenue",), aggregate "sum", sort "-revenue"

Names mean the same in every library and for every chart type, so that a pie can be redrawn as a
bar chart from its description: `x` is what the chart is broken down by, `y` what is measured,
`series` the second break-down. A horizontal bar chart therefore has its categories in `x` too, and
`horizontal` set; a heat map has its second axis in `series` and its colour in `y`. Scatter plots
keep their axes. Of data arrays at most the first row is looked at, for its column names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeVar

CHART_TYPES: Final = (
    "area", "bar", "boxplot", "candlestick", "combo", "donut", "funnel", "gauge", "heatmap",
    "histogram", "kpi", "line", "map", "network", "pie", "radar", "sankey", "scatter", "sunburst",
    "table", "treemap", "violin", "waterfall", "other",
)  # fmt: skip
"""All that `chart_type` can be; `combo` is bars with lines, `other` is a known library's rest."""

# Names of marks, traces and series that are not chart types themselves.
_MARKS: Final = {
    "arc": "pie", "circle": "scatter", "errorband": "other", "errorbar": "other",
    "geoshape": "map", "image": "other", "point": "scatter", "rect": "heatmap", "rule": "other",
    "square": "scatter", "text": "other", "tick": "scatter", "trail": "line",
}  # fmt: skip
_TRACES: Final = {
    "barpolar": "radar", "box": "boxplot", "choropleth": "map", "choroplethmap": "map",
    "choroplethmapbox": "map", "contour": "heatmap", "densitymap": "map", "densitymapbox": "map",
    "funnelarea": "funnel", "heatmapgl": "heatmap", "histogram2d": "heatmap",
    "histogram2dcontour": "heatmap", "icicle": "treemap", "indicator": "kpi",
    "ohlc": "candlestick", "parcats": "other", "parcoords": "other", "scatter3d": "scatter",
    "scattergeo": "map", "scattergl": "scatter", "scattermap": "map", "scattermapbox": "map",
    "scatterpolar": "radar", "splom": "scatter", "surface": "other",
}  # fmt: skip
_SERIES_TYPES: Final = {
    "custom": "other", "effectScatter": "scatter", "graph": "network", "lines": "map",
    "liquidFill": "gauge", "parallel": "other", "pictorialBar": "bar", "themeRiver": "area",
    "tree": "network", "wordCloud": "other",
}  # fmt: skip
_SLICED: Final = {"donut", "funnel", "pie", "sunburst", "treemap"}
_MAX_PARTS = 300  # traces, series or names of one chart that are looked at
_MAX_VIEWS = 12  # layers and views inside them

_T = TypeVar("_T")
_Object = dict[str, Any]
_StandIns = dict[tuple[str, str | None], list[str]]


@dataclass(frozen=True, slots=True)
class ChartDescription:
    """What a spec draws; field names byte for byte as the spec has them.

    `sort` is the field it is sorted by, with `-` in front when descending. `y` is empty when rows
    are counted (`aggregate` is then `"count"`) or when the spec names nothing.
    """

    library: str
    chart_type: str
    title: str | None = None
    x: str | None = None
    y: tuple[str, ...] = ()
    series: str | None = None
    aggregate: str | None = None
    sort: str | None = None
    stacked: bool = False
    horizontal: bool = False


def describe_chart(spec: object) -> ChartDescription | None:
    """Describe a spec; any JSON value may come, None when no library's spec is recognised."""
    if not isinstance(spec, dict):
        return None
    described = _vega_lite(spec) or _plotly(spec) or _echarts(spec)
    return described and replace(described, title=one_line(described.title))


def one_line(text: str | None) -> str | None:
    r"""Put a title on one line: control characters become spaces, nothing left becomes None.

    `"Revenue\n by\tregion "` → `"Revenue by region"`
    """
    if text is None:
        return None
    return " ".join(_CONTROL.sub(" ", text).split()) or None


# C0 and C1 controls, line separators, and the marks that reorder the text after them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def _object(value: object) -> _Object:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[_Object]:
    """One object, or the objects in a list."""
    items = value if isinstance(value, list) else [value]
    return [item for item in islice(items, _MAX_PARTS) if isinstance(item, dict)]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> list[str]:
    """One name, or the names in a list."""
    if not isinstance(value, list):
        return [value] if isinstance(value, str) and value else []
    return [item for item in islice(value, _MAX_PARTS) if isinstance(item, str) and item]


def _title(value: object) -> str | None:
    """Read `"Sales"`, `{"text": "Sales"}`, `{"text": ["Sales", "2026"]}` or a list of these."""
    value = next(iter(value), None) if isinstance(value, list) else value
    return " ".join(_texts(value.get("text") if isinstance(value, dict) else value)) or None


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value), None)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(islice(names, _MAX_PARTS)))


def _positive(radius: object) -> bool:
    """Whether a radius (`0.4`, `40`, `"40%"`) is above zero; NaN and words are not."""
    if isinstance(radius, str):
        return re.match(r"[0.]*[1-9]", radius) is not None
    return isinstance(radius, int | float) and radius > 0


def _chart_type(name: object, aliases: dict[str, str]) -> str | None:
    known = aliases.get(name, name) if isinstance(name, str) else None
    return known if known in CHART_TYPES else None


def _combined_type(types: Iterable[str]) -> str:
    """Name a chart drawn in several parts, of which some only decorate the others."""
    drawn = [kind for kind in dict.fromkeys(types) if kind != "other"] or ["other"]
    if "map" in drawn:
        return "map"
    solid = [kind for kind in drawn if kind != "scatter"] or drawn
    if set(solid) == {"area", "line"}:
        return "area"
    if len(solid) > 1 and set(solid) <= {"area", "bar", "histogram", "line"}:
        return "combo"
    return solid[0]


# --- Vega-Lite -----------------------------------------------------------------------------------

_REPEATS: Final = ("repeat", "row", "column", "layer")
_STACKING: Final = ("color", "fill", "stroke", "detail", "opacity")
_SERIES: Final = (
    *_STACKING, "xOffset", "yOffset", "shape", "strokeDash", "facet", "column", "row",
)  # fmt: skip
_CHANNELS: Final = (
    "x", "y", "theta", "radius", "size", "text", "order", "longitude", "latitude", *_SERIES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _View:
    """A view with all that it inherits.

    `stands_for` holds the fields behind a stand-in: `("repeat", "column")` for a repeated chart's
    `{"repeat": "column"}`, `("fold", "value")` for what a fold puts out.
    """

    spec: _Object
    encoding: _Object
    stands_for: _StandIns

    def chart_type(self) -> str | None:
        mark = self.spec.get("mark")
        return _chart_type(mark.get("type") if isinstance(mark, dict) else mark, _MARKS)

    def channel(self, name: str) -> _Object:
        return _object(self.encoding.get(name))

    def names(self, channel: str) -> list[str]:
        field = self.channel(channel).get("field")
        if isinstance(field, dict):
            return self.stands_for.get(("repeat", _text(field.get("repeat"))), [])
        return self.stands_for.get(("fold", _text(field)), _texts(field))

    def name(self, channel: str) -> str | None:
        return _first(self.names(channel))

    def measures(self, channel: str) -> bool:
        """Whether a channel carries a quantity rather than a break-down."""
        definition = self.channel(channel)
        if definition.get("bin") or definition.get("timeUnit"):
            return False
        return bool(definition.get("aggregate")) or definition.get("type") == "quantitative"

    def aggregate(self, channel: str) -> str | None:
        how = self.channel(channel).get("aggregate")
        how = next(iter(how), None) if isinstance(how, dict) else how
        return "mean" if how == "average" else _text(how)


def _vega_lite(spec: _Object) -> ChartDescription | None:
    views = list(_views(spec))
    parts = [_describe_view(view, kind) for view in views if (kind := view.chart_type())]
    if not parts:
        return None
    drawn = [part for part in parts if part.chart_type != "other"] or parts
    return replace(
        drawn[0],
        chart_type=_combined_type(part.chart_type for part in parts),
        title=_first(_title(view.spec.get("title")) for view in views),
        x=_first(part.x for part in drawn),
        y=_distinct(name for part in drawn for name in part.y),
        series=_first(part.series for part in drawn),
        aggregate=_first(part.aggregate for part in drawn),
        sort=_first(part.sort for part in drawn),
        stacked=any(part.stacked for part in drawn),
    )


def _views(spec: _Object) -> Iterator[_View]:
    """Yield the spec and the views inside it, outermost first."""
    pending = [(spec, _View({}, {}, {}))]
    for _ in range(_MAX_VIEWS):
        if not pending:
            return
        node, above = pending.pop()
        view = _View(node, above.encoding | _own_encoding(node), above.stands_for | _fields(node))
        yield view
        pending += [(child, view) for child in reversed(_inner_views(node))]


def _inner_views(node: _Object) -> list[_Object]:
    """All layers, the spec of a facet or repeat, or the first of views set side by side."""
    if "layer" in node:
        return _objects(node["layer"])
    beside = _objects(_first(node.get(name) for name in ("concat", "hconcat", "vconcat")))
    inner = node.get("spec") if "facet" in node or "repeat" in node else None
    return beside[:1] or _objects(inner)[:1]


def _own_encoding(node: _Object) -> _Object:
    encoding = _object(node.get("encoding"))
    facet = _object(node.get("facet"))
    facet = {"facet": facet} if "field" in facet else facet
    both = ((name, encoding.get(name, facet.get(name))) for name in _CHANNELS)
    return {name: definition for name, definition in both if definition is not None}


def _fields(node: _Object) -> _StandIns:
    repeat = node.get("repeat")
    repeats = repeat if isinstance(repeat, dict) else {"repeat": repeat}
    found: _StandIns = {
        ("repeat", name): names for name in _REPEATS if (names := _texts(repeats.get(name)))
    }
    for transform in _objects(node.get("transform")):
        if folded := _texts(transform.get("fold")):
            named = _texts(transform.get("as"))
            key, value = named if len(named) == 2 else ("key", "value")
            found |= {("fold", key): [], ("fold", value): folded}
    return found


def _describe_view(view: _View, chart_type: str) -> ChartDescription:
    color = _first(name for name in ("fill", "color") if view.names(name)) or "color"
    if chart_type == "pie":
        mark = _object(view.spec.get("mark"))
        chart_type = "donut" if _positive(mark.get("innerRadius")) else "pie"
        return _measured(view, chart_type, color, "theta" if view.channel("theta") else "radius")
    if chart_type == "map" or view.channel("longitude"):
        return _measured(view, "map", None, color if view.names(color) else "size")
    if chart_type == "heatmap":
        measure = color if view.channel(color) else "size"
        return replace(_measured(view, chart_type, "x", measure), series=view.name("y"))
    return _describe_cartesian(view, chart_type)


def _measured(view: _View, chart_type: str, by: str | None, measure: str) -> ChartDescription:
    described = ChartDescription("vega-lite", chart_type, y=_distinct(view.names(measure)))
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
        channel = _text(order.get("encoding")) or ""
        key = _text(order.get("field")) or view.name(channel) or view.aggregate(channel)
        descending = order.get("order") == "descending"
    else:
        word = _text(order) or ""
        descending = word == "descending" or word.startswith("-")
        channel = by if word in {"ascending", "descending"} else word.removeprefix("-")
        key = view.name(channel) or view.aggregate(channel)
    return f"-{key}" if key and descending else key


# --- Plotly --------------------------------------------------------------------------------------


def _plotly(spec: _Object) -> ChartDescription | None:
    traces = [trace for trace in _objects(spec.get("data")) if _is_trace(trace)]
    typed = any("type" in trace for trace in traces)
    if not traces or not (typed or isinstance(spec.get("layout"), dict)):
        return None
    figure = _Figure(traces, _object(spec.get("layout")))
    chart_type = _combined_type(_trace_type(trace) for trace in traces)
    described = ChartDescription("plotly", chart_type, title=_title(figure.layout.get("title")))
    if chart_type in _SLICED or chart_type in {"map", "kpi", "gauge", "sankey"}:
        role = "locations" if chart_type == "map" else "labels"
        return replace(described, x=figure.name(role), y=figure.values())
    if chart_type == "table":
        return replace(described, y=figure.header())
    if chart_type == "heatmap":
        names = figure.name("x"), figure.name("y")
        return replace(described, x=names[0], series=names[1], y=figure.values())
    return _describe_traces(described, figure)


def _is_trace(trace: _Object) -> bool:
    bare = "type" not in trace and ("x" in trace or "y" in trace)
    return bare or _chart_type(trace.get("type"), _TRACES) is not None


def _trace_type(trace: _Object) -> str:
    kind = _chart_type(trace.get("type"), _TRACES) or "scatter"
    mode = _text(trace.get("mode")) or "lines"
    if kind == "scatter" and trace.get("type") in (None, "scatter", "scattergl"):
        filled = _text(trace.get("fill")) not in {None, "none"} or _text(trace.get("stackgroup"))
        return "area" if filled else "line" if "lines" in mode else "scatter"
    if kind == "kpi" and "gauge" in mode:
        return "gauge"
    return "donut" if kind == "pie" and _positive(trace.get("hole")) else kind


@dataclass(frozen=True, slots=True)
class _Figure:
    traces: list[_Object]
    layout: _Object

    def name(self, role: str) -> str | None:
        """Name what `x`, `y`, `labels` or `values` shows; beside bare arrays a title tells it."""
        axis = _object(self.layout.get(f"{role}axis"))
        return (
            _first(_text(trace.get(role)) for trace in self.traces)
            or _title(axis.get("title"))
            or _first(_hover_name(trace, role.removesuffix("s")) for trace in self.traces)
            or (self.legend() if role == "labels" else None)
        )

    def legend(self) -> str | None:
        """Read its title; where Plotly Express shows columns side by side, that is "variable"."""
        title = _title(_object(self.layout.get("legend")).get("title"))
        return None if title == "variable" else title

    def values(self) -> tuple[str, ...]:
        """Name the measure of a chart without a measure's axis."""
        coloring = (*self.traces, _object(self.layout.get("coloraxis")))
        bar = _first(_title(_object(part.get("colorbar")).get("title")) for part in coloring)
        named = (_title(trace.get("title")) or _text(trace.get("name")) for trace in self.traces)
        return tuple(filter(None, [bar or self.name("values") or _first(named)]))

    def header(self) -> tuple[str, ...]:
        """Read a table's column names, `["region"]` or `[["region"]]`."""
        cells = _object(self.traces[0].get("header")).get("values")
        columns = islice(cells if isinstance(cells, list) else [], _MAX_PARTS)
        return _distinct(name for column in columns for name in _texts(column)[:1])

    def stacked(self) -> bool:
        bars = sum(_trace_type(trace) in {"bar", "histogram"} for trace in self.traces)
        piled = self.layout.get("barmode") in ("stack", "relative") and bars > 1
        return piled or any(_text(trace.get("stackgroup")) for trace in self.traces)


def _hover_name(trace: _Object, role: str) -> str | None:
    """Find a name in Plotly Express's hover text, `"region=%{x}<br>revenue=%{y}<extra>…"`."""
    hover = (_text(trace.get("hovertemplate")) or "")[:2000]
    found = re.search(rf"(?:^|>)([^<>=]{{1,300}})=%{{{role}\b", hover)
    return found[1] if found else None


def _describe_traces(described: ChartDescription, figure: _Figure) -> ChartDescription:
    chart_type, traces = described.chart_type, figure.traces
    horizontal = chart_type == "funnel" or any(_lies(trace) for trace in traces)
    by, measure = ("y", "x") if horizontal else ("x", "y")
    function = _first(_text(trace.get("histfunc")) for trace in traces) or "count"
    aggregate = {"avg": "mean"}.get(function, function) if chart_type == "histogram" else None
    y = () if aggregate == "count" else _measures(figure, measure)
    return replace(
        described,
        x=figure.name(by),
        y=y,
        series=figure.legend() if len(traces) > 1 else None,
        aggregate=aggregate,
        sort=_category_order(figure, by, _first(y) or aggregate),
        stacked=figure.stacked(),
        horizontal=horizontal and chart_type != "funnel",
    )


def _lies(trace: _Object) -> bool:
    counts_y = trace.get("type") == "histogram" and "y" in trace and "x" not in trace
    return trace.get("orientation") == "h" or counts_y


def _measures(figure: _Figure, measure: str) -> tuple[str, ...]:
    """List the names of several traces, unless by the legend they are values of a series."""
    axis = figure.name(measure)
    names = _distinct(name for trace in figure.traces for name in _texts(trace.get("name")))
    if len(names) > 1 and not (figure.legend() and axis):
        return names
    return (axis,) if axis else names


def _category_order(figure: _Figure, by: str, measure: str | None) -> str | None:
    """Read `"total descending"` as `"-revenue"`, `"category ascending"` as `"region"`."""
    axis = _object(figure.layout.get(f"{by}axis"))
    what, _, order = (_text(axis.get("categoryorder")) or "").partition(" ")
    key = figure.name(by) if what == "category" else measure if what == "total" else None
    return f"-{key}" if key and order == "descending" else key


# --- ECharts -------------------------------------------------------------------------------------


def _echarts(spec: _Object) -> ChartDescription | None:
    option = _object(spec.get("baseOption")) or spec
    typed = [(one, _series_type(one)) for one in _objects(option.get("series"))]
    series = [one for one, kind in typed if kind]
    if not series:
        return None
    chart = _Option(option, series, _combined_type(kind for _, kind in typed if kind))
    by, measure = chart.roles()
    described = ChartDescription(
        "echarts",
        chart.chart_type,
        title=_title(option.get("title")),
        x=chart.name(by, 0),
        y=chart.measures(measure),
        sort=chart.sort(),
        stacked=sum(_text(one.get("stack")) is not None for one in series) > 1,
        horizontal=chart.lies(),
    )
    if chart.chart_type == "heatmap":
        return replace(described, series=chart.name("y", 1))
    if chart.chart_type == "radar":
        indicators = _objects(chart.part("radar").get("indicator"))
        return replace(
            described, y=_distinct(n for one in indicators for n in _texts(one.get("name")))
        )
    return described


def _series_type(series: _Object) -> str | None:
    kind = _chart_type(series.get("type"), _SERIES_TYPES)
    if kind == "line" and series.get("areaStyle") is not None:
        return "area"
    radius = series.get("radius")
    inner = radius[0] if isinstance(radius, list) and radius else None
    return "donut" if kind == "pie" and _positive(inner) else kind


def _is_category(axis: _Object) -> bool:
    """Whether an axis holds names: ECharts takes one with data for a category axis."""
    return axis.get("type") == "category" or ("type" not in axis and bool(axis.get("data")))


@dataclass(frozen=True, slots=True)
class _Option:
    option: _Object
    series: list[_Object]
    chart_type: str

    def part(self, name: str) -> _Object:
        return _first(_objects(self.option.get(name))) or {}

    def lies(self) -> bool:
        upright = _is_category(self.part("xAxis")) or not _is_category(self.part("yAxis"))
        return not upright and self.chart_type not in {"scatter", "heatmap", *_SLICED}

    def roles(self) -> tuple[str, str]:
        """Name the roles in `encode` of what the chart is broken down by and what it measures."""
        if self.chart_type in _SLICED:
            return "itemName", "value"
        if self.chart_type == "heatmap":
            return "x", "value"
        return ("y", "x") if self.lies() else ("x", "y")

    def name(self, role: str, place: int) -> str | None:
        column = _first(self.column(one, role, place) for one in self.series)
        return column or _text(self.part(f"{role}Axis").get("name"))

    def measures(self, role: str) -> tuple[str, ...]:
        start = 2 if role == "value" and self.chart_type == "heatmap" else 1
        axis = _texts(self.part(f"{role}Axis").get("name"))
        columns = [self.column(one, role, start + i) for i, one in enumerate(self.series)]
        names = [_text(one.get("name")) for one in self.series]
        if self.chart_type == "scatter" and axis:  # there a series' name is a class of points
            names = [axis[0]]
        return _distinct(filter(None, columns)) or _distinct(filter(None, names)) or tuple(axis)

    def column(self, series: _Object, role: str, place: int) -> str | None:
        """Find the column in a role: by name or number as `encode` says, else by its place."""
        encoded = _object(series.get("encode")).get(role)
        encoded = next(iter(encoded), None) if isinstance(encoded, list) else encoded
        if isinstance(encoded, str):
            return _text(encoded)
        columns = self.columns(series)
        place = encoded if isinstance(encoded, int) else place
        return _text(columns[place]) if 0 <= place < len(columns) else None

    def columns(self, series: _Object) -> list[Any]:
        """List the dataset's, `["month", "north"]`; a series with data of its own has none."""
        datasets = _objects(self.option.get("dataset"))
        if not datasets or "data" in series or series.get("seriesLayoutBy") == "row":
            return []
        place = series.get("datasetIndex")
        place = place if isinstance(place, int) and 0 <= place < len(datasets) else 0
        return _columns(datasets[place]) or _columns(datasets[0])

    def sort(self) -> str | None:
        """Read a dataset's `{"type": "sort", "config": {"dimension": …, "order": "desc"}}`."""
        for dataset in _objects(self.option.get("dataset")):
            for transform in _objects(dataset.get("transform")):
                config = _first(_objects(transform.get("config"))) or {}
                if transform.get("type") == "sort" and (key := _text(config.get("dimension"))):
                    return f"-{key}" if config.get("order") == "desc" else key
        return None


def _columns(dataset: _Object) -> list[Any]:
    """As stated, else the header row, the keys of the first row, or those of the columns."""
    source = dataset.get("dimensions")
    if not isinstance(source, list):
        source = dataset.get("source")
        source = source[0] if isinstance(source, list) and source else source
    names = source if isinstance(source, list) else _object(source)
    return [one.get("name") if isinstance(one, dict) else one for one in islice(names, _MAX_PARTS)]
