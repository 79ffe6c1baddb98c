"""Runs `child` over one file and hands on its pages, whatever becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from conversations.tables import TableRefused
from conversations.tables.child import FRAME, METADATA, OUT_OF_MEMORY, PAGE, Job

_ROOT = Path(__file__).resolve().parent.parent.parent
_COMMAND = (sys.executable, "-E", "-s", "-m", "conversations.tables.child")
# Nothing of ours: no keys, no addresses.
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "1"}
_TOO_LONG = {-signal.SIGXCPU, -signal.SIGALRM}
# An allocation that fails aborts a program in Rust, and the kernel kills what takes too much.
_TOO_MUCH = {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGKILL, OUT_OF_MEMORY}
_SHOWN_OF_ERRORS = 4000


class ParsingFailed(Exception):
    """The child ended in a way that is a fault of ours; the message is its traceback."""


class Parsing:
    """One run of the child over an open file; the child ends with the block.

    with Parsing(file, job) as parsing:
        for page in parsing.pages():
            ...
        parsing.metadata
    """

    def __init__(self, file: IO[bytes], job: Job) -> None:
        """Note what is to be read: `file` is one of the disk's, and stands for `job.path`."""
        self.metadata: dict[str, Any] = {}
        self._file = file
        self._job = replace(job, path=f"/dev/fd/{file.fileno()}")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the block

    def __enter__(self) -> Self:
        """Start the child; raises OSError where the machine has no room for one.

        Any thread may: the kernel ends the child by its own clock, not with its parent.
        """
        self._child = subprocess.Popen(  # noqa: S603  a fixed command
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=_ROOT,
            env=_ENVIRONMENT,
            pass_fds=(self._file.fileno(),),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the child, whether it is through or not."""
        self._child.kill()
        with suppress(BrokenPipeError):
            self._child.communicate()
        self._errors.close()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    def pages(self) -> Iterator[bytes]:
        """Yield the compressed pages as they are read; then `metadata` is there.

        Raises `TableRefused` where the file is refused or takes too much memory or time, and
        `ParsingFailed`.
        """
        self._give_job()
        while frame := self._frame():
            kind, content = frame
            if kind == PAGE:
                yield content
            elif kind == METADATA:
                self.metadata = orjson.loads(content)
                return
            else:
                raise TableRefused(**orjson.loads(content))
        raise self._what_ended_it()

    def _give_job(self) -> None:
        assert self._child.stdin  # noqa: S101  a pipe
        with suppress(BrokenPipeError), self._child.stdin as pipe:
            pipe.write(orjson.dumps(asdict(self._job)))
        self._child.stdin = None

    def _frame(self) -> tuple[bytes, bytes] | None:
        """Return the next frame; None where there is none, or not all of it."""
        assert self._child.stdout  # noqa: S101  a pipe
        head = self._child.stdout.read(FRAME.size)
        if len(head) < FRAME.size:
            return None
        kind, size = FRAME.unpack(head)
        content = self._child.stdout.read(size)
        return (kind, content) if len(content) == size else None

    def _what_ended_it(self) -> Exception:
        status = self._child.wait()
        if status in _TOO_LONG:
            return _over("seconds to read", self._job.seconds, "UPLOAD_PARSE_SECONDS")
        if status in _TOO_MUCH:
            most = self._job.memory_bytes
            return _over("bytes of memory to read", most, "UPLOAD_PARSE_MEMORY_BYTES")
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _SHOWN_OF_ERRORS))
        return ParsingFailed(
            f"exit status {status}: {self._errors.read().decode(errors='replace')}"
        )


def _over(what: str, most: int, setting: str) -> TableRefused:
    return TableRefused(
        "file_too_large",
        f"The file takes more than {most} {what} ({setting}); split it, or leave out what is not "
        "needed.",
        setting,
    )
