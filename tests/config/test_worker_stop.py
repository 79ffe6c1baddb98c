"""How `manage.py worker` stops, and what becomes of its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import timezone
from django_q.models import OrmQ

from config.models import WorkerHeartbeat
from embedded.waiting import wait_until
from tests.config.workers import RunningWorker, Signs
from tests.embedded.processes import descendants, living

pytestmark = pytest.mark.django_db(transaction=True)
# Longer than the processes take to end when nothing runs, and than a cluster may stand still.
LONG = 6


@pytest.fixture
def signs(tmp_path: Path) -> Signs:
    return Signs(tmp_path)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningWorker]:
    """One that nobody else uses."""
    with RunningWorker(tmp_path) as worker:
        yield worker


def test_a_request_to_stop_lets_the_running_job_finish_and_takes_no_other(
    own: RunningWorker, signs: Signs
) -> None:
    signs.queue_held("a")
    signs.queue_held("b")
    assert signs.comes("a-begun")
    assert signs.comes("b-begun")
    signs.queue("later")

    own.ask_to_stop()
    assert not own.has_ended(LONG)
    signs.open("a")
    signs.open("b")

    assert own.has_ended(20)
    assert own.process.returncode == 0
    assert (signs.count("a-done"), signs.count("b-done"), signs.count("later")) == (1, 1, 0)
    [left] = OrmQ.objects.all()
    assert left.lock <= timezone.now()
    assert not WorkerHeartbeat.objects.exists()


def test_a_second_request_ends_it_at_once(own: RunningWorker, signs: Signs) -> None:
    signs.queue_held("a")
    assert signs.comes("a-begun")
    started = descendants(own.process.pid)

    own.ask_to_stop()
    assert not own.has_ended(1.2)  # requests within one second count as one
    own.ask_to_stop()

    assert own.has_ended(5)
    assert own.process.returncode == 1
    assert living(started) == []
    assert not WorkerHeartbeat.objects.exists()


def test_a_killed_supervisor_leaves_no_process(own: RunningWorker, signs: Signs) -> None:
    signs.queue_held("a")
    assert signs.comes("a-begun")
    started = descendants(own.process.pid)
    assert len(started) > 5

    own.process.kill()

    assert wait_until(lambda: not living(started), seconds=5), living(started)


def test_a_cluster_that_was_killed_is_started_again(own: RunningWorker, signs: Signs) -> None:
    [pusher] = own.processes("pusher")
    sentinel = int(Path(f"/proc/{pusher}/stat").read_text().rpartition(")")[2].split()[1])
    own.kill(sentinel)

    assert wait_until(lambda: own.restarts == 1, seconds=20)
    signs.queue("a")
    assert signs.comes("a")
