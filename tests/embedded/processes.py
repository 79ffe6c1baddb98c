"""Processes that tests start, kill and look for afterwards."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from embedded.proc import is_alive, start_time
from embedded.services import REPOSITORY

Identity = tuple[int, str]


def python(
    *arguments: str, prefix: Sequence[str] = (), without: Sequence[str] = (), **env: str
) -> "subprocess.Popen[str]":
    """Start this Python in a session of its own, its output in a pipe.

    `env` adds to this environment, `without` names what to leave out of it.
    """
    inherited = {name: os.environ[name] for name in os.environ if name not in without}
    return subprocess.Popen(
        [*prefix, sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**inherited, "PYTHONUNBUFFERED": "1", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )


def read_until(process: "subprocess.Popen[str]", word: str) -> str:
    """Return what `process` prints up to the line that holds `word`."""
    assert process.stdout
    seen = ""
    for line in process.stdout:
        seen += line
        if word in line:
            return seen
    raise AssertionError(f"it ended without {word!r}:\n{seen}")


def descendants(pid: int) -> set[Identity]:
    """Return the living descendants of `pid`."""
    children: set[Identity] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            if started := start_time(child):
                children |= {(child, started)} | descendants(child)
    return children


def living(processes: set[Identity]) -> list[str]:
    """Return the command lines of those of `processes` that still run."""
    return [_command_line(pid) for pid, started in processes if is_alive(pid, started)]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return f"process {pid}, which is ending"
