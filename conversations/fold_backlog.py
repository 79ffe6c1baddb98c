"""What is to be folded and how that stands: for operators' commands and for Prometheus.

*Foldable* is what has something to fold, whether anybody has noticed or not: finding it reads the
whole table. *Marked* is what a turn, a fold or the sweep has put on the list (`fold_due_at`): an
index finds it, and nothing here reads more than so many of that.

`fold_due_at` moves on with each job that is queued, so it says when something is to be tried, not
for how long it has been due. That the turns know: a fold is due since the turn that was one too
many was stored.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Case, Count, F, Min, OuterRef, Q, Subquery, Sum, Value, When
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce, Greatest, Now
from django.utils import timezone

from conversations.events import SessionEvent
from conversations.fold_schedule import REQUEUE_SECONDS, fold_rules, queue_fold
from conversations.folds import FAILED, LOST
from conversations.models import ConversationThread, ThreadFold, ThreadMessage
from conversations.querysets import ThreadQuerySet

COUNT_AT_MOST = 10_000
# Reading a thread's row and a turn's from a cold disk takes its time.
LOOK_AT_MOST = 1_000
_SCAN_AT_ONCE = 10_000


class Standing(StrEnum):
    """How the folding of one thread stands."""

    ABSENT = "not_found"  # or deleted
    MEMORY_OFF = "memory_off"  # nothing of it goes to a summariser
    NOTHING = "nothing_due"
    FOLDING = "being_folded"  # by somebody whose claim stands
    WAITING = "waiting"  # for the next attempt after a failure
    HAS_JOB = "has_job"  # was queued less than REQUEUE_SECONDS ago
    DUE = "due"

    def is_to_be_tried(self, *, after_failure: bool) -> bool:
        """Whether to fold such a thread now; one that waits only if that is asked for."""
        return self in {Standing.DUE, Standing.HAS_JOB} or (
            after_failure and self is Standing.WAITING
        )


def standing_of(thread: ConversationThread | None, now: datetime) -> Standing:
    """Return how the folding of a thread stands, by its row as it was read."""
    if thread is None or thread.deleted_at is not None:
        return Standing.ABSENT
    if not thread.memory_enabled:
        return Standing.MEMORY_OFF
    blocked = thread.is_fold_blocked(now)
    if blocked and thread.fold_claim is not None:
        return Standing.FOLDING
    if not thread.is_fold_due():
        return Standing.NOTHING
    if blocked:
        return Standing.WAITING
    is_queued = thread.fold_due_at is not None and thread.fold_due_at > now
    return Standing.HAS_JOB if is_queued else Standing.DUE


@dataclass(frozen=True)
class FoldFailure:
    """Why a thread's last fold failed, and when it is tried again."""

    code: str
    next_attempt_at: datetime | None

    @classmethod
    def newest_of(cls, thread_id: uuid.UUID) -> FoldFailure:
        """Return the last failure of a thread; the code is "unknown" where there is no event."""
        events = SessionEvent.objects.filter(thread_id=thread_id, kind=FAILED)
        event = events.newest_first().first()
        return cls(event.code, event.next_attempt_at) if event else cls("unknown", None)


# --- What could be folded: by the table --------------------------------------------------------


def foldable(threads: ThreadQuerySet) -> ThreadQuerySet:
    """Keep threads of which something is to be folded, marked or not."""
    too_long = Q(turn_count__gt=F("folded_through") + fold_rules().threshold)
    remembered = threads.alive().filter(memory_enabled=True)
    return remembered.filter(too_long | ~Q(amended_positions=[]))


def foldable_ids(threads: ThreadQuerySet) -> Iterator[uuid.UUID]:
    """Yield the ids of what is foldable of these threads, in their order.

    In statements that read some thousand rows each: no index leads to the next one, and a search
    through millions would run into its time-out.
    """
    every = ConversationThread.objects.order_by("pk").values_list("pk", flat=True)
    wanted = foldable(threads).order_by("pk").values_list("pk", flat=True)
    last = uuid.UUID(int=0)
    while bound := every.filter(pk__gt=last)[_SCAN_AT_ONCE - 1 : _SCAN_AT_ONCE].first():
        yield from wanted.filter(pk__gt=last, pk__lte=bound)
        last = bound
    yield from wanted.filter(pk__gt=last)


def with_work(threads: ThreadQuerySet) -> ThreadQuerySet:
    """Load `turns_to_fold` and `windows` of each thread, and what its standing is told by.

    A window is what one call of the summariser folds; long turns make for more of them than this.
    """
    rules = fold_rules()
    over = F("turn_count") - F("folded_through") - rules.threshold
    whole = Greatest((over + rules.window - 1) / rules.window, 0)
    amended = Case(When(amended_positions=[], then=Value(0)), default=Value(1))
    light = threads.only(
        "turn_count", "folded_through", "amended_positions", "memory_enabled", "deleted_at",
        "fold_due_at", "fold_claim", "fold_blocked_until", "fold_attempts",
    )  # fmt: skip
    return light.annotate(turns_to_fold=whole * rules.window, windows=Greatest(whole, amended))


def turns_to_fold(threads: ThreadQuerySet) -> int:
    """Return how many turns of these threads are to be folded."""
    return int(with_work(threads).aggregate(sum=Sum("turns_to_fold"))["sum"] or 0)


def queue_folds(thread_ids: Sequence[uuid.UUID], *, after_failure: bool = False) -> list[uuid.UUID]:
    """Queue jobs for what is due of these threads, in the caller's transaction; return which.

    Not for one that has a job, is being folded, or whose row somebody holds just now. With
    `after_failure` those that wait for their next attempt are tried at once as well.
    """
    now = timezone.now()
    rows = ConversationThread.objects.select_for_update(skip_locked=True, no_key=True)
    chosen = [
        row.pk
        for row in with_work(rows.filter(pk__in=thread_ids))
        if (standing := standing_of(row, now)) is not Standing.HAS_JOB
        and standing.is_to_be_tried(after_failure=after_failure)
    ]
    ConversationThread.objects.filter(pk__in=chosen).update(
        fold_due_at=Now() + timedelta(seconds=REQUEUE_SECONDS), fold_blocked_until=None
    )
    for thread_id in chosen:
        queue_fold(thread_id)
    return chosen


# --- What is marked: by its index --------------------------------------------------------------


def marked(at_most: int = LOOK_AT_MOST) -> list[ThreadQuerySet]:
    """Return the threads on the list that are to be tried now, and those that are later.

    The first so many of each, by when they are to be tried, with `due_since` and `waits`: what
    one waits for. Not those that have nothing to fold after all: the sweep takes them off.
    """
    listed = with_work(foldable(ConversationThread.objects.order_by("fold_due_at")))
    listed = listed.annotate(
        due_since=Coalesce(Subquery(_one_too_many()), F("fold_due_at")), waits=_waits()
    )
    now = listed.filter(fold_due_at__lte=Now())
    return [now[:at_most], listed.filter(fold_due_at__gt=Now())[:at_most]]


def due_now() -> int:
    """Return how many threads on the list are to be tried now, 10,000 at most: reads the index."""
    due = ConversationThread.objects.filter(fold_due_at__lte=Now()).order_by("fold_due_at")
    return due.values("fold_due_at")[:COUNT_AT_MOST].count()


def claimed() -> ThreadQuerySet:
    """Keep threads on the list that somebody has claimed, the claim that ends first, first.

    Those as well whose claim has ended: its worker has died, or lost touch.
    """
    listed = ConversationThread.objects.alive().filter(fold_due_at__isnull=False)
    claims = with_work(listed.filter(fold_claim__isnull=False))
    return claims.order_by("fold_due_at")


def claim_age(thread: ConversationThread, now: datetime) -> timedelta:
    """Return for how long a claimed thread's fold has run; a refold's, its window under way."""
    assert thread.fold_blocked_until is not None  # noqa: S101  each claim has an end
    return timedelta(seconds=settings.FOLD_CLAIM_SECONDS) - (thread.fold_blocked_until - now)


def _one_too_many() -> Any:
    position = OuterRef("folded_through") + fold_rules().threshold + 1
    turn = ThreadMessage.objects.filter(thread=OuterRef("pk"), position=position)
    return turn.values("stored_at")


WAITS = WORKER, RETRY, SUMMARY = "worker", "retry", "summary"


def _waits() -> Case:
    """Say what a thread waits for: a worker, its retry after a failure, or a summary being made."""
    blocked = Q(fold_blocked_until__gt=Now())
    return Case(
        When(blocked & Q(fold_claim__isnull=False), then=Value(SUMMARY)),
        When(blocked, then=Value(RETRY)),
        default=Value(WORKER),
        output_field=models.TextField(),
    )


@dataclass(frozen=True)
class FoldBacklog:
    """What is to be folded of the threads on the list, in all.

    `due_now` is without those that have a job, are being folded, or wait for a retry; `failing`
    are those whose last fold failed. `counted_all` is False where there are more.
    `oldest_seconds` is for how long the oldest has been due, by what it waits for.
    """

    threads: int
    due_now: int
    failing: int
    turns: int
    windows: int
    counted_all: bool
    oldest_seconds: dict[str, float]

    @classmethod
    def now(cls, at_most: int) -> FoldBacklog:
        """Read it in two queries, of so many threads each, however many there are."""
        due, later = (_totals(threads) for threads in marked(at_most))
        return cls(
            threads=due["listed"] + later["listed"],
            due_now=due["listed"],
            failing=due["failing"] + later["failing"],
            turns=due["sum_turns"] + later["sum_turns"],
            windows=due["sum_windows"] + later["sum_windows"],
            counted_all=max(due["listed"], later["listed"]) < at_most,
            oldest_seconds={
                what: max(_seconds(due[what]), _seconds(later[what])) for what in WAITS
            },
        )


def _totals(threads: ThreadQuerySet) -> dict[str, Any]:
    return threads.aggregate(
        listed=Count("pk"),
        failing=Count("pk", filter=Q(fold_attempts__gt=0) & ~Q(waits=SUMMARY)),
        sum_turns=Sum("turns_to_fold", default=0),
        sum_windows=Sum("windows", default=0),
        **{what: _oldest(what) for what in WAITS},
    )


def _oldest(what: str) -> CombinedExpression:
    return Now() - Min("due_since", filter=Q(waits=what))


def _seconds(waited: timedelta | None) -> float:
    return max(0.0, waited.total_seconds()) if waited else 0.0


# --- What has been done: by the newest rows ----------------------------------------------------


@dataclass(frozen=True)
class FoldsDone:
    """What was folded since a time, and what was not, of the newest 10,000 rows that tell.

    `counted_all` is False where more happened since. `median_ms` is of folds of one window, None
    where there was none; `failed` counts by code.
    """

    folds: int
    refolds: int
    median_ms: float | None
    input_tokens: int
    output_tokens: int
    lost: int
    failed: dict[str, int]
    counted_all: bool

    @classmethod
    def since(cls, *times: datetime) -> list[FoldsDone]:
        """Return it for each of `times`, read in two queries by primary key."""
        folds: list[Any] = list(ThreadFold.objects.newest_first()[:COUNT_AT_MOST].values_list(
            "at", "from_start", "duration_ms", "input_tokens", "output_tokens", named=True,
        ))  # fmt: skip
        newest = SessionEvent.objects.newest_first()[:COUNT_AT_MOST]
        events: list[Any] = list(newest.values_list("at", "kind", "code", named=True))
        return [cls._of(folds, events, time) for time in times]

    @classmethod
    def _of(cls, folds: Sequence[Any], events: Sequence[Any], time: datetime) -> FoldsDone:
        counted_all = all(
            len(rows) < COUNT_AT_MOST or rows[-1].at < time for rows in (folds, events)
        )
        folds = [fold for fold in folds if fold.at >= time]
        events = [event for event in events if event.at >= time]
        single = [fold.duration_ms for fold in folds if not fold.from_start]
        return cls(
            folds=len(single),
            refolds=len(folds) - len(single),
            median_ms=median(single) if single else None,
            input_tokens=sum(fold.input_tokens for fold in folds),
            output_tokens=sum(fold.output_tokens for fold in folds),
            lost=sum(event.kind == LOST for event in events),
            failed=dict(Counter(event.code for event in events if event.kind == FAILED)),
            counted_all=counted_all,
        )
