"""Finds what a turn built in its response payload, for a caller that sends no artifacts.

Statements, charts, saved objects and files are looked for under the names that they usually have;
a chart is told by its spec, whichever of the libraries of `chart_specs` draws it, and its data by
the statement beside it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from conversations.artifacts import (
    MAX_COUNT,
    MAX_NAME,
    MAX_POINTER,
    MAX_TITLE,
    Artifact,
    ArtifactLimits,
    stored_size,
    to_stored,
)
from conversations.chart_specs import CHART_TYPES, describe_chart, one_line

_MAX_NODES = 1_000  # objects of a payload that are looked into
_MAX_NAMED = 1_000  # statements in lists, charts, files and dashboards that are looked at
_MAX_DEPTH = 8
_MAX_ITEMS = 200  # members of one object or list that are looked at
_MAX_NAMES = 1_000
_MAX_JSON = 1_000_000  # characters of a spec that is JSON text
_MAX_ALL_JSON = 5_000_000  # and of all of them together
_MAX_LENGTHS: Final = {"sql": MAX_COUNT, "spec_path": MAX_POINTER}

_STATEMENTS: Final = ("sql", "sql_query", "generated_sql", "statement", "query")
_STATEMENT_LISTS: Final = ("queries", "sql_queries", "executed_queries", "statements", "sql")
_TABLES: Final = ("results", "result", "data", "table", "output")
_ROWS: Final = ("rows", "results", "result", "records", "data")
_ROW_COUNTS: Final = ("row_count", "rowCount", "rowcount", "total_rows", "num_rows", "rows")
_SAVED: Final = ("visualization", "visualizations", "saved_visualization", "saved_visualizations")
_LOOSE_CHARTS: Final = ("charts", "chart", *_SAVED)
_CHARTS: Final = (
    *_LOOSE_CHARTS, "vega_lite", "vegalite", "vega_lite_spec", "plotly", "plotly_figure",
    "echarts", "echarts_option", "figure", "figures", "chart_spec", "chart_config", "spec",
)  # fmt: skip
_CONFIGS: Final = ("spec", "figure", "option", "config")
_WRAPPERS: Final = (*_CONFIGS, "vega_lite", "plotly", "echarts", "chart")
_DRAWN: Final = (
    "chart_type", "x", "series", "aggregate", "sort", "stacked", "horizontal",
)  # fmt: skip
_DASHBOARDS: Final = ("dashboard", "dashboards")
_ON_DASHBOARD: Final = ("items", "visualizations", "widgets", "charts", "tiles", "cards")
_FILES: Final = ("file", "files", "attachments", "uploaded_file", "uploaded_files")
_NOT_WALKED: Final = {
    *_DASHBOARDS, *_FILES, "columns", "config", "dataset", "datasets", "encoding", "layout",
    "option", "options", "records", "rows", "values",
}  # fmt: skip

# What a text must begin with to be taken for SQL: a `query` is as often a question in English.
_SQL = re.compile(
    r"""(?:\s|--[^\n]*\n|/\*.*?\*/|\()*+(?:
    select\s++(?!(?:the|me|my|our|some|only|which|every)\s)
        (?:['"(*@]|\d[\d.]*+\s*+(?:$|[;,*/+<>=-]|as\b)|\w++\(|.*?\bfrom\b)
    | with\s++(?:recursive\s++)?[\w"`\[\].]++\s*+(?:\([^)]*+\)\s*+)?as\s*+(?:\w+\s++)*+\(
    | insert\s++into\s | update\s++\S++\s++set\s | delete\s++from\s++\S++\s*+(?:where\b|$)
    | merge\s++into\s | values\s*+\( | explain\s++(?:analyze\s++)?(?:select|with)\s
    | create\s++(?:\w+\s++){0,4}(?:table|view)\s++\S++\s*+(?:\(|as\b)
    )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)

_Spec: TypeAlias = dict[str, Any] | str  # a chart's spec, or what holds it; a str is its JSON
_T = TypeVar("_T")
_ADAPTER: Final[TypeAdapter[Artifact]] = TypeAdapter(Artifact)


def derive_artifacts(payload: object, limits: ArtifactLimits) -> list[dict[str, Any]]:
    """Find what a response payload shows and return it as `to_stored` would.

    `{"sql": "SELECT …", "rows": [["North", 4100000]], "charts": [{"spec": {"mark": "bar"}}]}` →
    the statement with its row count, and a bar chart with `data` 1 and its `spec_path`.

    Never raises: what cannot be read, or exceeds the limits, is left out, and names over a list's
    limit are counted in `more_columns`, `more_y` or `more_items`. Only so many objects are looked
    at, nearest to the top first, and never the rows of a table. A chart's spec may also be JSON
    text of up to a megabyte, as of Plotly's `to_json()`; `spec_path` then points at the text.
    """
    search = _Search(limits)
    search.walk(payload)
    return _numbered(list(search.found.values()), limits)


@dataclass(slots=True, eq=False)
class _Found:
    kind: str
    fields: dict[str, Any]
    source: _Found | None = None


@dataclass(slots=True)
class _Search:
    """What was found; `drawn` counts charts as often as they come, `charts` each of them once."""

    limits: ArtifactLimits
    found: dict[Hashable, _Found] = field(default_factory=dict)
    drawn: int = 0
    charts: int = 0
    named_room: int = _MAX_NAMED
    json_room: int = _MAX_ALL_JSON

    def walk(self, payload: object) -> None:
        """Look into objects level by level; the statement of one is the source of all inside it."""
        if isinstance(payload, dict) and _is_bare_spec(payload):
            own = self.add_statements(payload)
            self.add_chart("spec", payload, "", own[0] if own else None)
            return
        pending: deque[tuple[dict[str, Any], str, _Found | None, int]] = deque()
        pending.extend((node, path, None, 0) for node, path in _items(payload, ""))
        for _ in range(_MAX_NODES):
            if not pending:
                return
            node, path, source, depth = pending.popleft()
            statements, files = self.add_statements(node), self.add_files(node)
            beside = statements or files
            if beside:
                source = beside[0] if len(beside) == 1 else None
            read = self.add_charts(node, path, beside, source)
            self.add_dashboards(node)
            if depth < _MAX_DEPTH:
                inner = _children(node, path, bool(statements))
                unread = ((one, at, source, depth + 1) for one, at in inner if at not in read)
                pending.extend(islice(unread, max(0, _MAX_NODES - len(pending))))

    def some(self, items: Iterator[_T]) -> Iterator[_T]:
        """Yield as many items as may still be looked at."""
        for item in islice(items, self.named_room):
            self.named_room -= 1
            yield item

    def add(self, kind: str, key: Hashable, fields: dict[str, Any]) -> _Found | None:
        """Note a find; the same thing found again only fills in what was not known of it."""
        if (kind, key) not in self.found:
            if len(self.found) >= 2 * self.limits.count:
                return None
            self.found[kind, key] = _Found(kind, {})
        found = self.found[kind, key]
        known = set(found.fields)
        for name, value in fields.items():
            # A count of what was cut belongs to the list that it was cut from.
            if value is not None and name.removeprefix("more_") not in known:
                found.fields[name] = value
        return found

    def add_statements(self, node: dict[str, Any]) -> list[_Found]:
        lists = (node[name] for name in _STATEMENT_LISTS if isinstance(node.get(name), list))
        listed = list(self.some(item for items in lists for item in islice(items, _MAX_ITEMS)))
        holders = [node, *(one if isinstance(one, dict) else {"query": one} for one in listed)]
        found = (self.add_statement(holder) for holder in holders)
        return list(dict.fromkeys(one for one in found if one))

    def add_statement(self, node: dict[str, Any]) -> _Found | None:
        texts = ((name, node.get(name)) for name in _STATEMENTS)
        sql = next((text for name, text in texts if _is_statement(name, text)), None)
        if not isinstance(sql, str) or len(sql) > self.limits.bytes:
            return None
        named = {name: _text(node.get(name)) for name in ("database", "dialect")}
        return self.add("sql", sql, {"sql": sql, "title": _title(node), **named, **_table(node)})

    def add_files(self, node: dict[str, Any]) -> list[_Found]:
        found = []
        for item, _ in self.some(_named_items(node, _FILES, "")):
            name = _first_text(item, ("name", "file_name", "filename"))
            file_id = _identity(item, ("file_id", "id"))
            if name:
                fields = {"file_id": file_id, "name": name, **_table(item)}
                found.append(self.add("file", file_id or name, fields))
        return [one for one in found if one]

    def add_dashboards(self, node: dict[str, Any]) -> None:
        for item, _ in self.some(_named_items(node, _DASHBOARDS, "")):
            if identity := _identity(item, ("id", "dashboard_id")):
                lists = (item[name] for name in _ON_DASHBOARD if isinstance(item.get(name), list))
                shown = _names(next(lists, None), ("id", "visualization_id"), "items")
                self.add("dashboard", identity, {"id": identity, "title": _title(item), **shown})

    def add_charts(
        self, node: dict[str, Any], path: str, beside: list[_Found], source: _Found | None
    ) -> set[str]:
        """Add what an object draws, and return the paths of what needs no further look."""
        read = set()
        for name in filter(node.__contains__, _CHARTS):
            items = list(self.some(_specs(node, (name,), path)))
            paired = beside if len(beside) == len(items) else [source] * len(items)
            for (item, at), shows in zip(items, paired, strict=True):
                own = self.add_statements(_object(item))
                if self.add_chart(name, item, at, own[0] if len(own) == 1 else shows):
                    read.add(at)
        return read

    def add_chart(self, name: str, item: _Spec, path: str, source: _Found | None) -> bool:
        saved = _object(item) if name in _SAVED else {}
        if identity := _identity(saved, ("id", "visualization_id")):
            kind = _first_text(saved, ("visualization_type", "chart_type", "type"))
            fields = {"id": identity, "title": _title(saved), "visualization_type": kind}
            found = self.add("visualization", identity, {**fields, **_columns(saved)})
        elif self.may_draw() and (chart := self.draw(name, item, path)):
            spec, fields = chart
            key = _fingerprint(spec), fields["title"]
            self.drawn += 1
            self.charts += ("chart", key) not in self.found
            found = self.add("chart", key, fields)
        else:
            return False
        if found:
            found.source = found.source or source
        return True

    def may_draw(self) -> bool:
        """Whether there is room for one more chart, and time to see if it was there already."""
        return self.charts < self.limits.count and self.drawn < 2 * self.limits.count

    def draw(self, name: str, item: _Spec, path: str) -> tuple[object, dict[str, Any]] | None:
        """Find a chart's spec and describe it: `({"mark": "bar"}, {"chart_type": "bar", …})`."""
        holder = _object(item)
        for raw, at in [(item, path), *_specs(holder, _WRAPPERS, path)]:
            spec = self.parsed(raw)
            if described := describe_chart(spec):
                fields = {name: getattr(described, name) for name in _DRAWN}
                title = _title(holder or spec) or described.title
                y = _names(list(described.y), (), "y")
                return spec, {**fields, **y, "title": title, "spec_path": at}
        return _plainly_drawn(holder, path) if name in _LOOSE_CHARTS else None

    def parsed(self, spec: _Spec) -> dict[str, Any]:
        """Parse JSON text; an object stays as it is, and what cannot be read is an empty one."""
        if not isinstance(spec, str):
            return spec
        if len(spec) > self.json_room:
            return {}
        self.json_room -= len(spec)
        try:
            return _object(orjson.loads(spec))
        except orjson.JSONDecodeError:
            return {}


def _plainly_drawn(item: dict[str, Any], path: str) -> tuple[object, dict[str, Any]] | None:
    """Describe a chart by what stands beside a config of an unknown library, or without one."""
    kind, x = _first_text(item, ("chart_type", "type")), _text(item.get("x"))
    known = kind.lower() if kind and kind.lower() in CHART_TYPES else None
    configs = list(_named_items(item, _CONFIGS, path))
    if not (x or known or configs):
        return None
    spec, at = configs[0] if configs else (item, path)
    y = item.get("y") if x else None
    shown = _names([y] if isinstance(y, str) else y, (), "y")
    words = {name: _text(item.get(name)) for name in ("series", "aggregate", "sort")}
    chart = {"title": _title(item), "chart_type": known or kind or "other", "x": x, "spec_path": at}
    return spec, {**chart, **words, **shown}


def _is_bare_spec(payload: dict[str, Any]) -> bool:
    """Whether a whole payload is a chart's spec, by more than one sign."""
    pairs = (("mark", "encoding"), ("$schema",), ("data", "layout"), ("series", "xAxis"))
    return any(set(pair) <= payload.keys() for pair in pairs) and bool(describe_chart(payload))


def _items(value: object, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield an object, or those in a list, each with its JSON pointer."""
    if isinstance(value, dict):
        yield value, path
    elif isinstance(value, list):
        for place, item in enumerate(islice(value, _MAX_ITEMS)):
            if isinstance(item, dict):
                yield item, f"{path}/{place}"


def _named_items(
    node: dict[str, Any], names: Iterable[str], path: str
) -> Iterator[tuple[dict[str, Any], str]]:
    for name in names:
        if name in node:
            yield from _items(node[name], f"{path}/{name}")


def _specs(node: dict[str, Any], names: Iterable[str], path: str) -> Iterator[tuple[_Spec, str]]:
    """Yield as `_named_items` does, and texts too that may be the JSON of an object."""
    for name in filter(node.__contains__, names):
        value, at = node[name], f"{path}/{name}"
        several = isinstance(value, list)
        for place, item in enumerate(islice(value, _MAX_ITEMS) if several else [value]):
            if isinstance(item, dict) or _may_be_json(item):
                yield item, f"{at}/{place}" if several else at


def _may_be_json(value: object) -> bool:
    return isinstance(value, str) and value.startswith("{") and len(value) <= _MAX_JSON


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _children(
    node: dict[str, Any], path: str, has_rows: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield what is inside an object, except rows: a column may be called `sql` too."""
    for name, value in islice(node.items(), _MAX_ITEMS):
        if not isinstance(name, str) or name in _NOT_WALKED:
            continue
        rows = isinstance(value, list) and (name == "data" or (has_rows and name in _ROWS))
        if not rows:
            token = name.replace("~", "~0").replace("/", "~1")
            yield from _items(value, f"{path}/{token}")


def _is_statement(name: str, text: object) -> bool:
    if not isinstance(text, str) or not text.strip():
        return False
    return name == "sql" or _SQL.match(text) is not None


def _table(node: dict[str, Any]) -> dict[str, Any]:
    """Read columns and row count of an object or of the result in it.

    `{"rows": [{"region": "North"}]}` → `{"columns": ["region"], "row_count": 1}`
    """
    holders = [node, *(node[name] for name in _TABLES if isinstance(node.get(name), dict))]
    counts = (_row_count(holder) for holder in holders)
    columns: dict[str, Any] = next(filter(None, map(_columns, holders)), {})
    return {**columns, "row_count": next((count for count in counts if count is not None), None)}


def _columns(holder: dict[str, Any]) -> dict[str, Any]:
    keys = ("name", "field", "key", "column_name", "column", "id", "label")
    for name in ("columns", "column_names"):
        if columns := _names(holder.get(name), keys, "columns"):
            return columns
    rows = (row for row in islice(_rows(holder) or [], 20) if isinstance(row, dict))
    return _names(list(dict.fromkeys(name for row in rows for name in row)), keys, "columns")


def _rows(holder: dict[str, Any]) -> list[Any] | None:
    return next((holder[name] for name in _ROWS if isinstance(holder.get(name), list)), None)


def _row_count(holder: dict[str, Any]) -> int | None:
    stated = (_whole(holder.get(name)) for name in _ROW_COUNTS)
    count = next((one for one in stated if one is not None), None)
    rows = _rows(holder)
    if count is None and rows is not None and holder.get("truncated") is not True:
        return len(rows)
    return count


def _whole(value: object) -> int | None:
    """Take 4 and 4.0 for a count; True, 4.5, NaN and negative numbers are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_COUNT and value == value // 1 else None


def _names(values: object, keys: Sequence[str], into: str) -> dict[str, Any]:
    """Read `["a", {"name": "b"}, None]` as `{"columns": ["a", "b"], "more_columns": 1}`."""
    if not isinstance(values, list):
        return {}
    looked_at = islice(values, _MAX_NAMES)
    read = (_identity(one, keys) if isinstance(one, dict) else one for one in looked_at)
    names = [str(one) for one in read if isinstance(one, str) or _whole(one) is not None]
    return {into: names, f"more_{into}": (len(values) - len(names)) or None} if names else {}


def _identity(item: dict[str, Any], names: Sequence[str]) -> str | None:
    """Read an id, text or a whole number, as text."""
    values = (item.get(name) for name in names)
    texts = (_text(value) or _whole(value) for value in values)
    return next((str(value) for value in texts if value is not None), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _first_text(item: dict[str, Any], names: Sequence[str]) -> str | None:
    return next((text for name in names if (text := _text(item.get(name)))), None)


def _title(item: dict[str, Any]) -> str | None:
    title = item.get("title")
    text = title.get("text") if isinstance(title, dict) else title
    return one_line(_text(text) or _text(item.get("name")))


def _fingerprint(spec: object) -> Hashable:
    try:
        return hash(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS))
    except orjson.JSONEncodeError:
        return id(spec)


def _numbered(found: Sequence[_Found], limits: ArtifactLimits) -> list[dict[str, Any]]:
    """Keep what fits and put the number of its source in `data`."""
    sources = [one for one in found if one.kind == "sql"] or [
        one for one in found if one.kind == "file"
    ]
    kept: list[tuple[_Found | None, Artifact]] = []
    numbers: dict[_Found | None, int] = {}
    for one in found:
        shows = one.source or (sources[0] if len(sources) == 1 else None)
        shows = shows if one.kind in {"chart", "visualization"} else None
        # The largest number stands in until the numbers are known, so that the size holds.
        fields = {"kind": one.kind, **one.fields, **({"data": limits.count} if shows else {})}
        if len(kept) < limits.count and (artifact := _fitted(fields, limits)):
            kept.append((shows, artifact))
            numbers[one] = len(kept)
    return to_stored(
        artifact.model_copy(update={"data": numbers.get(shows)}) if shows else artifact
        for shows, artifact in kept
    )


def _fitted(fields: dict[str, Any], limits: ArtifactLimits) -> Artifact | None:
    """Make an artifact, its lists halved until it is small enough; None when it can't be."""
    room = max(limits.columns, limits.y, limits.items)
    while True:
        try:
            artifact = _ADAPTER.validate_python(_shortened(fields, limits, room))
        except ValidationError:
            return None
        if stored_size(artifact) <= limits.bytes:
            return artifact
        if room == 0:
            return None
        room //= 2


def _shortened(fields: dict[str, Any], limits: ArtifactLimits, room: int) -> dict[str, Any]:
    """Cut lists with a count of what is gone, and titles; leave out names that are too long."""
    short: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, list):
            fitting = [one for one in value if len(one) <= MAX_NAME]
            short[name] = fitting[: min(room, limits.of_list(name))]
            gone = len(value) - len(short[name]) + fields.get(f"more_{name}", 0)
            short[f"more_{name}"] = gone or None
        elif name == "title":
            short[name] = value if len(value) <= MAX_TITLE else value[: MAX_TITLE - 1] + "…"
        elif not isinstance(value, str) or len(value) <= _MAX_LENGTHS.get(name, MAX_NAME):
            short.setdefault(name, value)
    return short
