"""The process that reads one uploaded file: `python -m conversations.tables.child`.

It is given a job as JSON on its standard input and limits itself before it opens the file; it
imports neither Django nor a client of any store, and gets no environment, so that a file which
breaks a parser finds nothing there. On its standard output it writes frames, each `>cI` (kind
and length) and that many bytes:

    P   a page: up to `page_rows` rows as a JSON list of lists, compressed by zlib
    M   the metadata as JSON, after the last page: the file was read whole
    R   instead of M: {"code": …, "sentence": …, "setting": …}, a refusal
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import sys
import zlib
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

import orjson

from conversations.tables import ReadOptions, TableLimits, TableRefused, read_table

FRAME = struct.Struct(">cI")
PAGE, METADATA, REFUSAL = b"P", b"M", b"R"
OUT_OF_MEMORY = 75

# Three times as fast as the default, for files a sixth larger.
COMPRESSION = 1


@dataclass(frozen=True)
class Job:
    """What to read and within which bounds; `page_bytes` bounds a page before compression."""

    path: str
    name: str
    options: dict[str, Any]
    limits: dict[str, int]
    seconds: int
    memory_bytes: int
    page_rows: int
    page_bytes: int


def main() -> None:
    """Read the job, read the file, write the frames."""
    job = Job(**orjson.loads(sys.stdin.buffer.read()))
    limit_yourself(job)
    try:
        write_table(job, sys.stdout.buffer)
    except TableRefused as refused:
        said = {"code": refused.code, "sentence": refused.sentence, "setting": refused.setting}
        _write(sys.stdout.buffer, REFUSAL, orjson.dumps(said))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # nothing may be left to say more with


def limit_yourself(job: Job) -> None:
    """Let the kernel end this process when it takes too much memory or time.

    The clock ends it too, so that it never outlives by more than that whoever waits for it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (job.memory_bytes, job.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (job.seconds, job.seconds + 1))
    signal.setitimer(signal.ITIMER_REAL, job.seconds)


def write_table(job: Job, out: BinaryIO) -> None:
    """Write the pages and the metadata of the job's file; raises `TableRefused`."""
    limits = TableLimits(**job.limits)
    table = read_table(job.path, job.name, ReadOptions(**job.options), limits)
    row_count, text_bytes = 0, 0
    while rows := list(islice(table.rows, job.page_rows)):
        page = orjson.dumps(rows)
        _check_page(len(page), job.page_bytes, row_count)
        row_count, text_bytes = row_count + len(rows), text_bytes + len(page)
        limits.check("unpacked_bytes", text_bytes, "The table, as JSON,")
        _write(out, PAGE, zlib.compress(page, COMPRESSION))
    metadata = {"columns": table.columns, "row_count": row_count, **table.about()}
    _write(out, METADATA, orjson.dumps(metadata))


def _check_page(size: int, most: int, first_row: int) -> None:
    if size > most:
        raise TableRefused(
            "file_too_large",
            f"From row {first_row + 1} on, one page of rows takes {size} bytes, more than {most} "
            "(MAX_PAGE_BYTES); leave out columns with long texts.",
            "MAX_PAGE_BYTES",
        )


def _write(out: BinaryIO, kind: bytes, content: bytes) -> None:
    out.write(FRAME.pack(kind, len(content)) + content)
    out.flush()


if __name__ == "__main__":
    main()
