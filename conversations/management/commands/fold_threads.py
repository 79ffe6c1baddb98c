"""Fold what is due, here and now, without waiting for the workers."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, transaction
from django.utils import timezone

from conversations.fold_backlog import (
    Standing,
    foldable,
    foldable_ids,
    queue_folds,
    standing_of,
    turns_to_fold,
    with_work,
)
from conversations.management.commands._console import Progress, finishing_first
from conversations.management.commands._folding import (
    FAILED,
    FOLDED,
    FailureStreak,
    Result,
    ThreadFolding,
    counted,
    database_error,
    fewer_log_lines,
    is_offline,
    summaries_by,
)
from conversations.management.commands._selection import add_selection, keys, missing, selected
from conversations.models import ConversationThread
from conversations.querysets import ThreadQuerySet

_AT_ONCE = 200
_SELECTION = ("ids", "owner", "agent_type", "since", "all")
WOULD_FOLD, QUEUED, WOULD_QUEUE = "would_fold", "queued", "would_queue"


class Command(BaseCommand):
    """`fold_threads` for all that is due, or `ID…`, `--owner acme/ana`, `--since 24h`."""

    help = (
        "Fold what is due into the threads' summaries, here and now: also what was never marked "
        "as due, such as after MEMORY_COMPRESSION_THRESHOLD was lowered. Without a selection: of "
        "every thread. Workers that fold meanwhile do no harm. Exit 0 all done (or left to "
        "whoever folds it, or to its next attempt), 1 some failed, 2 usage, 130 stopped by Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take which threads, how to fold them, and how to report."""
        add_selection(parser)
        parser.add_argument(
            "--after-failure",
            action="store_true",
            help="do not wait for the next attempt of what has failed",
        )
        parser.add_argument(
            "--queue", action="store_true", help="only queue jobs, and leave folding to workers"
        )
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument(
            "--json", action="store_true", help="one JSON object a thread on stdout, then a summary"
        )

    def handle(
        self, *, after_failure: bool, queue: bool, dry_run: bool, json: bool, **options: Any
    ) -> None:
        """Fold one thread after the other, each until nothing of it is due."""
        self.after_failure, self.queue, self.dry_run, self.as_json = (
            after_failure, queue, dry_run, json,
        )  # fmt: skip
        self.named = bool(options["ids"])
        self.tally: Counter[str] = Counter()
        self.turns = self.windows = 0
        options["all"] = not any(options[name] for name in _SELECTION) or options["all"]
        threads = selected(**options)
        for thread_id in missing(threads, options["ids"]):
            self._take_in(thread_id, Result.absent())
        try:
            with fewer_log_lines(options["verbosity"]):
                self._run(threads)
        except (DatabaseError, InterfaceError) as error:
            raise database_error(error, self._how_far()) from error
        self._summarise()

    def _run(self, threads: ThreadQuerySet) -> None:
        # Of what is not named a total would read the whole table, in one statement.
        total = turns_to_fold(foldable(threads)) if self.named and not self.queue else None
        if not self.queue:
            self.stderr.write(summaries_by(), str)
        work = self._queue if self.queue else self._plan if self.dry_run else self._fold
        with (
            finishing_first() as self.interrupt,
            Progress(self.stderr, "turns", total or None) as self.progress,
        ):
            self.streak, self.passed = FailureStreak(), 0
            ids = keys(threads) if self.named else foldable_ids(threads)
            while batch := list(islice(ids, _AT_ONCE)):
                work(batch)

    # --- A few hundred threads ---------------------------------------------------------------

    def _fold(self, thread_ids: list[uuid.UUID]) -> None:
        for thread in self._rows(thread_ids):
            folding = ThreadFolding(
                thread.pk,
                after_failure=self.after_failure,
                stop=lambda: self.interrupt.asked,
                told=lambda turns: self.progress.reach(self.passed + turns),
            )
            result = folding.run()
            self._take_in(thread.pk, result)
            self._pass(thread)
            self.streak.add(result)
            self.streak.check(self._how_far())

    def _plan(self, thread_ids: list[uuid.UUID]) -> None:
        for thread in self._rows(thread_ids):
            standing = standing_of(thread, timezone.now())
            if standing.is_to_be_tried(after_failure=self.after_failure):
                result = Result(WOULD_FOLD, thread.turns_to_fold, thread.windows)
            else:
                result = Result.left(standing, thread.pk)
            self._take_in(thread.pk, result)
            self._pass(thread)

    def _queue(self, thread_ids: list[uuid.UUID]) -> None:
        self._stop_if_asked()
        with transaction.atomic():
            queued = set(queue_folds(thread_ids, after_failure=self.after_failure))
            rows = self._rows(thread_ids)
            results = {row.pk: self._queued(row, row.pk in queued) for row in rows}
            transaction.set_rollback(self.dry_run)
        for thread_id, result in results.items():
            self._take_in(thread_id, result)

    def _queued(self, thread: ConversationThread, queued: bool) -> Result:
        if queued:
            return Result(WOULD_QUEUE if self.dry_run else QUEUED)
        return Result.left(standing_of(thread, timezone.now()), thread.pk)

    def _rows(self, thread_ids: list[uuid.UUID]) -> Iterator[Any]:
        for thread in with_work(ConversationThread.objects.filter(pk__in=thread_ids)).order_by(
            "pk"
        ):
            if not self.queue:
                self._stop_if_asked()
            yield thread

    def _stop_if_asked(self) -> None:
        if self.interrupt.asked:
            raise self.interrupt.stopped(self._how_far())

    def _pass(self, thread: Any) -> None:
        self.passed += thread.turns_to_fold
        self.progress.reach(self.passed)

    # --- What is said ------------------------------------------------------------------------

    def _take_in(self, thread_id: uuid.UUID, result: Result) -> None:
        self.tally[result.status] += 1
        self.turns += result.turns
        self.windows += result.windows
        if self.as_json:
            self._line({"type": "thread", "thread_id": str(thread_id), **result.as_json()})
        elif result.status == FAILED or (self.named and result.status in set(Standing)):
            self.stderr.write(f"{thread_id}: {result}")

    def _line(self, fields: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(fields))

    def _how_far(self) -> str:
        if self.queue:
            return f"{counted(self.tally[QUEUED], 'fold')} queued. Run it again for the rest."
        return (
            f"{counted(self.turns, 'turn')} of {counted(self.tally[FOLDED], 'thread')} are folded. "
            "Run it again for the rest."
        )

    def _summarise(self) -> None:
        failed = self.tally[FAILED]
        if self.as_json:
            self._line({"type": "summary", **self._counts(), "dry_run": self.dry_run})
        else:
            self.stdout.write(self._sentence() + self._left_sentence(), self.style.SUCCESS)
        if failed:
            raise CommandError(f"{failed:,} failed.")

    def _counts(self) -> dict[str, Any]:
        done = sum(self.tally[status] for status in (FOLDED, WOULD_FOLD, QUEUED, WOULD_QUEUE))
        names = [FAILED, *(standing.value for standing in Standing if standing is not Standing.DUE)]
        left = {name: self.tally[name] for name in names if self.tally[name]}
        return {"threads": done, "turns": self.turns, "windows": self.windows, FAILED: 0, **left}

    def _sentence(self) -> str:
        tally = self.tally
        if self.queue:
            verb = "Would queue" if self.dry_run else "Queued"
            return f"{verb} folds of {counted(tally[QUEUED] + tally[WOULD_QUEUE], 'thread')}."
        if not self.windows:
            return "Nothing was folded." if not self.dry_run else "Nothing would be folded."
        threads = counted(tally[FOLDED] + tally[WOULD_FOLD], "thread")
        turns, windows = counted(self.turns, "turn"), counted(self.windows, "window")
        if self.dry_run:
            calls = "" if is_offline() else ", a call of the summariser each"
            return f"Would fold {turns} of {threads} in at least {windows}{calls}."
        return f"Folded {turns} of {threads} in {windows}."

    def _left_sentence(self) -> str:
        says = {
            Standing.FOLDING: "being folded by somebody else",
            Standing.WAITING: "waiting after a failure (--after-failure does not wait)",
            Standing.HAS_JOB: "with a job already",
        }
        left = [f"{self.tally[what]:,} {why}" for what, why in says.items() if self.tally[what]]
        return f" Left alone: {', '.join(left)}." if left else ""
