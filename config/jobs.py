"""The queue of jobs from outside: what waits in it, and what is queued every so many minutes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from config.looks import short_queries

# How long a job may wait while none is finished, before the workers count as stuck: what a job
# may take, and a minute.
_STUCK_GRACE_SECONDS = 60
COUNT_AT_MOST = 10_000

# Any number will do, as long as everybody uses it.
_PERIODIC_LOCK = int.from_bytes(b"periodic")
_OURS = "periodic: "


def probe() -> None:
    """Do nothing: that it ran shows the supervisor of the workers that jobs run."""


@dataclass(frozen=True)
class Backlog:
    """The jobs that wait: how many (counted up to 10,000), and for how long.

    A job that a worker has taken waits again when its time (JOB_RETRY_SECONDS) is over.
    """

    jobs: int
    oldest_seconds: float
    is_stuck: bool

    @classmethod
    def now(cls) -> Backlog:
        """Read it in three short queries; raises `DatabaseError` when they take over a second."""
        from django_q.models import OrmQ, Task

        stuck_after = settings.Q_CLUSTER["timeout"] + _STUCK_GRACE_SECONDS
        lately = Now() - timedelta(seconds=stuck_after)
        with short_queries():
            due = OrmQ.objects.filter(lock__lte=Now()).order_by()
            waits = due.order_by("lock").values_list(Now() - F("lock"), flat=True).first()
            if waits is None:
                return cls(0, 0, is_stuck=False)
            jobs = due[:COUNT_AT_MOST].count()
            idle = not Task.objects.filter(stopped__gt=lately).exists()
        seconds = waits.total_seconds()
        return cls(jobs, seconds, is_stuck=idle and seconds > stuck_after)

    def __str__(self) -> str:
        """Return `3 jobs, the oldest for 4 s`."""
        count = f"{self.jobs:,}" + (" or more" if self.jobs == COUNT_AT_MOST else "")
        jobs = "job" if self.jobs == 1 else "jobs"
        return f"{count} {jobs}, the oldest for {_span(self.oldest_seconds)}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def ensure_periodic_jobs() -> None:
    """Bring django-q2's schedules in line with PERIODIC_JOBS, whoever else does so at once.

    Schedules that somebody has made in the admin are left alone. Raises `DatabaseError`.
    """
    from django_q.models import Schedule

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PERIODIC_LOCK])
        named = [_ensure(name, job) for name, job in settings.PERIODIC_JOBS.items()]
        Schedule.objects.filter(name__startswith=_OURS).exclude(pk__in=named).delete()


def _ensure(name: str, job: dict[str, Any]) -> int:
    """Make the one schedule of a name or correct it; return its id."""
    from django_q.models import Schedule

    wanted = {
        "func": job["func"],
        "schedule_type": Schedule.MINUTES,
        "minutes": job["minutes"],
        "repeats": -1,
    }
    schedules = Schedule.objects.filter(name=_OURS + name).order_by("pk")
    schedule = schedules.first() or Schedule(name=_OURS + name)
    if any(getattr(schedule, key) != value for key, value in wanted.items()):
        for key, value in wanted.items():
            setattr(schedule, key, value)
        schedule.next_run = Now()
        schedule.save()
    pk: int = schedule.pk
    return pk
