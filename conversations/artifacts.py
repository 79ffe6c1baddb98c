"""What a turn built: SQL verbatim, and compact descriptors of all else, never a raw config.

A caller sends artifacts, each of one strict kind, or none, and then they are derived from its
response payload. Either way they become plain dicts once, and all that comes later reads those:

    {"kind": "sql", "sql": "SELECT region, SUM(amount) …", "columns": ["region", "revenue"]}
    {"kind": "chart", "chart_type": "bar", "x": "region", "y": ["revenue"], "data": 1,
     "spec_path": "/charts/0/spec"}

Artifacts of a turn are numbered from 1 in their order; `data` is the number of the one shown.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypeAlias

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from conversations.chart_specs import CHART_TYPES, describe_chart, one_line

MAX_NAME: Final = 300  # characters of a column, field, id or other name
MAX_TITLE: Final = 500
MAX_TEXT: Final = 4_000  # characters of a definition's meaning
MAX_POINTER: Final = 1_000
MAX_COUNT: Final = 2**53 - 1  # what every JSON reader keeps exactly

_RAW_CONFIG: Final = {
    "config", "dataset", "datasets", "echarts", "encoding", "figure", "json", "layer", "layout",
    "mark", "option", "options", "plotly", "records", "results", "rows", "spec", "traces",
    "values", "vega", "vega_lite",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ArtifactLimits:
    """How much one turn may keep; `bytes` is one artifact's compact JSON in UTF-8."""

    count: int = 50
    bytes: int = 65_536
    columns: int = 200
    y: int = 50
    items: int = 200

    def of_list(self, name: str) -> int:
        """Give the limit of a list field, `columns`, `y` or `items`."""
        limits = {"columns": self.columns, "y": self.y, "items": self.items}
        return limits[name]


class ArtifactError(Exception):
    """Artifacts that are each well formed but break a limit or do not fit together.

    `code` is one of `too_many_artifacts`, `too_many_values`, `artifact_too_large`,
    `unknown_data`, `circular_data`, `spec_path_unresolved`; `location` names the field as
    pydantic does: `("artifacts", 1, "data")`.
    """

    def __init__(self, code: str, message: str, location: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.location = location


# --- Kinds ---------------------------------------------------------------------------------------


def _check_pointer(pointer: str) -> str:
    if not _POINTER.fullmatch(pointer):
        raise PydanticCustomError(
            "json_pointer", 'must be a JSON pointer (RFC 6901) such as "/charts/0/spec"'
        )
    return pointer


def _refuse_data_values(value: object) -> object:
    if isinstance(value, list | dict):
        raise PydanticCustomError(
            "raw_config",
            "is the number of the artifact that is shown, not its data: put the data in"
            " response_payload",
        )
    return value


def _refuse_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "must not be blank")
    return text


_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*")

_Name = Annotated[str, Field(max_length=MAX_NAME)]
_NeededName = Annotated[_Name, AfterValidator(_refuse_blank)]
_NeededText = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_refuse_blank)]
_Names = Annotated[tuple[_Name, ...], Field(strict=False)]
_Title = Annotated[str, Field(max_length=MAX_TITLE), AfterValidator(one_line)]
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Cut = Annotated[int, Field(ge=1, le=MAX_COUNT)]
_Number = Annotated[int, Field(ge=1, le=MAX_COUNT), BeforeValidator(_refuse_data_values)]
_Pointer = Annotated[str, Field(max_length=MAX_POINTER), AfterValidator(_check_pointer)]


class _Kind(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_raw_config(cls, value: object) -> object:
        raw = _RAW_CONFIG.intersection(value) if isinstance(value, dict) else ()
        if raw:
            raise PydanticCustomError(
                "raw_config",
                "an artifact is a compact descriptor: put '{field}' in response_payload, and"
                " point a chart's spec_path at it",
                {"field": min(raw)},
            )
        return value


class SqlArtifact(_Kind):
    """A statement as it ran, byte for byte; `more_columns` counts columns that were cut."""

    kind: Literal["sql"]
    sql: Annotated[str, AfterValidator(_refuse_blank)]
    title: _Title | None = None
    columns: _Names | None = None
    more_columns: _Cut | None = None
    row_count: _Count | None = None
    database: _Name | None = None
    dialect: _Name | None = None


class ChartArtifact(_Kind):
    """A chart drawn in the answer; `x`, `y` and `series` as `chart_specs` explains them.

    `spec_path` points into the turn's response payload; `""` is the payload itself.
    """

    kind: Literal["chart"]
    title: _Title | None = None
    chart_type: _NeededName
    x: _Name | None = None
    y: _Names | None = None
    more_y: _Cut | None = None
    series: _Name | None = None
    aggregate: _Name | None = None
    sort: _Name | None = None
    stacked: bool | None = None
    horizontal: bool | None = None
    data: _Number | None = None
    spec_path: _Pointer | None = None


class VisualizationArtifact(_Kind):
    """A visualisation saved in the BI tool under `id`."""

    kind: Literal["visualization"]
    id: _NeededName
    title: _Title | None = None
    visualization_type: _Name | None = None
    columns: _Names | None = None
    more_columns: _Cut | None = None
    data: _Number | None = None


class DashboardArtifact(_Kind):
    """A dashboard saved in the BI tool; `items` are the ids of what is on it."""

    kind: Literal["dashboard"]
    id: _NeededName
    title: _Title | None = None
    items: _Names | None = None
    more_items: _Cut | None = None


class DefinitionArtifact(_Kind):
    """What a term means from here on, `"active customer"`: `"ordered in the last 90 days"`."""

    kind: Literal["definition"]
    term: _NeededName
    meaning: _NeededText
    sql: str | None = None


class FileArtifact(_Kind):
    """A file that the turn read or made."""

    kind: Literal["file"]
    file_id: _Name | None = None
    name: _NeededName
    columns: _Names | None = None
    more_columns: _Cut | None = None
    row_count: _Count | None = None


Artifact: TypeAlias = Annotated[
    SqlArtifact
    | ChartArtifact
    | VisualizationArtifact
    | DashboardArtifact
    | DefinitionArtifact
    | FileArtifact,
    Field(discriminator="kind"),
]
"""One artifact of any kind: the type of a field in a pydantic request model."""

_ADAPTER: Final[TypeAdapter[Artifact]] = TypeAdapter(Artifact)
_SHOWABLE: Final = ("sql", "file", "visualization")


# --- Checking and storing ------------------------------------------------------------------------


def to_stored(artifacts: Iterable[Artifact]) -> list[dict[str, Any]]:
    """Turn artifacts into the plain dicts that are kept, `kind` first, nothing empty in them.

    `SqlArtifact(kind="sql", sql="SELECT 1", columns=())` → `{"kind": "sql", "sql": "SELECT 1"}`
    """
    return [_stored(artifact) for artifact in artifacts]


def _stored(artifact: Artifact) -> dict[str, Any]:
    dumped = artifact.model_dump(mode="json", exclude_none=True)
    # A row count of 0 says something, and so does a spec path of "".
    return {
        name: value
        for name, value in dumped.items()
        if (value is not False and value not in ("", [])) or name == "spec_path"
    }


def check_artifacts(artifacts: Sequence[Artifact], payload: object, limits: ArtifactLimits) -> None:
    """Check limits and references over all artifacts of a turn; `payload` None resolves nothing.

    Raises `ArtifactError` for the first fault, in the order of the artifacts.
    """
    if len(artifacts) > limits.count:
        message = f"a turn keeps at most {limits.count} artifacts, this one has {len(artifacts)}"
        raise ArtifactError("too_many_artifacts", message, ("artifacts",))
    for place, artifact in enumerate(artifacts):
        _check_size(artifact, place, limits)
        _check_data(artifacts, place)
        _check_spec_path(artifact, place, payload)


def _check_size(artifact: Artifact, place: int, limits: ArtifactLimits) -> None:
    for name in ("columns", "y", "items"):
        count, limit = len(getattr(artifact, name, None) or ()), limits.of_list(name)
        if count > limit:
            message = f"{name} holds at most {limit} names, this one has {count}"
            raise ArtifactError("too_many_values", message, ("artifacts", place, name))
    size = _json_bytes(_stored(artifact))
    if size > limits.bytes:
        message = f"an artifact takes at most {limits.bytes} bytes of JSON, this one takes {size}"
        raise ArtifactError("artifact_too_large", message, ("artifacts", place))


def _json_bytes(stored: dict[str, Any]) -> int:
    compact = json.dumps(stored, ensure_ascii=False, separators=(",", ":"))
    return len(compact.encode("utf-8", "surrogatepass"))


def _check_data(artifacts: Sequence[Artifact], place: int) -> None:
    location, number = ("artifacts", place, "data"), _data(artifacts[place])
    if number is None:
        return
    if number > len(artifacts) or artifacts[number - 1].kind not in _SHOWABLE:
        message = f"data {number} is no sql, file or visualization artifact of this turn"
        raise ArtifactError("unknown_data", message, location)
    followed = {place + 1}
    while number and number <= len(artifacts):
        if number in followed:
            raise ArtifactError("circular_data", "data leads round in a circle", location)
        followed.add(number)
        number = _data(artifacts[number - 1])


def _data(artifact: Artifact) -> int | None:
    return getattr(artifact, "data", None)


def _check_spec_path(artifact: Artifact, place: int, payload: object) -> None:
    if payload is None or not isinstance(artifact, ChartArtifact) or artifact.spec_path is None:
        return
    try:
        find_spec(payload, artifact.spec_path)
    except KeyError:
        message = f"spec_path {artifact.spec_path!r} leads nowhere in response_payload"
        location = ("artifacts", place, "spec_path")
        raise ArtifactError("spec_path_unresolved", message, location) from None


def find_spec(payload: object, pointer: str) -> Any:
    """Resolve a JSON pointer (RFC 6901): `"/charts/0/spec"`, `"/a~1b"` for key `a/b`, `""` for all.

    Raises `KeyError` when it is none or leads nowhere.
    """
    if not _POINTER.fullmatch(pointer):
        raise KeyError(pointer)
    value = payload
    for token in pointer.split("/")[1:]:
        value = _step(value, token.replace("~1", "/").replace("~0", "~"))
    return value


def _step(value: Any, token: str) -> Any:
    if isinstance(value, Mapping):
        return value[token]
    if not isinstance(value, list) or not re.fullmatch("0|[1-9][0-9]{0,9}", token):
        raise KeyError(token)
    try:
        return value[int(token)]
    except IndexError:
        raise KeyError(token) from None


# --- Deriving ------------------------------------------------------------------------------------

_MAX_NODES = 1_000  # objects of a payload that are looked into
_MAX_DEPTH = 8
_MAX_ITEMS = 200  # members of one object or list that are looked at
_MAX_NAMES = 1_000
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


def derive_artifacts(payload: object, limits: ArtifactLimits) -> list[dict[str, Any]]:
    """Find what a response payload shows and return it as `to_stored` would.

    `{"sql": "SELECT …", "rows": [["North", 4100000]], "charts": [{"spec": {"mark": "bar"}}]}` →
    the statement with its row count, and a bar chart with `data` 1 and its `spec_path`.

    Never raises: what cannot be read, or exceeds the limits, is left out, and names over a list's
    limit are counted in `more_columns`, `more_y` or `more_items`. Only so many objects are looked
    at, nearest to the top first, and never the rows of a table.
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
    limits: ArtifactLimits
    found: dict[Hashable, _Found] = field(default_factory=dict)
    drawn: int = 0

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
                pending.extend((one, at, source, depth + 1) for one, at in inner if at not in read)

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
        listed = [item for items in lists for item in islice(items, _MAX_ITEMS)]
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
        for item, _ in _named_items(node, _FILES, ""):
            name = _first_text(item, ("name", "file_name", "filename"))
            file_id = _identity(item, ("file_id", "id"))
            if name:
                fields = {"file_id": file_id, "name": name, **_table(item)}
                found.append(self.add("file", file_id or name, fields))
        return [one for one in found if one]

    def add_dashboards(self, node: dict[str, Any]) -> None:
        for item, _ in _named_items(node, _DASHBOARDS, ""):
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
            items = list(_named_items(node, (name,), path))
            paired = beside if len(beside) == len(items) else [source] * len(items)
            for (item, at), shows in zip(items, paired, strict=True):
                own = self.add_statements(item)
                if self.add_chart(name, item, at, own[0] if len(own) == 1 else shows):
                    read.add(at)
        return read

    def add_chart(self, name: str, item: dict[str, Any], path: str, source: _Found | None) -> bool:
        identity = _identity(item, ("id", "visualization_id")) if name in _SAVED else None
        if identity:
            kind = _first_text(item, ("visualization_type", "chart_type", "type"))
            fields = {"id": identity, "title": _title(item), "visualization_type": kind}
            found = self.add("visualization", identity, {**fields, **_columns(item)})
        elif self.drawn < 2 * self.limits.count and (chart := _drawn(name, item, path)):
            self.drawn += 1
            spec, fields = chart
            found = self.add("chart", (_fingerprint(spec), fields["title"]), fields)
        else:
            return False
        if found:
            found.source = found.source or source
        return True


def _drawn(name: str, item: dict[str, Any], path: str) -> tuple[object, dict[str, Any]] | None:
    """Find a chart's spec and describe it: `({"mark": "bar"}, {"chart_type": "bar", …})`."""
    for spec, at in [(item, path), *_named_items(item, _WRAPPERS, path)]:
        if described := describe_chart(spec):
            fields = {name: getattr(described, name) for name in _DRAWN}
            title = _title(item) or described.title
            y = _names(list(described.y), (), "y")
            return spec, {**fields, **y, "title": title, "spec_path": at}
    return _plainly_drawn(item, path) if name in _LOOSE_CHARTS else None


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
        if _json_bytes(_stored(artifact)) <= limits.bytes:
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
