"""What the processes of one django-q2 cluster are doing, as small files in a folder of its own.

The pusher takes a job from PostgreSQL (`taken`), a worker process begins it (`running`) and ends it
(`ended`), the monitor stores the result, and the job's file goes. Beside these files stand the
times of the last sign of life of each part. `manage.py worker` makes the folder, tells the cluster
of it by `RETHREAD_PULSE_DIR`, and judges by it; neither Redis nor PostgreSQL is asked.

Times are seconds on the monotonic clock: all processes of a machine share it, nobody can set it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from embedded.proc import is_alive, own_identity

VARIABLE = "RETHREAD_PULSE_DIR"
# The id of the job that does nothing, which the pusher gives out now and then.
PROBE = "probe"
# A worker process takes a job up within moments, or something is wrong.
SOON_SECONDS = 5.0

# What was lost is remembered for a minute, for whoever looks into it.
_LONG_AGO_SECONDS = 60.0

Part = Literal["guard", "pusher"]
_JOB = ".job"
_CLOSED = "closed"
_MOST_BYTES = 4096


@dataclass(frozen=True)
class Mark:
    """Where one job stands: `row` is its primary key in the queue, 0 for a probe.

    `at` is when it came into this state, `timeout` how many seconds it may run (-1: for ever),
    `process` the id and start time of the worker process that runs or ran it.
    """

    row: int
    timeout: float
    state: Literal["taken", "running", "ended"]
    at: float
    process: tuple[int, str] = (0, "")


class Step(NamedTuple):
    """The last time that any job came further.

    `at` is when, `queued_at` when that job had entered the queue between the two processes. All
    that entered before it and is still there has been lost with its process: the queues keep
    their order, and this one works.
    """

    at: float = 0.0
    queued_at: float = 0.0


NEVER = Step()


@dataclass(frozen=True)
class Snapshot:
    """All of it at one moment; a time of 0 means never."""

    guard_at: float = 0.0
    pusher_at: float = 0.0
    begun: Step = NEVER
    handled: Step = NEVER
    jobs: dict[str, Mark] = field(default_factory=dict)

    @property
    def running(self) -> list[Mark]:
        """Jobs that living processes run."""
        return list(self._in("running"))

    @property
    def waiting(self) -> list[Mark]:
        """Jobs that were taken and are to be begun; without lost ones."""
        return [job for job in self._in("taken") if job.at > self.begun.queued_at]

    @property
    def unhandled(self) -> list[Mark]:
        """Jobs that have ended and whose result is to be stored; without lost ones."""
        return [job for job in self._in("ended") if job.at > self.handled.queued_at]

    @property
    def not_begun(self) -> list[int]:
        """The rows of jobs that were taken and that no process has begun."""
        return [job.row for job in self._in("taken") if job.row]

    def has_room(self, workers: int, now: float) -> bool:
        """Return whether one of so many worker processes has no job, and results don't pile up."""
        on_their_way = [job for job in self._in("taken") if now - job.at < SOON_SECONDS]
        is_free = len(self.running) + len(on_their_way) < workers
        return is_free and len(self.unhandled) < 2 * workers

    def is_suspicious(self, now: float) -> bool:
        """Return whether a job waits to be begun for longer than it should."""
        return any(now - job.at >= SOON_SECONDS for job in self.waiting)

    @property
    def probe_is_under_way(self) -> bool:
        """Whether the last probe waits or runs."""
        probe = self.jobs.get(PROBE)
        return probe in (*self.running, *self.waiting)

    def _in(self, state: str) -> Iterator[Mark]:
        return (job for job in self.jobs.values() if job.state == state)


class Pulse:
    """The folder: each process of the cluster writes its part, the supervisor reads all.

    A folder that can't be written to never stops a job: the writing fails in silence, and the
    supervisor takes the cluster for frozen.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_this_process(cls) -> Pulse | None:
        """Return the one that this process belongs to; None without a supervisor."""
        folder = os.environ.get(VARIABLE)
        return cls(Path(folder)) if folder else None

    def beat(self, part: Part) -> None:
        """Note a sign of life of the sentinel (`guard`) or the pusher."""
        self._write(part, repr(time.monotonic()))

    def took(self, task_id: str, row: int, timeout: float) -> None:
        """Note a job that the pusher has taken."""
        self._put(task_id, Mark(row, timeout, "taken", time.monotonic()))

    def began(self, task_id: str) -> None:
        """Note that this process runs a job now."""
        if job := self._job(task_id + _JOB):
            at, process = time.monotonic(), _identity_of(os.getpid())
            self._put(task_id, replace(job, state="running", at=at, process=process))
            self._write("begun", f"{at!r} {job.at!r}")

    def ended(self, task_id: str) -> None:
        """Note that this process has run a job to its end."""
        if job := self._job(task_id + _JOB):
            self._put(task_id, replace(job, state="ended", at=time.monotonic()))

    def handled(self, task_id: str) -> None:
        """Note that a job's result has been stored."""
        if job := self._job(task_id + _JOB):
            self.forget(task_id)
            self._write("handled", f"{time.monotonic()!r} {job.at!r}")

    def forget(self, task_id: str) -> None:
        """Take a job's file away."""
        with suppress(OSError):
            os.unlink(self._path(task_id + _JOB))  # noqa: PTH108

    def close(self) -> None:
        """Let the cluster take no more jobs."""
        self._write(_CLOSED, "")

    @property
    def is_closed(self) -> bool:
        """Whether the cluster is to take no more jobs."""
        return (self.folder / _CLOSED).exists()

    def read(self) -> Snapshot:
        """Return all of it, without jobs whose process has died or that were lost long ago."""
        jobs = {
            name.removesuffix(_JOB): job
            for name in self._names()
            if name.endswith(_JOB) and (job := self._job(name))
        }
        guard, pusher = self._times("guard")[0], self._times("pusher")[0]
        begun, handled = Step(*self._times("begun")), Step(*self._times("handled"))
        queued_before = {"taken": begun.queued_at, "ended": handled.queued_at}
        for task_id, job in list(jobs.items()):
            is_dead = job.state == "running" and not is_alive(*job.process)
            if is_dead or job.at < queued_before.get(job.state, 0) - _LONG_AGO_SECONDS:
                self.forget(task_id)
                del jobs[task_id]
        return Snapshot(guard, pusher, begun, handled, jobs)

    # Strings instead of paths, and no buffers: this is done several times for each job.

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _names(self) -> list[str]:
        with suppress(OSError):
            return os.listdir(self.folder)  # noqa: PTH208
        return []

    def _put(self, task_id: str, job: Mark) -> None:
        self._write(task_id + _JOB, json.dumps(vars(job)))

    def _write(self, name: str, text: str) -> None:
        """Put a text in place; readers see the old one or the new one, whole."""
        draft = self._path(f".{name}.{os.getpid()}")
        with suppress(OSError):
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
            os.rename(draft, self._path(name))  # noqa: PTH104

    def _text(self, name: str) -> bytes:
        descriptor = os.open(self._path(name), os.O_RDONLY)
        try:
            return os.read(descriptor, _MOST_BYTES)
        finally:
            os.close(descriptor)

    def _times(self, name: str) -> tuple[float, float]:
        with suppress(OSError, ValueError):
            first, *rest = map(float, self._text(name).split())
            return first, sum(rest)
        return 0.0, 0.0

    def _job(self, name: str) -> Mark | None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            kept = json.loads(self._text(name))
            return Mark(**kept | {"process": tuple(kept["process"])})
        return None


@cache
def _identity_of(_own_pid: int) -> tuple[int, str]:
    """Return this process's identity; a process that was forked asks anew."""
    return own_identity()
