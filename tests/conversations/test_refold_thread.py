"""manage.py refold_thread"""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.conversation_summarizer import get_summarizer
from conversations.models import ConversationThread, ThreadFold
from tests.conversations.fold_commands import OFFLINE, SometimesFailing, failure, lines, run, use
from tests.conversations.fold_world import ScriptedSummarizer, grow, thread_of

pytestmark = pytest.mark.django_db(transaction=True)

OLD = "Goals:\n- as the old prompt had it [t1]"


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


def folded(owner: Any, turns: int) -> ConversationThread:
    """A thread whose turns are folded into old notes."""
    thread = grow(owner, turns)
    while thread.fold(ScriptedSummarizer()) == "folded":
        pass
    ConversationThread.objects.filter(pk=thread.pk).update(summary=OLD)
    return thread_of(thread)


def has_old_notes(*threads: ConversationThread) -> list[bool]:
    return [thread_of(thread).summary == OLD for thread in threads]


# --- What is refolded --------------------------------------------------------------------------


def test_the_named_thread_gets_new_notes_from_its_first_turn(ana, summarizer) -> None:
    thread, other = folded(ana, 45), folded(ana, 21)
    out, _ = run("refold_thread", thread.pk)
    assert has_old_notes(thread, other) == [False, True]
    assert summarizer.folded == list(range(1, 34))
    assert out == "Refolded 33 turns of 1 thread in 3 windows.\n"


def test_an_owner_means_their_threads_only(ana, bob, summarizer) -> None:
    hers, his = folded(ana, 21), folded(bob, 21)
    run("refold_thread", "--owner", "acme/bob")
    assert has_old_notes(hers, his) == [True, False]


def test_all_means_all_that_have_notes(ana, summarizer) -> None:
    threads = folded(ana, 21), folded(ana, 21)
    grow(ana, 20)
    out, err = run("refold_thread", "--all")
    assert has_old_notes(*threads) == [False, False]
    assert out == "Refolded 22 turns of 2 threads in 2 windows.\n"
    assert err == OFFLINE


def test_which_threads_must_be_said(db) -> None:
    assert failure("refold_thread").returncode == 2


def test_what_was_refolded_since_may_be_left_out(ana, summarizer) -> None:
    done, to_do = folded(ana, 21), folded(ana, 21)
    run("refold_thread", done.pk)
    ConversationThread.objects.update(summary=OLD)
    run("refold_thread", "--all", "--unless-since", "1h")
    assert has_old_notes(done, to_do) == [True, False]


def test_what_was_refolded_before_that_is_not_left_out(ana, summarizer) -> None:
    thread = folded(ana, 21)
    run("refold_thread", thread.pk)
    ThreadFold.objects.update(at=timezone.now() - timedelta(hours=2))
    ConversationThread.objects.update(summary=OLD)
    run("refold_thread", "--all", "--unless-since", "1h")
    assert has_old_notes(thread) == [False]


def test_a_dry_run_counts_turns_and_windows_and_asks_nobody(ana, summarizer) -> None:
    thread = folded(ana, 45)
    out, _ = run("refold_thread", thread.pk, "--dry-run")
    assert out == ("Would refold 33 turns of 1 thread in at least 3 windows.\n")
    assert has_old_notes(thread) == [True]
    assert summarizer.requests == []


# --- What can't be refolded --------------------------------------------------------------------


def test_of_a_thread_that_was_never_folded_it_is_said_so(ana, summarizer) -> None:
    thread = grow(ana, 20)
    out, err = run("refold_thread", thread.pk)
    assert err == OFFLINE + f"{thread.pk}: Nothing of it is folded yet.\n"
    assert out == "Nothing was refolded.\n"


def test_a_thread_that_somebody_else_folds_now_fails_and_is_told_apart(ana, summarizer) -> None:
    thread = folded(ana, 21)
    until = timezone.now() + timedelta(seconds=60)
    ConversationThread.objects.update(fold_claim=uuid.uuid4(), fold_blocked_until=until)
    told, _summary = lines("refold_thread", thread.pk)
    assert (told["code"], told["message"]) == (
        "being_folded", "Somebody else is folding it now.",
    )  # fmt: skip
    assert failure("refold_thread", thread.pk).returncode == 1


def test_a_thread_whose_memory_is_switched_off_is_left_alone(ana, summarizer) -> None:
    thread = folded(ana, 21)
    thread.remember(enabled=False)
    _, err = run("refold_thread", thread.pk)
    assert err == OFFLINE + f"{thread.pk}: Its memory is switched off.\n"
    assert has_old_notes(thread) == [True]


def test_an_absent_thread_fails_and_the_others_are_refolded(ana, summarizer) -> None:
    thread, absent = folded(ana, 21), uuid.uuid4()
    missing, done, summary = lines("refold_thread", absent, thread.pk)
    assert (missing["status"], missing["code"]) == ("failed", "not_found")
    assert done == {
        "type": "thread", "thread_id": str(thread.pk), "status": "refolded", "turns": 11,
        "windows": 1,
    }  # fmt: skip
    assert summary == {
        "type": "summary", "threads": 1, "turns": 11, "windows": 1, "failed": 1, "dry_run": False,
    }  # fmt: skip


# --- What goes wrong ---------------------------------------------------------------------------


def test_a_failure_leaves_the_old_notes_and_names_its_code(ana, summarizer) -> None:
    thread = folded(ana, 45)
    summarizer.code = "unauthorized"
    told = lines("refold_thread", thread.pk)[0]
    assert (told["status"], told["code"]) == ("failed", "unauthorized")
    assert has_old_notes(thread) == [True]


def test_a_failure_is_an_exit_status_of_1(ana, summarizer) -> None:
    thread = folded(ana, 21)
    summarizer.code = "unauthorized"
    error = failure("refold_thread", thread.pk)
    assert (error.returncode, str(error)) == (1, "1 failed; what they had before is still shown.")


def test_a_thread_that_changed_meanwhile_is_to_be_refolded_again(ana, monkeypatch) -> None:
    thread = folded(ana, 21)

    def drop_the_claim(_request: Any) -> None:
        ConversationThread.objects.filter(pk=thread.pk).update(fold_claim=uuid.uuid4())

    use(monkeypatch, ScriptedSummarizer(before=drop_the_claim))
    told = lines("refold_thread", thread.pk)[0]
    assert (told["code"], told["message"]) == (
        "lost", "The thread changed meanwhile; run it again.",
    )  # fmt: skip


def test_it_gives_up_when_the_provider_fails_thread_after_thread(ana, summarizer) -> None:
    for _ in range(6):
        folded(ana, 21)
    summarizer.code = "unauthorized"
    assert "The last 5 threads all failed with unauthorized" in str(
        failure("refold_thread", "--all")
    )


def test_ctrl_c_finishes_the_thread_that_has_begun_and_tells_how_to_go_on(ana, monkeypatch) -> None:
    threads = sorted([folded(ana, 21), folded(ana, 21)], key=lambda thread: thread.pk)
    use(monkeypatch, ScriptedSummarizer(before=lambda _: signal.raise_signal(signal.SIGINT)))
    error = failure("refold_thread", "--all")
    assert error.returncode == 130
    assert has_old_notes(*threads) == [False, True]
    again = str(error).split("run it again with ")[1].split()
    use(monkeypatch, ScriptedSummarizer())
    assert run("refold_thread", "--all", *again)[0].startswith("Refolded 11 turns of 1 thread")


def test_away_from_a_terminal_progress_is_in_turns(ana, summarizer) -> None:
    thread = folded(ana, 241)
    _, err = run("refold_thread", thread.pk)
    assert err.splitlines()[1] == "110 of 231 turns"


def test_of_all_no_total_is_read_first(ana, summarizer) -> None:
    folded(ana, 21)
    with CaptureQueriesContext(connection) as queries:
        run("refold_thread", "--all", "--dry-run")
    assert not [query for query in queries if re.search(r"\b(SUM|COUNT)\(", query["sql"])]


# --- Who makes the summaries -------------------------------------------------------------------


def test_the_model_and_its_address_are_said_first_and_in_a_dry_run(ana, summarizer, model) -> None:
    thread = folded(ana, 21)
    out, err = run("refold_thread", thread.pk, "--dry-run")
    assert err == f"{model}\n"
    assert out.endswith(" in at least 1 window, a call of the summariser each.\n")
    assert run("refold_thread", thread.pk)[1] == f"{model}\n"
