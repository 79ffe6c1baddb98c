"""How a pusher takes jobs from the queue on PostgreSQL."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from django_q import core_signing
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signing import PickleSerializer, SignedPackage
from django_q.tasks import async_task

from config import broker as broker_module
from config.broker import Broker, put_back
from config.pulse import PROBE, VARIABLE, Pulse

JOB = "tests.config.worker_jobs.touch"


@pytest.fixture(autouse=True)
def _no_naps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "_rest", staticmethod(lambda _seconds: None))


@pytest.fixture
def pulse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pulse:
    """That of a cluster which this process belongs to, where probes are not due."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return Pulse(tmp_path)


def busy_broker() -> Broker:
    """One whose last job is no long while ago."""
    it = Broker("rethread")
    it._took_at = broker_module.time.monotonic()
    return it


def queue(*args: str) -> int:
    async_task(JOB, *args)
    return OrmQ.objects.latest("pk").pk


def ids(jobs: list[tuple[int, str]] | None) -> list[int]:
    return [row for row, _payload in jobs or []]


def is_probe(jobs: list[tuple[int, str]] | None) -> bool:
    assert jobs is not None
    [(row, payload)] = jobs
    return (row, SignedPackage.loads(payload)["id"]) == (0, PROBE)


# --- Taking


@pytest.mark.django_db
def test_it_is_what_django_q_uses() -> None:
    assert type(get_broker()) is Broker


@pytest.mark.django_db
def test_the_oldest_job_is_taken_first(pulse: Pulse) -> None:
    first, second = queue(), queue()
    it = busy_broker()

    assert ids(it.dequeue()) == [first]
    assert ids(it.dequeue()) == [second]
    assert it.dequeue() is None


@pytest.mark.django_db
def test_a_taken_job_is_given_out_again_when_its_time_is_over(pulse: Pulse) -> None:
    row = queue()
    busy_broker().dequeue()

    until = OrmQ.objects.get().lock - timezone.now()
    assert timedelta(0) < timedelta(seconds=Conf.RETRY) - until < timedelta(seconds=10)
    OrmQ.objects.update(lock=timezone.now() - timedelta(seconds=1))
    pulse.forget(next(iter(pulse.read().jobs)))
    assert ids(busy_broker().dequeue()) == [row]


@pytest.mark.django_db
def test_taking_one_is_one_statement(pulse: Pulse, django_assert_num_queries: Any) -> None:
    queue()
    it = busy_broker()

    with django_assert_num_queries(1):
        assert it.dequeue()


@pytest.mark.django_db(transaction=True)
def test_two_hosts_never_wait_for_each_other_nor_take_the_same(pulse: Pulse) -> None:
    first, second = queue(), queue()
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(broker_module._TAKE, [180, "rethread"])
            assert cursor.fetchone()[0] == first

        assert ids(busy_broker().dequeue()) == [second]
    finally:
        other.rollback()
        other.close()


@pytest.mark.django_db
def test_without_a_supervisor_jobs_are_taken_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    row = queue()
    it = Broker("rethread")

    assert ids(it.dequeue()) == [row]
    assert it.dequeue() is None


# --- Only for who is free


@pytest.mark.django_db
def test_none_is_taken_while_every_worker_is_busy(pulse: Pulse) -> None:
    queue()
    for number in range(Conf.WORKERS):
        pulse.took(str(number), number, 60)
        pulse.began(str(number))

    assert busy_broker().dequeue() is None


@pytest.mark.django_db
def test_one_is_taken_as_soon_as_a_worker_has_ended_its_job(pulse: Pulse) -> None:
    row = queue()
    for number in range(Conf.WORKERS):
        pulse.took(str(number), number, 60)
        pulse.began(str(number))
    pulse.ended("0")

    assert ids(busy_broker().dequeue()) == [row]


@pytest.mark.django_db
def test_none_is_taken_when_the_cluster_is_to_end(pulse: Pulse) -> None:
    queue()
    pulse.close()

    assert busy_broker().dequeue() is None


@pytest.mark.django_db
def test_it_is_said_which_job_was_taken_and_how_long_it_may_run(pulse: Pulse) -> None:
    async_task(JOB, timeout=7)
    busy_broker().dequeue()

    [job] = pulse.read().jobs.values()
    assert (job.row, job.timeout, job.state) == (OrmQ.objects.get().pk, 7, "taken")


# --- Probes


@pytest.mark.django_db
def test_a_quiet_cluster_is_probed_without_asking_the_queue(pulse: Pulse) -> None:
    assert is_probe(Broker("rethread").dequeue())
    assert not OrmQ.objects.exists()


@pytest.mark.django_db
def test_one_that_has_just_taken_something_is_not(pulse: Pulse) -> None:
    assert busy_broker().dequeue() is None


@pytest.mark.django_db
def test_jobs_come_before_probes(pulse: Pulse) -> None:
    row = queue()

    assert ids(Broker("rethread").dequeue()) == [row]


@pytest.mark.django_db
def test_there_is_never_more_than_one_probe(pulse: Pulse) -> None:
    assert is_probe(Broker("rethread").dequeue())
    assert Broker("rethread").dequeue() is None


@pytest.mark.django_db
def test_a_cluster_that_begins_nothing_gets_a_probe_instead_of_more_jobs(
    pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulse.took("stuck", 1, 60)
    queue()
    it = busy_broker()
    later = broker_module.time.monotonic() + 6
    monkeypatch.setattr(broker_module.time, "monotonic", lambda: later)

    assert is_probe(it.dequeue())


# --- Jobs that can't be read


def signed_by_another(key: str, task: object) -> str:
    return core_signing.dumps(task, key=key, salt=Conf.PREFIX, serializer=PickleSerializer)


class Vanished:
    """Its class is gone when the job is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_vanish, ())


def _vanish() -> None:
    raise AttributeError("it is not there any more")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "payload",
    ["", "nonsense", signed_by_another("k" * 50, {"id": "a"})],
    ids=["empty", "nonsense", "another's"],
)
def test_a_job_that_can_not_be_verified_is_deleted_and_the_next_one_taken(
    pulse: Pulse, payload: str
) -> None:
    OrmQ.objects.create(key="rethread", payload=payload, lock=timezone.now())
    row = queue()
    it = busy_broker()

    assert [ids(it.dequeue()), ids(it.dequeue())] == [[], [row]]
    assert [job.pk for job in OrmQ.objects.all()] == [row]


@pytest.mark.django_db
def test_a_job_whose_arguments_can_not_be_made_again_is_deleted(pulse: Pulse) -> None:
    with pytest.raises(AttributeError):
        pickle.loads(pickle.dumps(Vanished()))  # noqa: S301
    async_task(JOB, Vanished())

    assert busy_broker().dequeue() is None
    assert not OrmQ.objects.exists()


# --- Putting back


@pytest.mark.django_db
def test_a_job_that_was_taken_for_nothing_can_be_put_back(pulse: Pulse) -> None:
    row = queue()
    it = busy_broker()
    it.dequeue()
    pulse.forget(next(iter(pulse.read().jobs)))
    assert it.dequeue() is None

    assert put_back([row]) == 1
    assert ids(it.dequeue()) == [row]


@pytest.mark.django_db
def test_one_that_has_been_done_meanwhile_is_not_there_to_be_put_back(pulse: Pulse) -> None:
    row = queue()
    OrmQ.objects.all().delete()

    assert put_back([row]) == 0


# --- Redis


@pytest.mark.django_db
def test_redis_is_never_asked(pulse: Pulse) -> None:
    it = Broker("rethread")
    it.set_stat("key", "value", 3)

    assert it.get_cache() is None
    assert it.get_stats("*") is None
    assert pulse.read().guard_at
