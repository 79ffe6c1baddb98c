"""Folds of a thread: the record of each, and the claim under which one is made.

A fold is claimed, made outside of any transaction, since an LLM is asked, and applied only if
the thread stands as it did: somebody else's fold, a turn finished meanwhile within reach, a
deletion raise `fold_epoch`, and the loser throws its result away. A claim that was never
concluded, because its worker died, ends by itself.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, models, transaction
from django.utils import timezone

from config import metrics
from conversations import invalidation
from conversations.events import SessionEvent
from conversations.facts import fold_facts
from conversations.fold_schedule import REQUEUE_SECONDS, fold_rules, queue_fold
from conversations.folding import FoldPlan, FoldRules, FoldTurn, keep_lines, plan_fold
from conversations.summaries import (
    PASSING_FAILURES,
    SummarizationFailed,
    Summary,
    SummaryRequest,
)

if TYPE_CHECKING:
    from conversations.conversation_summarizer import Summarizer
    from conversations.models import ConversationThread

log = structlog.get_logger(__name__)

FOLDED = "memory_folded"
FAILED = "memory_summarization_failed"
LOST = "memory_fold_lost"
PROMPT_PROBLEM = "summary_prompt_problem"


class FoldOutcome(StrEnum):
    """What came of a try to fold."""

    FOLDED = "folded"
    NOT_DUE = "not_due"  # nothing to fold, or somebody else folds, or a failure is waited for
    LOST = "lost"  # the thread changed meanwhile: it is to be done again
    FAILED = "failed"  # there is no summary: it is tried again later


# --- The record -------------------------------------------------------------------------------


class ThreadFoldQuerySet(models.QuerySet["ThreadFold"]):
    """Chainable questions about folds."""

    def newest_first(self, before: int | None = None) -> ThreadFoldQuerySet:
        """Order by time, newest first; `before` is the last id of the page before."""
        ordered = self.order_by("-id")
        return ordered if before is None else ordered.filter(id__lt=before)


class ThreadFold(models.Model):
    """One fold that was applied, with the summary it produced: "why does it say so".

    Turns `first` to `last` went into the summary (`first` > `last` where only `amended` ones
    did, which had been folded before they were finished). Kept with the thread, erased with it.
    """

    thread: models.ForeignKey[ConversationThread, ConversationThread] = models.ForeignKey(
        "conversations.ConversationThread", models.CASCADE, related_name="folds", db_index=False
    )
    first = models.IntegerField()
    last = models.IntegerField()
    amended: Any = models.JSONField(default=list, blank=True)
    from_start = models.BooleanField(default=False)
    model = models.TextField()
    prompt_name = models.TextField(blank=True)
    prompt_version = models.TextField(blank=True)
    prompt_source = models.TextField()
    input_tokens = models.IntegerField()
    cached_input_tokens = models.IntegerField()
    output_tokens = models.IntegerField()
    calls = models.IntegerField()
    duration_ms = models.IntegerField()
    summary = models.TextField()
    at = models.DateTimeField(default=timezone.now)

    objects = ThreadFoldQuerySet.as_manager()

    class Meta:
        app_label = "conversations"
        db_table = "thread_folds"
        indexes = [models.Index(fields=["thread", "-id"], name="fold_thread_newest")]

    def __str__(self) -> str:
        return f"t{self.first}-t{self.last}"


# --- Making one -------------------------------------------------------------------------------


@dataclass(slots=True)
class FoldDraft:
    """A summary in the making, with what stands beside it, and what it took so far."""

    folded_through: int
    summary: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    kept_lines: Sequence[str] = ()
    first: int = 1
    amended: Sequence[int] = ()
    made: Summary | None = None
    began: float = field(default_factory=time.monotonic)
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0

    @classmethod
    def of(cls, thread: ConversationThread) -> FoldDraft:
        """Return what the thread has now."""
        return cls(
            folded_through=thread.folded_through,
            summary=thread.summary,
            facts=thread.facts,
            kept_lines=thread.kept_lines,
            first=thread.folded_through + 1,
        )

    def add(
        self,
        thread: ConversationThread,
        span: range,
        amended: Sequence[int],
        summarizer: Summarizer,
    ) -> None:
        """Fold as much of `span` and of `amended` turns as one call takes.

        Raises `SummarizationFailed`, and then the draft is what it was.
        """
        rules = fold_rules()
        turns = thread.turns.to_fold([*amended[: rules.window], *span], rules.turn_tokens)
        sizes = {turn.position: turn.tokens for turn in turns}
        plan = plan_fold(self.folded_through, span, sizes, amended, rules)
        if plan is None:
            raise SummarizationFailed("turns_missing")
        self._take_in(thread, plan, {turn.position: turn for turn in turns}, rules, summarizer)

    def _take_in(
        self,
        thread: ConversationThread,
        plan: FoldPlan,
        turns: Mapping[int, FoldTurn],
        rules: FoldRules,
        summarizer: Summarizer,
    ) -> None:
        through = plan.through(self.folded_through)
        built = [(at, turns[at].artifacts) for at in (*plan.amended, *plan.positions)]
        facts = fold_facts(
            self.facts, built,
            dialect=settings.SQL_DIALECT, max_tokens=settings.FACTS_MAX_TOKENS, through=through,
        )  # fmt: skip
        made = summarizer.summarize(
            SummaryRequest(
                thread_id=thread.pk,
                fence=thread.fence,
                summary=self.summary,
                folded_through=self.folded_through,
                turns=[turns[position] for position in plan.positions],
                amended=[turns[position] for position in plan.amended],
            )
        )
        self.kept_lines = keep_lines(self.kept_lines, built, through, rules)
        self.facts, self.summary, self.made = facts, made.text, made
        self.folded_through, self.amended = through, [*self.amended, *plan.amended]
        self._count(made)

    def _count(self, made: Summary) -> None:
        self.input_tokens += made.input_tokens
        self.cached_input_tokens += made.cached_input_tokens
        self.output_tokens += made.output_tokens
        self.calls += made.calls

    @property
    def duration_ms(self) -> int:
        """How long it has taken, in milliseconds."""
        return int((time.monotonic() - self.began) * 1000)

    def account(self) -> dict[str, Any]:
        """Return what events, records and log lines say of it; no text of the thread."""
        made = self.made
        assert made is not None  # noqa: S101  nothing is applied that was not made
        return {
            "model": made.model,
            "prompt_name": made.prompt_name,
            "prompt_version": made.prompt_version,
            "prompt_source": made.prompt_source,
            "input_tokens": self.input_tokens,
            "cached_input_tokens": self.cached_input_tokens,
            "output_tokens": self.output_tokens,
            "calls": self.calls,
            "duration_ms": self.duration_ms,
        }


class _Failed:
    """What came of a block that may fail; None while all is well."""

    outcome: FoldOutcome | None = None


class FoldClaim:
    """The right to fold one thread, for a while; `thread` is its row as it was when claimed."""

    def __init__(self, thread: ConversationThread, token: uuid.UUID) -> None:
        self.thread = thread
        self._token = token

    @classmethod
    def take(
        cls, threads: models.Manager[ConversationThread], thread_id: uuid.UUID,
        *, even_if_not_due: bool = False, even_after_failure: bool = False,
    ) -> FoldClaim | None:  # fmt: skip
        """Claim a thread; None where nothing is due, or somebody else's claim stands.

        A thread that waits after a failure is left alone as well, unless `even_after_failure`.
        """
        now = timezone.now()
        with transaction.atomic():
            thread = _locked(threads, thread_id)
            if thread is None:
                return None
            due = thread.is_fold_due() or (even_if_not_due and thread.folded_through > 0)
            if not due:
                _settle(thread)
                return None
            if thread.is_fold_blocked(now, ignore_failure=even_after_failure):
                return None
            return cls._taken(thread, now)

    @classmethod
    def _taken(cls, thread: ConversationThread, now: datetime) -> FoldClaim:
        if thread.fold_claim:  # never concluded
            _report_failure(thread, "worker_lost", now)
        thread.fold_attempts += 1
        thread.fold_claim = uuid.uuid4()
        # Where workers die of this very thread it is not tried again at once for ever.
        pause = fold_rules().pause(thread.fold_attempts) if thread.fold_attempts > 1 else None
        thread.fold_blocked_until = now + max(_claim_time(), pause or timedelta())
        thread.fold_due_at = thread.fold_blocked_until
        thread.save(update_fields=_FOLD_STATE)
        return cls(thread, thread.fold_claim)

    @contextmanager
    def noting_failure(self) -> Iterator[_Failed]:
        """Note what goes wrong in the block as a failed try; its `outcome` tells afterwards."""
        failed = _Failed()
        try:
            yield failed
        except SummarizationFailed as error:
            failed.outcome = self.fail(error.code, error.prompt_problem, **_account_of(error))
        except KeyboardInterrupt:
            self.release()
            raise
        except (DatabaseError, InterfaceError):
            raise  # no summary is to blame; the claim ends by itself
        except Exception as error:  # a fault of ours must not be tried again at once
            log.error("fold_broke", thread_id=str(self.thread.pk), error=type(error).__name__)
            log.debug("fold_broke_so", exc_info=error)  # it may quote what was said
            failed.outcome = self.fail("unexpected")

    def keep_trying(
        self, draft: FoldDraft, span: range, summarizer: Summarizer, pauses: Sequence[float]
    ) -> bool:
        """Add a window to the draft; False where the claim has gone to somebody else.

        What may pass is tried again after each of `pauses`, in seconds. Raises
        `SummarizationFailed` in the end.
        """
        for pause in (*pauses, None):
            if not self.renew():
                return False
            try:
                draft.add(self.thread, span, (), summarizer)
            except SummarizationFailed as error:
                if pause is None or error.code not in PASSING_FAILURES:
                    raise
                time.sleep(pause)
            else:
                break
        return True

    def renew(self) -> bool:
        """Claim for longer; False where the claim has gone to somebody else."""
        until = timezone.now() + _claim_time()
        ours = self._threads().filter(
            pk=self.thread.pk, fold_claim=self._token, memory_enabled=True, deleted_at=None
        )
        return ours.update(fold_blocked_until=until, fold_due_at=until) == 1

    def apply(self, draft: FoldDraft, *, from_start: bool = False) -> FoldOutcome:
        """Put the draft in place if the thread still stands as when it was claimed."""
        with transaction.atomic():
            row = _locked(self._threads(), self.thread.pk)
            if row is None or not self._stands(row, from_start=from_start):
                return self._lose(row, draft)
            _put_in_place(row, draft, from_start=from_start, untouched=self._untouched(row))
        metrics.FOLDS.labels("folded").inc()
        metrics.FOLD_SECONDS.observe(draft.duration_ms / 1000)
        return FoldOutcome.FOLDED

    def _stands(self, row: ConversationThread, *, from_start: bool) -> bool:
        """Whether what the draft was made of is still so.

        A fold from the start read everything up to where the thread is folded; what was amended
        meanwhile stays listed for the next fold.
        """
        if row.folded_through != self.thread.folded_through:
            return False
        return row.fold_claim == self._token if from_start else self._untouched(row)

    def _untouched(self, row: ConversationThread) -> bool:
        return row.fold_epoch == self.thread.fold_epoch

    def _lose(self, row: ConversationThread | None, draft: FoldDraft) -> FoldOutcome:
        if row:
            self._give_back(row)
            SessionEvent.emit(LOST, row.pk, data=draft.account())
            log.info(LOST, thread_id=str(row.pk), **draft.account())
        metrics.FOLDS.labels("lost").inc()
        return FoldOutcome.LOST

    def _give_back(self, row: ConversationThread) -> None:
        """End the claim without a failure, and have the fold done again."""
        if row.fold_claim != self._token:
            return
        row.fold_claim = row.fold_blocked_until = None
        row.fold_attempts = max(0, row.fold_attempts - 1)
        _schedule(row)
        row.save(update_fields=_FOLD_STATE)

    def release(self) -> None:
        """End the claim as if it had not been taken."""
        with transaction.atomic():
            row = _locked(self._threads(), self.thread.pk)
            if row:
                self._give_back(row)

    def fail(self, code: str, prompt_problem: str = "", **account: Any) -> FoldOutcome:
        """Note that there is no summary, and when the next try is; the thread stays as it is."""
        now = timezone.now()
        with transaction.atomic():
            row = _locked(self._threads(), self.thread.pk)
            if row is not None and row.fold_claim == self._token:
                row.fold_claim = None
                row.fold_blocked_until = now + fold_rules().pause(row.fold_attempts)
                row.fold_due_at = row.fold_blocked_until
                row.save(update_fields=_FOLD_STATE)
                _report_failure(row, code, now, **account)
                _report_prompt(row, prompt_problem)
        return FoldOutcome.FAILED

    def _threads(self) -> models.Manager[ConversationThread]:
        return type(self.thread).objects


# --- The thread's row -------------------------------------------------------------------------

_FOLD_STATE = ["fold_claim", "fold_attempts", "fold_blocked_until", "fold_due_at"]


def _claim_time() -> timedelta:
    return timedelta(seconds=settings.FOLD_CLAIM_SECONDS)


def _locked(
    threads: models.Manager[ConversationThread], thread_id: uuid.UUID
) -> ConversationThread | None:
    """Lock the row of a thread that may be folded: there, and its memory switched on."""
    rows = threads.select_for_update(no_key=True).filter(pk=thread_id, deleted_at__isnull=True)
    return rows.filter(memory_enabled=True).first()


def _settle(row: ConversationThread) -> None:
    """Take a thread off the list of what is due when it is not, and nobody makes it anew."""
    if row.fold_due_at is not None and not row.is_fold_blocked(timezone.now()):
        row.fold_claim = row.fold_due_at = row.fold_blocked_until = None
        row.fold_attempts = 0
        row.save(update_fields=_FOLD_STATE)


def _schedule(row: ConversationThread) -> None:
    """Queue a job for what is still due; the caller saves the row."""
    row.fold_due_at = None
    if row.is_fold_due():
        row.fold_due_at = timezone.now() + timedelta(seconds=REQUEUE_SECONDS)
        queue_fold(row.pk)


def _put_in_place(
    row: ConversationThread, draft: FoldDraft, *, from_start: bool, untouched: bool
) -> None:
    row.summary, row.facts = draft.summary, dict(draft.facts)
    row.kept_lines = list(draft.kept_lines)
    row.folded_through = draft.folded_through
    if untouched:
        done = set(row.amended_positions if from_start else draft.amended)
        row.amended_positions = [at for at in row.amended_positions if at not in done]
    row.fold_epoch += 1
    row.version += 1
    row.touched_at = timezone.now()
    row.fold_claim, row.fold_blocked_until, row.fold_attempts = None, None, 0
    _schedule(row)
    row.save(
        update_fields=[
            *_FOLD_STATE, "summary", "facts", "kept_lines", "folded_through", "amended_positions",
            "fold_epoch", "version", "touched_at",
        ]
    )  # fmt: skip
    _record(row, draft, from_start=from_start)
    version, head = row.version, (row.summary, row.facts, row.kept_lines)
    through, epoch = row.folded_through, type(row).objects.database_epoch()
    invalidation.once_committed(
        row.pk, lambda memory: memory.fold(row.pk, version, through, head, epoch)
    )


def _record(row: ConversationThread, draft: FoldDraft, *, from_start: bool) -> None:
    account = draft.account()
    amended = sorted(set(draft.amended))
    row.folds.create(
        first=draft.first, last=draft.folded_through, amended=amended, from_start=from_start,
        summary=draft.summary, **account,
    )  # fmt: skip
    said = {
        "from": draft.first,
        "to": draft.folded_through,
        "amended": amended,
        "from_start": from_start,
        **account,
        "summary_sha256": hashlib.sha256(draft.summary.encode()).hexdigest(),
    }
    SessionEvent.emit(FOLDED, row.pk, data=said)
    _report_prompt(row, draft.made.prompt_problem if draft.made else "")
    log.info(FOLDED, thread_id=str(row.pk), **said)


def _account_of(error: SummarizationFailed) -> dict[str, Any]:
    """Return what is told of a failure; nothing that was said."""
    return {
        "model": error.model,
        "detail": error.detail,
        "input_tokens": error.input_tokens,
        "cached_input_tokens": error.cached_input_tokens,
        "output_tokens": error.output_tokens,
        "calls": error.calls,
    }


def _report_prompt(row: ConversationThread, problem: str) -> None:
    """Note that the prompt which was asked for could not be used."""
    if problem:
        SessionEvent.emit(PROMPT_PROBLEM, row.pk, code=problem)
        log.warning(PROMPT_PROBLEM, thread_id=str(row.pk), code=problem)


def _report_failure(row: ConversationThread, code: str, now: datetime, **account: Any) -> None:
    attempt, until = row.fold_attempts, row.fold_blocked_until
    SessionEvent.emit(
        FAILED, row.pk, code=code, attempt=attempt, next_attempt_at=until, data=account
    )
    log.warning(
        FAILED, thread_id=str(row.pk), code=code, attempt=attempt,
        next_attempt_at=until and until.isoformat(), **account,
    )  # fmt: skip
    metrics.FOLDS.labels("failed").inc()
    metrics.FOLD_FAILURES.labels(code).inc()
