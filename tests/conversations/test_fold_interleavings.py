"""Whatever comes between: summary and unfolded turns stand for turns 1 to n, each of them once.

Real folds on real stores, each in a thread that stops where it asks the summariser. What happens
meanwhile, and whether it is then answered, fails, dies or sleeps for long, is one choice after
another. Few turns make a fold here, so that a run holds many.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from django_q.models import OrmQ
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from config.redis import RedisUnavailable
from conversations import models
from conversations.context import ConversationContext, render_conversation_context
from conversations.conversation_memory import Copy, Miss, get_conversation_memory
from conversations.events import SessionEvent
from conversations.exceptions import ThreadNotFound
from conversations.fold_schedule import fold_rules
from conversations.models import ConversationThread, ThreadFold
from conversations.tasks import fold_thread, sweep_folds
from conversations.turns import Status
from rbac.principal import Person
from tests.conversations.fold_workers import (
    Worker,
    WorkerDied,
    at_work,
    each_once,
    noted,
    provider_failed,
    said,
)
from tests.conversations.fold_world import append, thread_of, time_passes

pytestmark = pytest.mark.django_db(transaction=True)

KEEP, THRESHOLD, WINDOW = 3, 6, 8
# Three long turns and no more fit in a call.
INPUT_TOKENS, LONG = 240, " and so on" * 20
LONGEST_WAIT_SECONDS = 4_000


# --- One thread, and all that may happen to it ------------------------------------------------


class Folding:
    """A thread of `owner`, three workers at it, and its readers; steps take a number each."""

    def __init__(self, owner: Person, crew: list[Worker]) -> None:
        self.owner, self.crew = owner, crew
        self.thread = ConversationThread(pk=uuid.uuid4())
        self.answers: dict[int, str] = {}
        self.pending: list[tuple[int, uuid.UUID, int]] = []  # position, turn and revision
        self.is_deleted = False
        self.slow_read: tuple[Any, ...] | None = None
        self.before: ConversationContext | None = None
        self.answered = 0

    @property
    def row(self) -> ConversationThread:
        return thread_of(self.thread)

    @property
    def asking(self) -> list[Worker]:
        return [worker for worker in self.crew if worker.is_asking]

    def begin(self, pending: int, turns: int, folds: int) -> None:
        for _ in range(pending):
            self.append_pending(0)
        for _ in range(turns):
            self.append(0)
        for _ in range(folds):
            self.fold(0)
            self.answer(0)

    # What agents do.

    def append(self, number: int) -> None:
        for _ in range(1 + number % 4):
            self._write(uuid.uuid4(), len(self.answers) + 1, is_long=number > 3)

    def append_pending(self, number: int) -> None:
        turn, position = uuid.uuid4(), len(self.answers) + 1
        self._write(turn, position, status=Status.PENDING)
        self.pending.append((position, turn, 0))

    def complete(self, number: int) -> None:
        """Write a pending turn again, as often as not for good."""
        if not self.pending:
            self.append_pending(number)
            return
        position, turn, revision = self.pending.pop(number % len(self.pending))
        if number > 2:
            self._write(turn, position, revision=revision + 1, status=Status.PENDING)
            self.pending.append((position, turn, revision + 1))
        else:
            self._write(turn, position, revision=revision + 1)

    def complete_all(self, number: int) -> None:
        """The newest first."""
        while self.pending:
            position, turn, revision = self.pending.pop()
            self._write(turn, position, revision=revision + 1)

    def _write(self, turn: uuid.UUID, position: int, is_long: bool = False, **body: Any) -> None:
        self.answered += 1
        answer = f"A{self.answered}{LONG if is_long else ''}"
        written = {"turn_id": turn, "answer": answer, **body}
        if self.is_deleted:
            with pytest.raises(ThreadNotFound), transaction.atomic():
                append(self.owner, self.thread.pk, f"Question {turn}", **written)
            return
        with transaction.atomic():
            append(self.owner, self.thread.pk, f"Question {turn}", **written)
        self.answers[position] = answer

    def switch_off(self, number: int) -> None:
        if not self.is_deleted:
            self.thread.remember(enabled=False)

    def switch_on(self, number: int) -> None:
        if not self.is_deleted:
            self.thread.remember(enabled=True)

    def forget(self, number: int) -> None:
        if number == 0 and not self.is_deleted:
            with transaction.atomic():
                self.thread.forget()
            self.is_deleted = True

    # What workers do.

    def take_job(self, number: int) -> None:
        if OrmQ.objects.exists():
            self._begin(self._taken_job())
        else:
            self.append(number)

    def lose_job(self, number: int) -> None:
        if OrmQ.objects.exists():
            self._taken_job()

    def _taken_job(self) -> Callable[[], Any]:
        job = OrmQ.objects.order_by("id")[0]
        job.delete()
        return lambda: fold_thread(*job.task["args"])

    def fold(self, number: int) -> None:
        """Fold with no job at all, or with one that was delivered twice."""
        self._begin(self.thread.fold)

    def fold_even_after_failure(self, number: int) -> None:
        self._begin(lambda: self.thread.fold(even_after_failure=True), even_after_failure=True)

    def refold(self, number: int) -> None:
        self._begin(self.thread.refold, even_after_failure=True, from_start=True)

    def _begin(
        self,
        work: Callable[[], Any],
        even_after_failure: bool = False,
        from_start: bool = False,
    ) -> None:
        worker = next((worker for worker in self.crew if not worker.is_asking), None)
        if worker is None:
            return
        before = self.row
        worker.begin(work)
        if worker.is_asking:
            self._check_request(worker)
            assert from_start or before.is_fold_due()
            waits = before.fold_blocked_until and before.fold_blocked_until > timezone.now()
            assert not waits or (even_after_failure and before.fold_claim is None)

    def answer(self, number: int) -> None:
        self._go_on(number)

    def fail(self, number: int) -> None:
        self._go_on(number, provider_failed())

    def die(self, number: int) -> None:
        self._go_on(number, WorkerDied())

    def _go_on(self, number: int, failure: BaseException | None = None) -> None:
        if not (asking := self.asking):
            self.fold(number)
        else:
            worker = asking[number % len(asking)]
            worker.go_on(failure)
            if worker.is_asking:
                self._check_request(worker)

    def _check_request(self, worker: Worker) -> None:
        """What a summariser is given follows what it is told that its summary stands for."""
        request = worker.request
        assert request
        assert self.row.memory_enabled
        assert not self.is_deleted
        assert each_once([at for at, _ in noted(request.summary)], request.folded_through)
        given = [turn.position for turn in request.turns]
        assert given == [request.folded_through + n for n in range(1, len(given) + 1)]
        assert all(turn.position <= request.folded_through for turn in request.amended)
        assert given or request.amended

    def sweep(self, number: int) -> None:
        sweep_folds()

    def wait(self, number: int) -> None:
        time_passes(self.thread, (31, 61, 91, 91, 200, LONGEST_WAIT_SECONDS)[number])

    # What readers do.

    def read(self, number: int) -> None:
        with suppress(ThreadNotFound):
            ConversationThread.objects.conversation_context(self.thread.pk, self.owner)

    def read_slowly(self, number: int) -> None:
        """Take the lease and read the table; the next time fill."""
        memory, threads = get_conversation_memory(), ConversationThread.objects
        with suppress(RedisUnavailable):
            if self.slow_read:
                lease, context, *others = self.slow_read
                self.slow_read = None
                if context.turns:
                    memory.fill(self.thread.pk, lease, context, *others)
            elif not self.is_deleted:
                memory.drop(self.thread.pk)
                lease, read_at = memory.lease(self.thread.pk, Miss("asked")), time.time()
                context, epoch = threads._from_database(self.thread.pk, self.owner)
                self.slow_read = (lease, context, epoch, read_at)

    def evict(self, number: int) -> None:
        with suppress(RedisUnavailable):
            get_conversation_memory().drop(self.thread.pk)

    # What always holds.

    def check(self) -> None:
        if self.is_deleted:
            self._check_nothing_is_left()
        else:
            self._check_stored(self.row)
            self._check_shown()

    def _check_nothing_is_left(self) -> None:
        row = self.row
        assert (row.summary, row.facts, row.kept_lines, row.amended_positions) == ("", {}, [], [])
        assert (row.folded_through, row.turn_count, row.fold_due_at) == (0, 0, None)
        assert not ThreadFold.objects.filter(thread=row).exists()
        assert not SessionEvent.objects.filter(thread_id=row.pk).exists()
        assert self._copy() is None

    def _check_stored(self, row: ConversationThread) -> None:
        notes = noted(row.summary)
        assert each_once([at for at, _ in notes], row.folded_through)
        unlike = {at for at, answer in notes if answer != said(self.answers[at])}
        pending = {position for position, _, _ in self.pending}
        assert unlike - pending <= set(row.amended_positions)
        assert row.turn_count == len(self.answers)

    def _copy(self) -> Copy | None:
        with suppress(RedisUnavailable):  # after 0.2 s, on a machine that is busy
            found = get_conversation_memory().read(self.thread.pk)
            return found if isinstance(found, Copy) else None
        return None

    def _check_shown(self) -> None:
        cold, _ = ConversationThread.objects._from_database(self.thread.pk, self.owner)
        if copy := self._copy():
            assert replace(copy.context, turns=list(copy.context.turns)) == cold
        for tokens in (300, 2_000):
            view = render_conversation_context(cold, "brief", tokens)
            left_out = [at for gap in view.left_out for at in range(gap["from"], gap["to"] + 1)]
            shown = [*range(1, cold.folded_through + 1), *left_out, *view.positions]
            assert each_once(shown, len(self.answers))
        self._check_change(cold)

    def _check_change(self, cold: ConversationContext) -> None:
        before, self.before = self.before, cold
        if before:
            assert cold.folded_through >= before.folded_through
            assert cold.version > before.version or cold == before

    # Where all comes to in the end.

    def come_to_rest(self, last_failure: BaseException | None = None) -> None:
        """End what is under way, lose all jobs, and let the sweep find what is still due."""
        while self.asking:
            self._go_on(0, last_failure)
        OrmQ.objects.all().delete()
        if not (self.is_deleted or self.row.memory_enabled):
            assert self.row.fold_due_at is None
            self.thread.remember(enabled=True)
        before, rules = self.row, fold_rules()
        work_left = before.turn_count - before.folded_through + len(before.amended_positions)
        calls = self._work_off(at_most=work_left)
        row = self.row
        if calls:  # each took in a turn or more, or what one that was folded says now
            to_fold = before.turn_count - before.folded_through - rules.keep
            assert calls <= max(0, to_fold) + len(before.amended_positions)
        self.check()
        unfolded = row.turn_count - row.folded_through
        assert min(row.turn_count, rules.keep) <= unfolded <= rules.threshold
        assert (row.amended_positions, row.fold_due_at, row.fold_claim) == ([], None, None)
        assert (row.fold_blocked_until, row.fold_attempts) == (None, 0) or self.is_deleted
        self._check_records()

    def _work_off(self, at_most: int) -> int:
        """Do what is due, and what is due then, until nothing is; return the calls that it took."""
        calls = 0
        for _ in range(at_most + 3):
            time_passes(self.thread, LONGEST_WAIT_SECONDS)
            sweep_folds()
            if not OrmQ.objects.exists():
                return calls
            while OrmQ.objects.exists():
                self._begin(self._taken_job())
                while self.asking:
                    calls += 1
                    assert calls <= at_most, "something stays due"
                    self._go_on(0)
        raise AssertionError("something stays due")

    def _check_records(self) -> None:
        """What was folded is recorded span by span, without a gap, and what was made anew whole."""
        made = ThreadFold.objects.filter(thread=self.thread).order_by("id")
        assert all(fold.last for fold in made)
        spans = made.filter(from_start=False).values_list("first", "last")
        assert each_once(
            [at for first, last in spans for at in range(first, last + 1)], self.row.folded_through
        )

    def give_up(self) -> None:
        for worker in self.asking:
            with suppress(Exception):
                worker.go_on(WorkerDied())
        OrmQ.objects.all().delete()


# --- Runs -------------------------------------------------------------------------------------

Start = Callable[[], Folding]
# How often each step is chosen, beside the others.
OFTEN = {
    "append": 8, "append_pending": 2, "complete": 8, "complete_all": 2, "switch_off": 1, "switch_on": 4, "forget": 1,
    "take_job": 5, "lose_job": 1, "fold": 3, "fold_even_after_failure": 1, "refold": 5,
    "answer": 12, "fail": 2, "die": 3, "sweep": 3, "wait": 4, "read": 2, "read_slowly": 3,
    "evict": 1,
}  # fmt: skip
STEPS = [name for name, often in OFTEN.items() for _ in range(often)]


@pytest.fixture
def start(ana: Person, settings: Any, monkeypatch: Any) -> Iterator[Start]:
    settings.MEMORY_MAX_RECENT_MESSAGES, settings.MEMORY_COMPRESSION_THRESHOLD = KEEP, THRESHOLD
    settings.MEMORY_WINDOW_TURNS, settings.FOLD_INPUT_TOKENS = WINDOW, INPUT_TOKENS
    get_conversation_memory.cache_clear()
    monkeypatch.setattr(models, "get_summarizer", lambda: at_work.worker)
    crew = [Worker() for _ in range(3)]
    yield lambda: Folding(ana, crew)
    for worker in crew:
        worker.close()
    get_conversation_memory.cache_clear()


# Each run is the work of one seed: hypothesis would try many that differ little from each other.
@example_settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(random=st.randoms(use_true_random=True))
def test_in_random_interleavings(start: Start, random: Random) -> None:
    begin = (random.randrange(7), random.randrange(4, 13), random.randrange(3))
    steps = [(random.choice(STEPS), random.randrange(6)) for _ in range(random.randrange(25, 41))]
    last_failure = random.choice([None, provider_failed(), WorkerDied()])
    try:
        play(start(), begin, steps, last_failure)
    except BaseException:
        print(begin, steps, repr(last_failure))
        raise


def play(
    folding: Folding,
    begin: tuple[int, int, int],
    steps: Sequence[tuple[str, int]],
    last_failure: BaseException | None = None,
) -> None:
    try:
        folding.begin(*begin)
        for name, number in steps:
            getattr(folding, name)(number)
            folding.check()
        folding.come_to_rest(last_failure)
        folding.complete_all(0)
        folding.come_to_rest()
    finally:
        folding.give_up()


# What is rare at random: pending turns, other turns and folds to begin with, and the steps.
RARE = {
    "a refold that overslept while a fold took in what was amended": (
        (1, 8, 1),
        [("refold", 0), ("wait", 2), ("complete", 0), ("fold", 0), ("answer", 1), ("answer", 0)],
    ),
    "a fold of amended turns that overslept while another took in more of them": (
        (2, 7, 1),
        [
            ("complete", 0),
            ("fold", 0),
            ("wait", 2),
            ("complete", 0),
            ("fold", 0),
            ("answer", 1),
            ("answer", 0),
        ],
    ),
    "a turn is finished while it is folded": (
        (1, 6, 0),
        [("fold", 0), ("complete", 0), ("answer", 0)],
    ),
    "memory is switched off between two windows of a refold": (
        (0, 12, 2),
        [("refold", 0), ("switch_off", 0), ("answer", 0)],
    ),
    "a thread is deleted between two windows of a refold": (
        (0, 12, 2),
        [("refold", 0), ("forget", 0), ("answer", 0)],
    ),
    "a refold before the first fold": ((0, 8, 0), [("refold", 0)]),
    "a refold whose worker dies while no fold is due": ((0, 8, 1), [("refold", 0), ("die", 0)]),
    "more amended turns than a call takes, the newest first": ((6, 7, 2), [("complete_all", 0)]),
}


@pytest.mark.parametrize("name", RARE)
def test_in_a_rare_one(start: Start, name: str) -> None:
    play(start(), *RARE[name])
