"""Import threads from JSON Lines (docs/import-format.md)."""

from __future__ import annotations

import gzip
import json
import os
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import BufferedReader
from typing import Any, BinaryIO, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from conversations.management.commands._console import Progress, finishing_first
from conversations.management.commands._importing import Entry, Importer, entries_of
from conversations.thread_lines import LineRefused

_SHOWN_REFUSALS = 100
_GZIP = b"\x1f\x8b"


class Command(BaseCommand):
    """`import_threads FILE.jsonl`, or `-` for stdin; gzip is read as it is."""

    help = (
        "Import threads from JSON Lines. Run again after a stop or a correction, it goes on where "
        "it was: nothing is written twice. Exit 0 all taken, 1 some refused, 2 usage, 130 stopped "
        "by Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the file, and what to do about lines that are refused."""
        parser.add_argument("file", metavar="FILE", help="JSON Lines, plain or gzip; - for stdin")
        parser.add_argument(
            "--dry-run", action="store_true", help="do everything, then undo it thread by thread"
        )
        parser.add_argument(
            "--stop-on-error", action="store_true", help="stop at the first line that is refused"
        )
        parser.add_argument(
            "--json", action="store_true", help="refusals and a summary as JSON Lines on stdout"
        )

    def handle(
        self,
        *,
        file: str,
        dry_run: bool,
        stop_on_error: bool,
        json: bool,
        **_: Any,
    ) -> None:
        """Import, then say what was taken, and how fast."""
        self.as_json, self.dry_run, self.stop_on_error = json, dry_run, stop_on_error
        started = time.perf_counter()
        with _opened(file) as raw, finishing_first() as interrupt:
            importer = Importer(self._refuse, interrupt, dry_run)
            self._import(importer, raw)
        self._summarise(importer, time.perf_counter() - started)
        if interrupt.asked:
            raise interrupt.stopped(_how_far(importer))
        if importer.tally.refused:
            raise CommandError(f"{importer.tally.refused:,} lines were refused.")

    def _import(self, importer: Importer, raw: BufferedReader) -> None:
        self.importer = importer
        size = _size(raw)
        try:
            unit = "bytes" if size else "lines"
            with Progress(self.stderr, unit, size, at_least=1 << 20) as progress:
                entries = entries_of(_unpacked(raw))
                importer.run(_watched(entries, progress, raw if size else None))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CommandError(
                f"The gzip file is damaged ({error}); {_how_far(importer)}"
            ) from error
        except DatabaseError as error:
            raise CommandError(
                f"The database refused what follows: {str(error).strip()}. {_how_far(importer)}"
            ) from error

    def _refuse(self, number: int, why: LineRefused) -> None:
        """Report a refused line, and stop there if that was asked for."""
        if self.as_json:
            place = {"field": why.field, "column": why.column}
            self._line({"type": "refused", "line": number, "code": why.code, **place,
                        "message": why.message})  # fmt: skip
        elif self.importer.tally.refused <= _SHOWN_REFUSALS:
            self.stderr.write(f"line {number}{_place(why)}: {why.code}: {why.message}")
        if self.stop_on_error:
            raise CommandError(f"Stopped at line {number}; {_how_far(self.importer)}")

    def _line(self, fields: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(fields))

    def _summarise(self, importer: Importer, seconds: float) -> None:
        tally = importer.tally
        speed = round((tally.written + tally.stored_already) / seconds)
        if self.as_json:
            self._line({"type": "summary", **asdict(tally), "dry_run": self.dry_run,
                        "seconds": round(seconds, 3), "turns_per_second": speed})  # fmt: skip
            return
        self.stdout.write(
            f"{'Would write' if self.dry_run else 'Wrote'} {tally.written:,} turns of "
            f"{tally.threads:,} threads in {seconds:.1f} s ({speed:,} turns/s); "
            f"{tally.stored_already:,} were stored already, {tally.refused:,} lines refused, "
            f"{tally.held_back:,} held back behind those."
        )
        if tally.refused > _SHOWN_REFUSALS:
            self.stderr.write(f"Only the first {_SHOWN_REFUSALS} were shown; --json shows all.")


def _how_far(importer: Importer) -> str:
    return (
        f"lines 1 to {importer.through_line:,} are done, {importer.tally.written:,} turns written. "
        "Run it again to go on."
    )


def _place(why: LineRefused) -> str:
    column = f", column {why.column}" if why.column else ""
    return f", {why.field}" if why.field else column


@contextmanager
def _opened(name: str) -> Iterator[BufferedReader]:
    if name == "-":
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    try:
        with open(name, "rb") as file:  # noqa: PTH123
            yield file
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise CommandError(f"{name}: {error.strerror}.", returncode=2) from error


def _unpacked(raw: BufferedReader) -> BinaryIO:
    return cast(BinaryIO, gzip.open(raw)) if raw.peek(2)[:2] == _GZIP else raw


def _size(raw: BufferedReader) -> int | None:
    """Return the bytes of a regular file; None of a pipe, which nobody knows."""
    try:
        status = os.fstat(raw.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _watched(
    entries: Iterator[Entry], progress: Progress, raw: BufferedReader | None
) -> Iterator[Entry]:
    """Pass on `entries`, and their progress: by bytes read where `raw` is a file."""
    for entry in entries:
        progress.reach(raw.tell() if raw else entry.number)
        yield entry
