"""Ctrl-C and its relatives: the first stops in good order, the second at once."""

import os
import signal
import sys
import time
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ONE_REQUEST_SECONDS = 1.0


def stop_on_signals() -> None:
    """Make the first request to stop raise KeyboardInterrupt, and another end this process.

    Children that are tied to this process end with it. Requests within a second count as one,
    because `make` passes SIGTERM on to a process that a whole group's signal has reached already.
    """
    requested_at: list[float] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        requested_at.append(time.monotonic())
        if len(requested_at) == 1:
            raise KeyboardInterrupt
        if requested_at[-1] - requested_at[0] > _ONE_REQUEST_SECONDS:
            print("Killed before everything had stopped.", file=sys.stderr, flush=True)
            os._exit(128 + number)

    for number in _STOPPING:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
