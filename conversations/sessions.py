"""Live sessions: one sitting of a person with an agent, hot in Redis, on one thread.

    store = SessionStore("acme")
    session = await store.get_or_create("s-81", "ana")
    session.add_message("user", "Revenue by region")
    session.add_message("assistant", "North leads.", {"sql": "SELECT …", "query_results": rows})
    await store.save(session)
    session.get_context(max_messages=5)     # [{"role": "user", "content": "…"}, …]

PostgreSQL takes each message (`session_writes.py`) and can give the session back when Redis has
lost it; what is read comes from Redis where that can be trusted (`session_copies.py`). So Redis
may be lost, stale or away, and a session is slower, not wrong.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import transaction

from conversations import session_copies
from conversations.exceptions import ThreadNotFound
from conversations.live_session import Session
from conversations.messages import Message, is_window_of_all, window
from conversations.models import ConversationThread, ThreadMessage
from conversations.session_keys import SessionKey
from conversations.session_problems import SessionNotFound, ThreadConflict
from conversations.session_records import SessionRecord
from conversations.session_turns import thread_id_of
from conversations.session_writes import FinishedTurn, SessionWrite, Taken
from conversations.turns import AgentType
from rbac.names import DEFAULT_TENANT
from rbac.principal import Person

# How many messages are read for a window at first; most are found among them.
_LOOKED_AT = 20

__all__ = ["Added", "Opened", "Session", "SessionStore", "TurnDigest"]


class Opened(NamedTuple):
    """A session that was asked for; `created` or `reopened`, or neither where it was open."""

    session: Session
    created: bool
    reopened: bool


class TurnDigest(NamedTuple):
    """What a turn gives to its session's digest: see `session_turns.digest_facts`."""

    position: int
    at: datetime
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Added:
    """What became of messages that were sent, and which turns they finished."""

    thread_id: uuid.UUID
    messages: Sequence[Taken]
    turns: Sequence[FinishedTurn]

    @property
    def created(self) -> bool:
        """Whether any of them was new."""
        return any(one.created for one in self.messages)


class SessionStore:
    """The live sessions of one tenant.

    Methods that take a `Person` are for requests, which have authorised them. The others are
    those of an agent in this process, async, each with a twin `…_sync`.
    """

    def __init__(self, tenant: str = DEFAULT_TENANT) -> None:
        self.tenant = tenant

    # --- For an agent in this process -----------------------------------------------------

    def get_or_create_sync(self, session_id: str, user_id: str) -> Session:
        """Return a person's session, opened or opened again where it is not open.

        Raises `SessionNotFound` where the id is somebody else's.
        """
        owner = Person.named(self.tenant, user_id)
        with suppress(SessionNotFound):
            return self.read(owner, session_id)
        return self.open(owner, session_id).session

    def get_sync(self, session_id: str, user_id: str) -> Session | None:
        """Return a person's session; None where it is not open, or not theirs."""
        with suppress(SessionNotFound):
            return self.read(Person.named(self.tenant, user_id), session_id)
        return None

    def save_sync(self, session: Session) -> Added:
        """Store what was added to a session, whole or not at all; let it live on either way.

        Raises `OutOfTurn` and `MessageConflict`; the session then still has it all unsaved.
        """
        added = self.add(session.owner, session.session_id, session.unsaved)
        session.saved()
        return added

    async def get_or_create(self, session_id: str, user_id: str) -> Session:
        """See `get_or_create_sync`."""
        return await sync_to_async(self.get_or_create_sync)(session_id, user_id)

    async def get(self, session_id: str, user_id: str) -> Session | None:
        """See `get_sync`."""
        return await sync_to_async(self.get_sync)(session_id, user_id)

    async def save(self, session: Session) -> Added:
        """See `save_sync`."""
        return await sync_to_async(self.save_sync)(session)

    # --- For requests ---------------------------------------------------------------------

    def open(
        self,
        owner: Person,
        session_id: str,
        thread_id: uuid.UUID | None = None,
        agent_type: str | None = None,
        written_by: uuid.UUID | None = None,
    ) -> Opened:
        """Open a session, or open it again, on a thread of its owner's or one of its own.

        What was asked and not answered before it expired becomes a turn that was stopped. Raises
        `SessionNotFound` (somebody else's id), `ThreadNotFound` and `ThreadConflict`.
        """
        key = _key(owner, session_id)
        with transaction.atomic():
            on = _thread_for(owner, thread_id) if thread_id else None
            record, created = SessionRecord.objects.locked_or_made(
                owner,
                session_id,
                thread_id or thread_id_of(key),
                agent_type or (on and on.agent_type) or AgentType.CHAT,
            )
            reopened = not created and not record.is_live()
            if created and not on:
                _thread_for(owner, record.thread_id)
            _refuse_other_thread(record, thread_id)
            if reopened:
                SessionWrite(record, owner, written_by).break_off()
            if record.speaks_as(agent_type) or reopened:
                session_copies.dropped(key)
            record.seen()
        return Opened(self.read(owner, session_id), created, reopened)

    def read(self, owner: Person, session_id: str) -> Session:
        """Return a person's open session, and let it live on; raise `SessionNotFound`."""
        return session_copies.read(_key(owner, session_id), owner)

    def window(
        self, owner: Person, session_id: str, max_messages: int | None = None
    ) -> list[dict[str, Any]]:
        """Return what `Session.get_context` would, without reading more than it takes.

        Raises `SessionNotFound`.
        """
        key = _key(owner, session_id)
        most = settings.MAX_HISTORY_MESSAGES if max_messages is None else max_messages
        newest = session_copies.read(key, owner, newest=max(_LOOKED_AT, 2 * most))
        shown = window(newest.messages, most)
        if newest.whole or is_window_of_all(shown, newest.messages, most):
            return [message.as_chat() for message in shown]
        return session_copies.read(key, owner).get_context(most)

    def add(
        self,
        owner: Person,
        session_id: str,
        messages: Sequence[Message],
        written_by: uuid.UUID | None = None,
    ) -> Added:
        """Take messages into a session, whole or not at all, and store the turns they finish.

        One that is not open any more is opened again by it. Raises `SessionNotFound`,
        `OutOfTurn`, `MessageConflict`, `TooLarge` and what `finalize_turn` raises.
        """
        key = _key(owner, session_id)
        seen = session_copies.known(key, owner, messages)
        with transaction.atomic():
            record = SessionRecord.objects.locked(owner, session_id)
            known_at = time.time()
            was_live = record.is_live()
            write = SessionWrite(record, owner, written_by, seen)
            write.take(messages)
            if was_live:
                session_copies.appended(key, write.new, known_at)
            else:
                session_copies.dropped(key)
        return Added(record.thread_id, write.taken, write.turns)

    def end(self, owner: Person, session_id: str, written_by: uuid.UUID | None = None) -> datetime:
        """End a session now, which makes its digest due; return when it ended.

        What was asked and not answered becomes a turn that was stopped. Raises `SessionNotFound`.
        """
        key = _key(owner, session_id)
        with transaction.atomic():
            record = SessionRecord.objects.locked(owner, session_id)
            if record.ended_at is None:
                SessionWrite(record, owner, written_by).break_off()
                record.end()
            session_copies.dropped(key)
        assert record.ended_at is not None  # noqa: S101
        return record.ended_at

    def use(self, owner: Person, session_id: str) -> SessionKey:
        """Return the key of a person's session; raise `SessionNotFound`.

        One that is open lives on. One that is not stays so: what has a time of its own, its
        checkpoint and its files, may still be there.
        """
        key = _key(owner, session_id)
        record = SessionRecord.objects.of(owner, session_id).first()
        if record is None:
            raise SessionNotFound
        if record.is_live():
            record.still_used()
            session_copies.kept_alive(key)
        return key

    def turn_digests(self, owner: Person, session_id: str) -> list[TurnDigest]:
        """Return what each turn of a session, open or not, gives to its digest, oldest first.

        Raises `SessionNotFound`.
        """
        record = SessionRecord.objects.of(owner, _key(owner, session_id).session_id).first()
        if record is None:
            raise SessionNotFound
        turns = ThreadMessage.objects.filter(thread_id=record.thread_id, session_id=session_id)
        told = turns.filter(digest__isnull=False).order_by("position")
        rows = told.values_list("position", "created_at", "digest")
        return [TurnDigest(position, at, digest or {}) for position, at, digest in rows]


def _thread_for(owner: Person, thread_id: uuid.UUID) -> ConversationThread | None:
    """Return a thread that is the person's, None where there is none yet.

    Raises `ThreadNotFound` where it is somebody else's, or was deleted.
    """
    thread = ConversationThread.objects.filter(pk=thread_id).first()
    if thread and (thread.owner_id != owner.pk or thread.deleted_at):
        raise ThreadNotFound
    return thread


def _refuse_other_thread(record: SessionRecord, thread_id: uuid.UUID | None) -> None:
    if thread_id not in (None, record.thread_id):
        raise ThreadConflict(
            "The session sits on another thread already; take another session_id for this one.",
            thread_id=record.thread_id,
        )


def _key(owner: Person, session_id: str) -> SessionKey:
    """Return a session's key; raise `BadId` for an id that can be none."""
    key = SessionKey(owner.tenant, session_id)
    _ = key.tag
    return key
