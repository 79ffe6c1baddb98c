"""Jobs for django-q2: they take ids, are idempotent and hold no logic of their own."""

from __future__ import annotations

from datetime import datetime

from conversations.models import ConversationThread


def drop_copies_touched_since(since: str) -> int:
    """Drop the working sets of all threads touched since an ISO time; return how many.

    Queued when Redis did not take a change (`invalidation.py`). Raises
    `config.redis.RedisUnavailable` while it does not answer, and is then run again.
    """
    return ConversationThread.objects.drop_copies_touched_since(datetime.fromisoformat(since))
