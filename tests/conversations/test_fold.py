"""`ConversationThread.fold()`: about ten turns at a time go into the summary, and none is lost."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.utils import timezone
from django_q.models import OrmQ

from conversations.conversation_memory import get_conversation_memory
from conversations.events import SessionEvent
from conversations.folds import FoldOutcome, ThreadFold
from conversations.models import ConversationThread
from conversations.summaries import SummarizationFailed, Summary
from conversations.tasks import fold_thread, sweep_folds
from conversations.turns import Status
from tests.conversations.fold_world import (
    FailingSummarizer,
    HangingSummarizer,
    ScriptedSummarizer,
    append,
    grow,
    thread_of,
    time_passes,
)

pytestmark = pytest.mark.django_db(transaction=True)


def in_a_thread(call) -> threading.Thread:
    """Run `call` with a connection of its own."""

    def run() -> None:
        try:
            call()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


# --- What is folded -----------------------------------------------------------------------


def test_twenty_turns_stay_as_they_are(ana) -> None:
    thread = grow(ana, 20)
    assert thread.fold(ScriptedSummarizer()) == FoldOutcome.NOT_DUE
    assert thread_of(thread).folded_through == 0


def test_with_the_twenty_first_the_oldest_eleven_are_folded(ana) -> None:
    thread = grow(ana, 21)
    summarizer = ScriptedSummarizer()
    assert thread.fold(summarizer) == FoldOutcome.FOLDED
    assert thread_of(thread).folded_through == 11
    assert summarizer.given == [list(range(1, 12))]


def test_context_shows_summary_and_the_turns_after_it(agent, ana) -> None:
    thread = grow(ana, 21)
    assert thread.fold() == FoldOutcome.FOLDED
    for source in ("database", "cache"):
        view = agent.context(thread.pk).json()
        assert (view["source"], view["positions"]) == (source, list(range(12, 22)))
        assert "<summary t1-t11>" in view["text"]


def test_after_an_outage_window_follows_window_without_a_gap(ana) -> None:
    thread = grow(ana, 55)
    summarizer = ScriptedSummarizer()
    while thread.fold(summarizer) == FoldOutcome.FOLDED:
        pass
    assert summarizer.folded == list(range(1, thread_of(thread).folded_through + 1))
    assert 10 <= 55 - thread_of(thread).folded_through <= 20
    assert len(summarizer.given) == 4


def test_the_next_window_is_queued_by_the_fold_before_it(ana) -> None:
    thread = grow(ana, 55)
    OrmQ.objects.all().delete()
    thread.fold(ScriptedSummarizer())
    assert [job.task["args"] for job in OrmQ.objects.all()] == [(str(thread.pk),)]


def test_each_call_is_given_the_summary_before(ana) -> None:
    thread = grow(ana, 35)
    summarizer = ScriptedSummarizer()
    thread.fold(summarizer)
    before = thread_of(thread).summary
    thread.fold(summarizer)
    assert summarizer.requests[1].summary == before
    assert summarizer.requests[1].folded_through == 11


def test_a_turn_of_two_megabytes_is_cut_with_a_mark(ana, settings) -> None:
    thread = grow(ana, 3)
    append(ana, thread.pk, "Analyse this: " + "lorem ipsum " * 170_000)
    grow(ana, 17, thread.pk)
    summarizer = ScriptedSummarizer()
    assert thread.fold(summarizer) == FoldOutcome.FOLDED
    huge = summarizer.requests[0].turns[3]
    assert huge.tokens <= settings.FOLD_INPUT_TOKENS // 3
    assert "characters left out)" in huge.text


def test_one_call_is_given_bounded_tokens_and_the_rest_waits(ana, settings) -> None:
    settings.FOLD_INPUT_TOKENS = 300
    thread = grow(ana, 45)
    summarizer = ScriptedSummarizer()
    while thread.fold(summarizer) == FoldOutcome.FOLDED:
        pass
    assert all(sum(turn.tokens for turn in request.turns) <= 300 for request in summarizer.requests)
    assert summarizer.folded == list(range(1, thread_of(thread).folded_through + 1))
    assert 45 - thread_of(thread).folded_through <= 20


def test_pending_stopped_and_failed_turns_are_folded_in_their_place(ana) -> None:
    thread_id = uuid.uuid4()
    for status in (Status.PENDING, Status.STOPPED, Status.FAILED):
        append(ana, thread_id, f"A {status} one", status=status)
    grow(ana, 18, thread_id)
    summarizer = ScriptedSummarizer()
    ConversationThread(pk=thread_id).fold(summarizer)
    assert [turn.status for turn in summarizer.requests[0].turns[:3]] == [
        "pending", "stopped", "failed",
    ]  # fmt: skip


def test_artifact_lines_of_the_last_five_folded_turns_stay_verbatim(agent, ana) -> None:
    thread_id = uuid.uuid4()
    for position in range(1, 22):
        sql = {"kind": "sql", "sql": f"SELECT {position}", "title": f"Table {position}"}
        append(ana, thread_id, f"Question {position}", artifacts=[sql])
    ConversationThread(pk=thread_id).fold()
    text = agent.context(thread_id).json()["text"]
    built = text[text.index("<built t7-t11>") : text.index("</built>")]
    assert built.splitlines()[1:] == [f'[t{n}.1] sql "Table {n}"' for n in range(7, 12)]


def test_the_next_fold_keeps_only_the_newest_five(ana) -> None:
    thread_id = uuid.uuid4()
    for position in range(1, 34):
        sql = {"kind": "sql", "sql": f"SELECT {position}", "title": f"Table {position}"}
        append(ana, thread_id, f"Question {position}", artifacts=[sql])
    thread = ConversationThread(pk=thread_id)
    thread.fold(ScriptedSummarizer())
    thread.fold(ScriptedSummarizer())
    through = thread_of(thread).folded_through
    assert [line.split(".")[0] for line in thread_of(thread).kept_lines] == [
        f"[t{position}" for position in range(through - 4, through + 1)
    ]


# --- Where it is not done -----------------------------------------------------------------


def test_it_refuses_to_run_inside_a_transaction(ana) -> None:
    thread = grow(ana, 21)
    with transaction.atomic(), pytest.raises(transaction.TransactionManagementError):
        thread.fold(ScriptedSummarizer())


def test_nothing_of_a_thread_whose_memory_is_off_is_given_to_anybody(ana) -> None:
    thread = grow(ana, 21)
    thread.remember(enabled=False)
    summarizer = ScriptedSummarizer()
    assert thread.fold(summarizer) == FoldOutcome.NOT_DUE
    assert summarizer.requests == []


def test_memory_that_is_switched_on_again_catches_up(ana) -> None:
    thread = grow(ana, 21)
    thread.remember(enabled=False)
    assert sweep_folds() == 0
    thread.remember(enabled=True)
    OrmQ.objects.all().delete()
    assert sweep_folds() == 1
    assert fold_thread(str(thread.pk)) == "folded"


def test_a_summary_made_while_memory_was_switched_off_is_thrown_away(ana) -> None:
    thread = grow(ana, 21)
    summarizer = ScriptedSummarizer(before=lambda _: thread.remember(enabled=False))
    assert thread.fold(summarizer) == FoldOutcome.LOST
    assert thread_of(thread).summary == ""


def test_a_deleted_thread_is_not_brought_back(ana) -> None:
    thread = grow(ana, 21)

    def forget(_request) -> None:
        with transaction.atomic():
            thread.forget()

    assert thread.fold(ScriptedSummarizer(before=forget)) == FoldOutcome.LOST
    row = thread_of(thread)
    assert (row.summary, row.facts, row.kept_lines, row.folded_through) == ("", {}, [], 0)
    assert not ThreadFold.objects.exists()
    assert fold_thread(str(thread.pk)) == "not_due"


def test_a_job_for_a_thread_that_never_was_does_nothing() -> None:
    assert fold_thread(str(uuid.uuid4())) == "not_due"


# --- While it is done ---------------------------------------------------------------------


def test_turns_that_arrive_meanwhile_stay_verbatim_and_in_order(agent, ana) -> None:
    thread = grow(ana, 21)
    summarizer = ScriptedSummarizer(before=lambda _: grow(ana, 5, thread.pk))
    assert thread.fold(summarizer) == FoldOutcome.FOLDED
    view = agent.context(thread.pk).json()
    assert (view["folded_through"], view["positions"]) == (11, list(range(12, 27)))


def test_of_several_jobs_at_once_one_calls_the_summariser(ana) -> None:
    thread = grow(ana, 21)
    summarizer = HangingSummarizer()
    first = in_a_thread(lambda: thread.fold(summarizer))
    summarizer.began.wait(10)
    others = [ConversationThread(pk=thread.pk).fold(summarizer) for _ in range(3)]
    summarizer.go_on.set()
    first.join(10)
    assert others == [FoldOutcome.NOT_DUE] * 3
    assert (len(summarizer.requests), ThreadFold.objects.count()) == (1, 1)


def test_a_pending_turn_of_the_window_completed_meanwhile_has_the_fold_done_again(ana) -> None:
    thread_id, run = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Shall I?", status=Status.PENDING, turn_id=run)
    grow(ana, 20, thread_id)
    thread = ConversationThread(pk=thread_id)

    def complete(_request) -> None:
        append(ana, thread_id, "Shall I?", answer="Done.", turn_id=run, revision=1)

    OrmQ.objects.all().delete()
    assert thread.fold(ScriptedSummarizer(before=complete)) == FoldOutcome.LOST
    assert OrmQ.objects.count() == 1
    again = ScriptedSummarizer()
    assert thread.fold(again) == FoldOutcome.FOLDED
    assert again.requests[0].turns[0].answer == "Done."


def test_a_pending_turn_that_is_revised_meanwhile_and_stays_pending_costs_no_fold(ana) -> None:
    thread_id, run = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Shall I?", status=Status.PENDING, turn_id=run)
    thread = grow(ana, 20, thread_id)

    def revise(_request) -> None:
        more = {"status": Status.PENDING, "answer": "Half.", "revision": 1}
        append(ana, thread_id, "Shall I?", turn_id=run, **more)

    assert thread.fold(ScriptedSummarizer(before=revise)) == FoldOutcome.FOLDED
    assert thread_of(thread).amended_positions == []


def test_a_folded_turn_is_listed_once_when_it_is_final_however_often_it_was_revised(ana) -> None:
    thread_id, run = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Shall I?", status=Status.PENDING, turn_id=run)
    thread = grow(ana, 20, thread_id)
    thread.fold(ScriptedSummarizer())
    for revision in range(1, 5):
        more = {"status": Status.PENDING, "answer": f"{revision}.", "revision": revision}
        append(ana, thread_id, "Shall I?", turn_id=run, **more)
    assert thread_of(thread).amended_positions == []
    append(ana, thread_id, "Shall I?", answer="Done.", turn_id=run, revision=5)
    assert thread_of(thread).amended_positions == [1]


def test_a_folded_turn_that_is_finished_during_the_next_fold_does_not_disturb_it(ana) -> None:
    thread_id, run = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Shall I?", status=Status.PENDING, turn_id=run)
    thread = grow(ana, 20, thread_id)
    thread.fold(ScriptedSummarizer())
    grow(ana, 11, thread_id)

    def complete(_request) -> None:
        append(ana, thread_id, "Shall I?", answer="Done.", turn_id=run, revision=1)

    assert thread.fold(ScriptedSummarizer(before=complete)) == FoldOutcome.FOLDED
    assert thread_of(thread).amended_positions == [1]


def test_a_pending_turn_past_the_window_does_not_disturb_the_fold(ana) -> None:
    thread = grow(ana, 20)
    run = append(ana, thread.pk, "Shall I?", status=Status.PENDING)

    def complete(_request) -> None:
        append(ana, thread.pk, "Shall I?", answer="Done.", turn_id=run, revision=1)

    assert thread.fold(ScriptedSummarizer(before=complete)) == FoldOutcome.FOLDED


def test_a_turn_finished_after_it_was_folded_is_given_to_the_next_fold(ana) -> None:
    thread_id, run = uuid.uuid4(), uuid.uuid4()
    append(ana, thread_id, "Shall I?", status=Status.PENDING, turn_id=run)
    thread = grow(ana, 20, thread_id)
    thread.fold(ScriptedSummarizer())
    append(ana, thread_id, "Shall I?", answer="Done.", turn_id=run, revision=1)
    assert thread_of(thread).amended_positions == [1]
    assert sweep_folds() == 1
    summarizer = ScriptedSummarizer()
    assert thread.fold(summarizer) == FoldOutcome.FOLDED
    assert summarizer.given == [[]]
    assert [turn.answer for turn in summarizer.requests[0].amended] == ["Done."]
    row = thread_of(thread)
    assert (row.amended_positions, row.folded_through, row.fold_due_at) == ([], 11, None)


def test_workers_that_die_of_a_thread_again_and_again_are_given_it_ever_later(ana) -> None:
    thread, dying, waits = grow(ana, 21), FailingSummarizer(SystemExit()), []
    for tries in range(4):
        with pytest.raises(SystemExit):
            thread.fold(dying)
        time_passes(thread, seconds=91)
        if tries:
            now = timezone.now()
            assert thread.fold(dying) == FoldOutcome.NOT_DUE
            waits.append(round((thread_of(thread).fold_blocked_until - now).total_seconds()))
            time_passes(thread, seconds=waits[-1] + 1)
    assert waits == [30, 150, 390]


def test_a_claim_that_was_never_concluded_ends_by_itself_and_is_reported(ana) -> None:
    thread = grow(ana, 21)
    with pytest.raises(SystemExit):
        thread.fold(FailingSummarizer(SystemExit()))
    assert thread.fold(ScriptedSummarizer()) == FoldOutcome.NOT_DUE
    time_passes(thread, seconds=91)
    assert thread.fold(ScriptedSummarizer()) == FoldOutcome.FOLDED
    failure = SessionEvent.objects.get(kind="memory_summarization_failed")
    assert failure.code == "worker_lost"


def test_who_stops_a_fold_by_hand_leaves_it_to_the_next(ana) -> None:
    thread = grow(ana, 21)
    with pytest.raises(KeyboardInterrupt):
        thread.fold(FailingSummarizer(KeyboardInterrupt()))
    assert thread.fold(ScriptedSummarizer()) == FoldOutcome.FOLDED
    assert not SessionEvent.objects.filter(code="worker_lost").exists()


def test_memory_that_was_off_and_on_again_during_a_fold_is_no_lost_worker(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(ScriptedSummarizer(before=lambda _: thread.remember(enabled=False)))
    thread.remember(enabled=True)
    assert thread.fold(ScriptedSummarizer()) == FoldOutcome.FOLDED
    assert not SessionEvent.objects.filter(code="worker_lost").exists()


def test_a_worker_that_comes_to_after_its_claim_has_ended_changes_nothing(ana) -> None:
    thread = grow(ana, 21)

    def others_fold(_request) -> None:
        time_passes(thread, seconds=91)
        assert ConversationThread(pk=thread.pk).fold(ScriptedSummarizer()) == FoldOutcome.FOLDED

    before = ScriptedSummarizer(before=others_fold)
    assert thread.fold(before) == FoldOutcome.LOST
    assert (thread_of(thread).folded_through, ThreadFold.objects.count()) == (11, 1)


# --- When it fails ------------------------------------------------------------------------


def test_a_failure_changes_nothing_of_what_is_shown(agent, ana) -> None:
    thread = grow(ana, 21)
    before = agent.context(thread.pk).json()["text"]
    assert thread.fold(FailingSummarizer("rate_limited")) == FoldOutcome.FAILED
    assert agent.context(thread.pk).json()["text"] == before
    assert thread_of(thread).version == 21


def test_failures_are_tried_again_after_a_minute_then_ever_later_up_to_an_hour(ana) -> None:
    thread = grow(ana, 21)
    waits = []
    for _ in range(9):
        assert thread.fold(FailingSummarizer("provider_error")) == FoldOutcome.FAILED
        event = SessionEvent.objects.newest_first()[0]
        waits.append(round((event.next_attempt_at - event.at).total_seconds()))
        assert thread.fold(ScriptedSummarizer()) == FoldOutcome.NOT_DUE
        time_passes(thread, seconds=waits[-1] + 1)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    attempts = SessionEvent.objects.order_by("id").values_list("attempt", flat=True)
    assert list(attempts) == list(range(1, 10))


def test_one_good_reply_catches_up_with_no_gap_and_forgets_the_failures(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(FailingSummarizer("empty"))
    grow(ana, 14, thread.pk)
    time_passes(thread, seconds=61)
    summarizer = ScriptedSummarizer()
    while thread.fold(summarizer) == FoldOutcome.FOLDED:
        pass
    assert summarizer.folded == list(range(1, 23))
    assert thread_of(thread).fold_attempts == 0


def test_while_a_failure_is_waited_for_later_turns_queue_nothing(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(FailingSummarizer("empty"))
    OrmQ.objects.all().delete()
    grow(ana, 3, thread.pk)
    assert (OrmQ.objects.count(), sweep_folds()) == (0, 0)


def test_the_next_turn_after_the_wait_queues_the_fold_again(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(FailingSummarizer("empty"))
    OrmQ.objects.all().delete()
    time_passes(thread, seconds=61)
    grow(ana, 3, thread.pk)
    assert OrmQ.objects.count() == 1


def test_the_event_says_why_and_nothing_of_what_was_said(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(FailingSummarizer(ValueError("Question 7 said so")))
    event = SessionEvent.objects.get()
    assert (event.kind, event.code) == ("memory_summarization_failed", "unexpected")
    assert "Question" not in str(event.data)


def test_an_operator_need_not_wait_for_the_next_try(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(FailingSummarizer("unauthorized"))
    assert thread.fold(ScriptedSummarizer(), even_after_failure=True) == FoldOutcome.FOLDED


def test_what_a_call_cost_is_told_although_there_is_no_summary(ana) -> None:
    thread = grow(ana, 21)
    costly = SummarizationFailed("too_long", input_tokens=900, output_tokens=800, calls=2)
    thread.fold(FailingSummarizer(costly))
    data = SessionEvent.objects.get().data
    assert (data["input_tokens"], data["output_tokens"], data["calls"]) == (900, 800, 2)


def test_a_database_that_refuses_the_summary_is_named_and_waited_for(ana) -> None:
    thread = grow(ana, 21)
    summarizer = ScriptedSummarizer()
    summarizer.summarize = lambda _: Summary(text="\0", model="scripted", input_tokens=900)
    assert thread.fold(summarizer) == FoldOutcome.FAILED
    event = SessionEvent.objects.get()
    assert (event.code, event.attempt, event.data["input_tokens"]) == ("database", 1, 900)


def test_large_payloads_which_a_fold_is_not_given_do_not_shorten_it(ana, settings) -> None:
    settings.MAX_PAGE_BYTES = 10_000
    thread_id = uuid.uuid4()
    for number in range(21):
        append(ana, thread_id, f"Question {number}", response_payload={"rows": ["x" * 5_000]})
    summarizer = ScriptedSummarizer()
    ConversationThread(pk=thread_id).fold(summarizer)
    assert len(summarizer.folded) == 11


def test_switching_a_deleted_threads_memory_changes_nothing(ana) -> None:
    thread = grow(ana, 3)
    thread.remember(enabled=False)
    with transaction.atomic():
        ConversationThread.objects.get(pk=thread.pk).forget()
    thread.remember(enabled=True)
    assert (thread_of(thread).fold_due_at, thread_of(thread).memory_enabled) == (None, False)


def test_switching_on_what_is_on_changes_nothing(ana) -> None:
    thread = grow(ana, 21)
    summarizer = ScriptedSummarizer(before=lambda _: thread.remember(enabled=True))
    assert thread.fold(summarizer) == FoldOutcome.FOLDED


# --- What is told of it -------------------------------------------------------------------


def test_a_fold_leaves_an_event_and_a_record(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(ScriptedSummarizer())
    event = SessionEvent.objects.get(kind="memory_folded")
    fold = ThreadFold.objects.get()
    assert (event.data["from"], event.data["to"], event.data["model"]) == (1, 11, "scripted")
    assert fold.summary == thread_of(thread).summary
    assert "Question" not in str(event.data)


# --- When it is queued --------------------------------------------------------------------


def test_the_turn_past_the_threshold_queues_one_job_in_its_transaction(ana) -> None:
    thread = grow(ana, 20)
    assert OrmQ.objects.count() == 0
    with transaction.atomic():
        append(ana, thread.pk, "Rolled back")
        transaction.set_rollback(True)
    assert OrmQ.objects.count() == 0
    grow(ana, 5, thread.pk)
    assert OrmQ.objects.count() == 1


def test_the_sweep_finds_what_a_lost_job_left(ana) -> None:
    thread = grow(ana, 21)
    OrmQ.objects.all().delete()
    assert sweep_folds() == 0
    time_passes(thread, seconds=61)
    assert (sweep_folds(), sweep_folds()) == (1, 0)


def test_the_sweep_does_not_pile_up_jobs_that_nobody_works_off(ana) -> None:
    thread = grow(ana, 21)
    OrmQ.objects.bulk_create(
        OrmQ(key="rethread", payload="x", lock=timezone.now()) for _ in range(500)
    )
    time_passes(thread, seconds=61)
    assert sweep_folds() == 0


def test_what_is_marked_due_and_is_not_leaves_the_sweep(ana) -> None:
    thread = grow(ana, 5)
    ConversationThread.objects.filter(pk=thread.pk).update(
        fold_due_at=timezone.now() - timedelta(hours=1)
    )
    assert sweep_folds() == 1
    assert fold_thread(str(thread.pk)) == "not_due"
    assert thread_of(thread).fold_due_at is None


# --- The working set ----------------------------------------------------------------------


def test_the_copy_takes_a_fold_without_being_filled_again(agent, ana) -> None:
    thread = grow(ana, 21)
    agent.context(thread.pk)
    thread.fold(ScriptedSummarizer())
    view = agent.context(thread.pk).json()
    assert (view["source"], view["folded_through"]) == ("cache", 11)


def test_warm_cold_and_redis_less_views_agree_after_a_fold(agent, ana) -> None:
    thread = grow(ana, 33)
    agent.context(thread.pk)
    thread.fold(ScriptedSummarizer())
    grow(ana, 2, thread.pk)
    for focus in ("brief", "sql", "visualizations"):
        warm = agent.context(thread.pk, focus=focus).json()
        get_conversation_memory().drop(thread.pk)
        cold = agent.context(thread.pk, focus=focus).json()
        assert (warm["source"], cold["source"]) == ("cache", "database")
        assert warm["text"] == cold["text"]


def test_a_copy_that_lags_behind_is_dropped_by_a_fold(agent, ana, redis) -> None:
    thread = grow(ana, 21)
    agent.context(thread.pk)
    key = get_conversation_memory().key(thread.pk)
    redis.hset(key, "v", 19)
    thread.fold(ScriptedSummarizer())
    assert not redis.exists(key)


def test_a_turn_that_overtakes_the_fold_on_its_way_to_redis_is_not_lost(agent, ana) -> None:
    thread = grow(ana, 21)
    agent.context(thread.pk)
    memory = get_conversation_memory()
    told = []
    take = memory.fold
    memory.fold = lambda *args: told.append(args)
    try:
        thread.fold(ScriptedSummarizer())
    finally:
        memory.fold = take
    grow(ana, 1, thread.pk)
    memory.fold(*told[0])
    view = agent.context(thread.pk).json()
    assert (view["source"], view["positions"]) == ("cache", list(range(12, 23)))
