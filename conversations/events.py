"""Session events: what happened to a thread besides its turns.

One row an event, never holding a turn's text: `turn_not_stored` when an agent's run could not be
saved, `memory_folded` and `memory_summarization_failed` around folds.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.utils import timezone


class SessionEventQuerySet(models.QuerySet["SessionEvent"]):
    """Chainable questions about events."""

    def newest_first(self, before: int | None = None) -> SessionEventQuerySet:
        """Order by time, newest first; `before` is the last id of the page before."""
        ordered = self.order_by("-id")
        return ordered if before is None else ordered.filter(id__lt=before)


class SessionEvent(models.Model):
    """Something that happened to a thread.

    No foreign key: a thread whose first turn could not be stored has no row yet.
    """

    thread_id = models.UUIDField()
    session_uuid = models.UUIDField(null=True, blank=True)
    kind = models.TextField()
    code = models.TextField(blank=True, default="")
    attempt = models.IntegerField(null=True, blank=True)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    data = models.JSONField(default=dict, blank=True)
    at = models.DateTimeField(default=timezone.now)

    objects = SessionEventQuerySet.as_manager()

    class Meta:
        app_label = "conversations"
        db_table = "session_events"
        indexes = [
            # A thread's events, newest first.
            models.Index(fields=["thread_id", "-id"], name="event_thread_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.code}".strip()

    @classmethod
    def emit(cls, kind: str, thread_id: uuid.UUID, **fields: Any) -> SessionEvent:
        """Store an event in the caller's transaction."""
        return cls.objects.create(kind=kind, thread_id=thread_id, **fields)
