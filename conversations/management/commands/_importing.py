"""Writing what an import file holds, a block (a thread's line and its turns') at a time.

A turn that is refused holds back the rest of its thread, so that a corrected file, run again,
goes on at that very place: never a gap, never another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import BinaryIO

from django.db import transaction

from config.errors import Problem
from conversations.management.commands._console import Interrupt
from conversations.models import ConversationThread
from conversations.thread_lines import (
    LineRefused,
    ThreadLine,
    TurnLine,
    max_line_bytes,
    numbered_lines,
    parse_line,
)
from conversations.turns import TurnBody
from rbac.exceptions import NotAPerson
from rbac.models import User
from rbac.names import BadName
from rbac.principal import Person

_BATCH_TURNS = 100
_BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the file: its number and size, and what it holds or why it is refused."""

    number: int
    bytes: int
    line: ThreadLine | TurnLine | LineRefused
    body: TurnBody | None = None


@dataclass(slots=True)
class Tally:
    """What has become of the lines so far."""

    threads: int = 0
    written: int = 0
    stored_already: int = 0
    refused: int = 0
    held_back: int = 0

    def add(self, other: Tally) -> None:
        """Count `other` as well."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Importer:
    """Imports blocks; `refuse` is told of each line that is not taken, and may raise."""

    refuse: Callable[[int, LineRefused], None]
    interrupt: Interrupt
    dry_run: bool = False
    tally: Tally = field(default_factory=Tally)
    through_line: int = 0

    def run(self, entries: Iterable[Entry]) -> None:
        """Import block after block, until the end or until somebody asks to stop."""
        for block in _blocks(entries):
            with self._undone_in_dry_run():
                self._take(block)
                if self.dry_run:
                    transaction.set_rollback(True)
            if self.interrupt.asked:
                return

    def _undone_in_dry_run(self) -> AbstractContextManager[object]:
        return transaction.atomic() if self.dry_run else nullcontext()

    def _take(self, entries: Iterator[Entry]) -> None:
        head = next(entries)
        block = _Block(head)
        if block.thread is None:
            entries = chain([head], entries)
        for batch, is_last in _batches(entries):
            self._settle(block, block.write(batch, is_last=is_last), batch)
            if self.interrupt.asked:
                return
        if block.thread is not None and not block.places:
            why = LineRefused("no_turns", "A thread is made by its first turn; there is none.")
            self._settle(block, _Outcome(Tally(refused=1), [(head.number, why)]), [head])

    def _settle(self, block: _Block, outcome: _Outcome, batch: list[Entry]) -> None:
        """Count what is committed now, and pass on what was refused."""
        self.tally.add(outcome.tally)
        self.through_line = batch[-1].number
        for number, why in outcome.refusals:
            self.refuse(number, why)


@dataclass(slots=True)
class _Outcome:
    tally: Tally = field(default_factory=Tally)
    refusals: list[tuple[int, LineRefused]] = field(default_factory=list)

    def refuse(self, entry: Entry, why: LineRefused) -> None:
        self.tally.refused += 1
        self.refusals.append((entry.number, why))


class _Block:
    """A thread's line and those below it; `held` once one of them was refused."""

    def __init__(self, head: Entry) -> None:
        self.thread = head.line if isinstance(head.line, ThreadLine) else None
        self.held = False
        self.places = 0
        self.wrote = 0

    def write(self, batch: list[Entry], *, is_last: bool) -> _Outcome:
        """Write a batch in one transaction, as far as its first refused line."""
        outcome = _Outcome()
        outcome.tally.threads = int(self.places == 0 and self.thread is not None)
        with transaction.atomic():
            for entry in batch:
                self._write_one(entry, outcome)
            if is_last and self.thread and self.wrote and not self.held:
                _dress(self.thread)
        return outcome

    def _write_one(self, entry: Entry, outcome: _Outcome) -> None:
        self.places += 1
        if isinstance(entry.line, LineRefused):
            self.held = True
            outcome.refuse(entry, entry.line)
        elif self.held:
            outcome.tally.held_back += 1
        else:
            try:
                self._write_turn(entry, outcome)
            except (Problem, LineRefused) as error:
                self.held = True
                why = LineRefused.of_problem(error) if isinstance(error, Problem) else error
                outcome.refuse(entry, why)

    def _write_turn(self, entry: Entry, outcome: _Outcome) -> None:
        thread, turn = self.thread, entry.line
        if thread is None or not isinstance(turn, TurnLine) or entry.body is None:
            raise LineRefused("no_thread", "A turn stands below the line of its thread.")
        finalized = ConversationThread.objects.finalize_turn(
            owner=_owner(thread),
            thread_id=thread.id,
            turn_id=turn.id_in(thread.id, self.places),
            body=entry.body,
            created_at=turn.created_at,
            expected_position=turn.position,
        )
        self.wrote += finalized.created
        outcome.tally.written += finalized.created
        outcome.tally.stored_already += not finalized.created
