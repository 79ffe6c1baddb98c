"""What orchestrators and people are told about each part, and how soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.utils import timezone
from django_q.models import OrmQ, Success

from config import health
from config.health import Check, Finding
from config.models import WorkerHeartbeat
from embedded.services import Valkey
from tests.config.conftest import BROWSER, CURL

PARTS = {"database", "migrations", "redis", "worker", "queue", "dynamodb", "tokenizer", "folds"}


def page_of(client: Client) -> dict[str, Any]:
    page: dict[str, Any] = client.get("/health/", headers=CURL).json()
    return page


def report_workers(count: int, ago: timedelta = timedelta(0)) -> None:
    """Report as so many running `manage.py worker` do every few seconds."""
    beat = {"host": "here", "state": WorkerHeartbeat.WORKING, "beat_at": timezone.now() - ago}
    for number in range(count):
        WorkerHeartbeat.objects.create(id=f"here:{number}", **beat)


def queue_job(waited: timedelta) -> None:
    OrmQ.objects.create(key="rethread", payload="", lock=timezone.now() - waited)


def set_found(monkeypatch: pytest.MonkeyPatch, part: str, finding: Finding) -> None:
    monkeypatch.setitem(health.CHECKS, part, Check(lambda: finding))


@pytest.fixture
def all_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in PARTS:
        set_found(monkeypatch, part, Finding("ok", "Answers."))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a look waits for that hangs."""
    event = threading.Event()
    yield event
    event.set()


# --- For orchestrators


def test_live_asks_no_store(client: Client) -> None:
    """Without the `db` mark a query would fail."""
    answer = client.get("/health/live")

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_ready_when_the_database_has_our_tables(client: Client) -> None:
    assert client.get("/health/ready").status_code == 200


@pytest.mark.django_db
def test_not_ready_while_the_database_refuses(
    client: Client, use_database_port: Callable[[int], None], closed_port: int
) -> None:
    use_database_port(closed_port)

    answer = client.get("/health/ready")

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer["Retry-After"] == "1"


@pytest.mark.django_db
def test_not_ready_within_two_seconds_while_the_database_hangs(
    client: Client, use_database_port: Callable[[int], None], silent_port: int
) -> None:
    use_database_port(silent_port)
    started = time.monotonic()

    assert client.get("/health/ready").status_code == 503
    assert time.monotonic() - started < 2


def test_not_ready_before_migrations_are_applied(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_found(monkeypatch, "migrations", Finding("degraded", "Not yet applied: 1.", "Run it."))

    answer = client.get("/health/ready")

    assert answer.status_code == 503
    assert "Migrations: Not yet applied: 1. Run it." in answer.json()["detail"]


def test_ready_without_redis_worker_and_dynamodb(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("redis", "worker", "dynamodb"):
        set_found(monkeypatch, part, Finding("degraded", "Does not answer."))

    assert client.get("/health/ready").status_code == 200


@pytest.mark.parametrize("address", ["/health/live", "/health/ready", "/health/", "/metrics"])
def test_an_answer_is_never_cached(client: Client, all_well: None, address: str) -> None:
    assert "no-store" in client.get(address)["Cache-Control"]


# --- For people


@pytest.mark.django_db
def test_each_part_has_a_state_a_sentence_and_what_to_do(client: Client) -> None:
    page = page_of(client)

    assert page["parts"].keys() == PARTS
    for part in page["parts"].values():
        assert part.keys() == {"state", "says", "do"}
        assert part["state"] in {"ok", "degraded", "down"}


def test_everything_works(client: Client, all_well: None) -> None:
    assert page_of(client)["status"] == "ok"


def test_degraded_is_still_200(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_found(monkeypatch, "redis", Finding("degraded", "Does not answer."))

    answer = client.get("/health/", headers=CURL)

    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")


@pytest.mark.parametrize("headers", [CURL, BROWSER])
def test_down_is_503(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    set_found(monkeypatch, "database", Finding("down", "Does not answer."))

    assert client.get("/health/", headers=headers).status_code == 503


def test_browsers_get_a_page(client: Client, all_well: None) -> None:
    answer = client.get("/health/", headers=BROWSER)

    assert answer["Content-Type"].startswith("text/html")
    assert all(part in answer.text for part in PARTS)


@pytest.mark.parametrize(("asked", "kind"), [("json", "application/json"), ("html", "text/html")])
def test_format_wins_over_accept(client: Client, all_well: None, asked: str, kind: str) -> None:
    headers = BROWSER if asked == "json" else CURL

    answer = client.get(f"/health/?format={asked}", headers=headers)

    assert answer["Content-Type"].partition(";")[0] == kind


@pytest.mark.django_db
def test_nothing_tells_where_the_stores_are(
    client: Client,
    use_redis: Callable[[str], None],
    use_dynamodb: Callable[[str], None],
    use_database_port: Callable[[int], None],
    closed_port: int,
) -> None:
    use_redis(f"redis://:hunter2@127.0.0.1:{closed_port}/0")
    use_dynamodb(f"http://127.0.0.1:{closed_port}")
    use_database_port(closed_port)

    text = client.get("/health/", headers=CURL).text

    database = django_settings.DATABASES["default"]
    for secret in ("hunter2", "127.0.0.1", str(closed_port), database["PASSWORD"], "postgres://"):
        assert not secret or secret not in text


@pytest.mark.django_db
def test_the_page_takes_under_two_seconds_with_every_store_hanging(
    client: Client,
    own_valkey: Valkey,
    use_dynamodb: Callable[[str], None],
    use_database_port: Callable[[int], None],
    silent_port: int,
) -> None:
    own_valkey.pause()
    use_dynamodb(f"http://127.0.0.1:{silent_port}")
    use_database_port(silent_port)
    started = time.monotonic()

    page = page_of(client)

    assert time.monotonic() - started < 2
    states = {name: part["state"] for name, part in page["parts"].items()}
    assert states["database"] == "down"
    assert {states["redis"], states["worker"], states["dynamodb"]} == {"degraded"}


# --- Looks


def test_who_asks_during_a_look_shares_it(gate: threading.Event) -> None:
    def look() -> Finding:
        gate.wait(10)
        return Finding("ok", "")

    check = Check(look)

    assert check.start() is check.start()


def test_a_finished_look_is_not_reused() -> None:
    check = Check(lambda: Finding("ok", ""))
    first = check.start()
    first.result(10)

    assert check.start() is not first


def test_a_look_that_fails_is_a_finding() -> None:
    def look() -> Finding:
        raise ZeroDivisionError

    assert Check(look).start().result(10).state == "degraded"


# --- Migrations


@pytest.mark.django_db
def test_a_missing_migration_is_counted_and_what_to_do_is_said() -> None:
    MigrationRecorder.Migration.objects.filter(app="sessions").delete()

    finding = health.Migrations()()

    assert (finding.state, finding.says) == ("degraded", "Not yet applied: 1.")
    assert "manage.py release" in finding.do


@pytest.mark.django_db
def test_a_missing_migration_is_looked_for_again() -> None:
    rows = MigrationRecorder.Migration.objects.filter(app="sessions")
    [row] = rows
    look = health.Migrations()
    rows.delete()
    look()
    row.save(force_insert=True)

    assert look().state == "ok"


@pytest.mark.django_db
def test_applied_migrations_are_not_asked_for_again(django_assert_num_queries: Any) -> None:
    look = health.Migrations()
    look()

    with django_assert_num_queries(0):
        assert look().state == "ok"


# --- Redis


def test_redis_answers(own_valkey: Valkey) -> None:
    assert health.check_redis().state == "ok"


def test_a_frozen_redis_is_degraded_and_leaves_the_breaker_alone(own_valkey: Valkey) -> None:
    from config import redis as redis_gate

    own_valkey.pause()

    assert health.check_redis().state == "degraded"
    assert not redis_gate.breaker.is_open


# --- Workers and their queue


@pytest.mark.django_db
def test_workers_that_report_are_counted() -> None:
    report_workers(2)

    finding = health.check_worker()

    assert (finding.state, finding.says) == ("ok", "Workers that report: 2.")


@pytest.mark.django_db
@pytest.mark.parametrize("reported", [0, 2])
def test_no_worker_or_none_that_has_reported_for_a_minute_is_degraded(reported: int) -> None:
    report_workers(reported, ago=timedelta(seconds=61))

    finding = health.check_worker()

    assert (finding.state, finding.says.split(":")[0]) == ("degraded", "No worker reports")
    assert "manage.py worker" in finding.do


@pytest.mark.django_db
def test_workers_report_without_redis(own_valkey: Valkey) -> None:
    report_workers(1)
    own_valkey.pause()

    assert health.check_worker().state == "ok"


@pytest.mark.django_db
def test_workers_are_unknown_without_the_database(
    use_database_port: Callable[[int], None], closed_port: int
) -> None:
    use_database_port(closed_port)

    finding = health.CHECKS["worker"].start().result(10)

    assert (finding.state, finding.says.split()[0]) == ("degraded", "Unknown")


@pytest.mark.django_db
def test_workers_that_finish_nothing_of_an_old_queue_are_stuck() -> None:
    report_workers(2)
    queue_job(waited=timedelta(minutes=5))

    finding = health.check_worker()

    assert finding.state == "degraded"
    assert "1 job, the oldest for 5 min" in finding.says


@pytest.mark.django_db
def test_workers_that_are_busy_are_not_stuck() -> None:
    report_workers(2)
    queue_job(waited=timedelta(seconds=90))
    now = timezone.now()
    Success.objects.create(id="a", name="a", func="f", started=now, stopped=now, success=True)

    assert health.check_worker().state == "ok"


@pytest.mark.django_db
def test_an_empty_queue_is_well() -> None:
    assert health.check_queue() == Finding("ok", "Empty.")


@pytest.mark.django_db
def test_jobs_that_wait_are_counted() -> None:
    queue_job(waited=timedelta(seconds=5))
    queue_job(waited=timedelta(seconds=42))

    assert health.check_queue() == Finding("ok", "Waiting: 2 jobs, the oldest for 42 s.")


@pytest.mark.django_db
def test_jobs_that_a_worker_has_taken_do_not_wait() -> None:
    queue_job(waited=timedelta(seconds=-180))

    assert health.check_queue().says == "Empty."


@pytest.mark.django_db
def test_an_old_queue_is_degraded() -> None:
    queue_job(waited=timedelta(minutes=10))

    finding = health.check_queue()

    assert (finding.state, finding.says) == ("degraded", "Late: 1 job, the oldest for 10 min.")


@pytest.mark.django_db
def test_a_huge_queue_is_not_counted_to_its_end() -> None:
    lock = timezone.now() - timedelta(hours=3)
    OrmQ.objects.bulk_create(OrmQ(key="rethread", payload="", lock=lock) for _ in range(10_002))

    assert "10,000 or more jobs, the oldest for 3 h" in health.check_queue().says


# --- The rest


def test_dynamodb_answers() -> None:
    assert health.check_dynamodb().state == "ok"


def test_an_absent_dynamodb_is_degraded(
    use_dynamodb: Callable[[str], None], closed_port: int
) -> None:
    use_dynamodb(f"http://127.0.0.1:{closed_port}")

    assert health.check_dynamodb().state == "degraded"


def test_the_vocabulary_is_there() -> None:
    assert health.check_tokenizer().state == "ok"
