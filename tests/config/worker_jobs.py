"""Jobs that a test queues for a worker of its own."""

from __future__ import annotations

import os
from pathlib import Path

from embedded.waiting import wait_until


def touch(path: str) -> None:
    """Leave a sign of having run: a line each time, with this process's id."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")


def hold(begun: str, gate: str, done: str) -> None:
    """Say that it has begun, wait at the gate, say that it is done."""
    touch(begun)
    wait_until(Path(gate).exists, seconds=60)
    touch(done)


def fail() -> None:
    """Go wrong."""
    raise ZeroDivisionError
