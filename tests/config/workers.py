"""A `manage.py worker` on the test's own database, whose processes a test may kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection
from django_q.models import OrmQ
from django_q.tasks import async_task

from config.models import WorkerHeartbeat
from embedded.proc import start_time
from embedded.waiting import wait_until
from tests.embedded.processes import descendants, living

START_SECONDS = 60
_ROLES = {"worker": "ready for work", "monitor": "monitoring", "pusher": "pushing tasks"}


class RunningWorker:
    """From ``with`` to its end; `frozen_after` is the seconds that its cluster may stand still."""

    def __init__(self, folder: Path, *, frozen_after: float = 3, **environment: str) -> None:
        self._log = folder / "worker.log"
        database = urlsplit(os.environ["DATABASE_URL"])
        name = connection.settings_dict["NAME"]
        self._environment = {
            **os.environ,
            "DATABASE_URL": database._replace(path=f"/{name}").geturl(),
            "WORKER_FROZEN_AFTER_SECONDS": str(frozen_after),
            **environment,
        }

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "worker"],
                cwd=settings.BASE_DIR,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert wait_until(WorkerHeartbeat.objects.alive().exists, START_SECONDS), self.log
        return self

    def __exit__(self, *_exception: object) -> None:
        left = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not living(left), seconds=10)

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log.read_text()

    @property
    def restarts(self) -> int:
        """How often it has started its cluster again."""
        return WorkerHeartbeat.objects.get().restarts

    def processes(self, role: Literal["worker", "monitor", "pusher"]) -> list[int]:
        """Return the ids of the living processes that have this part in its cluster."""
        pids = map(int, re.findall(rf"{_ROLES[role]} at (\d+)", self.log))
        mine = {pid for pid, _started in descendants(self.process.pid)}
        return [pid for pid in pids if pid in mine and start_time(pid)]

    def kill(self, *pids: int) -> None:
        """End some of its processes as `kill -9` does."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def ask_to_stop(self) -> None:
        """Send it a SIGTERM."""
        self.process.terminate()

    def has_ended(self, seconds: float) -> bool:
        """Wait so long for its end."""
        return wait_until(lambda: self.process.poll() is not None, seconds)


class Signs:
    """The files that `tests.config.worker_jobs` leave, and how such jobs are queued."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def queue(self, name: str) -> None:
        """Queue a job that leaves the sign `name`."""
        async_task("tests.config.worker_jobs.touch", self._path(name))

    def queue_held(self, name: str) -> None:
        """Queue a job that leaves `<name>-begun`, waits for `open`, and leaves `<name>-done`."""
        begun, done = self._path(f"{name}-begun"), self._path(f"{name}-done")
        async_task("tests.config.worker_jobs.hold", begun, self._path(f"{name}-gate"), done)

    def open(self, name: str) -> None:
        """Let a held job go on."""
        Path(self._path(f"{name}-gate")).touch()

    def count(self, name: str) -> int:
        """Return how often a sign has been left."""
        return len(self.processes(name))

    def processes(self, name: str) -> list[int]:
        """Return the ids of the processes that have left a sign."""
        path = Path(self._path(name))
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def comes(self, name: str, seconds: float = 40) -> bool:
        """Wait for a sign."""
        return wait_until(lambda: self.count(name), seconds)

    @staticmethod
    def queue_gets_empty(seconds: float = 20) -> bool:
        """Wait until every job is acknowledged."""
        return wait_until(lambda: not OrmQ.objects.exists(), seconds)

    def _path(self, name: str) -> str:
        return str(self._folder / name)
