"""`ConversationThread.refold()`: the notes are made anew from turn 1, the old ones serving until then."""

from __future__ import annotations

import uuid

import pytest
from django.db import transaction

from conversations.events import SessionEvent
from conversations.folds import FoldOutcome, ThreadFold
from conversations.models import ConversationThread
from conversations.summaries import SummarizationFailed
from conversations.tasks import fold_thread, sweep_folds
from conversations.turns import Status
from tests.conversations.fold_world import (
    FailingSummarizer,
    ScriptedSummarizer,
    append,
    grow,
    thread_of,
    time_passes,
)

pytestmark = pytest.mark.django_db(transaction=True)


def folded(owner, turns: int) -> ConversationThread:
    thread = grow(owner, turns)
    while thread.fold(ScriptedSummarizer()) == FoldOutcome.FOLDED:
        pass
    return thread_of(thread)


def test_all_folded_turns_are_given_again_from_the_first_window_by_window(ana) -> None:
    thread = folded(ana, 50)
    summarizer, heard = ScriptedSummarizer(), []
    assert thread.refold(summarizer, lambda done, of: heard.append((done, of))) == "folded"
    assert summarizer.folded == list(range(1, thread.folded_through + 1))
    assert summarizer.requests[0].summary == ""
    assert heard == [(11, 33), (22, 33), (33, 33)]


def test_what_is_folded_stays_so_and_the_old_notes_serve_until_the_end(agent, ana) -> None:
    thread = folded(ana, 40)
    served = []

    def look(_request) -> None:
        served.append(agent.context(thread.pk).json()["summary"])

    thread.refold(ScriptedSummarizer(before=look))
    assert set(served) == {thread.summary}
    assert thread_of(thread).folded_through == thread.folded_through


def test_the_view_shows_the_new_notes_at_once(agent, ana) -> None:
    thread = folded(ana, 40)
    agent.context(thread.pk)

    def reworded(request) -> None:
        for turn in request.turns:
            object.__setattr__(turn, "query", turn.query.upper())

    thread.refold(ScriptedSummarizer(before=reworded))
    view = agent.context(thread.pk).json()
    assert (view["source"], "QUESTION 1 " in view["summary"]) == ("cache", True)


def test_a_thread_with_nothing_folded_has_nothing_to_make_anew(ana) -> None:
    assert grow(ana, 12).refold(ScriptedSummarizer()) == FoldOutcome.NOT_DUE


def test_turns_that_arrive_meanwhile_stay_verbatim(agent, ana) -> None:
    thread = folded(ana, 40)
    thread.refold(ScriptedSummarizer(before=lambda _: grow(ana, 1, thread.pk)))
    view = agent.context(thread.pk).json()
    assert view["positions"][-1] == thread_of(thread).turn_count


def test_nobody_else_folds_meanwhile(ana) -> None:
    thread, outcomes = folded(ana, 40), []

    def fold_too(_request) -> None:
        grow(ana, 12, thread.pk)
        outcomes.append(ConversationThread(pk=thread.pk).fold(ScriptedSummarizer()))

    assert thread.refold(ScriptedSummarizer(before=fold_too)) == FoldOutcome.FOLDED
    assert set(outcomes) == {FoldOutcome.NOT_DUE}


def test_a_turn_finished_meanwhile_is_left_for_the_next_fold(ana) -> None:
    thread_id, run = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Shall I?", status=Status.PENDING, turn_id=run)
    thread = grow(ana, 20, thread_id)
    thread.fold(ScriptedSummarizer())

    def complete(_request) -> None:
        append(ana, thread_id, "Shall I?", answer="Done.", turn_id=run, revision=1)

    assert thread.refold(ScriptedSummarizer(before=complete)) == FoldOutcome.FOLDED
    assert thread_of(thread).amended_positions == [1]
    summarizer = ScriptedSummarizer()
    assert thread.fold(summarizer) == FoldOutcome.FOLDED
    assert summarizer.requests[0].amended[0].answer == "Done."


def test_what_was_amended_before_is_taken_in(ana) -> None:
    thread_id, run = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Shall I?", status=Status.PENDING, turn_id=run)
    thread = grow(ana, 20, thread_id)
    thread.fold(ScriptedSummarizer())
    append(ana, thread_id, "Shall I?", answer="Done.", turn_id=run, revision=1)
    summarizer = ScriptedSummarizer()
    thread.refold(summarizer)
    assert summarizer.requests[0].turns[0].answer == "Done."
    assert thread_of(thread).amended_positions == []


def test_a_failure_leaves_the_old_notes_and_is_reported(ana) -> None:
    thread = folded(ana, 40)
    assert thread.refold(FailingSummarizer("rate_limited")) == FoldOutcome.FAILED
    assert thread_of(thread).summary == thread.summary
    assert SessionEvent.objects.newest_first()[0].code == "rate_limited"


def test_a_failure_that_is_waited_for_does_not_hold_up_an_operator(ana) -> None:
    thread = folded(ana, 40)
    grow(ana, 12, thread.pk)
    thread.fold(FailingSummarizer("unauthorized"))
    assert thread.refold(ScriptedSummarizer()) == FoldOutcome.FOLDED


def test_when_its_claim_went_to_somebody_else_it_gives_way(ana) -> None:
    thread = folded(ana, 40)

    def oversleep(_request) -> None:
        grow(ana, 12, thread.pk)
        time_passes(thread, seconds=10_000)
        ConversationThread(pk=thread.pk).fold(ScriptedSummarizer())

    assert thread.refold(ScriptedSummarizer(before=oversleep)) == FoldOutcome.LOST
    assert thread_of(thread).folded_through > thread.folded_through


def test_a_thread_deleted_meanwhile_stays_deleted(ana) -> None:
    thread = folded(ana, 40)

    def forget(_request) -> None:
        with transaction.atomic():
            ConversationThread.objects.get(pk=thread.pk).forget()

    assert thread.refold(ScriptedSummarizer(before=forget)) == FoldOutcome.LOST
    assert thread_of(thread).summary == ""


def test_its_record_says_that_it_is_from_the_start(ana) -> None:
    thread = folded(ana, 40)
    thread.refold(ScriptedSummarizer())
    fold = ThreadFold.objects.newest_first()[0]
    assert (fold.first, fold.last, fold.from_start) == (1, thread.folded_through, True)


def test_it_refuses_to_run_inside_a_transaction(ana) -> None:
    thread = folded(ana, 40)
    with transaction.atomic(), pytest.raises(transaction.TransactionManagementError):
        thread.refold(ScriptedSummarizer())


def test_what_may_pass_is_tried_again_before_it_counts_as_a_failure(ana) -> None:
    thread = folded(ana, 40)
    failing = [SummarizationFailed("rate_limited"), SummarizationFailed("timeout")]

    def fail_twice(_request) -> None:
        if failing:
            raise failing.pop()

    assert thread.refold(ScriptedSummarizer(before=fail_twice), pauses=(0, 0)) == "folded"


def test_what_will_not_pass_is_not_tried_again(ana) -> None:
    thread = folded(ana, 40)
    summarizer = FailingSummarizer("unauthorized")
    assert thread.refold(summarizer, pauses=(0, 0)) == FoldOutcome.FAILED
    assert summarizer.calls == 1


def test_one_that_was_killed_leaves_nothing_to_the_sweep_for_ever(ana) -> None:
    thread = folded(ana, 21)
    with pytest.raises(SystemExit):
        thread.refold(FailingSummarizer(SystemExit()))
    time_passes(thread, seconds=91)
    assert sweep_folds() == 1
    assert fold_thread(str(thread.pk)) == "not_due"
    assert thread_of(thread).fold_due_at is None


def test_memory_switched_off_meanwhile_ends_it_and_leaves_nothing_to_the_sweep(ana) -> None:
    thread = folded(ana, 40)
    summarizer = ScriptedSummarizer(before=lambda _: thread.remember(enabled=False))
    assert thread.refold(summarizer) == FoldOutcome.LOST
    assert len(summarizer.requests) == 1
    assert thread_of(thread).fold_due_at is None


def test_what_people_have_set_stays(ana) -> None:
    thread = folded(ana, 40)
    mine = {"key": "filter|orders.status", "value": "= 'paid'", "last": 3, "by": "person"}
    ConversationThread.objects.filter(pk=thread.pk).update(facts={"v": 1, "entries": [mine]})
    thread.refold(ScriptedSummarizer())
    entries = thread_of(thread).facts["entries"]
    assert [one["value"] for one in entries if one["by"] == "person"] == ["= 'paid'"]


def test_the_cost_of_all_its_calls_is_told_when_it_fails(ana) -> None:
    thread = folded(ana, 50)
    calls = iter(range(10))

    def fail_in_the_third(_request) -> None:
        if next(calls) == 2:
            raise SummarizationFailed("refused", input_tokens=100, calls=1)

    summarizer = ScriptedSummarizer(before=fail_in_the_third, input_tokens=100)
    assert thread.refold(summarizer) == FoldOutcome.FAILED
    assert SessionEvent.objects.newest_first()[0].data["input_tokens"] == 300
