"""Writing the digest of a session that is over to long-term history, which may be away.

The session's row is the outbox: a claim on it (`claimed_until`, which ends by itself where a
worker died), the digest made from PostgreSQL alone and written outside of any transaction, then
`archived_seq` set to the turn that was the newest when the claim was taken. A message that comes
meanwhile has raised `turn_seq` and so leaves the session due; repeats and races write the same
item. Where the thread was deleted meanwhile, or has nothing to tell any more, the item goes.
"""

from __future__ import annotations

import traceback
import uuid
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from config.errors import Problem
from conversations import digest, history
from conversations.digest import DigestTurn, SessionSummary
from conversations.events import SessionEvent
from conversations.fold_schedule import REQUEUE_SECONDS, fold_rules
from conversations.history_problems import HistoryRefused
from conversations.models import ConversationThread, ThreadMessage
from conversations.session_problems import SessionNotFound
from conversations.session_records import SessionQuerySet, SessionRecord, queue_archive
from conversations.session_turns import messages_of
from conversations.sessions import SessionStore
from rbac.principal import Person

FAILED = "session_not_archived"
# Longer than the longest that DynamoDB's time-outs allow.
_CLAIM = timedelta(seconds=120)

log = structlog.get_logger(__name__)


class ArchiveOutcome(StrEnum):
    """What came of archiving one session."""

    ARCHIVED = "archived"
    NOT_DUE = "not_due"  # or somebody else is at it
    LOST = "lost"  # the claim went to somebody else, or the thread was deleted meanwhile
    FAILED = "failed"


# --- What there is to tell --------------------------------------------------------------------


def language_of(owner: Person) -> str:
    """Return in which language a person's digests are written."""
    return str(settings.LANGUAGE_CODE)


def remembered(sessions: SessionQuerySet) -> SessionQuerySet:
    """Keep sessions on threads whose memory is not switched off."""
    on = ConversationThread.objects.filter(pk=OuterRef("thread_id"))
    silent = on.filter(memory_enabled=False)
    return sessions.exclude(Exists(silent))


def turns_of(owner: Person, session_id: str) -> list[DigestTurn]:
    """Return what the digest of a session is made of; raise `SessionNotFound`."""
    told = SessionStore(owner.tenant).turn_digests(owner, session_id)
    return [DigestTurn.of(one.told, position=one.position, at=one.at) for one in told]


def context_digest(owner: Person, session_id: str) -> str:
    """Return what a prompt is told of its own session so far; raise `SessionNotFound`."""
    turns = turns_of(owner, session_id)
    return digest.build_context_digest(turns, language_of(owner), settings.SESSION_DIGEST_BYTES)


def summary_of(record: SessionRecord, owner: Person) -> SessionSummary | None:
    """Return a session as long-term history keeps it, whole; None where no turn tells anything."""
    try:
        turns = turns_of(owner, record.session_id)
    except SessionNotFound:
        return None
    if not turns:
        return None
    last = max(turn.at for turn in turns)
    return SessionSummary(
        tenant=owner.tenant,
        user_id=owner.user_id,
        session_id=record.session_id,
        summary=digest.build_context_digest(turns, language_of(owner)),
        message_count=record.message_count,
        queries_executed=digest.queries_executed(turns),
        topics=frozenset(digest.topics_of(turns, settings.SESSION_TOPICS)),
        first_message=min(_first_said(record, turns[0]), last),
        last_message=last,
    )


def _first_said(record: SessionRecord, first: DigestTurn) -> datetime:
    """Return when the first turn was asked, where its messages still say so."""
    rows = ThreadMessage.objects.filter(thread_id=record.thread_id, position=first.position)
    for query, answer, payload in rows.values_list("query", "answer", "response_payload"):
        for message in messages_of(query, answer, payload)[:1]:
            return datetime.fromisoformat(message.at)
    return first.at


# --- The sweep --------------------------------------------------------------------------------


def queue_due(limit: int) -> int:
    """Queue jobs for sessions that are due, in the caller's transaction; return how many.

    The longest due first, and none that another sweep is queueing. A job gets the claim with it,
    so that the next sweep leaves its session alone for a while.
    """
    due = remembered(SessionRecord.objects.due()).select_for_update(
        skip_locked=True, no_key=True, of=("self",)
    )
    sessions = list(due.values_list("pk", flat=True)[:limit])
    reserved = timezone.now() + timedelta(seconds=REQUEUE_SECONDS)
    SessionRecord.objects.filter(pk__in=sessions).update(claimed_until=reserved)
    for pk in sessions:
        queue_archive(pk, reserved)
    return len(sessions)


# --- One session ------------------------------------------------------------------------------


def archive(pk: uuid.UUID, reserved: datetime | None = None) -> ArchiveOutcome:
    """Write one session's digest to long-term history, where it is due; see `SessionRecord`."""
    if transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("archive() outside of a transaction")
    claim = _Claim.take(pk, reserved)
    return claim.archive() if claim else ArchiveOutcome.NOT_DUE


class _Claim:
    """The right to archive one session, for a while; `record` is its row as it was then."""

    def __init__(self, record: SessionRecord) -> None:
        self._record = record
        self._until = record.claimed_until
        self._owner = Person.of(record.owner)

    @classmethod
    def take(cls, pk: uuid.UUID, reserved: datetime | None) -> _Claim | None:
        """Claim a session; None where nothing is due, or somebody else's claim stands."""
        now = timezone.now()
        with transaction.atomic():
            record = _locked(pk)
            if record is None or not _is_due(record, now, reserved):
                return None
            record.claimed_until, record.attempts = now + _CLAIM, record.attempts + 1
            record.save(update_fields=["claimed_until", "attempts"])
        return cls(record)

    def archive(self) -> ArchiveOutcome:
        """Write the digest, and note what came of it."""
        try:
            summary = summary_of(self._record, self._owner)
            if summary:
                history.save_session_summary(summary)
            else:
                history.delete_session(self._owner, self._record.session_id)
        except Problem as problem:
            reason = problem.reason if isinstance(problem, HistoryRefused) else ""
            return self._fail(problem.code, {"reason": reason} if reason else {})
        except Exception as error:  # noqa: BLE001  a fault of ours must not be tried again at once
            # Not its text, which may quote what was said.
            frames = traceback.extract_tb(error.__traceback__)[-6:]
            where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
            return self._fail("unexpected", {"error": type(error).__name__, "where": where})
        return self._conclude(summary)

    def _conclude(self, summary: SessionSummary | None) -> ArchiveOutcome:
        with transaction.atomic():
            row = _locked(self._record.pk)
            if row is None or row.thread_id != self._record.thread_id:
                return self._take_back(row)
            if row.claimed_until != self._until:
                return ArchiveOutcome.LOST
            row.archived_seq = max(row.archived_seq, min(self._record.turn_seq, row.turn_seq))
            row.claimed_until, row.attempts = None, 0
            if summary:
                row.topics = sorted(summary.topics)
                row.queries_executed = summary.queries_executed
            row.save(
                update_fields=[
                    "archived_seq", "claimed_until", "attempts", "topics", "queries_executed",
                ]
            )  # fmt: skip
        log.info("session_archived", session=str(row.pk), through=row.archived_seq)
        return ArchiveOutcome.ARCHIVED

    def _take_back(self, row: SessionRecord | None) -> ArchiveOutcome:
        """Have what was written of a deleted thread taken away again, by the next try."""
        if row is not None and row.turn_seq:
            row.archived_seq, row.claimed_until, row.attempts = 0, None, 0
            row.save(update_fields=["archived_seq", "claimed_until", "attempts"])
            queue_archive(row.pk)
        return ArchiveOutcome.LOST

    def _fail(self, code: str, data: dict[str, object]) -> ArchiveOutcome:
        """Note that there is no digest, and when the next try is."""
        about = {"session": str(self._record.pk), **data}
        with transaction.atomic():
            row = _locked(self._record.pk)
            if row is None or row.claimed_until != self._until:
                return ArchiveOutcome.LOST
            # Used meanwhile, it starts anew, and not before it is over again.
            attempt = max(1, row.attempts)
            at = max(row.next_attempt_at, timezone.now() + fold_rules().pause(attempt))
            row.claimed_until, row.next_attempt_at = None, at
            row.save(update_fields=["claimed_until", "next_attempt_at"])
            SessionEvent.emit(
                FAILED, row.thread_id, code=code, attempt=attempt, next_attempt_at=at, data=about
            )
        log.warning(FAILED, code=code, attempt=attempt, next_attempt_at=at.isoformat(), **about)
        return ArchiveOutcome.FAILED


def _locked(pk: uuid.UUID) -> SessionRecord | None:
    rows = SessionRecord.objects.select_for_update(no_key=True, of=("self",))
    return rows.select_related("owner").filter(pk=pk).first()


def _is_due(record: SessionRecord, now: datetime, reserved: datetime | None) -> bool:
    claimed = record.claimed_until
    free = claimed is None or claimed == reserved or claimed <= now
    due = record.archived_seq < record.turn_seq and record.next_attempt_at <= now
    return free and due and remembered(SessionRecord.objects.filter(pk=record.pk)).exists()
