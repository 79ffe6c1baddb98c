"""Looking at stores that may hang: in threads that nobody waits for, in queries that end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, TypeVar

from django.db import connection, connections, transaction

PATIENCE_SECONDS = 1.0

T = TypeVar("T")


class Look(Generic[T]):
    """Calls a function in a daemon thread; who asks meanwhile shares the running call."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._running: Future[T] | None = None

    def start(self) -> Future[T]:
        """Return the call that is under way, or a new one."""
        with self._lock:
            if self._running is None or self._running.done():
                self._running = Future()
                # Daemonic, or a store that hangs would keep the process from ending.
                threading.Thread(target=self._run, args=(self._running,), daemon=True).start()
            return self._running

    def _run(self, future: Future[T]) -> None:
        try:
            future.set_result(self._answer())
        except Exception as error:  # noqa: BLE001  it is for who waits
            future.set_exception(error)
        finally:
            connections.close_all()

    def _answer(self) -> T:
        return self._look()


@contextmanager
def short_queries() -> Iterator[None]:
    """Make a transaction in which a query that takes over a second raises `DatabaseError`."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = '1s'")
        yield
