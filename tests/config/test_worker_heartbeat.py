"""What workers tell of themselves, and how a probe asks for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ, Schedule

from config.heartbeat import Heart
from config.models import WorkerHeartbeat
from embedded.waiting import wait_until

HOST = socket.gethostname()
WORKING, RESTARTING = WorkerHeartbeat.WORKING, WorkerHeartbeat.RESTARTING


def worker(seconds_ago: float = 0, host: str = HOST) -> WorkerHeartbeat:
    row = WorkerHeartbeat(id=f"{host}:1-{seconds_ago}", host=host, state=WORKING)
    row.beat()
    beat_at = timezone.now() - timedelta(seconds=seconds_ago)
    WorkerHeartbeat.objects.filter(pk=row.pk).update(beat_at=beat_at)
    return row


def beat_at(row: WorkerHeartbeat) -> Any:
    return WorkerHeartbeat.objects.get(pk=row.pk).beat_at


# --- The row


@pytest.mark.django_db
def test_a_beat_makes_the_row_and_then_moves_it() -> None:
    row = worker(seconds_ago=30)
    started = WorkerHeartbeat.objects.get().started_at
    before = beat_at(row)
    row.restarts = 3

    row.beat()

    kept = WorkerHeartbeat.objects.get()
    assert (kept.state, kept.restarts, kept.started_at) == (WORKING, 3, started)
    assert kept.beat_at > before


@pytest.mark.django_db
def test_a_worker_whose_cluster_does_not_work_says_so_and_does_not_beat() -> None:
    row = worker(seconds_ago=30)
    before = beat_at(row)
    row.state = RESTARTING

    row.beat()

    assert (WorkerHeartbeat.objects.get().state, beat_at(row)) == (RESTARTING, before)


@pytest.mark.django_db
def test_a_silent_worker_is_not_alive() -> None:
    worker(seconds_ago=61)
    heard = worker(seconds_ago=59)

    assert [row.pk for row in WorkerHeartbeat.objects.alive()] == [heard.pk]


# --- The heart


@pytest.fixture
def heart(transactional_db: None) -> Iterator[Heart]:
    it = Heart(patience=0.4)
    it.start()
    yield it
    it.end(10)


@pytest.mark.usefixtures("heart")
def test_nothing_is_said_of_a_worker_that_has_never_worked(heart: Heart) -> None:
    assert wait_until(lambda: heart.database_answers(10), seconds=10)
    assert not WorkerHeartbeat.objects.exists()


def test_a_state_is_told_soon(heart: Heart) -> None:
    heart.say(WORKING)
    assert wait_until(lambda: WorkerHeartbeat.objects.filter(state=WORKING), seconds=10)

    heart.row.restarts = 1
    heart.say(RESTARTING)
    assert wait_until(lambda: WorkerHeartbeat.objects.filter(state=RESTARTING, restarts=1), 10)


def test_it_goes_on_beating(heart: Heart) -> None:
    heart.say(WORKING)
    assert wait_until(lambda: WorkerHeartbeat.objects.first(), seconds=10)
    first = beat_at(heart.row)

    assert wait_until(lambda: beat_at(heart.row) > first, seconds=10)


def test_the_row_goes_with_the_worker(heart: Heart) -> None:
    heart.say(WORKING)
    assert wait_until(lambda: WorkerHeartbeat.objects.exists(), seconds=10)

    heart.end(10)

    assert not WorkerHeartbeat.objects.exists()


def test_a_row_that_nobody_has_beaten_for_a_day_goes(transactional_db: None) -> None:
    worker(seconds_ago=86_000)
    worker(seconds_ago=87_000)
    it = Heart(patience=0.4)
    it.start()
    assert wait_until(lambda: WorkerHeartbeat.objects.count() == 1, seconds=10)
    it.end(10)


def test_the_periodic_jobs_are_seen_to(settings: Any, transactional_db: None) -> None:
    settings.PERIODIC_JOBS = {"sweep": {"func": "math.sqrt", "minutes": 1}}
    it = Heart(patience=0.4)
    it.start()
    assert wait_until(lambda: Schedule.objects.exists(), seconds=10)
    it.end(10)


def test_a_job_is_put_back_once_and_not_again(heart: Heart) -> None:
    """One that takes its process with it each time must not do so twice a minute."""
    later = timezone.now() + timedelta(minutes=3)
    job = OrmQ.objects.create(key="rethread", payload="", lock=later)
    due = OrmQ.objects.filter(lock__lte=timezone.now() + timedelta(minutes=1))

    heart.put_back([job.pk])
    assert wait_until(due.exists, seconds=10)

    OrmQ.objects.update(lock=later)
    heart.put_back([job.pk])
    heart.end(10)
    assert not due.exists()


def test_a_database_that_is_away_is_noticed_and_so_is_its_return(
    heart: Heart, use_database_port: Callable[[int], None], closed_port: int
) -> None:
    port = connection.settings_dict["PORT"]
    heart.say(WORKING)
    assert wait_until(lambda: heart.database_answers(10), seconds=10)

    use_database_port(closed_port)
    assert wait_until(lambda: not heart.database_answers(10), seconds=10)

    use_database_port(port)
    assert wait_until(lambda: heart.database_answers(10), seconds=10)


# --- manage.py worker_alive


def asked(**options: Any) -> str:
    out = StringIO()
    call_command("worker_alive", stdout=out, **options)
    return out.getvalue()


@pytest.mark.django_db
def test_a_worker_of_this_host_is_alive() -> None:
    worker(seconds_ago=59)

    assert asked() == "1 worker works.\n"


@pytest.mark.django_db
@pytest.mark.parametrize("beat", [{"seconds_ago": 61}, {"host": "elsewhere"}])
def test_one_that_is_silent_or_elsewhere_is_not_and_what_to_do_is_said(beat: Any) -> None:
    worker(**beat)

    with pytest.raises(
        CommandError, match=f"No worker of {HOST} has .* restart `manage.py worker`"
    ):
        asked()


@pytest.mark.django_db
def test_workers_elsewhere_count_when_that_is_asked() -> None:
    worker(host="elsewhere")

    assert asked(any_host=True)


@pytest.mark.django_db
def test_how_long_ago_may_be_said() -> None:
    worker(seconds_ago=61)

    assert asked(max_age=90)
    with pytest.raises(CommandError, match="within 30 s"):
        asked(max_age=30)


def run_alive(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "worker_alive", *arguments],
        cwd=django_settings.BASE_DIR,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("age", ["0", "-1", "soon", "inf"])
def test_an_age_that_means_nothing_is_a_mistake_of_usage(age: str) -> None:
    ended = run_alive("--max-age", age)

    assert ended.returncode == 2
    assert "--max-age" in ended.stderr


def test_a_database_that_is_away_ends_in_a_sentence(closed_port: int) -> None:
    ended = run_alive(DATABASE_URL=f"postgres://rethread:hunter2@127.0.0.1:{closed_port}/rethread")

    assert ended.returncode == 1
    assert "CommandError: The database refused, so nobody knows" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "hunter2" not in ended.stderr
