"""The web and worker programs: started, watched, and started again when they die; and errands."""

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from embedded.children import Child, Group, Surroundings
from embedded.waiting import Deadline

# Signals, each with the seconds after which the next one is sent, and after the last the kill.
StopSteps = Sequence[tuple[signal.Signals, float]]

_WINDOW_SECONDS = 60
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15


class Pauses:
    """How long to wait before starting something again: longer the more often it died.

    Half a second after the first death within a minute, doubling up to 15 s; that makes eight
    starts a minute at most.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deaths: deque[float] = deque()
        self._over_at = 0.0

    def begin(self) -> float:
        """Note a death; return the seconds until `are_over`."""
        now = self._clock()
        while self._deaths and now - self._deaths[0] > _WINDOW_SECONDS:
            self._deaths.popleft()
        self._deaths.append(now)
        pause = _FIRST_PAUSE_SECONDS * 2 ** (len(self._deaths) - 1)
        self._over_at = now + min(pause, _LONGEST_PAUSE_SECONDS)
        return self._over_at - now

    @property
    def are_over(self) -> bool:
        """Whether it may be started again."""
        return self._clock() >= self._over_at


class Revivable(Protocol):
    """What can die and be started again."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""

    def revive(self) -> None:
        """Start it again after it died."""


class Program:
    """One program with all its descendants, from ``with`` to its end."""

    def __init__(
        self, name: str, command: Sequence[str], around: Surroundings, *, stop_steps: StopSteps
    ) -> None:
        """Describe it; `stop_steps` are the signals that stop it, and what each may take."""
        self.name = name
        self._command = command
        self._around = around
        self._stop_steps = stop_steps
        self._group: Group | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._group is not None and self._group.is_alive

    def revive(self) -> None:
        """Start it, after ending what its last run may have left."""
        if self._group:
            self._group.kill()
        self._group = Group(self._command, self._around)

    def __enter__(self) -> "Program":
        self.revive()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop it; nothing happens if it does not run."""
        if self._group:
            self._group.stop(self._stop_steps)


class Errand:
    """A command that is run beside the product now and then, and may fail without harm."""

    def __init__(
        self, name: str, command: Sequence[str], around: Surroundings, *, seconds: float
    ) -> None:
        """Describe it; it gets `seconds`, then it is ended."""
        self.name = name
        self._command = command
        self._around = around
        self._seconds = seconds
        self._deadline = Deadline(seconds)
        self._child: Child | None = None

    def begin(self) -> None:
        """Start it, after ending what may still run of the last time.

        Raises:
            CannotStart: the machine lacks what it takes.

        """
        self.end()
        self._deadline = Deadline(self._seconds)
        self._child = Child(self._command, self._around, signal.SIGKILL)

    def look(self) -> str | None:
        """Return once how it failed; None while it runs, and when it went well."""
        if self._child is None:
            return None
        status = self._child.exit_status
        if status is None and self._deadline.seconds_left:
            return None
        self.end()
        if status is None:
            return f"{self.name} took longer than {self._seconds:g} s and was ended"
        return f"{self.name} failed" if status else None

    def end(self) -> None:
        """End it where it still runs."""
        if self._child:
            self._child.kill()
        self._child = None


class Watch:
    """Looks after something revivable; `look` is called every now and then."""

    def __init__(self, watched: Revivable, say: Callable[[str], None]) -> None:
        self.watched = watched
        self._say = say
        self._pauses = Pauses()
        self._is_down = False

    def look(self) -> bool:
        """Start it again if it has died and its pause is over; return whether it was started.

        Raises:
            CannotStart: it does not start.

        """
        if self.watched.is_alive:
            self._is_down = False
        elif not self._is_down:
            self._is_down = True
            self._say(f"{self.watched.name} ended, starting again in {self._pauses.begin():.1f} s")
        elif self._pauses.are_over:
            self._is_down = False
            self.watched.revive()
            return True
        return False
