"""Jobs for django-q2: they take ids, are idempotent and hold no logic of their own."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django_q.models import OrmQ

from conversations import checkpoint_retention, session_archive
from conversations.models import ConversationThread, SessionRecord

# A sweep queues no more than this, less what waits already: a queue that is not worked off must
# not grow with every minute.
_QUEUE_AT_MOST = 500
_PRUNE_SECONDS = 60


def fold_thread(thread_id: str) -> str:
    """Fold one window of a thread; return what came of it (`folds.FoldOutcome`)."""
    return str(ConversationThread(pk=uuid.UUID(thread_id)).fold())


def sweep_folds() -> int:
    """Queue what is due and has no job: lost, unverifiable, never queued; return how many."""
    with transaction.atomic():
        room = _room()
        return ConversationThread.objects.queue_due_folds(room) if room > 0 else 0


def archive_session(pk: str, reserved: str | None = None) -> str:
    """Write a session's digest to long-term history; return `session_archive.ArchiveOutcome`.

    `reserved` is the ISO time of the claim that a sweep has set aside for this job.
    """
    claim = datetime.fromisoformat(reserved) if reserved else None
    return str(SessionRecord(pk=uuid.UUID(pk)).archive(claim))


def sweep_sessions() -> int:
    """Queue the digests of sessions that are over, ended or expired; return how many."""
    with transaction.atomic():
        room = _room()
        return session_archive.queue_due(room) if room > 0 else 0


def _room() -> int:
    waiting: int = OrmQ.objects.all()[:_QUEUE_AT_MOST].count()
    return _QUEUE_AT_MOST - waiting


def drop_copies_touched_since(since: str) -> int:
    """Drop the working sets of all threads touched since an ISO time; return how many.

    Queued when Redis did not take a change (`invalidation.py`). Raises
    `config.redis.RedisUnavailable` while it does not answer, and is then run again.
    """
    return ConversationThread.objects.drop_copies_touched_since(datetime.fromisoformat(since))


def prune_checkpoints() -> int:
    """Delete LangGraph checkpoints unused for CHECKPOINT_RETENTION_DAYS; return how many.

    0 days keep them for good. What one run leaves, the next day's takes.
    """
    days = settings.CHECKPOINT_RETENTION_DAYS
    if not days:
        return 0
    pruned = checkpoint_retention.prune_checkpoints(days, at_most_seconds=_PRUNE_SECONDS)
    return pruned.rows.checkpoints
