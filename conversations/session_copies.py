"""Reading a live session: from Redis where that can be trusted, else from PostgreSQL.

And telling Redis of what has changed, once that is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog
from django.conf import settings
from django.db import transaction

from config import redis as redis_gate
from config.errors import Problem
from config.redis import RedisUnavailable
from conversations.live_session import Session
from conversations.messages import Message
from conversations.session_keys import SessionKey
from conversations.session_memory import (
    Known,
    SessionCopy,
    SessionMeta,
    SessionMiss,
    get_session_memory,
)
from conversations.session_problems import SessionNotFound
from conversations.session_records import SessionRecord, session_ttl
from conversations.session_writes import session_messages
from conversations.uploads import get_upload_store
from rbac.principal import Person

log = structlog.get_logger(__name__)


def read(key: SessionKey, owner: Person, newest: int = 0) -> Session:
    """Return a person's open session, and let it live on; raise `SessionNotFound`.

    With `newest`, perhaps only that many of its messages, besides those that opened it.
    """
    found = _read_copy(key, owner, newest)
    if isinstance(found, SessionMiss):
        return _rebuilt(key, owner, found)
    if found.owner != str(owner.pk):
        return _rebuilt(key, owner, SessionMiss("other_owner", may_fill=False))
    if _is_doubtful(found) and not _is_current(owner, key, found):
        return _rebuilt(key, owner, SessionMiss("stale", b"%d" % found.count))
    if found.has_files:
        _renew_files(key)
    return _of_copy(owner, key.session_id, found)


def known(
    key: SessionKey, owner: Person, messages: Sequence[Message]
) -> tuple[int, Mapping[str, Known]]:
    """Return through which number a copy is whole, and which of some messages it holds.

    Where there is none, one is put in place first: the next messages will come to it.
    """
    ids = [message.message_id for message in messages]
    memory = get_session_memory()
    try:
        found = memory.known(key, owner.pk, ids)
        if found is None:
            with suppress(SessionNotFound):
                read(key, owner)
            found = memory.known(key, owner.pk, ids)
    except RedisUnavailable:
        found = None
    return found or (0, {})


def appended(key: SessionKey, messages: Sequence[Message], known_at: float) -> None:
    """Tell Redis, once it is committed, of messages that were the newest at `known_at`."""
    transaction.on_commit(lambda: _tell(key, lambda: _append(key, messages, known_at)), robust=True)


def dropped(key: SessionKey) -> None:
    """Drop a session's copy, once what makes it wrong is committed."""
    transaction.on_commit(lambda: _tell(key, lambda: get_session_memory().drop(key)), robust=True)


def kept_alive(key: SessionKey) -> None:
    """Let a session live on, with its checkpoint and its files."""
    _tell(key, lambda: _append(key, [], 0.0))


def _read_copy(key: SessionKey, owner: Person, newest: int) -> SessionCopy | SessionMiss:
    try:
        return get_session_memory().read(key, owner.pk, newest)
    except RedisUnavailable:
        return SessionMiss("unavailable", may_fill=False)


def _of_copy(owner: Person, session_id: str, copy: SessionCopy) -> Session:
    return Session(owner, session_id, *copy.meta, copy.count, "cache", copy.messages, copy.whole)


def _is_doubtful(copy: SessionCopy) -> bool:
    """Whether a copy may lack a message: it was not compared lately, or this process lost touch."""
    now, skew = time.time(), redis_gate.CLOCK_SKEW_SECONDS
    return (
        copy.checked_at <= now - settings.MEMORY_CHECK_SECONDS
        or copy.checked_at <= redis_gate.breaker.last_failure + skew
        or copy.checked_at > now + skew
    )


def _is_current(owner: Person, key: SessionKey, copy: SessionCopy) -> bool:
    """Look up whether the table shows what the copy does, and note it, and the use, where so."""
    looked_at = time.time()
    record = SessionRecord.objects.of(owner, key.session_id).first()
    if record is None or not record.is_live() or record.message_count != copy.count:
        return False
    record.still_used()
    with suppress(RedisUnavailable):  # then it is looked up again next time
        get_session_memory().mark_checked(key, copy.count, looked_at)
    return True


def _rebuilt(key: SessionKey, owner: Person, miss: SessionMiss) -> Session:
    """Put a session together from PostgreSQL, and its copy where this reader got the lease.

    Nobody's copy is touched before it is clear whose session it is.
    """
    record = SessionRecord.objects.of(owner, key.session_id).first()
    if record is None or not record.is_live():
        raise SessionNotFound
    read_at, lease = time.time(), _lease(key, miss)
    with transaction.atomic():
        record = SessionRecord.objects.locked(owner, key.session_id)
        messages = session_messages(record)
        record.seen()
    session = _of_record(owner, record, messages)
    if miss.reason == "other_owner":  # it is theirs, so the copy is wrong
        _tell(key, lambda: get_session_memory().drop(key))
    if lease:
        _fill(key, lease, session, read_at)
    return session


def _of_record(owner: Person, record: SessionRecord, messages: list[Message]) -> Session:
    meta = SessionMeta(record.thread_id, record.agent_type, record.opened_at)
    return Session(owner, record.session_id, *meta, record.message_count, "database", messages)


def _lease(key: SessionKey, miss: SessionMiss) -> str | None:
    # What a transaction reads may never be committed, or be older than the lease.
    if transaction.get_connection().in_atomic_block:
        return None
    try:
        return get_session_memory().lease(key, miss)
    except RedisUnavailable:
        return None


def _fill(key: SessionKey, lease: str, session: Session, read_at: float) -> None:
    with suppress(RedisUnavailable):
        get_session_memory().fill(
            key, lease, session.owner.pk,
            SessionMeta(session.thread_id, session.agent_type, session.opened_at),
            session.message_count, session.messages, read_at,
        )  # fmt: skip
        _renew_files(key)


def _append(key: SessionKey, messages: Sequence[Message], known_at: float) -> None:
    if get_session_memory().append(key, messages, known_at):
        _renew_files(key)


def _renew_files(key: SessionKey) -> None:
    """Let a session's files live on with it; they are nobody's concern where that fails."""
    with suppress(Problem):
        get_upload_store().renew(key, int(session_ttl().total_seconds()))


def _tell(key: SessionKey, change: Callable[[], None]) -> None:
    """Tell Redis of a committed change; where that fails the copy goes, or is looked up again.

    As with working sets (`invalidation.py`): one DEL on a fresh connection, and until that could
    be done every process compares the copy with the table within `MEMORY_CHECK_SECONDS`, this one
    at once.
    """
    try:
        change()
    except Exception as error:  # whatever it was, the copy may be behind
        if not isinstance(error, RedisUnavailable):
            log.error("session_copy_update_failed", exc_info=error)
        with suppress(RedisUnavailable):
            get_session_memory().drop_fresh(key)
