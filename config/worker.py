"""Runs django-q2 for good: what `manage.py worker` does.

django-q2 alone can freeze: a worker process that is killed while it waits for a job takes the
queue's lock with it, and no other gets a job ever again. So its cluster is started as a child
here, watched through its pulse (`config.pulse`), and replaced when it has died or stands still.

`Judge` says whether a cluster stands still, `Cluster` is one run of django-q2, `Supervisor` is the
loop, and `config.heartbeat` is all that asks PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import structlog
from django.conf import settings

from config.heartbeat import Heart
from config.models import WorkerHeartbeat
from config.pulse import VARIABLE, Pulse, Snapshot
from embedded.children import Group, Surroundings
from embedded.programs import Pauses
from embedded.waiting import Deadline

log = structlog.get_logger(__name__)

_LOOK_EVERY_SECONDS = 0.2
# Who has not looked for so long has been asleep, and so may have all the others.
_ASLEEP_SECONDS = 5.0
_START_SECONDS = 60.0
# django-q2 ends a job that ignores its time-out so much later.
_TIMEOUT_GRACE_SECONDS = 3
# What is left to do after the last job: storing its result, ending the processes.
_WIND_UP_SECONDS = 5.0
# Two signals within it are one request: whoever stops us may send to a group and to a process.
_ONE_REQUEST_SECONDS = 1.0
_LEAVING_AT_MOST = 2
_LEFT_OVER_AFTER_SECONDS = 600
_MEMORY, _PREFIX = Path("/dev/shm"), "rethread-worker-"  # noqa: S108


class Judge:
    """Says whether a cluster stands still, from what is seen of it now and then.

    It says nothing while PostgreSQL does not answer, which may be what everything waits for, nor
    right after, nor when we have been asleep ourselves.
    """

    def __init__(self, patience: float, now: float) -> None:
        """`patience` is the seconds for which a sign of life may be missing."""
        self._patience = patience
        self._fair_from = self._looked_at = now

    def verdict(self, seen: Snapshot, now: float, *, database_answers: bool) -> str | None:
        """Return what stands still, for the log; None while nothing does."""
        if not database_answers or now - self._looked_at > _ASLEEP_SECONDS:
            self._fair_from = now
        self._looked_at = now
        has_started = seen.guard_at and seen.pusher_at
        patience = self._patience if has_started else max(self._patience, _START_SECONDS)
        for what, since in _signs(seen):
            if now - max(since, self._fair_from) > patience:
                return what
        return None

    def works(self, seen: Snapshot, now: float) -> bool:
        """Return whether the cluster has started and its own loops go round."""
        return now - min(seen.guard_at, seen.pusher_at) <= self._patience


def _signs(seen: Snapshot) -> Iterator[tuple[str, float]]:
    """Give each thing that must go on, and when it last did."""
    yield "the sentinel", seen.guard_at
    yield "the pusher", seen.pusher_at
    for job in seen.waiting:
        yield "a job that was taken and does not begin", max(job.at, seen.begun.at)
    for job in seen.unhandled:
        yield "a result that is not stored", max(job.at, seen.handled.at)
    for job in seen.running:
        if job.timeout >= 0:
            yield "a job that outlives its time-out", _over_at(job.at, job.timeout)


def _over_at(began_at: float, timeout: float) -> float:
    return began_at + timeout + _TIMEOUT_GRACE_SECONDS


class Cluster:
    """One run of `manage.py qcluster`, with all its processes; it starts right away."""

    def __init__(self, patience: float) -> None:
        self.pulse = Pulse(_private_folder())
        self.judge = Judge(patience, time.monotonic())
        command = [sys.executable, "manage.py", "qcluster"]
        environment = os.environ | {VARIABLE: str(self.pulse.folder)}
        self._group = Group(command, Surroundings(settings.BASE_DIR, environment, log=None))

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._group.is_alive

    @property
    def is_busy(self) -> bool:
        """Whether a job runs that is within its time, or its result is about to be stored."""
        seen, now = self.pulse.read(), time.monotonic()
        return any(now < job.at + _WIND_UP_SECONDS for job in seen.unhandled) or any(
            job.timeout < 0 or now < _over_at(job.at, job.timeout) for job in seen.running
        )

    def ask_to_end(self) -> None:
        """Let it finish what runs, and end."""
        self.pulse.close()
        self._group.send(signal.SIGTERM)

    def kill(self) -> list[int]:
        """End all its processes at once; return the rows of the jobs that it took for nothing."""
        self._group.kill()
        rows = self.pulse.read().not_begun
        shutil.rmtree(self.pulse.folder, ignore_errors=True)
        return rows


def _private_folder() -> Path:
    """Make a folder, in memory where there is such a place: a full disk is no sign of a freeze."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    for left_over in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            # A living cluster changes its folder twice a second.
            if time.time() - left_over.stat().st_mtime > _LEFT_OVER_AFTER_SECONDS:
                shutil.rmtree(left_over, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))


class Requests:
    """The requests to stop that have come in."""

    def __init__(self) -> None:
        self._at: list[float] = []

    def listen(self) -> None:
        """Take SIGTERM, SIGINT and SIGHUP for requests from here on."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)

    def __len__(self) -> int:
        return len(self._at)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if not self._at or time.monotonic() - self._at[-1] > _ONE_REQUEST_SECONDS:
            self._at.append(time.monotonic())


class Supervisor:
    """Keeps one cluster running until it is asked to stop."""

    def __init__(self, patience: float) -> None:
        """`patience` is the seconds for which a cluster may stand still."""
        self._patience = patience
        self._heart = Heart(patience)
        self._pauses = Pauses()
        self._requests = Requests()
        self._cluster: Cluster | None = None
        # They stand still but for a job that is let finish.
        self._leaving: list[Cluster] = []

    def run(self) -> int:
        """Run until asked to stop and the running jobs have ended; return the exit status.

        Raises `embedded.exceptions.CannotStart` where the machine lacks what it takes.
        """
        self._requests.listen()
        self._heart.start()
        self._cluster = Cluster(self._patience)
        while not self._requests:
            time.sleep(_LOOK_EVERY_SECONDS)
            self._look()
        return self._end()

    def _look(self) -> None:
        self._dismiss()
        if self._cluster is None:
            if self._pauses.are_over:
                self._heart.row.restarts += 1
                self._cluster = Cluster(self._patience)
        elif not self._cluster.is_alive:
            log.error("worker_cluster_ended")
            self._give_up(self._cluster)
        else:
            self._judge(self._cluster)

    def _judge(self, cluster: Cluster) -> None:
        answers = self._heart.database_answers(self._patience / 2)
        seen, now = cluster.pulse.read(), time.monotonic()
        if what := cluster.judge.verdict(seen, now, database_answers=answers):
            log.error("worker_cluster_frozen", stands_still=what)
            self._give_up(cluster)
        elif cluster.judge.works(seen, now):
            self._heart.say(WorkerHeartbeat.WORKING)

    def _give_up(self, cluster: Cluster) -> None:
        """Let it finish what runs in it, while another takes its place."""
        cluster.pulse.close()
        self._cluster = None
        self._leaving.append(cluster)
        self._heart.say(WorkerHeartbeat.RESTARTING)
        self._heart.put_back(cluster.pulse.read().not_begun)
        self._dismiss()
        log.info("worker_restarts", in_seconds=self._pauses.begin())

    def _dismiss(self) -> None:
        for cluster in list(self._leaving):
            if not cluster.is_busy or len(self._leaving) > _LEAVING_AT_MOST:
                self._leaving.remove(cluster)
                self._heart.put_back(cluster.kill())

    def _end(self) -> int:
        self._heart.say(WorkerHeartbeat.STOPPING)
        clusters = [*self._leaving, *filter(None, [self._cluster])]
        for cluster in clusters:
            cluster.ask_to_end()
        self._wait_for(clusters)
        for cluster in clusters:
            self._heart.put_back(cluster.kill())
        self._heart.end(_WIND_UP_SECONDS)
        return 1 if len(self._requests) > 1 else 0

    def _wait_for(self, clusters: list[Cluster]) -> None:
        """Wait while a job runs, its time-out at most, and for what is to be done after it."""
        longest = Deadline(settings.Q_CLUSTER["timeout"] + _TIMEOUT_GRACE_SECONDS)
        winding_up = Deadline(_WIND_UP_SECONDS)
        while any(cluster.is_alive for cluster in clusters) and winding_up.seconds_left:
            if len(self._requests) > 1:
                break
            if longest.seconds_left and any(cluster.is_busy for cluster in clusters):
                winding_up = Deadline(_WIND_UP_SECONDS)
            time.sleep(_LOOK_EVERY_SECONDS / 4)
