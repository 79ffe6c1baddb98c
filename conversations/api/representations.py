"""What the API answers: plain dicts of allow-listed fields, and their shapes for OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import BaseModel, Field

from conversations.artifacts import find_spec
from conversations.context import ContextView
from conversations.exceptions import ArtifactNotFound

if TYPE_CHECKING:
    from conversations.events import SessionEvent
    from conversations.finalize import FinalizedTurn
    from conversations.folds import ThreadFold
    from conversations.models import ThreadMessage
    from conversations.querysets import Recalled


class TurnWritten(BaseModel):
    """A turn as it stands now."""

    thread_id: UUID
    turn_id: UUID
    position: int
    status: str
    title: str
    created_at: datetime


class ThreadOut(BaseModel):
    """One thread, without its turns."""

    thread_id: UUID
    user_id: str
    agent_type: str
    title: str
    title_is_custom: bool
    turn_count: int
    archived: bool
    archived_at: datetime | None
    pinned: bool
    pinned_at: datetime | None
    memory: bool
    metadata: dict[str, str]
    pending: bool
    waiting_for: str | None
    created_at: datetime
    last_turn_at: datetime


class TurnOut(BaseModel):
    """One turn, whole; each artifact carries its `number`, such as t7.2."""

    thread_id: UUID
    turn_id: UUID
    position: int
    agent_type: str
    status: str
    query: str
    answer: str
    artifacts: list[dict[str, Any]]
    response_payload: Any
    waiting_for: str | None
    error_code: str | None
    revision: int
    session_id: str | None
    written_by: UUID
    created_at: datetime


class ArtifactOut(BaseModel):
    """An artifact with where it stands; one asked for by its number has its raw `spec` as well.

    The spec is a string where the payload held it as JSON text.
    """

    number: str
    turn_id: UUID
    position: int
    created_at: datetime
    artifact: dict[str, Any]
    spec: Any = None


class CachePrefixOut(BaseModel):
    """The part of the view that stays until the next fold."""

    chars: int
    tokens: int
    sha256: str


class ContextOut(BaseModel):
    """A context view and the account of it."""

    thread_id: UUID
    focus: str
    text: str | None = None
    messages: list[dict[str, str]] | None = None
    tokens: int
    token_budget: int
    tokenizer: str
    summary: str
    facts: list[dict[str, Any]]
    folded_through: int
    through_position: int
    positions: list[int]
    left_out: list[dict[str, Any]] = Field(examples=[[{"from": 6, "to": 10, "why": "budget"}]])
    cut: list[dict[str, Any]] = Field(
        examples=[[{"position": 12, "part": "answer", "tokens": 812}]]
    )
    cache_prefix: CachePrefixOut
    source: str


class EventOut(BaseModel):
    """Something that happened to a thread."""

    id: int
    kind: str
    code: str
    turn_id: UUID | None
    attempt: int | None
    next_attempt_at: datetime | None
    data: dict[str, Any]
    at: datetime


class PromptOut(BaseModel):
    """The prompt of a fold: "langfuse", "built_in", or "none" where no model was asked."""

    name: str
    version: str
    source: str


class FoldOut(BaseModel):
    """A fold that was applied: turns `first` to `last` went into `summary`.

    `first` is past `last` where only `amended` turns did. `from_start`: made anew from turn 1.
    """

    id: int
    first: int
    last: int
    amended: list[int]
    from_start: bool
    model: str
    prompt: PromptOut
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    calls: int
    duration_ms: int
    summary: str
    at: datetime


class RehydratedOut(BaseModel):
    """How many turns the rebuilt working set holds."""

    thread_id: UUID
    turns: int


def page_of(shape: type[BaseModel]) -> type[BaseModel]:
    """Return the shape of a page of `shape`s."""
    return type(
        f"{shape.__name__}Page",
        (BaseModel,),
        {"__annotations__": {"results": list[shape], "next": str | None}},  # type: ignore[valid-type]
    )


def turn_written(turn: FinalizedTurn) -> dict[str, Any]:
    """Return a `TurnWritten`."""
    return {
        "thread_id": turn.thread_id,
        "turn_id": turn.turn_id,
        "position": turn.position,
        "status": turn.status,
        "title": turn.title,
        "created_at": turn.created_at,
    }


def thread(row: Any, user_id: str) -> dict[str, Any]:
    """Return a `ThreadOut` of a thread as `ThreadQuerySet.for_list` loads it."""
    return {
        "thread_id": row.pk,
        "user_id": user_id,
        "agent_type": row.agent_type,
        "title": row.title,
        "title_is_custom": row.title_is_custom,
        "turn_count": row.turn_count,
        "archived": row.archived_at is not None,
        "archived_at": row.archived_at,
        "pinned": row.pinned_at is not None,
        "pinned_at": row.pinned_at,
        "memory": row.memory_enabled,
        "metadata": row.metadata,
        "pending": row.has_pending,
        "waiting_for": row.waiting_for,
        "created_at": row.created_at,
        "last_turn_at": row.last_turn_at,
    }


def turn(row: ThreadMessage) -> dict[str, Any]:
    """Return a `TurnOut`."""
    return {
        "thread_id": row.thread_id,
        "turn_id": row.session_uuid,
        "position": row.position,
        "agent_type": row.agent_type,
        "status": row.status,
        "query": row.query,
        "answer": row.answer,
        "artifacts": [
            {"number": f"t{row.position}.{number}", **artifact}
            for number, artifact in enumerate(row.artifacts, start=1)
        ],
        "response_payload": row.response_payload,
        "waiting_for": row.waiting_for,
        "error_code": row.error_code,
        "revision": row.revision,
        "session_id": row.session_id,
        "written_by": row.written_by,
        "created_at": row.created_at,
    }


def artifact(row: ThreadMessage, number: int) -> dict[str, Any]:
    """Return an `ArtifactOut` without its spec; `number` counts from 1 within the turn."""
    return {
        "number": f"t{row.position}.{number}",
        "turn_id": row.session_uuid,
        "position": row.position,
        "created_at": row.created_at,
        "artifact": row.artifacts[number - 1],
    }


def whole_artifact(row: ThreadMessage, number: int) -> dict[str, Any]:
    """Return an `ArtifactOut` with the raw spec that it was taken from, if there is one.

    Raises `ArtifactNotFound`.
    """
    if not 1 <= number <= len(row.artifacts):
        raise ArtifactNotFound
    found = artifact(row, number)
    pointer = found["artifact"].get("spec_path")
    try:
        spec = None if pointer is None else find_spec(row.response_payload, pointer)
    except KeyError:
        spec = None
    return {**found, "spec": spec}


def event(row: SessionEvent) -> dict[str, Any]:
    """Return an `EventOut`."""
    return {
        "id": row.pk,
        "kind": row.kind,
        "code": row.code,
        "turn_id": row.session_uuid,
        "attempt": row.attempt,
        "next_attempt_at": row.next_attempt_at,
        "data": row.data,
        "at": row.at,
    }


def fold(row: ThreadFold) -> dict[str, Any]:
    """Return a `FoldOut`."""
    return {
        "id": row.pk,
        "first": row.first,
        "last": row.last,
        "amended": row.amended,
        "from_start": row.from_start,
        "model": row.model,
        "prompt": {
            "name": row.prompt_name,
            "version": row.prompt_version,
            "source": row.prompt_source,
        },
        "input_tokens": row.input_tokens,
        "cached_input_tokens": row.cached_input_tokens,
        "output_tokens": row.output_tokens,
        "calls": row.calls,
        "duration_ms": row.duration_ms,
        "summary": row.summary,
        "at": row.at,
    }


def context(thread_id: UUID, view: ContextView, recalled: Recalled) -> dict[str, Any]:
    """Return a `ContextOut`."""
    held = recalled.context
    content = {"text": view.text} if view.messages is None else {"messages": view.messages}
    return {
        "thread_id": thread_id,
        "focus": view.focus,
        **content,
        "tokens": view.tokens,
        "token_budget": view.token_budget,
        "tokenizer": view.tokenizer,
        "summary": held.summary,
        "facts": held.facts.get("entries", []),
        "folded_through": held.folded_through,
        "through_position": held.turn_count,
        "positions": view.positions,
        "left_out": view.left_out,
        "cut": view.cut,
        "cache_prefix": view.cache_prefix_account(),
        "source": recalled.source,
    }
