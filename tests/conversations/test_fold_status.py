"""manage.py fold_status"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations import fold_backlog
from conversations.management.commands import fold_status
from conversations.models import ConversationThread, ThreadFold, ThreadMessage
from conversations.turns import Status
from tests.conversations.fold_commands import failure, lines, run
from tests.conversations.fold_world import (
    FailingSummarizer,
    ScriptedSummarizer,
    append,
    grow,
    time_passes,
)

pytestmark = pytest.mark.django_db(transaction=True)


def status(*args: Any) -> dict[str, Any]:
    (told,) = lines("fold_status", *args)
    return told


def due_for(thread: ConversationThread, minutes: float) -> ConversationThread:
    """Have a thread's fold been due for so long, and its job be lost."""
    ago = timedelta(minutes=minutes)
    ThreadMessage.objects.filter(thread=thread).update(stored_at=F("stored_at") - ago)
    time_passes(thread, minutes * 60)
    return thread


# --- What is due -------------------------------------------------------------------------------


def test_nothing_due_is_said(db) -> None:
    out, _ = run("fold_status")
    assert out.splitlines()[0] == "Nothing is to be folded."


def test_what_waits_is_listed_the_longest_due_first(ana) -> None:
    short, long = due_for(grow(ana, 21), 5), due_for(grow(ana, 45), 12)
    out, _ = run("fold_status")
    assert out.splitlines()[:2] == [
        "To fold    2 threads, 44 turns in 4 windows; the oldest has been due for 12 min",
        "           2 due now, 0 after a failure",
    ]
    assert out.split("longest due first:\n")[1].splitlines() == [
        "thread                                due for  turns  job",
        f"{long.pk}  12 min   33     none lately",
        f"{short.pk}  5 min    11     none lately",
    ]


def test_a_fold_is_due_since_the_turn_that_was_one_too_many(ana) -> None:
    thread = due_for(grow(ana, 21), 30)
    grow(ana, 5, thread.pk)  # which queued another job
    told = status()
    assert 1_800 <= told["oldest_due_seconds"] < 1_860
    assert told["waiting"][0]["has_job"] is True
    assert told["backlog"]["due_now"] == 0


def test_a_folded_turn_that_was_finished_is_due(ana) -> None:
    thread_id, turn_id = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Question 1", turn_id=turn_id, status=Status.PENDING)
    grow(ana, 20, thread_id).fold(ScriptedSummarizer())
    append(ana, thread_id, "Question 1", turn_id=turn_id, answer="At last.", revision=1)
    assert status()["backlog"] | {"oldest_seconds": {}} == {
        "threads": 1, "due_now": 1, "failing": 0, "turns": 0, "windows": 1, "counted_all": True,
        "oldest_seconds": {},
    }  # fmt: skip


def test_a_thread_that_is_marked_but_has_nothing_to_fold_is_not_due(ana) -> None:
    thread = grow(ana, 20)
    thread.remember(enabled=True)
    assert status()["backlog"]["threads"] == 0


def test_lists_have_a_limit(ana) -> None:
    for _ in range(3):
        grow(ana, 21)
    assert len(status("--limit", 2)["waiting"]) == 2
    assert status("--limit", 2)["backlog"]["threads"] == 3
    assert status("--limit", 0)["waiting"] == []


def test_past_what_is_counted_it_says_or_more(ana, monkeypatch) -> None:
    monkeypatch.setattr(fold_status, "COUNT_AT_MOST", 2)
    for _ in range(3):
        grow(ana, 21)
    assert run("fold_status")[0].startswith("To fold    2 threads or more, 22 turns")


# --- What fails, and what is being folded ---------------------------------------------------------


def test_what_waits_after_a_failure_is_listed_with_its_code(ana) -> None:
    thread = due_for(grow(ana, 21), 5)
    thread.fold(FailingSummarizer("rate_limited"))
    time_passes(thread, 0.5)
    out, _ = run("fold_status")
    assert "0 due now, 1 after a failure" in out
    _header, row = out.split("after a failure, the longest due first:\n")[1].splitlines()
    assert row.startswith(f"{thread.pk}  5 min    1         rate_limited  in ")


def test_of_several_failures_the_newest_is_shown(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(FailingSummarizer("timeout"))
    thread.fold(FailingSummarizer("shrunk"), even_after_failure=True)
    failing = status()["failing"][0]
    assert (failing["code"], failing["failures"]) == ("shrunk", 2)
    assert 110 < failing["next_attempt_seconds"] <= 120


def claimed_at(ana: Any, seconds_ago: float) -> ConversationThread:
    thread = grow(ana, 21)
    until = timezone.now() + timedelta(seconds=90 - seconds_ago)
    ConversationThread.objects.filter(pk=thread.pk).update(
        fold_claim=uuid.uuid4(), fold_blocked_until=until, fold_due_at=until, fold_attempts=1
    )
    return thread


def test_what_is_being_folded_is_listed_with_its_time(ana) -> None:
    thread = claimed_at(ana, 20)
    out, _ = run("fold_status")
    assert out.split("Being folded:\n")[1].splitlines() == [
        "thread                                for   claim ends",
        f"{thread.pk}  20 s  in 70 s",
    ]


def test_a_claim_that_nobody_concluded_is_told_apart(ana) -> None:
    claimed_at(ana, 120)
    told = status()
    assert told["folding"][0]["abandoned"] is True
    assert "has ended: its worker is gone" in run("fold_status")[0]


# --- What was folded ---------------------------------------------------------------------------


def test_folds_of_the_last_hour_and_day_are_counted(ana) -> None:
    for ago in (timedelta(minutes=5), timedelta(hours=3), timedelta(days=2)):
        thread = grow(ana, 21)
        thread.fold(ScriptedSummarizer())
        ThreadFold.objects.filter(thread=thread).update(
            at=timezone.now() - ago, duration_ms=2_000, input_tokens=1_000, output_tokens=100
        )
    told = status()
    assert (told["last_hour"]["folds"], told["last_day"]["folds"]) == (1, 2)
    assert (
        "Last day   2 folds, median 2.0 s; 2,000 tokens in, 200 out; 0 lost, 0 failed"
        in run("fold_status")[0]
    )


def test_a_refold_is_counted_apart_from_the_median(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(ScriptedSummarizer())
    thread.refold(ScriptedSummarizer())
    ThreadFold.objects.filter(from_start=True).update(duration_ms=60_000)
    ThreadFold.objects.filter(from_start=False).update(duration_ms=1_500)
    told = status()["last_hour"]
    assert (told["folds"], told["refolds"], told["median_ms"]) == (1, 1, 1_500)


def test_failures_are_counted_by_code_and_lost_folds_beside_them(ana) -> None:
    for code in ("timeout", "shrunk", "timeout"):
        grow(ana, 21).fold(FailingSummarizer(code))
    lost = grow(ana, 21)
    lost.fold(ScriptedSummarizer(before=lambda _: lost.remember(enabled=False)))
    assert "1 lost, 3 failed (shrunk 1, timeout 2)" in run("fold_status")[0]


def test_more_than_is_read_is_said_to_be_at_least(ana, monkeypatch) -> None:
    monkeypatch.setattr(fold_backlog, "COUNT_AT_MOST", 1)
    for _ in range(2):
        grow(ana, 21).fold(ScriptedSummarizer())
    assert "Last hour  at least 1 fold" in run("fold_status")[0]


# --- For probes --------------------------------------------------------------------------------


def test_it_fails_when_the_oldest_has_been_due_for_too_long(ana) -> None:
    due_for(grow(ana, 21), 20)
    error = failure("fold_status", "--fail-after", "15m")
    assert (error.returncode, str(error)) == (
        1, "The oldest fold has been due for 20 min, longer than 15 min.",
    )  # fmt: skip
    run("fold_status", "--fail-after", "30m")


def test_what_waits_after_a_failure_counts_as_well(ana) -> None:
    due_for(grow(ana, 21), 20).fold(FailingSummarizer("timeout"))
    assert failure("fold_status", "--fail-after", "15m").returncode == 1


def test_nothing_due_never_fails(db) -> None:
    run("fold_status", "--fail-after", "0s")


@pytest.mark.parametrize("args", [["--fail-after", "soon"], ["--limit", "-1"], ["--limit", "x"]])
def test_what_is_no_time_or_number_is_a_usage_error(db, args) -> None:
    with pytest.raises(CommandError, match="argument"):
        run("fold_status", *args)


# --- On large tables ---------------------------------------------------------------------------


def test_it_asks_as_often_for_many_threads_as_for_one(ana) -> None:
    for _ in range(3):
        grow(ana, 21)
    with CaptureQueriesContext(connection) as queries:
        run("fold_status")
    assert len(queries) == 7


def test_what_is_due_is_found_by_its_index(ana) -> None:
    ConversationThread.objects.bulk_create(
        ConversationThread(tenant="acme", owner_id=ana.pk, agent_type="chat") for _ in range(2_000)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE conversation_threads")
    for threads in (*fold_backlog.marked(), fold_backlog.claimed()[:20]):
        assert "thread_fold_due" in threads.explain()
