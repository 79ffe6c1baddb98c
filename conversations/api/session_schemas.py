"""What the calls of live sessions take and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from pydantic import BaseModel, Field, RootModel

from config.errors import validate
from conversations.api.schemas import OwnerQuery
from conversations.live_session import Session
from conversations.message_input import MessageIn
from conversations.messages import Message
from conversations.session_history import Earlier, EarlierDigest
from conversations.sessions import Added, Opened
from conversations.turn_input import Body, within
from conversations.turns import AgentType

CHECKPOINT_MAX_HOURS = 168


class SessionIn(Body):
    """How a session is to be opened."""

    user_id: str | None = Field(None, description="For whom: needed from agents.")
    thread_id: UUID | None = Field(
        None, description="The thread it sits on; left out, it gets one of its own."
    )
    agent_type: AgentType | None = Field(
        None, description="chat or copilot; the thread's if left out, or chat."
    )


class SentMessage(MessageIn):
    """One message, sent alone."""

    user_id: str | None = Field(None, description="For whom: needed from agents, here or there.")


class MessagesIn(Body):
    """Messages in their order, taken whole or not at all.

    One may also be sent as it is, and several as a list.
    """

    user_id: str | None = Field(
        None, description="For whom: needed from agents, here or in the query string."
    )
    messages: list[MessageIn] = Field(min_length=1)


class WindowQuery(OwnerQuery):
    """How much of a session a model is to be shown."""

    max_messages: int = Field(
        default_factory=lambda: settings.MAX_HISTORY_MESSAGES,
        ge=0,
        le=10_000,
        description="The most messages; MAX_HISTORY_MESSAGES if left out.",
    )


class CheckpointQuery(OwnerQuery):
    """For how long a checkpoint is to be kept."""

    keep_hours: float | None = Field(
        None,
        gt=0,
        le=CHECKPOINT_MAX_HOURS,
        description="CHECKPOINT_TTL_MINUTES if left out; never shorter than the session.",
    )

    @property
    def seconds(self) -> int:
        """How long it stays: as asked, and at least as long as its session."""
        asked = settings.CHECKPOINT_TTL_MINUTES * 60
        if self.keep_hours is not None:
            asked = self.keep_hours * 3600
        return int(max(asked, settings.SESSION_TTL_MINUTES * 60))


class FileQuery(OwnerQuery):
    """Which rows of a file to read."""

    offset: int = Field(0, ge=0, le=2**31 - 1)
    limit: int = Field(100, ge=1, le=10_000)


class SessionsQuery(OwnerQuery):
    """How many of a person's sessions to list."""

    limit: int = Field(
        default_factory=lambda: settings.HISTORY_SESSIONS,
        ge=1,
        le=100,
        description="The most sessions; HISTORY_SESSIONS if left out.",
    )


def sent_messages(data: Any) -> tuple[str | None, list[Message]]:
    """Return for whom messages are, and the messages: of one, of a list, or of an object of some.

    Raises `Invalid` and `TooLarge`.
    """
    if isinstance(data, dict) and "messages" not in data:
        one = validate(SentMessage, data)
        return one.user_id, [one.to_message()]
    sent = validate(MessagesIn, {"messages": data} if isinstance(data, list) else data)
    within("messages", len(sent.messages), "SESSION_MAX_MESSAGES", "messages")
    return sent.user_id, [one.to_message() for one in sent.messages]


# --- Answers ----------------------------------------------------------------------------------


class MessageOut(BaseModel):
    """One message; what it does not have is left out. `turn_seq` on one that finished a turn."""

    message_id: str
    number: int
    role: str
    content: str
    at: datetime
    metadata: dict[str, Any] = {}
    tool_calls: list[dict[str, Any]] = []
    tool_call_id: str | None = None
    name: str | None = None
    final: bool | None = None
    turn_seq: int | None = None


class SessionOut(BaseModel):
    """A live session; `source` is cache or database."""

    session_id: str
    user_id: str
    thread_id: UUID
    agent_type: str
    opened_at: datetime
    message_count: int
    source: str


class SessionOpened(SessionOut):
    """A session that was asked for, and whether it was made or opened again for it.

    `session_digest` tells of the person's sessions before it, `digest` of this one; both are for
    the prompt. Where `history_available` is false, the former lacks what is archived.
    """

    created: bool
    reopened: bool
    session_digest: str
    digest: str
    history_available: bool


class SessionRead(SessionOut):
    """A session with the messages that it still shows."""

    messages: list[MessageOut]


class TakenOut(BaseModel):
    """A message as it was taken, now or before."""

    message_id: str
    number: int
    created: bool


class FinishedOut(BaseModel):
    """A turn that a final message finished."""

    thread_id: UUID
    turn_id: UUID
    position: int
    status: str


class MessagesTaken(BaseModel):
    """What became of messages; the last turn they finished stands at the top as well."""

    thread_id: UUID
    turn_id: UUID | None
    position: int | None
    messages: list[TakenOut]
    turns: list[FinishedOut]


class ChatMessage(BaseModel):
    """A message as a model takes it; tool_calls, tool_call_id and name where it has them."""

    role: str
    content: str


class Window(RootModel[list[ChatMessage]]):
    """The newest messages of a session."""


class PreviousResults(BaseModel):
    """What the last query that succeeded gave."""

    previous_query_results: list[Any]
    previous_column_names: list[str]
    previous_kpis: Any


class SessionEnded(BaseModel):
    """When a session ended."""

    session_id: str
    ended_at: datetime


class SessionDigest(BaseModel):
    """What a prompt is told of its own session so far."""

    session_id: str
    digest: str


class EarlierSession(BaseModel):
    """A session in long-term history; `summary` is its digest."""

    session_id: str
    summary: str
    message_count: int
    queries_executed: int
    topics: list[str]
    first_message: datetime
    last_message: datetime


class EarlierSessions(BaseModel):
    """A person's sessions, newest first; where `history_available` is false, only the latest."""

    results: list[EarlierSession]
    history_available: bool


class UserDigest(BaseModel):
    """What a new session of a person is told of those before it."""

    session_digest: str
    history_available: bool


class CheckpointKept(BaseModel):
    """Until when a checkpoint is kept at least."""

    session_id: str
    expires_at: datetime


class FilePage(BaseModel):
    """Rows of a file; `next_offset` is null at its end."""

    rows: list[Any]
    metadata: dict[str, Any]
    offset: int
    next_offset: int | None


class ActiveFile(BaseModel):
    """The newest file of a session."""

    file_id: str


def session(read: Session) -> dict[str, Any]:
    """Return a `SessionOut`."""
    return {
        "session_id": read.session_id,
        "user_id": read.user_id,
        **read.metadata,
        "message_count": read.message_count,
        "source": read.source,
    }


def session_opened(opened: Opened, earlier: EarlierDigest, digest: str) -> dict[str, Any]:
    """Return a `SessionOpened`."""
    return {
        **session(opened.session),
        "created": opened.created,
        "reopened": opened.reopened,
        "session_digest": earlier.text,
        "digest": digest,
        "history_available": earlier.whole,
    }


def earlier_sessions(earlier: Earlier) -> dict[str, Any]:
    """Return an `EarlierSessions`."""
    results = [
        {
            "session_id": one.session_id,
            "summary": one.summary,
            "message_count": one.message_count,
            "queries_executed": one.queries_executed,
            "topics": sorted(one.topics),
            "first_message": one.first_message,
            "last_message": one.last_message,
        }
        for one in earlier.sessions
    ]
    return {"results": results, "history_available": earlier.whole}


def session_read(read: Session) -> dict[str, Any]:
    """Return a `SessionRead`."""
    return {**session(read), "messages": [message(one) for one in read.messages]}


def message(one: Message) -> dict[str, Any]:
    """Return a `MessageOut`."""
    stored = one.to_dict()
    if "seq" in stored:
        stored["turn_seq"] = stored.pop("seq")
    return stored


def messages_taken(added: Added) -> dict[str, Any]:
    """Return a `MessagesTaken`."""
    turns = [
        {
            "thread_id": turn.thread_id,
            "turn_id": turn.turn_id,
            "position": turn.position,
            "status": turn.status,
        }
        for turn in added.turns
    ]
    last = turns[-1] if turns else {"turn_id": None, "position": None}
    return {
        "thread_id": added.thread_id,
        "turn_id": last["turn_id"],
        "position": last["position"],
        "messages": [one._asdict() for one in added.messages],
        "turns": turns,
    }
