"""What the API takes: pydantic models with allow-listed fields.

A turn's own fields and limits are in `conversations.turn_input`; the shape of answers is in
`representations.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
)

from config.plain_json import clean_text
from conversations.context import Focus, Format
from conversations.turn_input import Body, Metadata, MetadataKey, MetadataValue, Title
from conversations.turns import AgentType


class ThreadPatch(Body):
    """What a person or an agent may change of a thread: what is given, and null for nothing.

    An empty `title` brings the first query's back; empty `metadata` clears it.
    """

    user_id: str | None = None
    title: Title = ""
    archived: bool = False
    pinned: bool = False
    metadata: Metadata = Field(default_factory=dict)
    memory: Literal["on", "off"] | bool = True


class OwnerQuery(Body):
    """The query string of a call that takes nothing but whom it is for."""

    user_id: str | None = Field(
        None, description="For whom: needed from agents; anybody else is themselves."
    )


class PageQuery(OwnerQuery):
    """A page of a list."""

    limit: int = Field(default=50, ge=1, le=200)


class ThreadsQuery(PageQuery):
    """Which threads to list; `cursor` comes from `next` of the page before."""

    agent_type: AgentType | None = None
    status: Literal["pending"] | None = None
    archived: Literal["true", "false", "all"] = "false"
    pinned: bool | None = None
    q: Annotated[str, StringConstraints(max_length=200)] = ""
    metadata: dict[MetadataKey, MetadataValue] = Field(default_factory=dict)
    cursor: Annotated[str, StringConstraints(max_length=200)] | None = None


class TurnsQuery(PageQuery):
    """Which turns to read: those past a position."""

    after_position: int = Field(
        0, ge=0, le=2**31 - 1, description="Show what stands past this position."
    )


class ArtifactsQuery(PageQuery):
    """Which artifacts to read: in order, or with `latest` the newest alone."""

    kind: Literal["sql", "chart", "visualization", "dashboard", "definition", "file"] | None = None
    latest: bool = Field(False, description="Show the newest alone.")
    after_position: int = Field(
        0, ge=0, le=2**31 - 1, description="Show what stands past this position."
    )


class EventsQuery(PageQuery):
    """Which events to read: those before an id."""

    before: int | None = Field(default=None, ge=1)


class FoldsQuery(PageQuery):
    """Which folds to read: those before an id."""

    before: int | None = Field(default=None, ge=1)


def _within_budget(tokens: int) -> int:
    most = settings.CONTEXT_MAX_TOKEN_BUDGET
    if tokens > most:
        raise ValueError(f"may be {most} tokens at most (CONTEXT_MAX_TOKEN_BUDGET)")
    return tokens


class ContextQuery(OwnerQuery):
    """Which context view to render."""

    focus: Focus = Field("brief", description="What kind of node it is for.")
    token_budget: Annotated[int, AfterValidator(_within_budget)] = Field(
        default_factory=lambda: settings.CONTEXT_TOKEN_BUDGET,
        ge=0,
        description="The most tokens (o200k) it may have; CONTEXT_TOKEN_BUDGET if left out.",
    )
    format: Format = Field("text", description="One text, or chat messages.")
    missing: Literal["error", "empty"] = Field(
        "error", description="What an absent or foreign thread answers: 404, or an empty view."
    )
    min_position: int = Field(
        0, ge=0, le=2**31 - 1, description="Refuse (409) to show a thread shorter than this."
    )


def query_of(params: Any) -> dict[str, Any]:
    """Return a query string as a plain dict; the last of a repeated name counts.

    `metadata.team=x` becomes `{"metadata": {"team": "x"}}`.
    """
    plain: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    for name in params:
        group, dot, key = name.partition(".")
        into, field = (metadata, key) if dot and group == "metadata" else (plain, name)
        into[clean_text(field)] = clean_text(params[name])
    if metadata:
        plain.setdefault("metadata", metadata)
    return plain
