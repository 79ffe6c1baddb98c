"""Reads ECharts: an option's `series`, with axes and datasets beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

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

# Series types that are not chart types themselves.
_SERIES_TYPES: Final = {
    "custom": "other", "effectScatter": "scatter", "graph": "network", "lines": "map",
    "liquidFill": "gauge", "parallel": "other", "pictorialBar": "bar", "themeRiver": "area",
    "tree": "network", "wordCloud": "other",
}  # fmt: skip


def describe_echarts(spec: JsonObject) -> ChartDescription | None:
    """Describe an option, or the base of several, that has series of known types."""
    option = as_object(spec.get("baseOption")) or spec
    typed = [(one, _series_type(one)) for one in as_objects(option.get("series"))]
    series = [one for one, kind in typed if kind]
    if not series:
        return None
    tables = [_columns(dataset) for dataset in as_objects(option.get("dataset"))]
    chart = _Option(option, series, tables, combined_type(kind for _, kind in typed if kind))
    by, measure = chart.roles()
    described = ChartDescription(
        "echarts",
        chart.chart_type,
        title=title_text(option.get("title")),
        x=chart.name(by, 0),
        y=chart.measures(measure),
        sort=chart.sort(),
        stacked=sum(as_text(one.get("stack")) is not None for one in series) > 1,
        horizontal=chart.lies(),
    )
    if chart.chart_type == "heatmap":
        return replace(described, series=chart.name("y", 1))
    if chart.chart_type == "radar":
        indicators = as_objects(chart.part("radar").get("indicator"))
        return replace(
            described, y=distinct(n for one in indicators for n in as_texts(one.get("name")))
        )
    return described


def _series_type(series: JsonObject) -> str | None:
    kind = chart_type_of(series.get("type"), _SERIES_TYPES)
    if kind == "line" and series.get("areaStyle") is not None:
        return "area"
    radius = series.get("radius")
    inner = radius[0] if isinstance(radius, list) and radius else None
    return "donut" if kind == "pie" and is_positive(inner) else kind


def _is_category(axis: JsonObject) -> bool:
    """Whether an axis holds names: ECharts takes one with data for a category axis."""
    return axis.get("type") == "category" or ("type" not in axis and bool(axis.get("data")))


@dataclass(frozen=True, slots=True)
class _Option:
    """An option; `tables` are the columns of its datasets, read once for all series."""

    option: JsonObject
    series: list[JsonObject]
    tables: list[list[Any]]
    chart_type: str

    def part(self, name: str) -> JsonObject:
        return first(as_objects(self.option.get(name))) or {}

    def lies(self) -> bool:
        upright = _is_category(self.part("xAxis")) or not _is_category(self.part("yAxis"))
        return not upright and self.chart_type not in {"scatter", "heatmap", *SLICED}

    def roles(self) -> tuple[str, str]:
        """Name the roles in `encode` of what the chart is broken down by and what it measures."""
        if self.chart_type in SLICED:
            return "itemName", "value"
        if self.chart_type == "heatmap":
            return "x", "value"
        return ("y", "x") if self.lies() else ("x", "y")

    def name(self, role: str, place: int) -> str | None:
        column = first(self.column(one, role, place) for one in self.series)
        return column or as_text(self.part(f"{role}Axis").get("name"))

    def measures(self, role: str) -> tuple[str, ...]:
        start = 2 if role == "value" and self.chart_type == "heatmap" else 1
        axis = as_texts(self.part(f"{role}Axis").get("name"))
        columns = [self.column(one, role, start + i) for i, one in enumerate(self.series)]
        names = [as_text(one.get("name")) for one in self.series]
        if self.chart_type == "scatter" and axis:  # there a series' name is a class of points
            names = [axis[0]]
        return distinct(filter(None, columns)) or distinct(filter(None, names)) or tuple(axis)

    def column(self, series: JsonObject, role: str, place: int) -> str | None:
        """Find the column in a role: by name or number as `encode` says, else by its place."""
        encoded = as_object(series.get("encode")).get(role)
        encoded = next(iter(encoded), None) if isinstance(encoded, list) else encoded
        if isinstance(encoded, str):
            return as_text(encoded)
        columns = self.columns(series)
        place = encoded if isinstance(encoded, int) else place
        return as_text(columns[place]) if 0 <= place < len(columns) else None

    def columns(self, series: JsonObject) -> list[Any]:
        """List the dataset's, `["month", "north"]`; a series with data of its own has none."""
        if not self.tables or "data" in series or series.get("seriesLayoutBy") == "row":
            return []
        place = series.get("datasetIndex")
        place = place if isinstance(place, int) and 0 <= place < len(self.tables) else 0
        return self.tables[place] or self.tables[0]

    def sort(self) -> str | None:
        """Read a dataset's `{"type": "sort", "config": {"dimension": …, "order": "desc"}}`."""
        for dataset in as_objects(self.option.get("dataset")):
            for transform in as_objects(dataset.get("transform")):
                config = first(as_objects(transform.get("config"))) or {}
                if transform.get("type") == "sort" and (key := as_text(config.get("dimension"))):
                    return f"-{key}" if config.get("order") == "desc" else key
        return None


def _columns(dataset: JsonObject) -> list[Any]:
    """As stated, else the header row, the keys of the first row, or those of the columns."""
    source = dataset.get("dimensions")
    if not isinstance(source, list):
        source = dataset.get("source")
        source = source[0] if isinstance(source, list) and source else source
    names = source if isinstance(source, list) else as_object(source)
    return [one.get("name") if isinstance(one, dict) else one for one in islice(names, MAX_PARTS)]
