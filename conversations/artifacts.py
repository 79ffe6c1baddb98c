"""What a turn built: SQL verbatim, and compact descriptors of all else, never a raw config.

A caller sends artifacts, each of one strict kind, or none, and then `artifact_derivation` finds
them in its response payload. Either way they become plain dicts once, and all that comes later
reads those:

    {"kind": "sql", "sql": "SELECT region, SUM(amount) …", "columns": ["region", "revenue"]}
    {"kind": "chart", "chart_type": "bar", "x": "region", "y": ["revenue"], "data": 1,
     "spec_path": "/charts/0/spec"}

Artifacts of a turn are numbered from 1 in their order; `data` is the number of the one shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from conversations.chart_specs import one_line

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

    `spec_path` points into the turn's response payload, at the spec or at its JSON text; `""` is
    the payload itself.
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


def stored_size(artifact: Artifact) -> int:
    """Measure what is kept of an artifact, in bytes of compact JSON in UTF-8."""
    compact = json.dumps(_stored(artifact), ensure_ascii=False, separators=(",", ":"))
    return len(compact.encode("utf-8", "surrogatepass"))


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
    size = stored_size(artifact)
    if size > limits.bytes:
        message = f"an artifact takes at most {limits.bytes} bytes of JSON, this one takes {size}"
        raise ArtifactError("artifact_too_large", message, ("artifacts", place))


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

    A spec that the payload holds as JSON text is returned as that text; no pointer leads into it.
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
