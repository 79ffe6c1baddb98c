"""Waiting with a deadline, in one place."""

import time
from collections.abc import Callable


class Deadline:
    """A moment on the monotonic clock, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self._at - time.monotonic())


def wait_until(
    condition: Callable[[], object], seconds: float, every_seconds: float = 0.02
) -> bool:
    """Ask `condition` until it holds or `seconds` have passed; return whether it held.

    The condition is asked at least once, and once more at the deadline.
    """
    deadline = Deadline(seconds)
    while not condition():
        if not deadline.seconds_left:
            return False
        time.sleep(min(every_seconds, deadline.seconds_left))
    return True
