"""Writing what an import file holds, a block (a thread's line and its turns') at a time.

A turn that is refused holds back the rest of its thread, so that a corrected file, run again,
goes on at that very place: never a gap, never another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
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
        for batch in _batches(entries):
            self._settle(block.write(batch), batch)
            if self.interrupt.asked:
                return
        if block.thread is not None and not block.places:
            why = LineRefused("no_turns", "A thread is made by its first turn; there is none.")
            self._settle(_Outcome(Tally(refused=1), [(head.number, why)]), [head])

    def _settle(self, outcome: _Outcome, batch: list[Entry]) -> None:
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
        self.owner: Person | None = None
        self.held = False
        self.places = 0

    def write(self, batch: list[Entry]) -> _Outcome:
        """Write a batch in one transaction, as far as its first refused line.

        What else the thread's line says goes with each batch that adds to it: a run that is
        killed leaves nothing for later, and a repeat leaves alone what people have changed since.
        """
        outcome = _Outcome()
        outcome.tally.threads = int(self.places == 0 and self.thread is not None)
        with transaction.atomic():
            for entry in batch:
                self._write_one(entry, outcome)
            if self.thread and outcome.tally.written:
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
        self.owner = self.owner or Person.named(thread.tenant, thread.user_id, may_be_inactive=True)
        finalized = ConversationThread.objects.finalize_turn(
            owner=self.owner,
            thread_id=thread.id,
            turn_id=turn.id_in(thread.id, self.places),
            body=replace(entry.body, agent_type=entry.body.agent_type or thread.agent_type),
            created_at=turn.created_at,
            expected_position=turn.position,
        )
        outcome.tally.written += finalized.created
        outcome.tally.stored_already += not finalized.created


def _dress(line: ThreadLine) -> None:
    """Give the thread what its line says beside its turns; what it leaves out stays."""
    thread = ConversationThread.objects.get(pk=line.id)
    if line.title:
        thread.rename(line.title)
    if line.metadata:
        thread.describe(line.metadata)
    if not line.memory:
        thread.remember(enabled=False)
    times = {"archived_at": line.archived_at, "pinned_at": line.pinned_at}
    # The first turn named the agent type; it may have been completed as another since.
    said = {**times, "agent_type": line.agent_type}
    changed = [name for name, value in said.items() if value and getattr(thread, name) != value]
    for name in changed:
        setattr(thread, name, said[name])
    if changed:
        thread.save(update_fields=changed)


def entries_of(stream: BinaryIO) -> Iterator[Entry]:
    """Yield the lines of a file, each read and checked as far as it can be by itself."""
    limit = max_line_bytes()
    for number, raw in numbered_lines(stream, limit):
        if raw is None:
            message = f"A line may have {limit} bytes (twice MAX_BODY_BYTES)."
            yield Entry(number, 0, LineRefused("line_too_large", message))
        else:
            yield _entry(number, raw)


def _entry(number: int, raw: bytes) -> Entry:
    try:
        line = parse_line(raw)
        body = line.to_body() if isinstance(line, TurnLine) else None
        return Entry(number, len(raw), line, body)
    except LineRefused as why:
        return Entry(number, len(raw), why)
    except Problem as problem:
        return Entry(number, len(raw), LineRefused.of_problem(problem))


def _blocks(entries: Iterable[Entry]) -> Iterator[Iterator[Entry]]:
    """Split where a thread's line stands; what stands before the first is a block as well."""
    block = 0

    def number_of(entry: Entry) -> int:
        nonlocal block
        block += isinstance(entry.line, ThreadLine)
        return block

    for _, entries_of_block in groupby(entries, key=number_of):
        yield entries_of_block


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Collect what one transaction writes: 100 lines, fewer where they are large."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += entry.bytes
        if len(batch) == _BATCH_TURNS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
