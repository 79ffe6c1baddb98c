"""The request's id, and the one line about each request."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from config.middleware import acceptable_id
from tests.config import faulty_site

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def _site(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.config.faulty_site"


@pytest.fixture
def tolerant() -> Client:
    """A client that is given the 500 rather than the exception."""
    return Client(raise_request_exception=False)


def access_lines(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == "request"]


def test_an_id_that_was_sent_comes_back(client: Client) -> None:
    answer = client.get("/health/live", headers={"x-request-id": "run-81.a_B"})

    assert answer["X-Request-ID"] == "run-81.a_B"


def test_a_request_without_an_id_gets_a_uuid(client: Client) -> None:
    assert uuid.UUID(client.get("/health/live")["X-Request-ID"]).version == 4


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "a" * 129,
        "a b",
        "a\nb",
        "a\r\nSet-Cookie: x=1",
        "<script>",
        "é",
        "١٢٣",
        '"}',
        "a,b",
        "a\x00",
    ],
)
def test_an_id_that_could_forge_the_log_is_replaced(sent: str) -> None:
    assert re.fullmatch(r"[0-9a-f-]{36}", acceptable_id(sent))


def test_an_id_of_128_characters_is_taken() -> None:
    assert acceptable_id("a" * 128) == "a" * 128


def test_an_absent_address_carries_the_id(client: Client) -> None:
    answer = client.get("/nowhere", headers={"x-request-id": "run-1"})

    assert (answer.status_code, answer["X-Request-ID"]) == (404, "run-1")


def test_a_fault_carries_the_id_in_header_and_problem(tolerant: Client) -> None:
    faulty_site.to_raise.append(RuntimeError("boom"))

    answer = tolerant.get("/page", headers={"x-request-id": "run-1"})

    assert (answer.status_code, answer["X-Request-ID"]) == (500, "run-1")
    assert answer.json()["request_id"] == "run-1"


def test_a_replaced_id_is_the_same_in_header_problem_and_log(
    client: Client, log_lines: Lines
) -> None:
    answer = client.get("/nowhere", headers={"x-request-id": "not good"})

    [line] = access_lines(log_lines())
    assert answer["X-Request-ID"] == answer.json()["request_id"] == line["request_id"]
    assert answer["X-Request-ID"] != "not good"


def test_one_request_is_one_line(client: Client, log_lines: Lines) -> None:
    client.get("/health/live", headers={"x-request-id": "run-1"})

    [line] = log_lines()
    assert line.pop("duration_ms") >= 0
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "request",
        "level": "info",
        "logger": "rethread.request",
        "method": "GET",
        "path": "/health/live",
        "status": 200,
        "request_id": "run-1",
    }


def test_a_refused_request_is_one_line_too(client: Client, log_lines: Lines) -> None:
    client.get("/nowhere")

    [line] = log_lines()
    assert (line["level"], line["status"]) == ("info", 404)


def test_what_people_write_stays_out_of_the_log(client: Client, log_lines: Lines) -> None:
    client.post(
        "/echo?q=secret-query",
        {"answer": "secret-body"},
        content_type="application/json",
        headers={"authorization": "Token secret-token", "user-agent": "secret-agent"},
    )

    assert "secret" not in str(log_lines())


def test_a_fault_is_logged_with_its_traceback_and_id(tolerant: Client, log_lines: Lines) -> None:
    faulty_site.to_raise.append(RuntimeError("boom"))

    tolerant.get("/page?q=secret", headers={"x-request-id": "run-1"})

    fault, line = log_lines()
    assert fault["level"] == "error"
    assert "RuntimeError: boom" in fault["exception"]
    assert fault["request_id"] == line["request_id"] == "run-1"
    assert line["status"] == 500
    assert "secret" not in str(fault)


def test_nothing_of_one_request_is_bound_in_the_next(client: Client, log_lines: Lines) -> None:
    client.get("/health/live", headers={"x-request-id": "run-1"})
    client.get("/health/live", headers={"x-request-id": "run-2"})

    assert [line["request_id"] for line in access_lines(log_lines())] == ["run-1", "run-2"]
