"""What the commands that fold share: one thread's folds, how a failure reads, when to give up."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import CommandError
from django.utils import timezone

from conversations.chat_completions import OPENAI_BASE_URL
from conversations.conversation_summarizer import ExtractiveSummarizer, get_summarizer
from conversations.exceptions import ThreadNotFound
from conversations.fold_backlog import FoldFailure, Standing, standing_of, with_work
from conversations.folds import FoldOutcome
from conversations.models import ConversationThread

FOLDED, FAILED = "folded", "failed"
LOST, NOTHING_FOLDED = "lost", "nothing_folded"
_CHATTY = ("conversations.fold_claim", "django-q")
# A thread that changes under every fold is left to the workers.
_LOST_TRIES = 3
# So many threads in a row that fail alike are not to blame.
GIVE_UP_AFTER = 5

_SAYS: dict[str, str] = {
    ThreadNotFound.code: ThreadNotFound().detail,
    LOST: "The thread changed meanwhile; run it again.",
    Standing.MEMORY_OFF: "Its memory is switched off.",
    Standing.NOTHING: "Nothing of it is to be folded.",
    Standing.FOLDING: "Somebody else is folding it now.",
    NOTHING_FOLDED: "Nothing of it is folded yet.",
    Standing.HAS_JOB: "It has a job already.",
}
_SERVER = "See whether the server that OPENAI_BASE_URL names is up and can be reached from here."
_ADVICE = {
    "connection": _SERVER,
    "timeout": _SERVER,
    "provider_error": _SERVER,
    "rate_limited": "Wait until the provider takes calls again, or have the quota raised.",
    "unauthorized": "Correct OPENAI_API_KEY.",
    "bad_request": "The log says what the server refuses: the model's name, or a parameter.",
    "invalid_response": "See whether OPENAI_BASE_URL names an OpenAI-compatible server.",
    "database": "See whether PostgreSQL is well: the log says where it failed (fold_broke).",
    "unexpected": "This is a fault of Rethread's: the log says which (fold_broke).",
}


@dataclass
class Result:
    """What came of one thread: `folded`, `failed`, or the `Standing` for which it was left alone.

    `turns` were folded, in so many `windows`, before that.
    """

    status: str = FOLDED
    turns: int = 0
    windows: int = 0
    failure: FoldFailure | None = None

    @classmethod
    def absent(cls) -> Result:
        """Return the result of a thread that is not there."""
        return cls.failed(ThreadNotFound.code)

    @classmethod
    def failed(cls, code: str) -> Result:
        """Return the result of a thread of which no summary was asked for, or none was used."""
        return cls(FAILED, failure=FoldFailure(code, None))

    @classmethod
    def left(cls, standing: Standing, thread_id: uuid.UUID) -> Result:
        """Return the result of a thread that stands so that nothing was done."""
        if standing is Standing.ABSENT:
            return cls.absent()
        waits = standing is Standing.WAITING
        return cls(standing, failure=FoldFailure.newest_of(thread_id) if waits else None)

    def __str__(self) -> str:
        """Return `rate_limited; next attempt in 60 s`, or why nothing was done."""
        failure = self.failure
        if failure is None:
            return _SAYS.get(self.status, self.status)
        return _SAYS.get(failure.code) or _tried_again(failure)

    def as_json(self) -> dict[str, Any]:
        """Return `{"status": "folded", "turns": 11, "windows": 1}`, and why where it failed."""
        fields = {"status": str(self.status), "turns": self.turns, "windows": self.windows}
        if self.failure is None:
            return fields
        at = self.failure.next_attempt_at
        return fields | {
            "code": self.failure.code,
            "message": str(self),
            "next_attempt_at": at and at.isoformat(),
        }


def is_offline() -> bool:
    """Whether the settings of this process have summaries made by rules, without any calls."""
    return isinstance(get_summarizer(), ExtractiveSummarizer)


def summaries_by() -> str:
    """Return `Summaries by gpt-4.1-mini at http://127.0.0.1:9001/v1.`, or `… offline, by rules.`.

    To be said before the first fold: a worker beside this may have other settings.
    """
    if is_offline():
        return "Summaries offline, by rules."
    address = urlsplit(settings.OPENAI_BASE_URL or OPENAI_BASE_URL)
    # Some proxies take a key in user, password or query.
    shown = address._replace(netloc=address.netloc.rpartition("@")[2], query="").geturl()
    return f"Summaries by {settings.SUMMARY_MODEL} at {shown}."


def thread_now(thread_id: uuid.UUID) -> ConversationThread | None:
    """Return a thread's row as it is, with `turns_to_fold` and `windows`."""
    return with_work(ConversationThread.objects.filter(pk=thread_id)).first()


class ThreadFolding:
    """Folds one thread, window by window.

    `stop` is asked before each window but the first; `told` hears after each how many turns were
    folded.
    """

    def __init__(
        self,
        thread_id: uuid.UUID,
        *,
        after_failure: bool,
        stop: Callable[[], object],
        told: Callable[[int], None],
    ) -> None:
        self._id = thread_id
        self._after_failure = after_failure
        self._stop, self._told = stop, told
        self._result = Result()
        self._thread = thread_now(thread_id)
        self._first = self._thread.folded_through if self._thread else 0
        self._lost = 0

    def run(self) -> Result:
        """Fold until nothing of the thread is due, it fails, or it is to stop."""
        for _ in range(self._most_tries()):
            standing = standing_of(self._thread, timezone.now())
            if not standing.is_to_be_tried(after_failure=self._after_failure):
                return self._ended(standing)
            if self._result.windows and self._stop():
                break
            self._fold()
            if self._result.status == FAILED:
                break
        return self._result

    def _most_tries(self) -> int:
        """Return a number that is not reached: each fold takes in one turn at least."""
        thread = self._thread
        if thread is None:
            return 1
        turns = thread.turn_count - thread.folded_through + len(thread.amended_positions)
        return (turns + 1) * _LOST_TRIES

    def _fold(self) -> None:
        thread = ConversationThread(pk=self._id)
        outcome = thread.fold(even_after_failure=self._after_failure)
        self._thread = thread_now(self._id)
        if outcome == FoldOutcome.FAILED:
            self._fail(FoldFailure.newest_of(self._id))
        elif outcome == FoldOutcome.FOLDED:
            self._count()
        else:  # the thread changed, or was claimed a moment before
            self._lost += 1
            if self._lost == _LOST_TRIES:
                self._fail(FoldFailure(LOST, None))

    def _count(self) -> None:
        through = self._thread.folded_through if self._thread else 0
        self._result.windows += 1
        self._result.turns = max(0, through - self._first)
        self._lost = 0
        self._told(self._result.turns)

    def _fail(self, failure: FoldFailure) -> None:
        self._result.status, self._result.failure = FAILED, failure

    def _ended(self, standing: Standing) -> Result:
        if standing is Standing.NOTHING and self._result.windows:
            return self._result
        left = Result.left(standing, self._id)
        left.turns, left.windows = self._result.turns, self._result.windows
        return left


class FailureStreak:
    """Counts threads that failed in a row with one problem that is none of theirs."""

    def __init__(self) -> None:
        self._code = ""
        self._threads = 0

    def add(self, result: Result) -> None:
        """Note what came of the next thread."""
        code = result.failure.code if result.status == FAILED and result.failure else ""
        self._threads = self._threads + 1 if code == self._code else 1
        self._code = code

    def check(self, how_far: str) -> None:
        """Raise `CommandError`, with what to do, where going on makes no sense."""
        if self._threads < GIVE_UP_AFTER or self._code not in _ADVICE:
            return
        raise CommandError(
            f"The last {self._threads} threads all failed with {self._code}. "
            f"{_ADVICE[self._code]} {how_far}"
        )


@contextmanager
def fewer_log_lines(verbosity: int) -> Iterator[None]:
    """Leave out the log lines of each fold and job, but for warnings, unless `-v 2` asks for them.

    The command tells of its threads itself, and a progress bar stands where they would go.
    """
    loggers = [logging.getLogger(name) for name in _CHATTY]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING if verbosity < 2 else logger.level)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _tried_again(failure: FoldFailure) -> str:
    at = failure.next_attempt_at
    if at is None:
        return failure.code
    wait = (at - timezone.now()).total_seconds()
    return f"{failure.code}; next attempt {f'in {span(wait)}' if wait > 0 else 'now'}"


def span(seconds: float) -> str:
    """Return a time for people: `45 s`, `12 min`, `3 h`, `9 d`."""
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def counted(number: int, noun: str) -> str:
    """Return `1 thread`, `1,204 threads`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def database_error(error: Exception, how_far: str) -> CommandError:
    """Return the error to end with when the database fails; what is folded stays so."""
    return CommandError(f"The database fails: {str(error).strip()}. {how_far}")
