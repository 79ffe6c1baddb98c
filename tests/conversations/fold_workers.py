"""Workers that stop where they ask the summariser, and notes that say which turns they stand for."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

from django.db import connections

from conversations.summaries import SummarizationFailed, Summary, SummaryRequest


class WorkerDied(BaseException):
    """The process of a fold has ended: nothing is concluded."""


def provider_failed() -> SummarizationFailed:
    return SummarizationFailed("provider_error")


class Worker:
    """A thread with a connection of its own, which folds until it asks, and then waits."""

    def __init__(self) -> None:
        self.request: SummaryRequest | None = None
        self._pool = ThreadPoolExecutor(1)
        self._said: Queue[tuple[str, Any]] = Queue()
        self._replies: Queue[BaseException | None] = Queue()

    @property
    def is_asking(self) -> bool:
        return self.request is not None

    def begin(self, work: Callable[[], Any]) -> None:
        """Work until it asks or is done."""
        self._pool.submit(self._run, work)
        self._listen()

    def go_on(self, failure: BaseException | None = None) -> None:
        """Have the summariser answer, or fail, and work until it asks again or is done."""
        self._replies.put(failure)
        self._listen()

    def summarize(self, request: SummaryRequest) -> Summary:
        self._said.put(("asks", request))
        if failure := self._replies.get(timeout=60):
            raise failure
        return Summary(text=notes_of(request), model="scripted")

    def close(self) -> None:
        self._pool.submit(connections.close_all).result()
        self._pool.shutdown()

    def _run(self, work: Callable[[], Any]) -> None:
        at_work.worker = self
        try:
            self._said.put(("is done", work()))
        except WorkerDied:
            self._said.put(("is done", None))
        except BaseException as error:  # noqa: BLE001  for the main thread
            self._said.put(("broke", error))

    def _listen(self) -> None:
        what, told = self._said.get(timeout=60)
        self.request = told if what == "asks" else None
        if what == "broke":
            raise told


class _AtWork(threading.local):
    worker: Worker | None = None


at_work = _AtWork()


# --- Notes that say which turns they stand for ------------------------------------------------


def said(answer: str) -> str:
    return answer.split(maxsplit=1)[0] if answer else "nothing"


def notes_of(request: SummaryRequest) -> str:
    """Add a line for each turn, `[t7] A12`, and put what amended turns say now in their place."""
    now = {turn.position: said(turn.answer) for turn in request.amended}
    lines = [(at, now.get(at, answer)) for at, answer in noted(request.summary)]
    lines += [(turn.position, said(turn.answer)) for turn in request.turns]
    return "\n".join(f"[t{at}] {answer}" for at, answer in lines)


def noted(summary: str) -> list[tuple[int, str]]:
    return [(int(at), answer) for at, answer in re.findall(r"\[t(\d+)\] (\S+)", summary)]


def each_once(positions: list[int], through: int) -> bool:
    return sorted(positions) == list(range(1, through + 1))
