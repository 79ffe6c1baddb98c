"""The claim under which a thread is folded, and what is done with its row.

A fold is claimed, made outside of any transaction, since an LLM is asked, and applied only if
the thread stands as it did: somebody else's fold, a turn of the window finished meanwhile, a
deletion raise `fold_epoch`, and the loser throws its result away. A claim that was never
concluded, because its worker died, ends by itself.
"""

from __future__ import annotations

import hashlib
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, models, transaction
from django.utils import timezone

from config import metrics
from conversations import invalidation
from conversations.events import SessionEvent
from conversations.fold_draft import FoldDraft
from conversations.fold_schedule import REQUEUE_SECONDS, fold_rules, queue_fold
from conversations.folds import FAILED, FOLDED, LOST, PROMPT_PROBLEM, FoldOutcome
from conversations.summaries import PASSING_FAILURES, SummarizationFailed

if TYPE_CHECKING:
    from conversations.conversation_summarizer import Summarizer
    from conversations.models import ConversationThread

log = structlog.get_logger(__name__)


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
        *, from_start: bool = False, even_after_failure: bool = False,
    ) -> FoldClaim | None:  # fmt: skip
        """Claim a thread; None where nothing is due, or somebody else's claim stands.

        To fold it from the start, where something is folded, whether more is due or not.

        A thread that waits after a failure is left alone as well, unless `even_after_failure`.
        """
        now = timezone.now()
        with transaction.atomic():
            thread = _locked(threads, thread_id)
            if thread is None:
                return None
            due = thread.folded_through > 0 if from_start else thread.is_fold_due()
            if not (due and thread.memory_enabled):
                if not thread.is_fold_due() or not thread.memory_enabled:
                    _settle(thread, now)
                return None
            if thread.fold_claim and not thread.is_fold_blocked(now):
                _conclude_lost(thread, now)
            if thread.is_fold_blocked(now, ignore_failure=even_after_failure):
                return None
            return cls._taken(thread, now)

    @classmethod
    def _taken(cls, thread: ConversationThread, now: datetime) -> FoldClaim:
        thread.fold_attempts += 1
        thread.fold_claim = uuid.uuid4()
        thread.fold_blocked_until = now + _claim_time()
        thread.fold_due_at = thread.fold_blocked_until
        thread.save(update_fields=_FOLD_STATE)
        return cls(thread, thread.fold_claim)

    @contextmanager
    def noting_failure(self, draft: FoldDraft) -> Iterator[_Failed]:
        """Note what goes wrong in the block as a failed try; its `outcome` tells afterwards."""
        failed = _Failed()
        try:
            yield failed
        except SummarizationFailed as error:
            about = {"model": error.model, "detail": error.detail}
            failed.outcome = self.fail(error.code, draft, error.prompt_problem, **about)
        except KeyboardInterrupt:
            self.release()
            raise
        except Exception as error:  # noqa: BLE001  a fault of ours must not be tried again at once
            failed.outcome = self._break(error, draft)

    def _break(self, error: Exception, draft: FoldDraft) -> FoldOutcome:
        """Note a fault: where it was, and not its text, which may quote what was said."""
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
        account = {**draft.account(), "error": type(error).__name__, "where": where}
        log.error("fold_broke", thread_id=str(self.thread.pk), **account)
        is_of_database = isinstance(error, DatabaseError | InterfaceError)
        return self.fail("database" if is_of_database else "unexpected", draft)

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
        try:
            with transaction.atomic():
                row = _locked(self._threads(), self.thread.pk)
                if row is None or not self._stands(row, from_start=from_start):
                    return self.lose(row, draft)
                # What was amended since stays listed for the next fold.
                done = self.thread.amended_positions if from_start else draft.amended
                _put_in_place(row, draft, done, from_start=from_start)
        except (DatabaseError, InterfaceError) as error:
            return self._break(error, draft)
        metrics.FOLDS.labels("folded").inc()
        if not from_start:
            metrics.FOLD_SECONDS.observe(draft.duration_ms / 1000)
        return FoldOutcome.FOLDED

    def _stands(self, row: ConversationThread, *, from_start: bool) -> bool:
        """Whether what the draft was made of is still so.

        A fold from the start read nothing past where the thread is folded, so that what is
        finished there is no matter; but nobody else may have folded since.
        """
        if row.folded_through != self.thread.folded_through or not row.memory_enabled:
            return False
        if from_start:
            return row.fold_claim == self._token
        return row.fold_epoch == self.thread.fold_epoch

    def lose(self, row: ConversationThread | None, draft: FoldDraft) -> FoldOutcome:
        """Throw the draft away, in the caller's transaction; what it cost is noted either way."""
        if row:
            self._give_back(row)
            SessionEvent.emit(LOST, row.pk, data=draft.account())
        log.info(LOST, thread_id=str(self.thread.pk), **draft.account())
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

    def fail(
        self, code: str, draft: FoldDraft, prompt_problem: str = "", **about: Any
    ) -> FoldOutcome:
        """Note that there is no summary, and when the next try is; the thread stays as it is."""
        account = {**draft.account(), **about}
        with transaction.atomic():
            row = _locked(self._threads(), self.thread.pk)
            if row is not None and row.fold_claim == self._token:
                _wait(row, timezone.now() + fold_rules().pause(row.fold_attempts))
                _report_failure(row, code, account)
                _report_prompt(row, prompt_problem)
            else:  # deleted, or gone to somebody else
                log.warning(FAILED, thread_id=str(self.thread.pk), code=code, **account)
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
    """Lock the row of a thread that is not deleted."""
    rows = threads.select_for_update(no_key=True)
    return rows.filter(pk=thread_id, deleted_at__isnull=True).first()


def _wait(row: ConversationThread, until: datetime) -> None:
    """End a claim, and have nobody try before."""
    row.fold_claim = None
    row.fold_due_at = row.fold_blocked_until = until
    row.save(update_fields=_FOLD_STATE)


def _conclude_lost(row: ConversationThread, now: datetime) -> None:
    """Conclude a claim whose worker has not, and wait for what its time was shorter than a pause.

    So a first one is taken up at once, and where workers die of this very thread ever later.
    """
    _wait(row, now + fold_rules().pause(row.fold_attempts) - _claim_time())
    _report_failure(row, "worker_lost", {})


def _settle(row: ConversationThread, now: datetime) -> None:
    """Take a thread off the list of what is due when it is not, and nobody makes it anew."""
    if row.fold_due_at is not None and not row.is_fold_blocked(now):
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
    row: ConversationThread, draft: FoldDraft, done: Sequence[int], *, from_start: bool
) -> None:
    row.summary, row.facts = draft.summary, dict(draft.facts)
    row.kept_lines = list(draft.kept_lines)
    row.folded_through = draft.folded_through
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


def _report_prompt(row: ConversationThread, problem: str) -> None:
    """Note that the prompt which was asked for could not be used."""
    if problem:
        SessionEvent.emit(PROMPT_PROBLEM, row.pk, code=problem)
        log.warning(PROMPT_PROBLEM, thread_id=str(row.pk), code=problem)


def _report_failure(row: ConversationThread, code: str, account: Mapping[str, Any]) -> None:
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
