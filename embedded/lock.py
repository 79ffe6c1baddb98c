"""One launcher at a time on one data folder."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from embedded.exceptions import CannotStart
from embedded.private import make_private_folder
from embedded.proc import is_alive, own_identity
from embedded.waiting import wait_until

_LAUNCHER_ENDS_WITHIN_SECONDS, _SERVERS_END_WITHIN_SECONDS = 0.5, 10


class DataLock:
    """The right to use a data folder.

    Children inherit `descriptor`, so after a ``kill -9`` of the launcher the lock stays taken
    until the last server that writes to the folder has gone too.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = data_dir / "lock"
        self.descriptor = -1

    def __enter__(self) -> Self:
        """Take the lock; wait some seconds for what a killed launcher left to end.

        Raises:
            CannotStart: another launcher uses the folder.

        """
        make_private_folder(self._data_dir)
        self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        # A launcher that was killed just now still counts as alive for a moment.
        wait_until(lambda: self._taken() or not self._holder(), _LAUNCHER_ENDS_WITHIN_SECONDS)
        wait_until(lambda: self._taken() or self._holder(), _SERVERS_END_WITHIN_SECONDS)
        if not self._taken():
            holder = self._holder()
            self.__exit__()
            raise CannotStart(self._refusal(holder))
        os.truncate(self.descriptor, 0)
        os.pwrite(self.descriptor, " ".join(map(str, own_identity())).encode(), 0)
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self.descriptor)
        self.descriptor = -1

    def _taken(self) -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def _holder(self) -> int:
        """Return the process id of the living launcher that holds the lock; 0 if none lives."""
        pid, _, started = self._path.read_text().partition(" ")
        return int(pid) if pid.isdigit() and is_alive(int(pid), started) else 0

    def _refusal(self, holder: int) -> str:
        if holder:
            return (
                f"Rethread already runs on {self._data_dir} (process {holder}): "
                "stop it with Ctrl-C first, or set RETHREAD_DATA_DIR to another folder."
            )
        return (
            f"Servers of an earlier run still use {self._data_dir}: end them "
            f"(`fuser {self._path}` lists them), or set RETHREAD_DATA_DIR to another folder."
        )
