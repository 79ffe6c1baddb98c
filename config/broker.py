"""The queue of jobs: django-q2's broker on PostgreSQL, told what its cluster is doing.

What differs from `django_q.brokers.orm.ORM`:

- Taking a job is one statement, oldest first, and hosts never meet at one row.
- All times are the database's, so that hosts whose clocks differ share one queue.
- A job is taken only for a worker process that is free. django-q2 itself fetches some in advance,
  whose time until they are given out again (JOB_RETRY_SECONDS) runs out while they wait.
- A job that can't be read, as one queued under another SECRET_KEY, is deleted, whatever is wrong;
  the sweep of due work queues it anew.
- When nothing was taken for a while a *probe* is given out: a job that does nothing, made here, by
  which the supervisor sees that jobs would run.
- Clusters report to their supervisor (`config.pulse`) and not to Redis, which is never asked.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import structlog
from django.conf import settings
from django.db import connections
from django.db.models.functions import Now
from django.utils import timezone
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.signals import post_execute, post_execute_in_worker, pre_execute
from django_q.signing import SignedPackage

from config.pulse import PROBE, Pulse, Snapshot

log = structlog.get_logger(__name__)

_PROBE_FUNCTION = "config.jobs.probe"
_SHORTEST_NAP_SECONDS, _LONGEST_NAP_SECONDS = 0.004, 0.1
_TAKE = """
    UPDATE django_q_ormq SET lock = statement_timestamp() + make_interval(secs => %s)
    WHERE id = (
        SELECT id FROM django_q_ormq WHERE key = %s AND lock <= statement_timestamp()
        ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    RETURNING id, payload
"""
# What django-q2 takes: the row's id, and the signed job.
Job = tuple[int, str]


class Broker(ORM):  # type: ignore[misc]
    """One queue on PostgreSQL; a pusher process has its own instance."""

    def __init__(self, list_key: str | None = None) -> None:
        """Open the queue called `list_key`, by default that of the settings."""
        super().__init__(list_key)
        self._pulse = Pulse.of_this_process()
        self._nap = _SHORTEST_NAP_SECONDS
        self._took_at = 0.0

    def enqueue(self, task: str) -> int:
        """Queue a signed job, in the caller's transaction if there is one; return its row's id."""
        key = self.list_key or Conf.CLUSTER_NAME
        row: int = self.get_connection().create(key=key, payload=task, lock=Now()).pk
        return row

    def dequeue(self) -> list[Job] | None:
        """Return one job for a free worker process, or None after a nap."""
        if self._pulse is None:
            return self._take() or self._rest(Conf.POLL)
        self._pulse.beat("pusher")
        seen, now = self._pulse.read(), time.monotonic()
        if self._pulse.is_closed or not seen.has_room(Conf.WORKERS, now):
            self._nap = min(self._nap * 1.5, _LONGEST_NAP_SECONDS)
            return self._rest(self._nap)
        self._nap = _SHORTEST_NAP_SECONDS
        if seen.is_suspicious(now):
            return self._probe(seen) or self._rest(_LONGEST_NAP_SECONDS)
        return self._take() or self._probe_if_quiet(seen, now) or self._rest(Conf.POLL)

    def _take(self) -> list[Job] | None:
        self.get_connection()  # closes a connection that is too old
        with connections[Conf.ORM].cursor() as cursor:
            cursor.execute(_TAKE, [Conf.RETRY, self.list_key])
            row = cursor.fetchone()
        if row is None or not (task := self._read(*row)):
            return None
        self._note(task, row[0])
        return [row]

    def _read(self, row: int, payload: str) -> dict[str, Any] | None:
        try:
            task: dict[str, Any] = SignedPackage.loads(payload)
        except Exception as error:  # noqa: BLE001  whatever it is, it would end the pusher
            log.error("job_unreadable", row=row, reason=repr(error))
            self.delete(row)
            return None
        return task

    def _probe_if_quiet(self, seen: Snapshot, now: float) -> list[Job] | None:
        every = settings.WORKER_FROZEN_AFTER_SECONDS / 2
        return self._probe(seen) if now - self._took_at >= every else None

    def _probe(self, seen: Snapshot) -> list[Job] | None:
        if seen.probe_is_under_way:
            return None
        task = {
            "id": PROBE,
            "name": PROBE,
            "func": _PROBE_FUNCTION,
            "args": (),
            "kwargs": {},
            "save": False,
            "started": timezone.now(),
        }
        self._note(task, 0)
        return [(0, SignedPackage.dumps(task))]

    def _note(self, task: dict[str, Any], row: int) -> None:
        self._took_at = time.monotonic()
        if self._pulse:
            self._pulse.took(task["id"], row, task.get("timeout", Conf.TIMEOUT))

    @staticmethod
    def _rest(seconds: float) -> None:
        time.sleep(seconds)

    def set_stat(self, key: str, value: str, timeout: int) -> None:
        """Note that the sentinel goes round, which it reports twice a second."""
        if self._pulse:
            self._pulse.beat("guard")

    @staticmethod
    def get_cache() -> None:
        """Keep away from Redis."""
        return


def put_back(rows: list[int]) -> int:
    """Let jobs be taken again at once that a cluster took and never began; return how many.

    Raises `django.db.Error`.
    """
    count: int = ORM.get_connection().filter(pk__in=rows, lock__gt=Now()).update(lock=Now())
    return count


# --- In the processes of a supervised cluster ---------------------------------------------


def report_jobs(pulse: Pulse) -> None:
    """Note each step of each job in whichever process it is done, and log no probes."""
    steps = ((pre_execute, pulse.began), (post_execute_in_worker, pulse.ended))
    for signal, note in (*steps, (post_execute, pulse.handled)):
        signal.connect(_noting(note), weak=False)
    logging.getLogger("django-q").addFilter(_is_no_probe)


def _noting(note: Any) -> Any:
    return lambda task, **_: note(task["id"])


def _is_no_probe(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or _PROBE_FUNCTION not in record.getMessage()
