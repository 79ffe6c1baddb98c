"""A deadline for all of a piece of network work, which no client library gives.

Their time-outs are for one operation each: a name that does not resolve, or a server that sends
a byte every few seconds, holds them for as long as it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def finished_within(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns, or raise what it raises.

    Raises `TimeoutError` when it has not ended after `seconds`. It is then left to itself in its
    thread, which keeps no process alive; so `work` touches no database and nothing of the
    caller's, and ends soon on its own if it can.
    """
    outcome: Future[T] = Future()
    threading.Thread(target=_run, args=(work, outcome), daemon=True).start()
    return outcome.result(timeout=seconds)


def _run(work: Callable[[], T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:  # noqa: BLE001  it is raised again where it is waited for
        outcome.set_exception(error)
