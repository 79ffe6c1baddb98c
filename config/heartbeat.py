"""What a worker tells PostgreSQL, and asks of it, beside its jobs."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue

import structlog
from django.db import Error, connection

from config.broker import put_back
from config.jobs import ensure_periodic_jobs
from config.models import WorkerHeartbeat

log = structlog.get_logger(__name__)

_BEAT_EVERY_SECONDS = 5.0


class Heart(threading.Thread):
    """Tells PostgreSQL that this worker is there, and puts back jobs that a cluster left.

    It is a thread because PostgreSQL may hang, for which the supervisor never waits. Before it
    beats for the first time it sees to the periodic jobs.
    """

    def __init__(self, patience: float) -> None:
        """`patience` is for how long, in seconds, a cluster may stand still."""
        super().__init__(daemon=True, name="heart")
        host = socket.gethostname()
        name = f"{host}:{os.getpid()}-{os.urandom(4).hex()}"
        self.row = WorkerHeartbeat(id=name, host=host, state="")
        # Twice within the time in which the supervisor wants to know that PostgreSQL answers.
        self._every = min(_BEAT_EVERY_SECONDS, patience / 4)
        self._answered_at = 0.0
        self._has_begun = False
        self._left: SimpleQueue[list[int]] = SimpleQueue()
        # A job that takes its process with it each time must not do so twice a minute.
        self._put_back_before: set[int] = set()
        self._wake, self._ending = threading.Event(), threading.Event()

    def database_answers(self, within_seconds: float) -> bool:
        """Return whether PostgreSQL has answered so lately."""
        return time.monotonic() - self._answered_at <= within_seconds

    def say(self, state: str) -> None:
        """Tell of a state, soon if it is another than before."""
        if state != self.row.state:
            self.row.state = state
            self._wake.set()

    def put_back(self, rows: Sequence[int]) -> None:
        """Let these jobs be taken again, each once."""
        fresh = [row for row in rows if row not in self._put_back_before]
        self._put_back_before.update(fresh)
        if fresh:
            self._left.put(fresh)
            self._wake.set()

    def end(self, seconds: float) -> None:
        """Do what is left and take the row away, unless that takes too long."""
        self._ending.set()
        self._wake.set()
        self.join(seconds)

    def run(self) -> None:
        """Beat until the end."""
        while not self._ending.is_set():
            self._turn()
            self._wake.wait(self._every)
            self._wake.clear()
        self._turn()

    def _turn(self) -> None:
        try:
            self._do()
            self._answered_at = time.monotonic()
        except Exception as error:  # noqa: BLE001  it must go on, whatever PostgreSQL says
            self._answered_at = 0.0
            log.warning("worker_heartbeat_failed", reason=str(error).strip())
        finally:
            connection.close()

    def _do(self) -> None:
        if not self._has_begun:
            ensure_periodic_jobs()
            self._has_begun = True
        self._put_back_what_is_left()
        if self._ending.is_set():
            WorkerHeartbeat.objects.filter(pk=self.row.pk).delete()
        else:
            WorkerHeartbeat.objects.forgotten().delete()
            if self.row.state:
                self.row.beat()

    def _put_back_what_is_left(self) -> None:
        try:
            while True:
                rows = self._left.get_nowait()
                try:
                    log.info("jobs_put_back", count=put_back(rows))
                except Error:
                    self._left.put(rows)
                    raise
        except Empty:
            return
