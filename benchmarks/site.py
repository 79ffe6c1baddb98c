"""The product's own processes under measurement: gunicorn, and the worker of the jobs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from embedded.children import Group, Surroundings
from embedded.logs import LogFile
from embedded.ports import exchange, free_port
from embedded.running import REPOSITORY
from embedded.waiting import wait_until

_START_SECONDS, _STOP_SECONDS = 60, 15
_ALIVE = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class Running:
    """A command of this repository's Python that runs until the block ends."""

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._log = LogFile(log)
        self._command = [sys.executable, *command]
        self._environment = environment
        self._group: Group | None = None

    def __enter__(self) -> Self:
        self._group = Group(
            self._command, Surroundings(REPOSITORY, dict(self._environment), self._log)
        )
        group = self._group
        wait_until(lambda: self.is_ready() or not group.is_alive, _START_SECONDS)
        if not (self.is_ready() and group.is_alive):
            self.__exit__()
            raise RuntimeError(f"{self._command} does not start:\n{self._log.last_lines()}")
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._group:
            self._group.stop([(signal.SIGTERM, _STOP_SECONDS)])

    def is_ready(self) -> bool:
        """Return whether it does what it is for."""
        return True

    def last_lines(self) -> str:
        """Return the end of its log."""
        return self._log.last_lines()

    def peaks(self) -> list[int]:
        """Return the most memory, in bytes, that each process of it has held so far."""
        keeper = self._group.pid if self._group else 0
        return [peak for pid in _descendants(keeper) if (peak := _peak_bytes(pid))]


class Site(Running):
    """The site as `make up` serves it, on a free port."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.port = free_port()
        command = ("-m", "gunicorn", "-c", "config/gunicorn.py", "config.wsgi")
        super().__init__(
            folder / "log" / "bench-web.log", command, {**environment, "PORT": str(self.port)}
        )

    def is_ready(self) -> bool:
        """Return whether it answers."""
        return exchange(self.port, _ALIVE, b"HTTP/1.1 200")


class Worker(Running):
    """The processes that run jobs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(folder / "log" / "bench-worker.log", ("manage.py", "worker"), environment)


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from _descendants(int(child))


def _peak_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
