"""The record of folds: which turns went into the summary when, by what, and what it said then.

How one is claimed and applied: `fold_claim.py`. What it is made of: `fold_draft.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils import timezone

if TYPE_CHECKING:
    from conversations.models import ConversationThread

# Kinds of session events.
FOLDED = "memory_folded"
FAILED = "memory_summarization_failed"
LOST = "memory_fold_lost"
PROMPT_PROBLEM = "summary_prompt_problem"


class FoldOutcome(StrEnum):
    """What came of a try to fold."""

    FOLDED = "folded"
    NOT_DUE = "not_due"  # nothing to fold, or somebody else folds, or a failure is waited for
    LOST = "lost"  # the thread changed meanwhile: it is to be done again
    FAILED = "failed"  # there is no summary: it is tried again later


class ThreadFoldQuerySet(models.QuerySet["ThreadFold"]):
    """Chainable questions about folds."""

    def newest_first(self, before: int | None = None) -> ThreadFoldQuerySet:
        """Order by time, newest first; `before` is the last id of the page before."""
        ordered = self.order_by("-id")
        return ordered if before is None else ordered.filter(id__lt=before)


class ThreadFold(models.Model):
    """One fold that was applied, with the summary it produced: "why does it say so".

    Turns `first` to `last` went into the summary (`first` > `last` where only `amended` ones
    did, which had been folded before they were finished). Kept with the thread, erased with it.
    """

    thread: models.ForeignKey[ConversationThread, ConversationThread] = models.ForeignKey(
        "conversations.ConversationThread", models.CASCADE, related_name="folds", db_index=False
    )
    first = models.IntegerField()
    last = models.IntegerField()
    amended: Any = models.JSONField(default=list, blank=True)
    from_start = models.BooleanField(default=False)
    model = models.TextField()
    prompt_name = models.TextField(blank=True)
    prompt_version = models.TextField(blank=True)
    prompt_source = models.TextField()
    input_tokens = models.IntegerField()
    cached_input_tokens = models.IntegerField()
    output_tokens = models.IntegerField()
    calls = models.IntegerField()
    duration_ms = models.IntegerField()
    summary = models.TextField()
    at = models.DateTimeField(default=timezone.now)

    objects = ThreadFoldQuerySet.as_manager()

    class Meta:
        app_label = "conversations"
        db_table = "thread_folds"
        indexes = [
            # A thread's folds, newest first.
            models.Index(fields=["thread", "-id"], name="fold_thread_newest"),
        ]

    def __str__(self) -> str:
        return f"t{self.first}-t{self.last}"
