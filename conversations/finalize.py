"""How a turn is written: two statements in the caller's transaction, four at the most.

The first takes the thread's row lock, the second inserts the turn at the next position and
counts it, or finds that it is stored already. Written as SQL since the ORM can't say "insert, and
count only if it was new" in one statement. The model's verb for it is
`ConversationThread.objects.finalize_turn`.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from config.errors import Invalid
from config.plain_json import dump_bytes
from conversations import invalidation
from conversations.conversation_memory import get_conversation_memory
from conversations.exceptions import (
    AgentTypeRequired,
    StalePosition,
    ThreadNotFound,
    TurnConflict,
    TurnElsewhere,
)
from conversations.pieces import TurnPieces, turn_pieces
from conversations.tokenizer import count_tokens
from conversations.turns import Status, TurnBody
from rbac.principal import Person

# A caller's clock may be ahead of ours by this much; its time is then taken as now.
_CLOCK_SKEW = timedelta(minutes=5)

_LOCK = """
SELECT turn_count, version, agent_type, title, folded_through, (SELECT epoch FROM database_epoch)
FROM conversation_threads WHERE id = %s AND owner_id = %s AND deleted_at IS NULL
FOR NO KEY UPDATE"""

_EXISTS = "SELECT 1 FROM conversation_threads WHERE id = %s"

# Two first uses of one turn id in two new threads wait for each other here.
_LOCK_FIRST_USE = "SELECT pg_advisory_xact_lock(%s::bigint)"

_ELSEWHERE = """
SELECT 1 FROM thread_messages m JOIN conversation_threads t ON t.id = m.thread_id
WHERE m.session_uuid = %s AND m.thread_id <> %s AND t.owner_id = %s LIMIT 1"""

_TURN_COLUMNS = """
(thread_id, position, session_uuid, agent_type, status, query, answer, artifacts, response_payload,
 waiting_for, error_code, revision, session_id, written_by, body_sha256, tokens, render_version,
 created_at)"""
_TURN_VALUES = """
%(position)s::int, %(turn)s::uuid, %(agent_type)s::text, %(status)s::text, %(query)s::text,
%(answer)s::text, %(artifacts)s::json, %(payload)s::json, %(waiting_for)s::text,
%(error_code)s::text, %(revision)s::int, %(session_id)s::text, %(written_by)s::uuid,
%(sha256)s::bytea, %(tokens)s::int[], %(render_version)s::int, %(at)s::timestamptz"""

_FIRST = f"""
WITH thread AS (
  INSERT INTO conversation_threads
    (id, tenant, owner_id, agent_type, title, turn_count, version,
     created_at, last_turn_at, touched_at)
  VALUES (%(thread)s, %(tenant)s, %(owner)s, %(agent_type)s, %(title)s, 1, 1,
          %(at)s, %(at)s, statement_timestamp())
  ON CONFLICT (id) DO NOTHING RETURNING id)
INSERT INTO thread_messages {_TURN_COLUMNS}
SELECT id, {_TURN_VALUES} FROM thread
RETURNING 1, (SELECT epoch FROM database_epoch)"""  # noqa: S608  constants of this module

_NEXT = f"""
WITH turn AS (
  INSERT INTO thread_messages {_TURN_COLUMNS}
  VALUES (%(thread)s::uuid, {_TURN_VALUES})
  ON CONFLICT (session_uuid, thread_id) DO NOTHING RETURNING 1)
UPDATE conversation_threads t
SET turn_count = t.turn_count + 1, version = t.version + 1,
    last_turn_at = greatest(t.last_turn_at, %(at)s::timestamptz),
    touched_at = statement_timestamp(), archived_at = NULL
FROM turn WHERE t.id = %(thread)s::uuid RETURNING t.version"""  # noqa: S608

_STORED = """
SELECT position, status, query, revision, body_sha256, pending_sha256, created_at
FROM thread_messages WHERE session_uuid = %s AND thread_id = %s"""

_COMPLETE = """
WITH turn AS (
  UPDATE thread_messages
  SET status = %(status)s, answer = %(answer)s, artifacts = %(artifacts)s::json,
      response_payload = %(payload)s::json, waiting_for = %(waiting_for)s,
      error_code = %(error_code)s, revision = %(revision)s, agent_type = %(agent_type)s,
      pending_sha256 = body_sha256, body_sha256 = %(sha256)s, tokens = %(tokens)s::int[],
      render_version = %(render_version)s, written_by = %(written_by)s,
      stored_at = statement_timestamp()
  WHERE thread_id = %(thread)s AND session_uuid = %(turn)s RETURNING position)
UPDATE conversation_threads t
SET version = t.version + 1, fold_epoch = t.fold_epoch + 1, touched_at = statement_timestamp(),
    amended_positions = CASE WHEN turn.position <= t.folded_through
      THEN t.amended_positions || turn.position ELSE t.amended_positions END
FROM turn WHERE t.id = %(thread)s RETURNING t.version"""


@dataclass(frozen=True, slots=True)
class FinalizedTurn:
    """A turn as it stands now; `created` tells whether this call wrote it first."""

    thread_id: uuid.UUID
    turn_id: uuid.UUID
    position: int
    status: str
    title: str
    created_at: datetime
    created: bool


@dataclass(frozen=True, slots=True)
class TurnWrite:
    """One turn to be written: whose, where, what, and the caller's conditions on it."""

    owner: Person
    thread_id: uuid.UUID
    turn_id: uuid.UUID
    body: TurnBody
    written_by: uuid.UUID
    created_at: datetime
    expected_position: int | None = None


class _Locked(NamedTuple):
    turn_count: int
    version: int
    agent_type: str
    title: str
    folded_through: int
    epoch: uuid.UUID


class _Stored(NamedTuple):
    position: int
    status: str
    query: str
    revision: int
    body_sha256: bytes
    pending_sha256: bytes | None
    created_at: datetime


def turn_time(created_at: datetime | None) -> datetime:
    """Return when a turn was made: now, or what an import says, which can't be in the future.

    Raises `Invalid` for a time more than five minutes ahead.
    """
    now = datetime.now(UTC)
    if created_at is None:
        return now
    if created_at.tzinfo is None:
        created_at = created_at.replace(tzinfo=UTC)
    if created_at > now + _CLOCK_SKEW:
        message = "A turn can't be from the future."
        raise Invalid(message, errors={"created_at": [message]})
    return min(created_at.astimezone(UTC), now)


def write_turn(write: TurnWrite) -> FinalizedTurn:
    """Write `write` in the caller's transaction and have the working set told on commit."""
    thread = _lock(write)
    if thread is None:
        first = _write_first(write)
        if first is not None:
            return first
        thread = _lock(write)
        if thread is None:
            raise ThreadNotFound
    return _write_next(write, thread)


def _lock(write: TurnWrite) -> _Locked | None:
    row = _one(_LOCK, [write.thread_id, write.owner.pk])
    return _Locked(*row) if row else None


def _write_first(write: TurnWrite) -> FinalizedTurn | None:
    """Write a thread with its first turn; None where the thread exists after all."""
    body, at = write.body, write.created_at
    if write.expected_position not in (None, 1):
        if _one(_EXISTS, [write.thread_id]):
            raise ThreadNotFound
        raise StalePosition("The thread has no turns yet.", turn_count=0)
    _one(_LOCK_FIRST_USE, [_advisory_key(write)])
    if _one(_ELSEWHERE, [write.turn_id, write.thread_id, write.owner.pk]):
        raise TurnElsewhere("This turn_id is stored in another thread of the same person.")
    if body.agent_type is None:
        raise AgentTypeRequired
    pieces = _pieces(write, 1)
    title = body.title()
    values = {
        **_values(write, pieces, body.agent_type),
        "tenant": write.owner.tenant,
        "owner": write.owner.pk,
        "title": title,
    }
    if not _one(_FIRST, values):
        return None
    return FinalizedTurn(
        write.thread_id, write.turn_id, 1, body.status.value, title, at, created=True
    )


def _write_next(write: TurnWrite, thread: _Locked) -> FinalizedTurn:
    position = thread.turn_count + 1
    if write.expected_position not in (None, position):
        stored = _stored(write)
        if stored is None:
            raise StalePosition(
                f"The next turn gets position {position}, not {write.expected_position}.",
                turn_count=thread.turn_count,
            )
        return _repeat(write, thread, stored)
    pieces = _pieces(write, position)
    row = _one(_NEXT, _values(write, pieces, thread.agent_type))
    if row is None:
        return _repeat(write, thread, _stored(write))
    _tell_append(write.thread_id, row[0], pieces, str(thread.epoch))
    return FinalizedTurn(
        write.thread_id, write.turn_id, position, write.body.status.value, thread.title,
        write.created_at, created=True,
    )  # fmt: skip


def _repeat(write: TurnWrite, thread: _Locked, stored: _Stored | None) -> FinalizedTurn:
    """Answer a turn that is stored already.

    It is the same again, a revision of a pending one, or a conflict.
    """
    if stored is None:  # deleted in between: only possible without the row lock
        raise ThreadNotFound
    status = stored.status
    sha256 = _sha256(write, thread.agent_type)
    if sha256 in (bytes(stored.body_sha256), bytes(stored.pending_sha256 or b"")):
        version, epoch = thread.version, str(thread.epoch)
        invalidation.once_committed(
            write.thread_id, lambda memory: memory.confirm(write.thread_id, version, epoch)
        )
    elif _is_revision(write.body, stored):
        _complete(write, thread, stored)
        status = write.body.status.value
    else:
        raise TurnConflict(
            "This turn_id is stored already, with another body.",
            stored={"position": stored.position, "status": status},
        )
    return FinalizedTurn(
        write.thread_id, write.turn_id, stored.position, status, thread.title,
        stored.created_at, created=False,
    )  # fmt: skip


def _is_revision(body: TurnBody, stored: _Stored) -> bool:
    return (
        stored.status == Status.PENDING
        and body.revision > stored.revision
        and body.query == stored.query
    )


def _complete(write: TurnWrite, thread: _Locked, stored: _Stored) -> None:
    pieces = _pieces(write, stored.position, stored.created_at)
    row = _one(_COMPLETE, _values(write, pieces, thread.agent_type))
    assert row is not None  # noqa: S101  the row is locked
    version, epoch = row[0], str(thread.epoch)
    invalidation.once_committed(
        write.thread_id,
        lambda memory: memory.replace(write.thread_id, version, pieces, epoch),
    )


def _tell_append(thread_id: uuid.UUID, version: int, pieces: TurnPieces, epoch: str) -> None:
    invalidation.once_committed(
        thread_id, lambda memory: memory.append(thread_id, version, pieces, epoch)
    )


def _pieces(write: TurnWrite, position: int, created_at: datetime | None = None) -> TurnPieces:
    body = write.body
    return turn_pieces(
        position=position,
        created_at=created_at or write.created_at,
        query=body.query,
        answer=body.answer,
        artifacts=body.stored_artifacts,
        status=body.status,
        waiting_for=body.waiting_for,
        error_code=body.error_code,
        fence=get_conversation_memory().fence(write.thread_id),
        part_max_chars=settings.CONTEXT_PART_MAX_CHARS,
        count=count_tokens,
    )


def _sha256(write: TurnWrite, thread_agent_type: str) -> bytes:
    agent_type = write.body.agent_type or thread_agent_type
    return write.body.sha256(write.owner.user_id, agent_type)


def _values(write: TurnWrite, pieces: TurnPieces, thread_agent_type: str) -> dict[str, Any]:
    body = write.body
    return {
        "thread": write.thread_id,
        "turn": write.turn_id,
        "position": pieces.position,
        "agent_type": str(body.agent_type or thread_agent_type),
        "status": body.status.value,
        "query": body.query,
        "answer": body.answer,
        "artifacts": dump_bytes(list(body.stored_artifacts)).decode(),
        "payload": None
        if body.response_payload is None
        else dump_bytes(body.response_payload).decode(),
        "waiting_for": body.waiting_for,
        "error_code": body.error_code,
        "revision": body.revision,
        "session_id": body.session_id,
        "written_by": write.written_by,
        "sha256": _sha256(write, thread_agent_type),
        "tokens": list(pieces.tokens),
        "render_version": get_conversation_memory().render_version,
        "at": write.created_at,
    }


def _stored(write: TurnWrite) -> _Stored | None:
    row = _one(_STORED, [write.turn_id, write.thread_id])
    return _Stored(*row) if row else None


def _advisory_key(write: TurnWrite) -> int:
    digest = hashlib.sha256(write.owner.pk.bytes + write.turn_id.bytes).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _one(sql: str, params: list[Any] | Mapping[str, Any]) -> tuple[Any, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row
