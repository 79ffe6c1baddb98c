"""The embedded servers that the environment does not replace by others, as one thing."""

import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

from embedded.exceptions import CannotStart
from embedded.lock import DataLock
from embedded.services import DynamoDB, Postgres, Service, Valkey

__all__ = ["SERVICES", "CannotStart", "Stack", "named_in"]

# The slowest first: it starts up while PostgreSQL makes its files.
SERVICES: tuple[type[Service], ...] = (DynamoDB, Valkey, Postgres)


def named_in(environment: Mapping[str, str]) -> set[str]:
    """Return which of the services' settings `environment` gives a value."""
    return {service.variable for service in SERVICES if environment.get(service.variable)}


class Stack:
    """Servers on one data folder, from ``with`` to its end.

    ``with Stack(Path(".data")) as environment`` gives the settings that clients need, for
    example ``{"REDIS_URL": "redis://:secret@127.0.0.1:40001/0", ...}``.
    """

    def __init__(
        self, data_dir: Path, *, skip: Collection[str] | None = None, durable: bool = True
    ) -> None:
        """Choose the servers.

        Args:
            data_dir: keeps their data and logs; one stack at a time may use it.
            skip: settings whose server is not wanted; by default those that the environment has.
            durable: whether acknowledged writes reach the disk.

        """
        self._data_dir = data_dir
        self._skip = named_in(os.environ) if skip is None else set(skip)
        self._durable = durable
        self._exits = ExitStack()
        self._lock = DataLock(data_dir)
        self.services: list[Service] = []

    @property
    def lock_descriptor(self) -> int:
        """The file descriptor that holds the data folder, for children to inherit."""
        return self._lock.descriptor

    def __enter__(self) -> dict[str, str]:
        """Start all servers side by side and wait until each is ready.

        Raises:
            CannotStart: one can't, or another stack uses the folder; the others are stopped.

        """
        with ExitStack() as exits:
            exits.enter_context(self._lock)
            exits.callback(self._stop)
            self._start()
            self._exits = exits.pop_all()
        return self.environment

    def __exit__(self, *_exception: object) -> None:
        self._exits.close()

    @property
    def environment(self) -> dict[str, str]:
        """The settings with which clients find the servers."""
        return {key: value for s in self.services for key, value in s.environment.items()}

    def _start(self) -> None:
        keep_open = (self._lock.descriptor,)
        self.services = [
            service(self._data_dir, durable=self._durable, keep_open=keep_open)
            for service in SERVICES
            if service.variable not in self._skip
        ]
        for service in self.services:
            service.start()
        for service in self.services:
            service.wait_ready()

    def _stop(self) -> None:
        with ExitStack() as exits:
            for service in self.services:
                exits.callback(service.stop)
