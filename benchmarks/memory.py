"""The most memory that a process of the site and one of the worker have held."""

from __future__ import annotations

import os
from collections.abc import Iterator

from django.conf import settings
from django.utils import timezone
from django_q.models import OrmQ
from django_q.tasks import async_task

from benchmarks.bench import Bench, note
from benchmarks.over_http import writers
from benchmarks.report import Line
from benchmarks.site import Worker
from conversations.invalidation import JOB
from embedded.waiting import wait_until

_JOBS = 8
_JOBS_SECONDS = 60


def measure(bench: Bench) -> Iterator[Line]:
    """Read the peaks after 16 writers at once, and whatever else this run has asked for."""
    writers(bench, threads=50)
    yield _line("a web process", bench.site.peaks())
    note("memory of a worker")
    with Worker(settings.DATA_DIR, os.environ) as worker:
        for _ in range(_JOBS):
            async_task(JOB, timezone.now().isoformat())
        if not wait_until(lambda: not OrmQ.objects.exists(), _JOBS_SECONDS, 0.2):
            raise RuntimeError(f"The worker leaves jobs undone:\n{worker.last_lines()}")
        yield _line("a worker", worker.peaks())


def _line(what: str, peaks: list[int]) -> Line:
    largest, together = max(peaks), sum(peaks)
    measured = f"{largest / 1e6:.0f} MB; {len(peaks)} processes {together / 1e6:.0f} MB"
    return Line(f"peak memory of {what}", measured)
