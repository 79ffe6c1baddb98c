"""Writing turns while the summariser hangs, against while nothing is to be summarised."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Self

from django.conf import settings
from django.utils import timezone
from django_q.models import OrmQ

from benchmarks.bench import Bench, note
from benchmarks.over_http import turn_job
from benchmarks.report import Line
from benchmarks.rounds import alternate
from benchmarks.site import Worker
from conversations.models import ConversationThread
from embedded.waiting import wait_until

# More turns than may stand unfolded, so that each thread wants a fold at its first turn.
_TURNS = 25
_THREADS = 20
_BUSY_SECONDS, _DONE_SECONDS = 30, 60


class HangingServer:
    """Takes connections and says nothing, or, when `released`, hangs up at once."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._held: list[socket.socket] = []
        self._lock = threading.Lock()
        self._released = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self._listener.close()

    @property
    def url(self) -> str:
        """Where it listens, as OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    @property
    def held(self) -> int:
        """How many wait for its answer now."""
        with self._lock:
            return sum(_is_open(connection) for connection in self._held)

    def hang(self) -> None:
        """Keep whoever comes from now on waiting."""
        self._released = False

    def release(self) -> None:
        """Hang up on whoever waits, and on whoever comes."""
        with self._lock:
            self._released = True
            for connection in self._held:
                connection.close()
            self._held.clear()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                with self._lock:
                    if self._released:
                        connection.close()
                    else:
                        self._held.append(connection)


def _is_open(connection: socket.socket) -> bool:
    """Whether the other side still waits: it has sent a request, and nothing since."""
    connection.setblocking(False)
    with suppress(BlockingIOError):
        try:
            while connection.recv(1 << 16):
                pass
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise
        return False
    return True


def measure(bench: Bench) -> Iterator[Line]:
    """Put turns to threads that want a fold while the summariser hangs, and to them at rest."""
    note("append over HTTP while the summariser hangs")
    threads = [bench.thread_of(_TURNS) for _ in range(_THREADS)]
    job = turn_job(bench, threads)
    rows = ConversationThread.objects.filter(pk__in=threads)
    with HangingServer() as summariser:
        environment = {**os.environ, "OPENAI_BASE_URL": summariser.url}
        with Worker(settings.DATA_DIR, environment):

            def hanging() -> float:
                summariser.hang()
                rows.update(fold_due_at=None, fold_blocked_until=None)
                bench.client.run(job)  # queues the folds
                hangs = wait_until(lambda: summariser.held > 0, _BUSY_SECONDS)
                took = bench.client.run(job).p50
                if not (hangs and summariser.held):
                    raise RuntimeError("The summariser did not hang while turns were written.")
                return took

            def idle() -> float:
                summariser.release()
                wait_until(lambda: not OrmQ.objects.exists(), _DONE_SECONDS, 0.1)
                rows.update(fold_due_at=timezone.now() + timedelta(hours=1))
                bench.client.run(job)
                return bench.client.run(job).p50

            sides = alternate({"hanging": hanging, "idle": idle}, bench.scale.rounds)
    yield sides.line("append over HTTP while the summariser hangs", "hanging", "idle", 1.1)
