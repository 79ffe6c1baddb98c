"""manage.py fold_threads"""

from __future__ import annotations

import re
import signal
import socket
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ

from conversations import fold_backlog
from conversations.conversation_summarizer import get_summarizer
from conversations.fold_schedule import fold_rules
from conversations.management.commands import _folding, fold_threads
from conversations.models import ConversationThread
from conversations.summaries import FAILURES
from conversations.turns import Status
from tests.conversations.fold_commands import OFFLINE, SometimesFailing, failure, lines, run, use
from tests.conversations.fold_world import (
    FailingSummarizer,
    ScriptedSummarizer,
    append,
    grow,
    thread_of,
    time_passes,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def summarizer(monkeypatch) -> SometimesFailing:
    return use(monkeypatch, SometimesFailing())


@pytest.fixture
def model(settings) -> Iterator[str]:
    """The settings name a model; what is said of it."""
    settings.OPENAI_BASE_URL, settings.SUMMARY_MODEL = "http://127.0.0.1:9/v1", "tiny-model"
    get_summarizer.cache_clear()
    yield "Summaries by tiny-model at http://127.0.0.1:9/v1."
    get_summarizer.cache_clear()


def in_order(threads: list[ConversationThread]) -> list[ConversationThread]:
    """As the command goes through them."""
    return sorted(threads, key=lambda thread: thread.pk)


def folded(*threads: ConversationThread) -> list[int]:
    return [thread_of(thread).folded_through for thread in threads]


def claim_for_somebody_else(thread: ConversationThread) -> None:
    until = timezone.now() + timedelta(seconds=60)
    ConversationThread.objects.filter(pk=thread.pk).update(
        fold_claim=uuid.uuid4(), fold_blocked_until=until, fold_due_at=until
    )


# --- What is folded ----------------------------------------------------------------------------


def test_each_thread_is_folded_until_nothing_of_it_is_due(ana, summarizer) -> None:
    long, short = grow(ana, 45), grow(ana, 20)
    out, _ = run("fold_threads")
    assert folded(long, short) == [33, 0]
    assert summarizer.given == [list(range(1, 12)), list(range(12, 23)), list(range(23, 34))]
    assert out == "Folded 33 turns of 1 thread in 3 windows.\n"


def test_without_a_selection_all_are_meant(ana, bob, summarizer) -> None:
    threads = grow(ana, 21), grow(bob, 21)
    run("fold_threads")
    assert folded(*threads) == [11, 11]


def test_all_may_be_said(ana, summarizer) -> None:
    thread = grow(ana, 21)
    run("fold_threads", "--all")
    assert folded(thread) == [11]


def test_the_named_thread_is_folded_and_no_other(ana, summarizer) -> None:
    one, other = grow(ana, 21), grow(ana, 21)
    run("fold_threads", one.pk)
    assert folded(one, other) == [11, 0]


def test_an_owner_means_their_threads_only(ana, bob, summarizer) -> None:
    hers, his = grow(ana, 21), grow(bob, 21)
    run("fold_threads", "--owner", "acme/bob")
    assert folded(hers, his) == [0, 11]


def test_ids_and_filters_together_are_a_usage_error(db) -> None:
    assert failure("fold_threads", uuid.uuid4(), "--owner", "ana").returncode == 2


def test_what_was_never_marked_as_due_is_folded(ana, summarizer) -> None:
    thread = grow(ana, 21)
    ConversationThread.objects.update(fold_due_at=None)
    run("fold_threads")
    assert folded(thread) == [11]


def test_a_lowered_threshold_holds_for_threads_that_are_there(ana, summarizer, settings) -> None:
    thread = grow(ana, 15)
    settings.MEMORY_COMPRESSION_THRESHOLD = 12
    run("fold_threads")
    assert folded(thread) == [3]


def test_a_turn_that_was_finished_after_it_was_folded_is_given_again(ana, summarizer) -> None:
    thread_id, turn_id = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Question 1", turn_id=turn_id, status=Status.PENDING)
    thread = grow(ana, 20, thread_id)
    run("fold_threads")
    append(ana, thread_id, "Question 1", turn_id=turn_id, answer="At last.", revision=1)
    out, _ = run("fold_threads")
    assert "- amended: At last. [t1]" in thread_of(thread).summary
    assert out == "Folded 0 turns of 1 thread in 1 window.\n"


def test_a_thread_whose_memory_is_switched_off_is_left_alone(ana, summarizer) -> None:
    thread = grow(ana, 21)
    thread.remember(enabled=False)
    out, err = run("fold_threads", thread.pk)
    assert folded(thread) == [0]
    assert err == OFFLINE + f"{thread.pk}: Its memory is switched off.\n"
    assert out == "Nothing was folded.\n"


def test_of_a_named_thread_it_is_said_that_nothing_is_to_be_folded(ana, summarizer) -> None:
    thread = grow(ana, 20)
    _, err = run("fold_threads", thread.pk)
    assert err == OFFLINE + f"{thread.pk}: Nothing of it is to be folded.\n"


def test_an_absent_thread_fails_and_the_others_are_folded(ana, summarizer) -> None:
    thread, absent = grow(ana, 21), uuid.uuid4()
    error = failure("fold_threads", absent, thread.pk)
    assert (error.returncode, str(error)) == (1, "1 failed.")
    assert folded(thread) == [11]


# --- What somebody else does meanwhile ------------------------------------------------------------


def test_a_thread_that_somebody_else_folds_is_left_to_them(ana, summarizer) -> None:
    thread, other = grow(ana, 21), grow(ana, 21)
    claim_for_somebody_else(thread)
    out, _ = run("fold_threads")
    assert folded(thread, other) == [0, 11]
    assert out.endswith(" Left alone: 1 being folded by somebody else.\n")


def test_a_fold_that_was_lost_is_made_again(ana, monkeypatch) -> None:
    thread_id, turn_id = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Question 1", turn_id=turn_id, status=Status.PENDING)
    thread = grow(ana, 20, thread_id)

    def finish_the_first_turn(_request: Any) -> None:
        append(ana, thread_id, "Question 1", turn_id=turn_id, answer="At last.", revision=1)

    summarizer = use(monkeypatch, ScriptedSummarizer(before=finish_the_first_turn))
    run("fold_threads")
    assert folded(thread) == [11]
    assert len(summarizer.requests) == 2


def test_a_thread_that_changes_under_every_fold_fails_after_three(ana, monkeypatch) -> None:
    thread = grow(ana, 21)

    def disturb(_request: Any) -> None:
        row = thread_of(thread)
        row.fold_epoch += 1
        row.save(update_fields=["fold_epoch"])

    summarizer = use(monkeypatch, ScriptedSummarizer(before=disturb))
    error = failure("fold_threads")
    assert error.returncode == 1
    assert len(summarizer.requests) == 3


def test_turns_that_are_written_meanwhile_are_folded_as_well(ana, monkeypatch) -> None:
    thread = grow(ana, 21)
    grown = []

    def write_more(_request: Any) -> None:
        if not grown:
            grown.append(grow(ana, 11, thread.pk))

    use(monkeypatch, ScriptedSummarizer(before=write_more))
    run("fold_threads")
    assert folded(thread) == [22]


# --- Failures ----------------------------------------------------------------------------------


def test_a_thread_that_fails_is_reported_and_the_next_is_folded(ana, monkeypatch) -> None:
    bad, good = in_order([grow(ana, 21), grow(ana, 21)])

    class Choosy(ScriptedSummarizer):
        def summarize(self, request: Any) -> Any:
            if request.thread_id == bad.pk:
                return FailingSummarizer("shrunk").summarize(request)
            return super().summarize(request)

    use(monkeypatch, Choosy())
    assert str(failure("fold_threads")) == "1 failed."
    assert folded(bad, good) == [0, 11]


def test_a_failure_names_its_code_and_the_next_attempt(ana, summarizer) -> None:
    thread = grow(ana, 21)
    summarizer.code = "shrunk"
    told = lines("fold_threads")[0]
    assert (told["status"], told["code"]) == ("failed", "shrunk")
    assert told["message"].startswith("shrunk; next attempt in ")
    assert told["next_attempt_at"] == thread_of(thread).fold_blocked_until.isoformat()


def test_what_has_failed_waits_for_its_next_attempt(ana, summarizer) -> None:
    thread = grow(ana, 21)
    summarizer.code = "shrunk"
    failure("fold_threads")
    summarizer.code = ""
    out, _ = run("fold_threads")
    assert folded(thread) == [0]
    assert out == (
        "Nothing was folded. "
        "Left alone: 1 waiting after a failure (--after-failure does not wait).\n"
    )


def test_after_failure_does_not_wait(ana, summarizer) -> None:
    thread = grow(ana, 21)
    summarizer.code = "shrunk"
    failure("fold_threads")
    summarizer.code = ""
    run("fold_threads", "--after-failure")
    assert folded(thread) == [11]


@pytest.fixture
def seven_threads(ana) -> list[ConversationThread]:
    return [grow(ana, 21) for _ in range(7)]


def test_it_gives_up_when_the_provider_fails_thread_after_thread(seven_threads, summarizer) -> None:
    summarizer.code = "unauthorized"
    error = failure("fold_threads")
    assert error.returncode == 1
    assert str(error) == (
        "The last 5 threads all failed with unauthorized. Correct OPENAI_API_KEY. "
        "0 turns of 0 threads are folded. Run it again for the rest."
    )
    assert len(summarizer.requests) == 5


def test_what_is_wrong_with_each_thread_does_not_stop_it(seven_threads, summarizer) -> None:
    summarizer.code = "shrunk"
    assert str(failure("fold_threads")) == "7 failed."


def test_failures_apart_do_not_stop_it(seven_threads, monkeypatch) -> None:
    fourth = in_order(seven_threads)[3]

    class Overloaded(ScriptedSummarizer):
        def summarize(self, request: Any) -> Any:
            if request.thread_id == fourth.pk:
                return super().summarize(request)
            return FailingSummarizer("rate_limited").summarize(request)

    use(monkeypatch, Overloaded())
    assert str(failure("fold_threads")) == "6 failed."
    assert folded(fourth) == [11]


def test_every_problem_that_stops_it_is_one_that_summarisers_have() -> None:
    assert set(_folding._ADVICE) <= {*FAILURES, "unexpected"}


# --- Dry runs and jobs ----------------------------------------------------------------------------


def test_a_dry_run_counts_turns_and_windows_and_asks_nobody(ana, summarizer) -> None:
    thread = grow(ana, 45)
    grow(ana, 21)
    out, _ = run("fold_threads", "--dry-run")
    assert out == "Would fold 44 turns of 2 threads in at least 4 windows.\n"
    assert folded(thread) == [0]
    assert summarizer.requests == []


@pytest.mark.parametrize(("keep", "threshold"), [(10, 20), (1, 2), (5, 50)])
def test_it_counts_as_the_rules_fold(db, settings, keep, threshold) -> None:
    settings.MEMORY_MAX_RECENT_MESSAGES = keep
    settings.MEMORY_COMPRESSION_THRESHOLD = threshold
    rules = fold_rules()
    for unfolded in range(threshold, threshold + 3 * rules.window + 2):
        thread = ConversationThread(tenant="acme", agent_type="chat", deleted_at=timezone.now())
        thread.turn_count = unfolded + 4
        thread.folded_through = 4
        thread.save(force_insert=True)
        through, windows = 4, 0
        while span := rules.span(through, thread.turn_count):
            through, windows = span[-1], windows + 1
        row = fold_backlog.with_work(ConversationThread.objects.filter(pk=thread.pk)).get()
        assert (row.turns_to_fold, row.windows) == (through - 4, windows)


def test_a_dry_run_leaves_out_what_waits_after_a_failure(ana, summarizer) -> None:
    grow(ana, 21)
    summarizer.code = "shrunk"
    failure("fold_threads")
    assert run("fold_threads", "--dry-run")[0].startswith("Nothing would be folded. Left alone: 1")
    out, _ = run("fold_threads", "--dry-run", "--after-failure")
    assert out.startswith("Would fold 11 turns of 1 thread")


def test_queue_only_queues(ana, summarizer) -> None:
    thread = grow(ana, 21)
    time_passes(thread, 120)
    OrmQ.objects.all().delete()
    out, _ = run("fold_threads", "--queue")
    assert out == "Queued folds of 1 thread.\n"
    assert folded(thread) == [0]
    assert OrmQ.objects.count() == 1


def test_queueing_again_makes_no_second_job(ana, summarizer) -> None:
    thread = grow(ana, 21)
    time_passes(thread, 120)
    OrmQ.objects.all().delete()
    run("fold_threads", "--queue")
    out, _ = run("fold_threads", "--queue")
    assert out == "Queued folds of 0 threads. Left alone: 1 with a job already.\n"
    assert OrmQ.objects.count() == 1


def test_what_waits_after_a_failure_is_queued_when_asked_for(ana, summarizer) -> None:
    thread = grow(ana, 21)
    summarizer.code = "shrunk"
    failure("fold_threads")
    OrmQ.objects.all().delete()
    run("fold_threads", "--queue")
    assert OrmQ.objects.count() == 0
    run("fold_threads", "--queue", "--after-failure")
    assert OrmQ.objects.count() == 1
    summarizer.code = ""
    assert thread.fold() == "folded"  # as that job does, without waiting


def test_a_dry_run_queues_nothing(ana, summarizer) -> None:
    thread = grow(ana, 21)
    time_passes(thread, 120)
    OrmQ.objects.all().delete()
    out, _ = run("fold_threads", "--queue", "--dry-run")
    assert out == "Would queue folds of 1 thread.\n"
    assert OrmQ.objects.count() == 0
    assert thread_of(thread).fold_due_at < timezone.now()


# --- What it says --------------------------------------------------------------------------------


def test_json_is_a_line_a_thread_and_a_summary_and_nothing_else(ana, summarizer) -> None:
    thread = grow(ana, 32)
    absent = uuid.uuid4()
    missing, done, summary = lines("fold_threads", absent, thread.pk)
    assert (missing["thread_id"], missing["status"], missing["code"]) == (
        str(absent), "failed", "not_found",
    )  # fmt: skip
    assert done == {
        "type": "thread", "thread_id": str(thread.pk), "status": "folded", "turns": 22,
        "windows": 2,
    }  # fmt: skip
    assert summary == {
        "type": "summary", "threads": 1, "turns": 22, "windows": 2, "failed": 1, "dry_run": False,
    }  # fmt: skip


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_more_threads_than_are_read_at_once_are_all_folded(
    ana, summarizer, monkeypatch, at_once
) -> None:
    monkeypatch.setattr(fold_threads, "_AT_ONCE", 2)
    monkeypatch.setattr(fold_backlog, "_SCAN_AT_ONCE", at_once)
    threads = [grow(ana, turns) for turns in (21, 1, 21, 21)]
    run("fold_threads")
    assert folded(*threads) == [11, 0, 11, 11]


def test_away_from_a_terminal_progress_is_in_turns(ana, summarizer) -> None:
    thread = grow(ana, 231)
    _, err = run("fold_threads", thread.pk)
    assert err == f"{OFFLINE}110 of 220 turns\n209 of 220 turns\n"


def test_of_all_no_total_is_read_first(ana, summarizer) -> None:
    grow(ana, 21)
    with CaptureQueriesContext(connection) as queries:
        run("fold_threads", "--dry-run")
    assert not [query for query in queries if re.search(r"\b(SUM|COUNT)\(", query["sql"])]


# --- Who makes the summaries -------------------------------------------------------------------


def test_the_model_and_its_address_are_said_first(ana, summarizer, model) -> None:
    thread = grow(ana, 21)
    assert run("fold_threads", thread.pk)[1] == f"{model}\n"


def test_a_dry_run_says_who_would_be_asked_and_how_often(ana, summarizer, model) -> None:
    grow(ana, 32)
    out, err = run("fold_threads", "--dry-run")
    assert err == f"{model}\n"
    assert out.endswith(" in at least 2 windows, a call of the summariser each.\n")


def test_without_an_address_it_is_openais(ana, summarizer, model, settings) -> None:
    settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = "", "sk-secret"
    _, err = run("fold_threads")
    assert err == "Summaries by tiny-model at https://api.openai.com/v1.\n"


def test_what_is_secret_in_an_address_is_not_said(ana, summarizer, model, settings) -> None:
    settings.OPENAI_BASE_URL = "https://me:hunter2@llm.example:8443/v1?key=hunter3"
    _, err = run("fold_threads")
    assert err == "Summaries by tiny-model at https://llm.example:8443/v1.\n"


def test_who_only_queues_asks_nobody(ana, summarizer, model) -> None:
    assert run("fold_threads", "--queue")[1] == ""


def test_ctrl_c_finishes_the_window_that_has_begun(ana, monkeypatch) -> None:
    threads = in_order([grow(ana, 45), grow(ana, 45)])
    use(monkeypatch, ScriptedSummarizer(before=lambda _: signal.raise_signal(signal.SIGINT)))
    error = failure("fold_threads")
    assert error.returncode == 130
    assert "11 turns of 1 thread are folded" in str(error)
    assert folded(*threads) == [11, 0]


def test_without_the_database_it_says_that_the_database_fails(ana, summarizer, monkeypatch) -> None:
    thread = grow(ana, 21)
    with monkeypatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as closed:

        def go_away(_request: Any) -> None:
            connection.close()
            patch.setitem(connection.settings_dict, "PORT", closed.getsockname()[1])
            closed.close()

        use(monkeypatch, ScriptedSummarizer(before=go_away))
        error = failure("fold_threads")
    assert error.returncode == 1
    assert str(error).startswith("The database fails: ")
    assert str(error).endswith(" 0 turns of 0 threads are folded. Run it again for the rest.")
    assert folded(thread) == [0]


def test_log_lines_of_single_folds_are_left_out_unless_asked_for(ana, summarizer, caplog) -> None:
    grow(ana, 32)
    caplog.clear()
    run("fold_threads")
    assert caplog.records == []
    grow(ana, 21)
    caplog.clear()
    run("fold_threads", "-v", "2")
    assert [record.name for record in caplog.records] == ["conversations.fold_claim"]
