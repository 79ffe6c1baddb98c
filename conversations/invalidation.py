"""Telling the working sets of a change that is committed, and what happens when that fails.

A change that Redis did not take leaves a copy that is behind. Then, in this order: one DEL on a
fresh connection; a job that drops the copies of all threads touched since, once Redis is back; and
until then this process looks up the version of every copy from before the failure
(`config.redis.Breaker.last_failure`), any other process within `MEMORY_CHECK_SECONDS`. Both go by
the hosts' clocks: where those differ by more than `config.redis.CLOCK_SKEW_SECONDS`, that
difference is added to the bound.
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


class Missed:
    """Since when copies have been missed that no job has been queued for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._since = 0.0
        self._next_job_at = 0.0

    def note(self) -> float | None:
        """Note a copy that could not be dropped; return what `due` returns."""
        with self._lock:
            self._since = self._since or time.time()
        return self.due()

    def due(self) -> float | None:
        """Return since when copies are to be dropped, once, if a job is to be queued now."""
        if not self._since:
            return None
        with self._lock:
            if not self._since or self._clock() < self._next_job_at:
                return None
            since, self._since = self._since, 0.0
            self._next_job_at = self._clock() + _JOB_EVERY_SECONDS
            return since


_missed = Missed()


def once_committed(thread_id: uuid.UUID, change: Callable[[RedisConversationMemory], None]) -> None:
    """Tell the working set of `change` when the transaction commits, and only then."""
    transaction.on_commit(lambda: tell(thread_id, change), robust=True)


def dropped(thread_id: uuid.UUID) -> None:
    """Drop the copy of a thread that is not there any more; never raises for want of Redis."""
    tell(thread_id, lambda memory: memory.drop(thread_id))


def tell(thread_id: uuid.UUID, change: Callable[[RedisConversationMemory], None]) -> None:
    """Tell the working set of a committed change; never raises for want of Redis."""
    memory = get_conversation_memory()
    try:
        change(memory)
    except Exception as error:  # noqa: BLE001  whatever it was, the copy may be behind
        _drop_for_sure(memory, thread_id, error)
    else:
        _queue_job(_missed.due())


def _drop_for_sure(memory: RedisConversationMemory, thread_id: uuid.UUID, error: Exception) -> None:
    if not isinstance(error, RedisUnavailable):
        log.error("working_set_update_failed", thread_id=str(thread_id), exc_info=error)
    try:
        memory.drop_fresh(thread_id)
    except RedisUnavailable:
        log.warning("working_set_update_missed", thread_id=str(thread_id), error=str(error))
        _queue_job(_missed.note())


def _queue_job(since: float | None) -> None:
    if since is not None:
        async_task(JOB, datetime.fromtimestamp(since - _MARGIN_SECONDS, UTC).isoformat())
