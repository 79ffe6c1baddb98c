"""What a person and a new session are told of earlier sessions.

Long-term history in DynamoDB, and those sessions of PostgreSQL whose digest is not there yet, so
that a session is told of the one that ended a moment ago. While DynamoDB is away, the latter
alone, and `whole` says so. Nothing of threads whose memory is switched off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import structlog
from django.conf import settings
from django.db.models import F

from conversations import history
from conversations.digest import SessionSummary
from conversations.earlier_sessions import build_cross_session_context, newest_sessions
from conversations.history_problems import HistoryRefused, HistoryUnavailable
from conversations.models import ConversationThread
from conversations.session_archive import language_of, remembered, summary_of
from conversations.session_records import SessionRecord
from rbac.principal import Person


class Earlier(NamedTuple):
    """Sessions of a person, newest first; not `whole` while DynamoDB could not be read."""

    sessions: Sequence[SessionSummary]
    whole: bool


class EarlierDigest(NamedTuple):
    """The text about earlier sessions that a prompt gets as `session_digest`."""

    text: str
    whole: bool


def earlier_sessions(owner: Person, limit: int, without: str | None = None) -> Earlier:
    """Return a person's newest sessions, without one of them."""
    waiting = _waiting(owner, limit, without)
    try:
        # One more, and those that turn out not to be told of.
        kept, whole = history.get_user_history(owner, limit + 1), True
    except (HistoryUnavailable, HistoryRefused) as problem:
        structlog.get_logger(__name__).warning("earlier_sessions_missing", code=problem.code)
        kept, whole = [], False
    silent = _silent(owner, [one.session_id for one in kept])
    told = [one for one in kept if one.session_id not in silent and one.session_id != without]
    return Earlier(newest_sessions(told, waiting, limit=limit), whole)


def earlier_digest(owner: Person, without: str | None = None) -> EarlierDigest:
    """Return what a new session is told of a person's sessions before it, never an error."""
    read = max(settings.HISTORY_SESSIONS, settings.HISTORY_CONTEXT_SESSIONS)
    earlier = earlier_sessions(owner, read, without)
    text = build_cross_session_context(
        earlier.sessions,
        language_of(owner),
        settings.HISTORY_CONTEXT_SESSIONS,
        settings.HISTORY_CONTEXT_BYTES,
    )
    return EarlierDigest(text, earlier.whole)


def session_digest(owner: Person, session_id: str, thread_id: object) -> EarlierDigest:
    """Return what one session is told of those before it: nothing where its memory is off."""
    silent = ConversationThread.objects.filter(pk=thread_id, memory_enabled=False)
    if silent.exists():
        return EarlierDigest("", whole=True)
    return earlier_digest(owner, session_id)


def _waiting(owner: Person, limit: int, without: str | None) -> list[SessionSummary]:
    """Return the newest sessions with turns that no digest in DynamoDB holds."""
    sessions = SessionRecord.objects.filter(
        tenant=owner.tenant, owner_id=owner.pk, archived_seq__lt=F("turn_seq")
    )
    newest = remembered(sessions).exclude(session_id=without or "").order_by("-last_seen_at")
    return list(filter(None, (summary_of(record, owner) for record in newest[:limit])))


def _silent(owner: Person, session_ids: Sequence[str]) -> set[str]:
    """Return of which of some sessions nothing may be told, though a digest is there.

    Their thread's memory is switched off, or was deleted and the digest is about to go.
    """
    found = SessionRecord.objects.filter(
        tenant=owner.tenant, owner_id=owner.pk, session_id__in=session_ids
    )
    every = set(found.values_list("session_id", flat=True))
    told = remembered(found).filter(archived_seq__gt=0)
    return every - set(told.values_list("session_id", flat=True))
