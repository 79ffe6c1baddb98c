"""Telling the working sets of a change that is committed, and what happens when that fails.

A change that Redis did not take leaves a copy that is behind. Then, in this order: one DEL on a
fresh connection; a job that drops the copies of all threads touched since, once Redis is back; and
until then this process looks up the version of every copy from before the failure
(`config.redis.Breaker.last_failure`), any other process within `MEMORY_CHECK_SECONDS`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import structlog
from django.db import transaction
from django_q.tasks import async_task

from config.redis import RedisUnavailable
from conversations.conversation_memory import RedisConversationMemory, get_conversation_memory

log = structlog.get_logger(__name__)

# An outage queues no more than a job in this time from each process, however many turns it meets.
_JOB_EVERY_SECONDS = 10.0
# The clocks of hosts differ, and a transaction's `touched_at` is from before it committed.
_MARGIN_SECONDS = 60.0

JOB = "conversations.tasks.drop_copies_touched_since"


class _Missed:
    """Since when this process has failed to drop a copy, and when it last queued the job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = 0.0
        self._queued_at = 0.0

    def due(self, now: float) -> float | None:
        """Return since when copies are to be dropped if a job is to be queued now."""
        with self._lock:
            self._since = self._since or now
            if now - self._queued_at < _JOB_EVERY_SECONDS:
                return None
            self._queued_at = now
            return self._since

    def over(self) -> None:
        """Forget the outage: Redis takes changes again."""
        if self._since:
            with self._lock:
                self._since = 0.0


_missed = _Missed()


def once_committed(thread_id: uuid.UUID, change: Callable[[RedisConversationMemory], None]) -> None:
    """Tell the working set of `change` when the transaction commits, and only then."""
    transaction.on_commit(lambda: tell(thread_id, change), robust=True)


def tell(thread_id: uuid.UUID, change: Callable[[RedisConversationMemory], None]) -> None:
    """Tell the working set of a committed change; never raises for want of Redis."""
    memory = get_conversation_memory()
    try:
        change(memory)
        _missed.over()
    except RedisUnavailable as error:
        _drop_for_sure(memory, thread_id, error)


def _drop_for_sure(memory: RedisConversationMemory, thread_id: uuid.UUID, error: Exception) -> None:
    try:
        memory.drop_fresh(thread_id)
    except RedisUnavailable:
        log.warning("working_set_update_missed", thread_id=str(thread_id), error=str(error))
        since = _missed.due(time.time())
        if since is not None:
            async_task(JOB, datetime.fromtimestamp(since - _MARGIN_SECONDS, UTC).isoformat())
