"""Who may read the figures, and of how many processes they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

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
