"""Who may read the figures, and of how many processes they are."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_q.models import OrmQ
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from config import metrics
from config.models import WorkerHeartbeat

OUTSIDE = {"REMOTE_ADDR": "203.0.113.7"}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_this_machine_may_read(client: Client, address: str) -> None:
    answer = client.get("/metrics", REMOTE_ADDR=address)

    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")


def test_our_own_figures_are_among_them(client: Client) -> None:
    text = client.get("/metrics").text

    assert "# HELP rethread_append_seconds" in text
    assert "# HELP django_http_requests_total_by_method_total" in text


@pytest.mark.parametrize("address", ["203.0.113.7", "10.0.0.1", "::ffff:203.0.113.7", "", "x"])
def test_another_machine_is_told_that_there_is_nothing(client: Client, address: str) -> None:
    answer = client.get("/metrics", REMOTE_ADDR=address)

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
def test_somebody_behind_a_proxy_on_this_machine_is_not_let_in(client: Client, header: str) -> None:
    assert client.get("/metrics", headers={header: "127.0.0.1"}).status_code == 404


def test_the_refusal_is_that_of_an_absent_address(client: Client) -> None:
    refused = client.get("/metrics", **OUTSIDE).json()
    absent = client.get("/nothing-here", **OUTSIDE).json()

    assert refused | {"request_id": ""} == absent | {"request_id": ""}


def test_the_token_opens_it_from_anywhere(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN = "open-sesame"

    answer = client.get("/metrics", headers={"authorization": "Bearer open-sesame"}, **OUTSIDE)

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "sent", ["", "Bearer ", "Bearer open", "Token open-sesame", "open-sesame", "Bearer é"]
)
def test_another_token_does_not_even_from_this_machine(
    client: Client, settings: Any, sent: str
) -> None:
    settings.METRICS_TOKEN = "open-sesame"

    assert client.get("/metrics", headers={"authorization": sent}).status_code == 404


def test_the_figures_of_all_processes_are_added_up(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count = "from prometheus_client import Counter; Counter('made_here', '').inc(2)"
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", count],
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            check=True,
        )
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))

    assert "made_here_total 4.0" in client.get("/metrics").text


def test_openmetrics_is_spoken_where_it_is_asked_for(client: Client) -> None:
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text"})

    assert answer["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


# --- Asked when Prometheus asks


@pytest.fixture(params=["one process", "several processes"])
def _processes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if request.param == "several processes":
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_processes")
def test_the_queue_and_its_workers_are_told_of(client: Client) -> None:
    for seconds in (5, 42):
        lock = timezone.now() - timedelta(seconds=seconds)
        OrmQ.objects.create(key="rethread", payload="", lock=lock)
    for number in (1, 2):
        WorkerHeartbeat.objects.create(
            id=str(number), host="h1", state=WorkerHeartbeat.WORKING, restarts=number
        )

    lines = client.get("/metrics").text.splitlines()

    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert figures["rethread_queue_jobs"] == "2.0"
    assert 42 <= float(figures["rethread_queue_oldest_seconds"]) < 60
    assert figures["rethread_workers"] == "2.0"
    assert figures['rethread_worker_restarts_total{host="h1"}'] == "3.0"


def test_a_database_that_is_away_costs_only_its_own_figures(
    client: Client, use_database_port: Callable[[int], None], closed_port: int
) -> None:
    use_database_port(closed_port)

    answer = client.get("/metrics")

    assert answer.status_code == 200
    assert "rethread_append_seconds" in answer.text
    assert "rethread_queue_jobs" not in answer.text


class Hanging(Collector):
    """Asks a store that does not answer."""

    def __init__(self) -> None:
        self.asked, self.gate = 0, threading.Event()

    def collect(self) -> Iterator[Metric]:
        self.asked += 1
        self.gate.wait(30)
        yield GaugeMetricFamily("hung", "Nobody sees it.", 1)


class Quick(Collector):
    """Answers at once."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("answered", "Everybody sees it.", 1)


def test_one_that_hangs_holds_up_no_scrape_and_is_not_asked_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging()
    monkeypatch.setattr(metrics, "AT_SCRAPE", [hanging, Quick()])

    texts = [client.get("/metrics").text for _ in range(2)]

    assert all("answered 1.0" in text and "hung" not in text for text in texts)
    assert hanging.asked == 1
    hanging.gate.set()
