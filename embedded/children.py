"""Foreground children that can't outlive whoever started them, not even after ``kill -9``.

The kernel sends a child its "parent death signal". Three things undo that, and each is met
here: the signal is lost when a child changes its user, so it is set after that change; it is
sent when the *thread* that forked ends, so only the main thread may start children; and a
parent that dies before it is set is never noticed, so the child then compares its parent.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from embedded.exceptions import CannotStart
from embedded.logs import LogFile

_KEEPER = str(Path(__file__).with_name("keeper.py"))
_ONLY_WITH_PARENT = 'test "$PPID" = "$0" && exec "$@"'


@dataclass(frozen=True)
class Surroundings:
    """What a child gets besides its command.

    `log` takes its output (None: ours does), `as_user` is a command prefix that changes the
    user, `keep_open` are file descriptors that the child inherits (a lock that has to be held
    for as long as the child lives).
    """

    folder: Path
    env: Mapping[str, str]
    log: LogFile | None
    as_user: tuple[str, ...] = ()
    keep_open: tuple[int, ...] = ()


class Child:
    """One running child process; `pid` is its command's own process id."""

    def __init__(
        self, command: Sequence[str], around: Surroundings, death_signal: signal.Signals
    ) -> None:
        """Start `command`, which gets `death_signal` when this process ends.

        Raises:
            CannotStart: the machine lacks what it takes.

        """
        self._popen = _popen(command, around, death_signal, stdin=subprocess.DEVNULL)
        self.pid = self._popen.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        """Its exit status, negative for the signal that ended it; None while it runs."""
        return self._popen.poll()

    def wait(self) -> int:
        """Wait for its end and return its exit status, negative for the signal that ended it."""
        return self._popen.wait()

    def send(self, signal_number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self._popen.send_signal(signal_number)

    def stop(self, steps: Sequence[tuple[signal.Signals, float]]) -> None:
        """Send each signal in turn and wait its seconds for the end; then kill what is left."""
        for signal_number, seconds in steps:
            self.send(signal_number)
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(seconds)
                break
        self.kill()

    def kill(self) -> None:
        """Kill its process group at once, and wait for its end."""
        _kill_group(self._popen)


class Group(Child):
    """A command of which all descendants end with it and with this process.

    A keeper process stands between: it passes SIGTERM and SIGINT on, and when this process
    dies it kills the whole group. For programs whose own children would go on alone.
    """

    def __init__(self, command: Sequence[str], around: Surroundings) -> None:
        super().__init__(
            [sys.executable, "-I", "-S", _KEEPER, *command], around, death_signal=signal.SIGHUP
        )


def run_to_end(
    command: Sequence[str], around: Surroundings, *, seconds: float, text: str = ""
) -> int:
    """Run `command` with `text` as its input, `seconds` at most; return its exit status.

    Raises:
        CannotStart: the machine lacks what it takes.
        TimeoutError: it took longer, and has been killed.

    """
    popen = _popen(command, around, signal.SIGKILL, stdin=subprocess.PIPE)
    try:
        popen.communicate(text.encode(), timeout=seconds)
    except BaseException as error:
        _kill_group(popen)
        if isinstance(error, subprocess.TimeoutExpired):
            raise TimeoutError(f"{command[0]} took longer than {seconds:g} s") from error
        raise
    return popen.returncode


def _kill_group(popen: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()


def _popen(
    command: Sequence[str], around: Surroundings, death_signal: signal.Signals, stdin: int
) -> "subprocess.Popen[bytes]":
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start children from the main thread: they end with their thread")
    with around.log.open() if around.log else nullcontext() as output:
        return subprocess.Popen(
            [*around.as_user, *_tethered(command, death_signal)],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            env=around.env,
            cwd=around.folder,
            pass_fds=around.keep_open,
            # a Ctrl-C in the terminal goes to the launcher alone, which stops things in order
            start_new_session=True,
        )


def _tethered(command: Sequence[str], death_signal: signal.Signals) -> list[str]:
    setpriv = shutil.which("setpriv")
    if sys.platform != "linux" or setpriv is None:
        raise CannotStart(
            "The embedded services need Linux with util-linux's setpriv: install util-linux, "
            "or set DATABASE_URL, REDIS_URL and DYNAMODB_ENDPOINT_URL."
        )
    shell = ["/bin/sh", "-c", _ONLY_WITH_PARENT, str(os.getpid())]
    return [setpriv, "--pdeathsig", death_signal.name.removeprefix("SIG"), "--", *shell, *command]
