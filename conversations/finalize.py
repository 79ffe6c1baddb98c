"""How a turn is written: two statements in the caller's transaction, three for a first one.

Four for a repeat or a revision; a fifth only where different first turns of one thread race. One
more each time a fold falls due, about every tenth turn: its job's row.

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
from conversations.fold_schedule import fold_rules, queue_fold
from conversations.pieces import TurnPieces, turn_pieces
from conversations.tokenizer import count_tokens
from conversations.turns import Status, TurnBody
from rbac.principal import Person

# A caller's clock may be ahead of ours by this much; its time is then taken as now.
_CLOCK_SKEW = timedelta(minutes=5)

_THREAD_COLUMNS = """t.turn_count, t.version, t.agent_type, t.title,
(SELECT epoch FROM database_epoch), t.folded_through, t.memory_enabled, t.fold_due_at,
statement_timestamp()"""
_LOCK = f"""
SELECT {_THREAD_COLUMNS} FROM conversation_threads t
WHERE t.id = %s AND t.owner_id = %s AND t.deleted_at IS NULL
FOR NO KEY UPDATE"""  # noqa: S608  constants of this module, here and below

_EXISTS = "SELECT 1 FROM conversation_threads WHERE id = %s"

# First turns that are put at once wait for each other here: those of one thread, so that all but
# one find it made, and those of one turn id, so that all but one find it standing elsewhere. Always
# in this order, so that no two transactions wait for each other in a circle.
_LOCK_FIRST_USE = "SELECT pg_advisory_xact_lock(%s::bigint), pg_advisory_xact_lock(%s::bigint)"

_ELSEWHERE = """
SELECT 1 FROM thread_messages m JOIN conversation_threads t ON t.id = m.thread_id
WHERE m.session_uuid = %(turn)s::uuid AND m.thread_id <> %(thread)s::uuid
  AND t.owner_id = %(owner)s::uuid LIMIT 1"""

_TURN_COLUMNS = """
(thread_id, position, session_uuid, agent_type, status, query, answer, artifacts, response_payload,
 waiting_for, error_code, revision, session_id, digest, written_by, body_sha256, tokens,
 render_version, created_at)"""
_TURN_VALUES = """
%(position)s::int, %(turn)s::uuid, %(agent_type)s::text, %(status)s::text, %(query)s::text,
%(answer)s::text, %(artifacts)s::json, %(payload)s::json, %(waiting_for)s::text,
%(error_code)s::text, %(revision)s::int, %(session_id)s::text, %(digest)s::json,
%(written_by)s::uuid, %(sha256)s::bytea, %(tokens)s::int[], %(render_version)s::int,
%(at)s::timestamptz"""

_FIRST = f"""
WITH thread AS (
  INSERT INTO conversation_threads
    (id, tenant, owner_id, agent_type, title, turn_count, version,
     created_at, last_turn_at, touched_at)
  SELECT %(thread)s::uuid, %(tenant)s::text, %(owner)s::uuid, %(agent_type)s::text,
         %(title)s::text, 1, 1, %(at)s::timestamptz, %(at)s::timestamptz, statement_timestamp()
  WHERE NOT EXISTS ({_ELSEWHERE})
  ON CONFLICT (id) DO NOTHING RETURNING id)
INSERT INTO thread_messages {_TURN_COLUMNS}
SELECT id, {_TURN_VALUES} FROM thread
RETURNING 1"""  # noqa: S608

_NEXT = f"""
WITH turn AS (
  INSERT INTO thread_messages {_TURN_COLUMNS}
  VALUES (%(thread)s::uuid, {_TURN_VALUES})
  ON CONFLICT (session_uuid, thread_id) DO NOTHING RETURNING 1)
UPDATE conversation_threads t
SET turn_count = t.turn_count + 1, version = t.version + 1,
    last_turn_at = greatest(t.last_turn_at, %(at)s::timestamptz),
    touched_at = statement_timestamp(), archived_at = NULL,
    fold_due_at = coalesce(%(fold_due_at)s::timestamptz, t.fold_due_at)
FROM turn WHERE t.id = %(thread)s::uuid RETURNING t.version"""  # noqa: S608

_STORED_COLUMNS = """m.position, m.status, m.query, m.revision, m.body_sha256, m.pending_sha256,
m.created_at"""
_STORED = f"""
SELECT {_STORED_COLUMNS} FROM thread_messages m
WHERE m.session_uuid = %s AND m.thread_id = %s"""  # noqa: S608

# Both at once: only where no earlier statement could have waited for the row lock.
_LOCK_AND_STORED = f"""
SELECT {_THREAD_COLUMNS}, {_STORED_COLUMNS} FROM conversation_threads t
LEFT JOIN thread_messages m ON m.thread_id = t.id AND m.session_uuid = %s
WHERE t.id = %s AND t.owner_id = %s AND t.deleted_at IS NULL
FOR NO KEY UPDATE OF t"""  # noqa: S608

_COMPLETE = """
WITH turn AS (
  UPDATE thread_messages
  SET status = %(status)s, answer = %(answer)s, artifacts = %(artifacts)s::json,
      response_payload = %(payload)s::json, waiting_for = %(waiting_for)s,
      error_code = %(error_code)s, revision = %(revision)s, agent_type = %(agent_type)s,
      digest = %(digest)s::json,
      pending_sha256 = body_sha256, body_sha256 = %(sha256)s, tokens = %(tokens)s::int[],
      render_version = %(render_version)s, written_by = %(written_by)s,
      stored_at = statement_timestamp()
  WHERE thread_id = %(thread)s AND session_uuid = %(turn)s RETURNING position)
UPDATE conversation_threads t
SET version = t.version + 1, touched_at = statement_timestamp(),
    -- A running fold has read the turns of its window. What it makes of them stands, unless one
    -- of them is final only now: a pending one may change again and again.
    fold_epoch = t.fold_epoch + (%(is_final)s AND turn.position > t.folded_through
      AND turn.position <= t.folded_through + %(fold_window)s::int)::int,
    amended_positions = CASE WHEN %(is_final)s AND turn.position <= t.folded_through
      THEN t.amended_positions || turn.position ELSE t.amended_positions END,
    fold_due_at = CASE
      WHEN %(is_final)s AND turn.position <= t.folded_through AND t.memory_enabled
      THEN coalesce(t.fold_due_at, statement_timestamp()) ELSE t.fold_due_at END
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
    epoch: uuid.UUID
    folded_through: int
    memory_enabled: bool
    fold_due_at: datetime | None
    now: datetime

    def next_fold_at(self) -> datetime | None:
        """Return when a fold is to be tried that is queued with the next turn; None if none is."""
        if not self.memory_enabled:
            return None
        return fold_rules().next_try(
            self.folded_through, self.turn_count + 1, self.fold_due_at, self.now
        )


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
    return _write_next(write, thread) if thread else _write_first(write)


def _lock(write: TurnWrite) -> _Locked | None:
    row = _one(_LOCK, [write.thread_id, write.owner.pk])
    return _Locked(*row) if row else None


def _write_first(write: TurnWrite) -> FinalizedTurn:
    """Write a thread with its first turn, or go on where others have made it meanwhile."""
    body = write.body
    _refuse_hopeless_first(write)
    _one(_LOCK_FIRST_USE, _advisory_keys(write))
    title = body.title()
    values = {
        **_values(write, _pieces(write, 1), str(body.agent_type)),
        "tenant": write.owner.tenant,
        "owner": write.owner.pk,
        "title": title,
    }
    if not _one(_FIRST, values):
        return _write_after_all(write)
    return _finalized(write, 1, body.status, title, write.created_at, created=True)


def _refuse_hopeless_first(write: TurnWrite) -> None:
    if write.expected_position not in (None, 1):
        if _one(_EXISTS, [write.thread_id]):
            raise ThreadNotFound
        raise StalePosition("The thread has no turns yet.", turn_count=0)
    if write.body.agent_type is None:
        raise AgentTypeRequired


def _write_after_all(write: TurnWrite) -> FinalizedTurn:
    """Write to a thread that was made, or say why no thread could be, after `_FIRST` gave none."""
    row = _one(_LOCK_AND_STORED, [write.turn_id, write.thread_id, write.owner.pk])
    if row:
        thread, stored = _Locked(*row[: len(_Locked._fields)]), row[len(_Locked._fields) :]
        if stored[0] is not None:
            return _repeat(write, thread, _Stored(*stored))
        return _write_next(write, thread)
    ids = {"turn": write.turn_id, "thread": write.thread_id, "owner": write.owner.pk}
    if _one(_ELSEWHERE, ids):
        raise TurnElsewhere("This turn_id is stored in another thread of the same person.")
    raise ThreadNotFound


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
    fold_at = thread.next_fold_at()
    values = {**_values(write, pieces, thread.agent_type), "fold_due_at": fold_at}
    row = _one(_NEXT, values)
    if row is None:
        return _repeat(write, thread, _stored(write))
    version, epoch = row[0], str(thread.epoch)
    if fold_at:
        queue_fold(write.thread_id)
    invalidation.once_committed(
        write.thread_id, lambda memory: memory.append(write.thread_id, version, pieces, epoch)
    )
    return _finalized(
        write, position, write.body.status, thread.title, write.created_at, created=True
    )


def _repeat(write: TurnWrite, thread: _Locked, stored: _Stored | None) -> FinalizedTurn:
    """Answer a turn that is stored already.

    It is a revision of a pending one, the same again, or a conflict. A revision is looked for
    first: it may say the same as one before it, or change what is no part of the identity.
    """
    if stored is None:  # deleted in between: only possible without the row lock
        raise ThreadNotFound
    if _is_revision(write.body, stored):
        _complete(write, thread, stored)
        status: str = write.body.status
    elif _is_same(write, thread, stored):
        version, epoch = thread.version, str(thread.epoch)
        invalidation.once_committed(
            write.thread_id, lambda memory: memory.confirm(write.thread_id, version, epoch)
        )
        status = stored.status
    else:
        raise TurnConflict(
            "This turn_id is stored already, with another body or a later revision.",
            stored={
                "position": stored.position,
                "status": stored.status,
                "revision": stored.revision,
            },
        )
    return _finalized(
        write, stored.position, status, thread.title, stored.created_at, created=False
    )


def _finalized(
    write: TurnWrite, position: int, status: str, title: str, at: datetime, *, created: bool
) -> FinalizedTurn:
    return FinalizedTurn(
        write.thread_id, write.turn_id, position, str(status), title, at, created=created
    )


def _is_revision(body: TurnBody, stored: _Stored) -> bool:
    return (
        stored.status == Status.PENDING
        and body.revision > stored.revision
        and body.query == stored.query
    )


def _is_same(write: TurnWrite, thread: _Locked, stored: _Stored) -> bool:
    """Whether the body is the stored one, or the pending one that it completed."""
    known = (bytes(stored.body_sha256), bytes(stored.pending_sha256 or b""))
    return _sha256(write, thread.agent_type) in known


def _complete(write: TurnWrite, thread: _Locked, stored: _Stored) -> None:
    pieces = _pieces(write, stored.position, stored.created_at)
    values = {
        **_values(write, pieces, thread.agent_type),
        "is_final": write.body.status != Status.PENDING,
        "fold_window": fold_rules().window,
    }
    row = _one(_COMPLETE, values)
    assert row is not None  # noqa: S101  the row is locked
    version, epoch = row[0], str(thread.epoch)
    invalidation.once_committed(
        write.thread_id,
        lambda memory: memory.replace(write.thread_id, version, pieces, epoch),
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
        "payload": _json(body.response_payload),
        "digest": _json(body.digest),
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


def _json(value: Any) -> str | None:
    return None if value is None else dump_bytes(value).decode()


def _stored(write: TurnWrite) -> _Stored | None:
    row = _one(_STORED, [write.turn_id, write.thread_id])
    return _Stored(*row) if row else None


def _advisory_keys(write: TurnWrite) -> list[int]:
    owner, thread, turn = write.owner.pk.bytes, write.thread_id.bytes, write.turn_id.bytes
    return [_advisory_key(b"thread" + thread), _advisory_key(b"turn" + owner + turn)]


def _advisory_key(of: bytes) -> int:
    return int.from_bytes(hashlib.sha256(of).digest()[:8], "big", signed=True)


def _one(sql: str, params: list[Any] | Mapping[str, Any]) -> tuple[Any, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row
