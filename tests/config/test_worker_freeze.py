"""A worker process that is killed while it waits for a job takes the queue's lock with it.

From then on no other process of the cluster gets a job: django-q2 alone stays like this for ever.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from django_q.models import OrmQ

from embedded.waiting import wait_until
from tests.config.workers import RunningWorker, Signs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def signs(tmp_path: Path) -> Signs:
    return Signs(tmp_path)


def test_jobs_run_again_when_idle_workers_were_killed(tmp_path: Path, signs: Signs) -> None:
    with RunningWorker(tmp_path) as worker:
        # One of the two has the lock; it does not matter which.
        worker.kill(*worker.processes("worker"))
        signs.queue("a")

        assert signs.comes("a")
        assert worker.restarts == 1
        assert signs.queue_gets_empty()
        assert signs.count("a") == 1


def test_a_job_that_runs_beside_a_killed_worker_is_let_finish_while_others_run(
    tmp_path: Path, signs: Signs
) -> None:
    with RunningWorker(tmp_path) as worker:
        signs.queue_held("long")
        assert signs.comes("long-begun")
        # The only one that waits for a job, and so the one with the lock.
        [idle] = set(worker.processes("worker")) - set(signs.processes("long-begun"))
        worker.kill(idle)
        signs.queue("other")

        assert signs.comes("other")
        assert signs.count("long-done") == 0
        signs.open("long")
        assert signs.comes("long-done")
        assert signs.queue_gets_empty()
        assert (signs.count("long-begun"), worker.restarts) == (1, 1)


def test_results_are_stored_again_when_the_monitor_was_killed(tmp_path: Path, signs: Signs) -> None:
    """It waits for results as worker processes wait for jobs."""
    with RunningWorker(tmp_path) as worker:
        worker.kill(*worker.processes("monitor"))
        signs.queue("lost")
        assert signs.comes("lost")

        assert wait_until(lambda: worker.restarts == 1, seconds=40)
        OrmQ.objects.all().delete()
        signs.queue("next")
        assert signs.queue_gets_empty()
