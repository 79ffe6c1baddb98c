"""What `manage.py worker` runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from django_q import core_signing
from django_q.conf import Conf
from django_q.models import Failure, OrmQ
from django_q.signing import PickleSerializer
from django_q.tasks import async_task

from config.models import WorkerHeartbeat
from embedded.waiting import wait_until
from tests.config.workers import RunningWorker, Signs

pytestmark = pytest.mark.django_db(transaction=True)
# Longer than a cluster may stand still.
LONG = 5


@pytest.fixture
def signs(tmp_path: Path) -> Signs:
    return Signs(tmp_path)


@pytest.fixture(scope="module")
def shared(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningWorker]:
    """One for all tests that leave it running; there is no Redis for it."""
    folder = tmp_path_factory.mktemp("worker")
    with (
        django_db_blocker.unblock(),
        RunningWorker(folder, REDIS_URL="redis://127.0.0.1:1/0") as worker,
    ):
        yield worker


@pytest.fixture
def worker(shared: RunningWorker) -> RunningWorker:
    """The shared one, once it has told of itself in tables that each test empties."""
    assert wait_until(WorkerHeartbeat.objects.alive().exists, seconds=20)
    return shared


def test_jobs_run_without_redis(worker: RunningWorker, signs: Signs) -> None:
    signs.queue("a")

    assert signs.comes("a")
    assert signs.queue_gets_empty()


def test_a_job_of_another_secret_key_stops_nothing(worker: RunningWorker, signs: Signs) -> None:
    forged = core_signing.dumps(
        {"id": "a", "func": "tests.config.worker_jobs.fail", "args": (), "kwargs": {}},
        key="k" * 50,
        salt=Conf.PREFIX,
        serializer=PickleSerializer,
    )
    OrmQ.objects.create(key="rethread", payload=forged, lock=timezone.now())
    signs.queue("after")

    assert signs.comes("after")
    assert signs.queue_gets_empty()
    assert "job_unreadable" in worker.log
    assert worker.restarts == 0


def test_a_job_that_fails_is_kept_for_another_time(worker: RunningWorker, signs: Signs) -> None:
    async_task("tests.config.worker_jobs.fail")

    assert wait_until(Failure.objects.exists, seconds=20)
    assert OrmQ.objects.get().lock > timezone.now()


def test_two_jobs_that_take_long_are_no_freeze(worker: RunningWorker, signs: Signs) -> None:
    for name in ("a", "b"):
        signs.queue_held(name)
        assert signs.comes(f"{name}-begun")

    assert not wait_until(lambda: worker.restarts, seconds=LONG)
    for name in ("a", "b"):
        signs.open(name)
        assert signs.comes(f"{name}-done")
        assert signs.count(f"{name}-begun") == 1


def test_a_backlog_is_worked_off_without_a_restart(worker: RunningWorker, signs: Signs) -> None:
    for _ in range(300):
        signs.queue("a")

    assert wait_until(lambda: signs.count("a") == 300, seconds=60)
    assert signs.queue_gets_empty()
    assert worker.restarts == 0


def test_a_cluster_with_nothing_to_do_is_no_freeze(worker: RunningWorker) -> None:
    assert not wait_until(lambda: worker.restarts, seconds=LONG)


def test_its_probes_leave_no_rows_and_no_lines(worker: RunningWorker) -> None:
    """They have run by now, or the tests above would have seen a restart."""
    assert "probe" not in worker.log
    assert not OrmQ.objects.exists()
