"""What the long commands share: progress for people, and a Ctrl-C that leaves nothing half done."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from django.core.management.base import CommandError, OutputWrapper
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

_PLAIN_LINES = 10


class Interrupt:
    """Whether somebody has asked the command to stop."""

    asked: signal.Signals | None = None

    def stopped(self, how_far: str) -> CommandError:
        """Return the error to end with: exit status 130 for Ctrl-C, 143 for SIGTERM."""
        status = 128 + (self.asked or signal.SIGINT)
        return CommandError(f"Stopped when asked to: {how_far}", returncode=status)


@contextmanager
def finishing_first() -> Iterator[Interrupt]:
    """Have Ctrl-C and SIGTERM noted, so that what has begun is finished; a second one ends it."""
    interrupt = Interrupt()

    def note(number: int, _frame: FrameType | None) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = signal.Signals(number)

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    except KeyboardInterrupt:
        raise interrupt.stopped("at once; what was not finished was undone.") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """A bar on a terminal, a few plain lines elsewhere.

    A line at each tenth, though not before `at_least` more are done; where the total is unknown
    at 1,000, 2,000, 4,000 and so on. It goes to stderr: stdout is for results.
    """

    def __init__(
        self, stderr: OutputWrapper, unit: str, total: int | None, at_least: int = 100
    ) -> None:
        self._stderr = stderr
        self._unit = unit
        self._total = total
        self._done = 0
        self._step = max(at_least, total // _PLAIN_LINES) if total else 1_000
        self._next = self._step
        self._bar = _bar() if stderr.isatty() else None

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(self._unit, total=self._total)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bar as it stands."""
        if self._bar:
            self._bar.stop()

    def reach(self, done: int) -> None:
        """Say that `done` are done in all."""
        self._done = done
        if self._bar:
            self._bar.update(self._task, completed=done)
        elif done >= self._next and done != self._total:
            of = f" of {self._total:,}" if self._total else ""
            self._stderr.write(f"{done:,}{of} {self._unit}", str)
            self._step *= 1 if self._total else 2
            self._next = done - done % self._step + self._step

    def advance(self) -> None:
        """Say that one more is done."""
        self.reach(self._done + 1)


def _bar() -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
    )
