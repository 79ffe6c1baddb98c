"""What is said of a chart, whatever library draws it, and how its parts are read.

Parts come from outside as any JSON value: each reader takes what it knows and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

CHART_TYPES: Final = (
    "area", "bar", "boxplot", "candlestick", "combo", "donut", "funnel", "gauge", "heatmap",
    "histogram", "kpi", "line", "map", "network", "pie", "radar", "sankey", "scatter", "sunburst",
    "table", "treemap", "violin", "waterfall", "other",
)  # fmt: skip
"""All that `chart_type` can be; `combo` is bars with lines, `other` is a known library's rest."""

SLICED: Final = {"donut", "funnel", "pie", "sunburst", "treemap"}
"""Chart types that divide a whole instead of having axes."""

MAX_PARTS: Final = 300
"""How many traces, series or names of one chart are looked at."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as it was parsed."""

_T = TypeVar("_T")


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


def one_line(text: str | None) -> str | None:
    r"""Put a title on one line: control characters become spaces, nothing left becomes None.

    `"Revenue\n by\tregion "` → `"Revenue by region"`
    """
    if text is None:
        return None
    return " ".join(_CONTROL.sub(" ", text).split()) or None


# C0 and C1 controls, line separators, and the marks that reorder the text after them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def as_object(value: object) -> JsonObject:
    """Take an object as it is, and anything else for an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[JsonObject]:
    """List one object, or the objects in a list."""
    items = value if isinstance(value, list) else [value]
    return [item for item in islice(items, MAX_PARTS) if isinstance(item, dict)]


def as_text(value: object) -> str | None:
    """Take a text as it is; None for an empty one and for anything else."""
    return value if isinstance(value, str) and value else None


def as_texts(value: object) -> list[str]:
    """List one name, or the names in a list."""
    if not isinstance(value, list):
        return [value] if isinstance(value, str) and value else []
    return [item for item in islice(value, MAX_PARTS) if isinstance(item, str) and item]


def title_text(value: object) -> str | None:
    """Read `"Sales"`, `{"text": "Sales"}`, `{"text": ["Sales", "2026"]}` or a list of these."""
    value = next(iter(value), None) if isinstance(value, list) else value
    return " ".join(as_texts(value.get("text") if isinstance(value, dict) else value)) or None


def first(values: Iterable[_T | None]) -> _T | None:
    """Find the first value that is not empty."""
    return next((value for value in values if value), None)


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """List each name once, in the order of the first `MAX_PARTS`."""
    return tuple(dict.fromkeys(islice(names, MAX_PARTS)))


def is_positive(radius: object) -> bool:
    """Whether a radius (`0.4`, `40`, `"40%"`) is above zero; NaN and words are not."""
    if isinstance(radius, str):
        return re.match(r"[0.]*[1-9]", radius) is not None
    return isinstance(radius, int | float) and radius > 0


def chart_type_of(name: object, aliases: dict[str, str]) -> str | None:
    """Find the chart type of a library's own name, which may be one already."""
    known = aliases.get(name, name) if isinstance(name, str) else None
    return known if known in CHART_TYPES else None


def combined_type(types: Iterable[str]) -> str:
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
