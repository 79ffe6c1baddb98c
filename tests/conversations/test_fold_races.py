"""Folds beside writers, readers and each other, on connections of their own, all starting at once."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django_q.models import OrmQ

from conversations import models
from conversations.conversation_memory import Copy, Miss, get_conversation_memory
from conversations.exceptions import ThreadNotFound
from conversations.folds import FoldOutcome, ThreadFold
from conversations.models import ConversationThread
from conversations.summaries import Summary, SummaryRequest
from conversations.tasks import fold_thread, sweep_folds
from conversations.turns import Status
from rbac.principal import Person
from tests.conversations.cached_thread import in_parallel
from tests.conversations.conftest import stored_positions
from tests.conversations.fold_workers import Worker, at_work, each_once, noted, notes_of
from tests.conversations.fold_world import append, grow, thread_of, time_passes

pytestmark = pytest.mark.django_db(transaction=True)

WRITERS, TURNS_EACH, FOLDERS = 8, 12, 3
ROUNDS = 10
KEEP, THRESHOLD = 3, 6
DUE = THRESHOLD + 1


class QuickSummarizer:
    """Takes a few milliseconds, as an LLM takes seconds."""

    def summarize(self, request: SummaryRequest) -> Summary:
        time.sleep(0.004)
        return Summary(text=notes_of(request), model="scripted")


def write(owner: Person, thread_id: uuid.UUID, query: str, **body: Any) -> uuid.UUID:
    with transaction.atomic():
        return append(owner, thread_id, query, **body)


def assert_each_turn_stands_once(owner: Person, thread_id: uuid.UUID, turns: int) -> None:
    """In the summary or after it, in the table as in the copy."""
    row = ConversationThread.objects.get(pk=thread_id)
    assert stored_positions(thread_id) == list(range(1, turns + 1))
    assert each_once([at for at, _ in noted(row.summary)], row.folded_through)
    for _ in range(2):  # the first may fill the copy that the second reads
        shown = ConversationThread.objects.conversation_context(thread_id, owner).context
        assert (shown.summary, shown.folded_through) == (row.summary, row.folded_through)
        held = [turn.position for turn in shown.turns]
        assert held == list(range(row.folded_through + 1, turns + 1))
    assert isinstance(get_conversation_memory().read(thread_id), Copy)


# --- A queue, its workers, and writers --------------------------------------------------------


class Conversation:
    """A thread that many write, fold and read at once, until all is written."""

    def __init__(self, owner: Person) -> None:
        self.id, self.owner = uuid.uuid4(), owner
        self._is_written = threading.Event()
        write(owner, self.id, "The first")

    def write_all(self) -> None:
        try:
            in_parallel(*[lambda w=w: self._write_some(w) for w in range(WRITERS)])
        finally:
            self._is_written.set()

    def _write_some(self, writer: int) -> None:
        for n in range(TURNS_EACH):
            write(self.owner, self.id, f"Writer {writer}, turn {n}", answer=f"Answer {n}")

    def work(self) -> None:
        while not self._is_written.is_set():
            if not run_next_job():
                sweep_folds()
                self._is_written.wait(0.002)

    def read(self) -> None:
        while not self._is_written.is_set():
            shown = ConversationThread.objects.conversation_context(self.id, self.owner).context
            assert each_once([at for at, _ in noted(shown.summary)], shown.folded_through)
            assert shown.turns[-1].position == shown.turn_count


def run_next_job() -> bool:
    with transaction.atomic():
        job = OrmQ.objects.select_for_update(skip_locked=True).order_by("id").first()
        if job is None:
            return False
        job.delete()
    fold_thread(*job.task["args"])
    return True


def test_eight_writers_while_three_workers_fold(ana, monkeypatch) -> None:
    monkeypatch.setattr(models, "get_summarizer", QuickSummarizer)
    talk = Conversation(ana)
    in_parallel(talk.write_all, talk.read, *[talk.work] * FOLDERS)
    print(f"{ConversationThread.objects.get(pk=talk.id).folded_through} turns folded meanwhile")
    while run_next_job():
        pass
    assert_each_turn_stands_once(ana, talk.id, 1 + WRITERS * TURNS_EACH)
    row = ConversationThread.objects.get(pk=talk.id)
    assert 10 <= row.turn_count - row.folded_through <= 20
    assert (row.fold_due_at, row.fold_claim, row.fold_attempts) == (None, None, 0)
    spans = ThreadFold.objects.filter(thread=row).order_by("id").values_list("first", "last")
    folded = [at for first, last in spans for at in range(first, last + 1)]
    assert folded == list(range(1, row.folded_through + 1))


# --- One against another, round after round ---------------------------------------------------


@pytest.fixture
def workers(settings: Any, monkeypatch: Any) -> Iterator[list[Worker]]:
    settings.MEMORY_MAX_RECENT_MESSAGES, settings.MEMORY_COMPRESSION_THRESHOLD = KEEP, THRESHOLD
    monkeypatch.setattr(models, "get_summarizer", lambda: at_work.worker)
    crew = [Worker(), Worker()]
    yield crew
    for worker in crew:
        worker.close()


def begin_fold(worker: Worker, thread: ConversationThread) -> list[FoldOutcome]:
    """Begin a fold that waits in its call; return where its outcome will be."""
    outcomes: list[FoldOutcome] = []
    worker.begin(lambda: outcomes.append(thread.fold()))
    assert worker.is_asking
    return outcomes


def apply_beside(workers: list[Worker], work: Callable[[], Any], *others: Any) -> None:
    """Let the first worker's fold be applied while the second, as quick as it, does `work`."""
    in_parallel(workers[0].go_on, lambda: workers[1].begin(work), *others)


def test_a_fold_applied_while_a_turn_is_appended_and_another_reads(ana, workers) -> None:
    thread, turns = grow(ana, THRESHOLD), THRESHOLD

    def read() -> None:
        ConversationThread.objects.conversation_context(thread.pk, ana)

    for n in range(ROUNDS):
        missing = DUE - (turns - thread_of(thread).folded_through)
        grow(ana, missing, thread.pk)
        turns += missing + 1
        read()
        if n % 3 == 0:
            get_conversation_memory().drop(thread.pk)
        outcomes = begin_fold(workers[0], thread)
        apply_beside(workers, partial(write, ana, thread.pk, "Meanwhile"), read)
        assert outcomes == [FoldOutcome.FOLDED]
        assert_each_turn_stands_once(ana, thread.pk, turns)


def test_a_fold_applied_while_a_turn_of_it_is_completed(ana, workers) -> None:
    seen: Counter[FoldOutcome] = Counter()
    for _ in range(ROUNDS):
        thread_id, run = uuid.uuid4(), uuid.uuid4()
        write(ana, thread_id, "Shall I?", status=Status.PENDING, turn_id=run)
        thread = grow(ana, DUE - 1, thread_id)
        ConversationThread.objects.conversation_context(thread_id, ana)
        outcomes = begin_fold(workers[0], thread)
        completed = {"turn_id": run, "answer": "Yes", "revision": 1}
        apply_beside(workers, partial(write, ana, thread_id, "Shall I?", **completed))
        seen.update(outcomes)
        amended = outcomes == [FoldOutcome.FOLDED]
        assert thread_of(thread).amended_positions == [1] * amended
        assert_each_turn_stands_once(ana, thread_id, DUE)
        assert thread.fold(QuickSummarizer()) == FoldOutcome.FOLDED
        assert noted(thread_of(thread).summary)[0] == (1, "Yes")
        assert_each_turn_stands_once(ana, thread_id, DUE)
    print(dict(seen))
    assert set(seen) <= {FoldOutcome.FOLDED, FoldOutcome.LOST}


def test_a_fold_applied_while_its_thread_is_deleted(ana, workers) -> None:
    seen: Counter[FoldOutcome] = Counter()
    for _ in range(ROUNDS):
        thread = grow(ana, DUE)
        ConversationThread.objects.conversation_context(thread.pk, ana)
        outcomes = begin_fold(workers[0], thread)
        apply_beside(workers, transaction.atomic(thread.forget))
        seen.update(outcomes)
        row = thread_of(thread)
        assert (row.summary, row.folded_through, row.turn_count) == ("", 0, 0)
        assert (row.fold_due_at, row.fold_claim) == (None, None)
        assert not ThreadFold.objects.filter(thread=row).exists()
        assert isinstance(get_conversation_memory().read(row.pk), Miss)
        with pytest.raises(ThreadNotFound):
            ConversationThread.objects.conversation_context(row.pk, ana)
    print(dict(seen))
    assert set(seen) <= {FoldOutcome.FOLDED, FoldOutcome.LOST}


def test_of_folds_that_begin_at_once_one_asks(ana, workers) -> None:
    for _ in range(ROUNDS):
        thread = grow(ana, DUE)
        in_parallel(*[lambda w=w, t=thread: w.begin(t.fold) for w in workers])
        [asking] = [worker for worker in workers if worker.is_asking]
        asking.go_on()
        assert_each_turn_stands_once(ana, thread.pk, DUE)


def test_of_two_that_apply_the_same_turns_at_once_one_is_lost(ana, workers) -> None:
    for _ in range(ROUNDS):
        thread = grow(ana, DUE)
        first = begin_fold(workers[0], thread)
        time_passes(thread, seconds=91)
        second = begin_fold(workers[1], thread)
        in_parallel(*[worker.go_on for worker in workers])
        assert sorted(first + second) == [FoldOutcome.FOLDED, FoldOutcome.LOST]
        assert_each_turn_stands_once(ana, thread.pk, DUE)
        assert thread_of(thread).fold_claim is None
