"""The part "folds" of /health/."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models import F
from django.test import Client

from config.health import CHECKS, Finding
from conversations import fold_health
from conversations.fold_health import check_folds
from conversations.models import ConversationThread, ThreadMessage
from tests.conversations.fold_world import FailingSummarizer, ScriptedSummarizer, grow, time_passes

pytestmark = pytest.mark.django_db(transaction=True)


def due_for(thread: ConversationThread, seconds: float) -> ConversationThread:
    ago = timedelta(seconds=seconds)
    ThreadMessage.objects.filter(thread=thread).update(stored_at=F("stored_at") - ago)
    time_passes(thread, seconds)
    return thread


def test_without_folds_nothing_waits() -> None:
    assert check_folds() == Finding("ok", "Nothing waits.")


def test_what_has_just_fallen_due_is_well(ana) -> None:
    grow(ana, 21)
    assert check_folds() == Finding("ok", "Waiting: 1 thread.")


def test_what_has_waited_for_a_worker_for_over_five_minutes_is_degraded(ana) -> None:
    due_for(grow(ana, 21), 290)
    assert check_folds().state == "ok"
    due_for(grow(ana, 21), 12 * 60)
    finding = check_folds()
    assert finding.state == "degraded"
    assert finding.says == "The oldest fold has waited for a worker for 12 min."
    assert "`manage.py fold_status`" in finding.do
    assert "docs/operating-folds.md" in finding.do


def test_failures_are_counted_with_the_latest_code(ana) -> None:
    grow(ana, 21).fold(FailingSummarizer("timeout"))
    grow(ana, 21).fold(FailingSummarizer("rate_limited"))
    finding = check_folds()
    assert finding.state == "degraded"
    assert finding.says == "After a failed fold: 2 threads; the latest failure is rate_limited."
    assert "`manage.py fold_status`" in finding.do


def test_it_is_well_again_once_the_fold_is_made(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(FailingSummarizer("timeout"))
    thread.fold(ScriptedSummarizer(), even_after_failure=True)
    assert check_folds() == Finding("ok", "Nothing waits.")


def test_a_retry_that_is_waited_for_is_not_late(ana) -> None:
    due_for(grow(ana, 21), 12 * 60).fold(FailingSummarizer("timeout"))
    assert check_folds().says == "After a failed fold: 1 thread; the latest failure is timeout."


def test_a_summary_that_is_being_made_is_no_trouble(ana) -> None:
    thread, found = due_for(grow(ana, 21), 12 * 60), []
    thread.fold(ScriptedSummarizer(before=lambda _: found.append(check_folds())))
    assert found == [Finding("ok", "Waiting: 1 thread.")]


def test_more_than_is_looked_at_is_said_to_be_more(ana, monkeypatch) -> None:
    monkeypatch.setattr(fold_health, "LOOK_AT_MOST", 1)
    for _ in range(2):
        grow(ana, 21).fold(FailingSummarizer("timeout"))
    assert check_folds().says.startswith("After a failed fold: 1 or more threads; ")


def test_a_failure_before_thousands_of_other_events_is_not_searched_for(ana, monkeypatch) -> None:
    monkeypatch.setattr(fold_health, "COUNT_AT_MOST", 1)
    grow(ana, 21).fold(FailingSummarizer("timeout"))
    grow(ana, 21).fold(ScriptedSummarizer())
    assert "the latest failure is unknown." in check_folds().says


def test_it_is_four_queries_at_most(ana, django_assert_num_queries: Any) -> None:
    grow(ana, 21).fold(FailingSummarizer("timeout"))
    with django_assert_num_queries(4 + 3):  # in a transaction with its time limit
        check_folds()


def test_it_is_unknown_while_the_database_does_not_answer(monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setitem(connections.settings["default"], "PORT", closed.getsockname()[1])
    finding = CHECKS["folds"].start().result(10)
    assert (finding.state, finding.says.split()[0]) == ("degraded", "Unknown")


def test_the_page_of_health_has_it(ana, client: Client) -> None:
    grow(ana, 21).fold(FailingSummarizer("timeout"))
    part = client.get("/health/?format=json").json()["parts"]["folds"]
    assert part["state"] == "degraded"
    assert "the latest failure is timeout." in part["says"]
