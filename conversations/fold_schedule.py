"""When folds are due, and how they are queued: jobs for django-q2, as rows of the same database.

A job that was queued in a transaction exists exactly when that commits (rule 7). It takes an id
and holds no logic; one that is lost, late, repeated or run beside another does no harm.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django_q.tasks import async_task

from conversations.folding import REQUEUE_SECONDS, FoldRules

__all__ = ["REQUEUE_SECONDS", "fold_rules", "queue_fold"]

JOB = "conversations.tasks.fold_thread"


def fold_rules() -> FoldRules:
    """Return how folding is tuned by the settings."""
    return FoldRules(
        keep=settings.MEMORY_MAX_RECENT_MESSAGES,
        threshold=settings.MEMORY_COMPRESSION_THRESHOLD,
        input_tokens=settings.FOLD_INPUT_TOKENS,
        kept_artifact_turns=settings.FOLD_KEPT_ARTIFACT_TURNS,
        backoff_seconds=settings.FOLD_BACKOFF_SECONDS,
        backoff_max_seconds=settings.FOLD_BACKOFF_MAX_SECONDS,
    )


def queue_fold(thread_id: uuid.UUID) -> None:
    """Queue a fold of a thread in the caller's transaction."""
    async_task(JOB, str(thread_id))
