"""Make threads' summaries and facts anew from their first turn."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError
from django.db.models import Exists, OuterRef, QuerySet, Sum
from django.utils import timezone

from conversations.fold_backlog import FoldFailure, Standing, standing_of
from conversations.fold_schedule import fold_rules
from conversations.folds import FoldOutcome
from conversations.management.commands._console import Progress, finishing_first
from conversations.management.commands._folding import (
    FAILED,
    LOST,
    NOTHING_FOLDED,
    FailureStreak,
    Result,
    counted,
    database_error,
    fewer_log_lines,
    is_offline,
    summaries_by,
    thread_now,
)
from conversations.management.commands._selection import (
    _since,
    add_selection,
    keys,
    missing,
    selected,
)
from conversations.models import ConversationThread, ThreadFold
from conversations.querysets import ThreadQuerySet

REFOLDED, WOULD_REFOLD = "refolded", "would_refold"
# Before a window is tried again that failed for what may pass.
_PAUSES_SECONDS = (2.0, 10.0)


class Command(BaseCommand):
    """`refold_thread ID…`, or `--owner acme/ana`, `--agent-type`, `--since 24h`, `--all`."""

    help = (
        "Make summary and facts anew from turn 1, such as after a change of prompt or model, or "
        "of FOLD_ and FACTS_ settings. The old ones are shown until the new ones are whole. One "
        "call of the summariser for about ten folded turns, none where it works offline. "
        "Exit 0 all done, 1 some failed, 2 usage, 130 stopped by Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take which threads, and how to report."""
        add_selection(parser)
        parser.add_argument(
            "--unless-since",
            type=_since,
            metavar="WHEN",
            help="leave out what was refolded since (as --since): goes on after a stop",
        )
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument(
            "--json", action="store_true", help="one JSON object a thread on stdout, then a summary"
        )

    def handle(
        self, *, dry_run: bool, json: bool, unless_since: datetime | None, **options: Any
    ) -> None:
        """Refold one thread after the other; each has old or new notes at any moment."""
        self.as_json, self.dry_run = json, dry_run
        self.began = unless_since or timezone.now()
        self.threads = self.turns = self.windows = self.failed = 0
        self.named = bool(options["ids"])
        threads = selected(**options)
        for thread_id in missing(threads, options["ids"]):
            self._take_in(thread_id, Result.absent())
        if not self.named:  # of those that are named it is said why not
            threads = threads.filter(folded_through__gt=0, memory_enabled=True)
        if unless_since:
            threads = threads.exclude(Exists(_refolded_since(unless_since)))
        try:
            with fewer_log_lines(options["verbosity"]):
                self._run(threads)
        except (DatabaseError, InterfaceError) as error:
            raise database_error(error, self._how_far()) from error
        self._summarise()

    def _run(self, threads: ThreadQuerySet) -> None:
        self.stderr.write(summaries_by(), str)
        # Of what is not named a total would read the whole table, in one statement.
        turns = Sum("folded_through", default=0)
        total = threads.aggregate(turns=turns)["turns"] if self.named else None
        streak, self.passed = FailureStreak(), 0
        with (
            finishing_first() as interrupt,
            Progress(self.stderr, "turns", total or None) as self.progress,
        ):
            for thread_id in keys(threads):
                if interrupt.asked:
                    raise interrupt.stopped(self._how_far())
                result = self._refold(thread_id)
                self._take_in(thread_id, result)
                streak.add(result)
                streak.check(self._how_far())

    def _refold(self, thread_id: uuid.UUID) -> Result:
        thread = thread_now(thread_id)
        turns = thread.folded_through if thread else 0
        result = self._obstacle(thread)
        if thread and not result:
            windows = -(-turns // fold_rules().window)
            would = Result(WOULD_REFOLD, turns, windows)
            result = would if self.dry_run else self._refolded(thread)
        self.passed += turns
        self.progress.reach(self.passed)
        return result or Result.failed(LOST)

    def _refolded(self, thread: ConversationThread) -> Result:
        result = Result(REFOLDED)

        def told(done: int, _of: int) -> None:
            result.turns = done
            result.windows += 1
            self.progress.reach(self.passed + done)

        outcome = thread.refold(told=told, pauses=_PAUSES_SECONDS)
        if outcome == FoldOutcome.FOLDED:
            return result
        if outcome == FoldOutcome.FAILED:
            return Result(FAILED, failure=FoldFailure.newest_of(thread.pk))
        changed = self._obstacle(thread_now(thread.pk)) if outcome == FoldOutcome.NOT_DUE else None
        return changed or Result.failed(LOST)

    def _obstacle(self, thread: ConversationThread | None) -> Result | None:
        """Return why a thread can't be refolded now, if so."""
        standing = standing_of(thread, timezone.now())
        if thread is None or standing is Standing.ABSENT:
            return Result.absent()
        if standing is Standing.MEMORY_OFF:
            return Result(standing)
        if standing is Standing.FOLDING:
            return Result.failed(standing)
        return None if thread.folded_through else Result(NOTHING_FOLDED)

    # --- What is said ------------------------------------------------------------------------

    def _take_in(self, thread_id: uuid.UUID, result: Result) -> None:
        done = result.status in {REFOLDED, WOULD_REFOLD}
        self.threads += done
        self.failed += result.status == FAILED
        self.turns += result.turns
        self.windows += result.windows
        if self.as_json:
            self._line({"type": "thread", "thread_id": str(thread_id), **result.as_json()})
        elif not done:
            self.stderr.write(f"{thread_id}: {result}")

    def _line(self, fields: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(fields))

    def _how_far(self) -> str:
        began = self.began.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            f"{counted(self.threads, 'thread')} refolded. For the rest, run it again with "
            f"--unless-since {began}"
        )

    def _summarise(self) -> None:
        if self.as_json:
            self._line({"type": "summary", "threads": self.threads, "turns": self.turns,
                        "windows": self.windows, "failed": self.failed,
                        "dry_run": self.dry_run})  # fmt: skip
        else:
            self.stdout.write(self._sentence(), self.style.SUCCESS)
        if self.failed:
            raise CommandError(f"{self.failed:,} failed; what they had before is still shown.")

    def _sentence(self) -> str:
        threads, turns = counted(self.threads, "thread"), counted(self.turns, "turn")
        windows = counted(self.windows, "window")
        if not self.threads:
            return "Nothing would be refolded." if self.dry_run else "Nothing was refolded."
        if self.dry_run:
            calls = "" if is_offline() else ", a call of the summariser each"
            return f"Would refold {turns} of {threads} in at least {windows}{calls}."
        return f"Refolded {turns} of {threads} in {windows}."


def _refolded_since(when: datetime) -> QuerySet[ThreadFold]:
    return ThreadFold.objects.filter(thread=OuterRef("pk"), from_start=True, at__gte=when)
