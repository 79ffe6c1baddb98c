"""Starts the whole product in order, and looks after it."""

import hashlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from embedded.children import Surroundings, run_to_end
from embedded.exceptions import CannotStart
from embedded.logs import LogFile
from embedded.ports import refuse_unless_free
from embedded.private import make_private_folder, secret_in
from embedded.programs import Errand, Program, Revivable, StopSteps, Watch
from embedded.running import REPOSITORY, announce, withdraw
from embedded.services import DynamoDB, Postgres
from embedded.settings import Settings
from embedded.stack import Stack, named_in
from embedded.waiting import wait_until
from embedded.welcome import PERSON, TENANT, welcome

_COMMAND_SECONDS = 600
# How long a release waits for one that runs elsewhere; its own work comes on top.
_WAIT_FOR_OTHER_SECONDS = 600
_RELEASE_SECONDS = _WAIT_FOR_OTHER_SECONDS + 1800
_FIRST_ANSWER_SECONDS = 60
_WEB_STOPS: StopSteps = ((signal.SIGTERM, 12),)
# The second request ends a running job at once, in good order.
_JOB_SECONDS = 30
_WORKER_STOPS: StopSteps = ((signal.SIGTERM, _JOB_SECONDS), (signal.SIGTERM, 5))
# Without a job a worker has ended by then.
_SLOW_STOP_SECONDS = 4
_LOOK_EVERY_SECONDS = 0.2
_WEB = ("-m", "gunicorn", "-c", "config/gunicorn.py", "config.wsgi")
_WORKER = ("manage.py", "worker")
_RELEASE = ("release", "--wait", str(_WAIT_FOR_OTHER_SECONDS))


def say(text: str) -> None:
    """Tell the person at the terminal."""
    print(text, flush=True)


class Launcher:
    """One run of ``make up``: `start` once, then `look_after` for ever."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data_dir = settings.data_dir
        self._stack = Stack(self._data_dir, skip=named_in(settings.environment))
        self._environment = dict(settings.environment)
        self._logs: dict[str, LogFile] = {}
        self._watches: list[Watch] = []

    def start(self, exits: ExitStack) -> None:
        """Start everything, and leave with `exits` how it stops.

        Raises:
            CannotStart: something does not start; the text quotes its log.

        """
        refuse_unless_free(self._settings.host, self._settings.port)
        say(f"Starting on data in {self._data_dir} ...")
        self._open_to_commands(exits, exits.enter_context(self._stack))
        self._collect_static()
        self._manage(*_RELEASE, seconds=_RELEASE_SECONDS)
        self._release = self._errand(*_RELEASE, seconds=_RELEASE_SECONDS)
        worker = self._program("worker", _WORKER, _WORKER_STOPS)
        web = self._program("web", _WEB, _WEB_STOPS)
        exits.callback(_stop_worker, worker)
        exits.enter_context(web)
        self._wait_for_first_answer(web)
        worker.revive()
        password = self._make_demo_person()
        watched: list[Revivable] = [*self._stack.services, worker, web]
        self._watches = [Watch(each, say) for each in watched]
        exits.callback(self._release.end)
        say(welcome(self._settings.address, password, self._data_dir / "log"))

    def look_after(self) -> None:
        """Start again whatever dies, and keep the logs in bounds, until interrupted."""
        while True:
            time.sleep(_LOOK_EVERY_SECONDS)
            for watch in self._watches:
                self._look(watch)
            if failure := self._release.look():
                say(str(self._failure(failure, self._logs["release"])))
            for log in self._logs.values():
                log.bound()

    def _open_to_commands(self, exits: ExitStack, servers: dict[str, str]) -> None:
        """Complete the environment, and publish what commands beside this need of it."""
        kept = secret_in(self._data_dir / "secret_key", length_bytes=48)
        published = {
            **servers,
            "SECRET_KEY": self._environment.get("SECRET_KEY") or kept,
            "HOST": self._settings.host,
            "PORT": str(self._settings.port),
        }
        metrics = metrics_folder(self._data_dir)
        exits.callback(shutil.rmtree, metrics, ignore_errors=True)
        self._environment |= published | {
            "PROMETHEUS_MULTIPROC_DIR": str(metrics),
            "PYTHONUNBUFFERED": "1",
            "RETHREAD_DATA_DIR": str(self._data_dir),
        }
        announce(self._data_dir, published)
        exits.callback(withdraw, self._data_dir)

    def _collect_static(self) -> None:
        if static_files_are_old(REPOSITORY / "staticfiles" / "staticfiles.json"):
            self._manage("collectstatic", "--noinput")

    def _make_demo_person(self) -> str:
        """Make the demo person unless they exist; return their password."""
        password = secret_in(self._data_dir / "demo_password", length_bytes=12)
        own_database = Postgres.variable in self._stack.environment
        made = self._data_dir / "postgres" / "demo_person"  # goes when the database goes
        if not (own_database and made.exists()):
            person = ["--tenant", TENANT, "--user-id", PERSON, "--role", "user"]
            self._manage("create_user", *person, "--if-missing", "--password-stdin", text=password)
            if own_database:
                made.touch()
        return password

    def _manage(
        self, command: str, *options: str, text: str = "", seconds: float = _COMMAND_SECONDS
    ) -> None:
        around = self._surroundings(command)
        arguments = [sys.executable, "manage.py", command, *options]
        try:
            failure = run_to_end(arguments, around, seconds=seconds, text=text) and "failed"
        except TimeoutError:
            failure = f"took longer than {seconds:g} s and was ended"
        if failure:
            raise self._failure(f"`manage.py {command}` {failure}", self._logs[command])

    def _errand(self, command: str, *options: str, seconds: float) -> Errand:
        arguments = [sys.executable, "manage.py", command, *options]
        around = self._surroundings(command)
        return Errand(f"`manage.py {command}`", arguments, around, seconds=seconds)

    def _program(self, name: str, arguments: Sequence[str], stops: StopSteps) -> Program:
        command = [sys.executable, *arguments]
        around = self._surroundings(name)
        return Program(f"The {name} program", command, around, stop_steps=stops)

    def _surroundings(self, name: str) -> Surroundings:
        log = self._logs[name] = LogFile(self._data_dir / "log" / f"{name}.log")
        keep_open = (self._stack.lock_descriptor,)
        return Surroundings(REPOSITORY, self._environment, log, keep_open=keep_open)

    def _wait_for_first_answer(self, web: Program) -> None:
        wait_until(lambda: self._answers() or not web.is_alive, _FIRST_ANSWER_SECONDS, 0.05)
        if not web.is_alive:
            raise self._failure(f"{web.name} ended at its start", self._logs["web"])
        if not self._answers():
            raise self._failure(f"{web.name} gave no answer", self._logs["web"])

    def _answers(self) -> bool:
        host, port = self._settings.reachable_host, self._settings.port
        with closing(HTTPConnection(host, port, timeout=2)) as connection:
            try:
                connection.request("GET", "/health/live")
                # ALLOWED_HOSTS may refuse this name, which is an answer as well.
                return connection.getresponse().status < 500
            except (OSError, HTTPException):
                return False

    def _look(self, watch: Watch) -> None:
        try:
            if watch.look() and isinstance(watch.watched, DynamoDB):
                # It has lost what it took since its start: make its tables and fill them again,
                # on the side, since a release may wait for another and the rest needs looking at.
                self._release.begin()
        except CannotStart as error:
            say(str(error))

    def _failure(self, what: str, log: LogFile) -> CannotStart:
        return CannotStart(f"{what}. Look into {log.path}. Its last words:\n{log.last_lines(20)}")


def _stop_worker(worker: Program) -> None:
    """Stop it, and tell who waits for long why nothing seems to happen."""
    says = (
        f"The worker takes its time: a job that still runs gets {_JOB_SECONDS} s at most; "
        "Ctrl-C again stops everything now."
    )
    slow = threading.Timer(_SLOW_STOP_SECONDS, say, [says])
    slow.daemon = True
    slow.start()
    worker.stop()
    slow.cancel()


def metrics_folder(data_dir: Path, memory: Path = Path("/dev/shm")) -> Path:  # noqa: S108
    """Make an empty folder for the metrics of all processes, in memory where there is such a place.

    The processes map its files; on a full disk a write to one would kill them.
    """
    name = hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:16]
    for folder in (memory / f"rethread-{os.getuid()}-{name}", data_dir / "metrics"):
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(CannotStart):
            return make_private_folder(folder)
    raise CannotStart(f"No folder for metrics can be made in {data_dir}.")


def static_files_are_old(manifest: Path) -> bool:
    """Return whether a source of the static files is newer than the collected ones."""
    if not manifest.exists():
        return True
    collected_at = manifest.stat().st_mtime
    packages = Path(sys.prefix) / ".installed"
    sources = [packages, *(REPOSITORY / "static").rglob("*")]
    return any(path.exists() and path.stat().st_mtime > collected_at for path in sources)
