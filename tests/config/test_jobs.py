"""What is queued every so many minutes."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from django_q.models import Schedule

from config.jobs import ensure_periodic_jobs

SWEEP = {"func": "conversations.tasks.sweep_folds", "minutes": 1}


@pytest.fixture
def jobs(settings: Any) -> dict[str, Any]:
    settings.PERIODIC_JOBS = {"sweep_folds": dict(SWEEP)}
    return settings.PERIODIC_JOBS


@pytest.mark.django_db
def test_each_becomes_a_schedule_that_is_due_at_once(jobs: dict[str, Any]) -> None:
    ensure_periodic_jobs()

    schedule = Schedule.objects.get()
    assert (schedule.func, schedule.minutes) == (SWEEP["func"], 1)
    assert (schedule.schedule_type, schedule.repeats) == (Schedule.MINUTES, -1)
    assert schedule.next_run <= timezone.now()


@pytest.mark.django_db
def test_a_schedule_that_is_right_is_left_alone(jobs: dict[str, Any]) -> None:
    ensure_periodic_jobs()
    soon = timezone.now() + timedelta(seconds=30)
    Schedule.objects.update(next_run=soon)

    ensure_periodic_jobs()

    assert Schedule.objects.get().next_run == soon


@pytest.mark.django_db
def test_a_schedule_follows_its_job(jobs: dict[str, Any]) -> None:
    ensure_periodic_jobs()
    jobs["sweep_folds"]["minutes"] = 5

    ensure_periodic_jobs()

    assert Schedule.objects.get().minutes == 5


@pytest.mark.django_db
def test_a_job_that_is_no_longer_named_loses_its_schedule(jobs: dict[str, Any]) -> None:
    ensure_periodic_jobs()
    del jobs["sweep_folds"]

    ensure_periodic_jobs()

    assert not Schedule.objects.exists()


@pytest.mark.django_db
def test_a_schedule_that_somebody_made_stays(jobs: dict[str, Any]) -> None:
    theirs = Schedule.objects.create(name="mine", func="math.sqrt")

    ensure_periodic_jobs()

    assert Schedule.objects.filter(pk=theirs.pk).exists()


@pytest.mark.django_db
def test_a_second_schedule_of_the_same_job_goes(jobs: dict[str, Any]) -> None:
    ensure_periodic_jobs()
    Schedule.objects.create(name=Schedule.objects.get().name, **SWEEP)

    ensure_periodic_jobs()

    assert Schedule.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_several_that_start_at_once_make_one_schedule(jobs: dict[str, Any]) -> None:
    ready = threading.Barrier(6)

    def start() -> None:
        ready.wait(10)
        ensure_periodic_jobs()
        connection.close()

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert Schedule.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_release_makes_them(jobs: dict[str, Any]) -> None:
    call_command("release", verbosity=0)

    assert Schedule.objects.count() == 1
