"""Uploaded files: read in a child process, kept in Redis and nowhere else.

Lost with Redis a file is a 404, while Redis is away a 503, without room for it a 507; sessions
and conversations are not touched by any of it. What is read, and how: `conversations.tables`; how
it is stored: `conversations.file_pages`.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Self

import orjson
import structlog
from django.conf import settings

from config.plain_json import to_plain
from conversations import file_pages
from conversations.file_pages import Bounds, FileWriter, Head
from conversations.session_keys import SessionKey
from conversations.tables import SETTINGS, ReadOptions, TableLimits, TableRefused
from conversations.tables.child import COMPRESSION, Job
from conversations.tables.process import Parsing, ParsingFailed
from conversations.upload_problems import (
    FileTooLarge,
    FileUnreadable,
    UploadsUnavailable,
    problem_of,
)

FileMetadata = dict[str, Any]

_COPY_BYTES = 1 << 20
_NAME_MAX_CHARS = 255
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SHORT = range(-(2**63), 2**64)
# How much longer than its parsing may take a file that is not whole is left lying.
_GRACE_SECONDS = 30


@dataclass(frozen=True)
class UploadSettings:
    """What the settings of the same names say; sizes in bytes."""

    limits: TableLimits
    stored: Bounds
    page_rows: int
    parse_seconds: int
    parse_memory_bytes: int
    at_once: int

    @classmethod
    def current(cls) -> Self:
        """Return what the settings say now."""
        return cls(
            limits=TableLimits(**{name: getattr(settings, s) for name, s in SETTINGS.items()}),
            stored=Bounds(
                ttl_seconds=settings.FILE_DATA_TTL_MINUTES * 60,
                unfinished_seconds=settings.UPLOAD_PARSE_SECONDS + _GRACE_SECONDS,
                session_bytes=settings.MAX_SESSION_UPLOAD_BYTES,
                redis_share=min(settings.UPLOAD_REDIS_SHARE, 1.0),
                page_bytes=settings.MAX_PAGE_BYTES,
            ),
            page_rows=settings.UPLOAD_PAGE_ROWS,
            parse_seconds=settings.UPLOAD_PARSE_SECONDS,
            parse_memory_bytes=settings.UPLOAD_PARSE_MEMORY_BYTES,
            at_once=settings.UPLOADS_AT_ONCE,
        )


class UploadStore:
    """The uploaded files of all sessions.

    Whatever is refused is a `Problem` (`upload_problems`), or `BadId` for an id that can't be one.
    """

    def __init__(self, given: UploadSettings) -> None:
        self._given = given
        self._slots = threading.BoundedSemaphore(given.at_once)

    def store_file(
        self,
        session_key: SessionKey,
        file_id: str,
        name: str,
        source: Path | IO[bytes],
        options: Mapping[str, Any] | None = None,
    ) -> FileMetadata:
        """Read a CSV or Excel file and store its rows; return its metadata.

        `name` is what whoever uploads calls it, `options` are those of `ReadOptions`. A file
        with the same id is replaced, whole.

            {"filename": "report.csv", "file_id": "f-1", "bytes": 81234,
             "columns": ["zip", "amount"], "row_count": 1200, "kind": "csv", "encoding": "cp1252",
             "encoding_decided_by": "guess", "delimiter": ";", "header": 1,
             "types": {"zip": "text", "amount": "number"}, "notes": [{"code": "…", …}]}
        """
        session_key.file(file_id)  # refused before anything is read
        with _as_problems(), self._slot(), self._on_disk(source) as file:
            job = self._job(name, options or {})
            with (
                FileWriter(session_key, file_id, self._given.stored) as writer,
                Parsing(file, job) as parsing,
            ):
                for page in parsing.pages():
                    writer.add(page)
                about = {"filename": job.name, "file_id": file_id, "bytes": _size(file)}
                metadata = {**about, **parsing.metadata}
                writer.publish(Head(job.page_rows, metadata["row_count"], metadata))
        return metadata

    def store_file_data(
        self, session_key: SessionKey, file_id: str, data: Mapping[str, Any]
    ) -> None:
        """Store rows that an agent has read itself.

        `{"rows": [{"region": "North"}, …], "metadata": {"filename": "report.xlsx"}}`; a row may
        be a list as well. Both come back as they are given, in the forms of `config.plain_json`;
        integers past 64 bits become texts. `row_count` is added to the metadata if it is missing.
        """
        rows, metadata = data.get("rows"), data.get("metadata", {})
        if not isinstance(rows, list) or not isinstance(metadata, Mapping):
            raise FileUnreadable("rows must be a list, and metadata an object.")
        head = orjson.loads(_dumped({"row_count": len(rows), **metadata}))
        with _as_problems(), FileWriter(session_key, file_id, self._given.stored) as writer:
            for page in self._pages_of(rows):
                writer.add(page)
            writer.publish(Head(self._given.page_rows, len(rows), head))

    def get_file_data(
        self, session_key: SessionKey, file_id: str, offset: int = 0, limit: int | None = 100
    ) -> dict[str, Any]:
        """Return rows of a file with its metadata; all from `offset` on where `limit` is None.

            {"rows": [["00501", 12.5], …], "metadata": {…}, "offset": 0, "next_offset": 100}

        `next_offset` is None at the end. With a limit, fewer rows may come where they are so
        large that together they take more than `MAX_PAGE_BYTES`. Raises `FileNotFound`.
        """
        rows = slice(offset, None if limit is None else offset + limit)
        page_bytes = self._given.stored.page_bytes
        head, found = file_pages.read(session_key, file_id, rows, self._given.page_rows, page_bytes)
        reached = offset + len(found)
        return {
            "rows": found,
            "metadata": head.metadata,
            "offset": offset,
            "next_offset": reached if found and reached < head.row_count else None,
        }

    def get_active_file_id(self, session_key: SessionKey) -> str | None:
        """Return the id of the session's newest file; None where it has none, or no longer."""
        return file_pages.active_file_id(session_key)

    def renew(self, session_key: SessionKey, at_least_seconds: int = 0) -> int:
        """Let all files of a session live on, as its use does; return how many there are.

        For `FILE_DATA_TTL_MINUTES` from now, or `at_least_seconds` (the session's own time) if
        that is longer.
        """
        return file_pages.renew(session_key, max(self._given.stored.ttl_seconds, at_least_seconds))

    def delete_files(self, session_key: SessionKey, *file_ids: str) -> int:
        """Delete files of a session, all where none is named; return how many there were."""
        return file_pages.delete(session_key, file_ids)

    def _job(self, name: str, options: Mapping[str, Any]) -> Job:
        given = self._given
        return Job(
            path="",
            name=_file_name(name),
            options=asdict(ReadOptions.of(options)),
            limits=asdict(given.limits),
            seconds=given.parse_seconds,
            memory_bytes=given.parse_memory_bytes,
            page_rows=given.page_rows,
            page_bytes=given.stored.page_bytes,
        )

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold one of the places for reading a file: each may take much memory."""
        if not self._slots.acquire(blocking=False):
            raise UploadsUnavailable("Other files are being read just now; try again in a moment.")
        try:
            yield
        finally:
            self._slots.release()

    @contextmanager
    def _on_disk(self, source: Path | IO[bytes]) -> Iterator[IO[bytes]]:
        """Give a file of the disk's; a copy has no name there, so none is left lying."""
        if isinstance(source, Path):
            with source.open("rb") as file:
                yield file
            return
        with tempfile.TemporaryFile() as file:
            while chunk := source.read(_COPY_BYTES):
                file.write(chunk)
                self._given.limits.check("bytes", file.tell())
            file.flush()
            yield file

    def _pages_of(self, rows: Sequence[Any]) -> Iterator[bytes]:
        limits, step = self._given.limits, self._given.page_rows
        limits.check("rows", len(rows), "What is given as rows")
        cells = text_bytes = 0
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            cells += sum(map(_cells, some))
            limits.check("cells", cells, "What is given as rows")
            page = _dumped(some)
            _check_page(len(page), self._given.stored.page_bytes)
            text_bytes += len(page)
            limits.check("unpacked_bytes", text_bytes, "What is given as rows")
            yield zlib.compress(page, COMPRESSION)


@lru_cache(maxsize=1)
def get_upload_store() -> UploadStore:
    """Return this process's store, tuned by the settings."""
    return UploadStore(UploadSettings.current())


@contextmanager
def _as_problems() -> Iterator[None]:
    """Turn what a file may bring about into what is answered."""
    try:
        yield
    except TableRefused as refused:
        raise problem_of(refused) from refused
    except ParsingFailed as failed:
        structlog.get_logger(__name__).error("upload_parsing_failed", error=str(failed))
        raise FileUnreadable("The file can't be read, for a reason not foreseen.") from failed
    except OSError as error:  # no process, no room on the disk
        structlog.get_logger(__name__).error("upload_not_possible", error=str(error))
        raise UploadsUnavailable from error


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _file_name(name: str) -> str:
    """Return the last part of a name as browsers send it, without what can't be shown."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return _UNPRINTABLE.sub("\ufffd", last)[-_NAME_MAX_CHARS:]


def _cells(row: Any) -> int:
    if not isinstance(row, list | tuple | Mapping):
        raise FileUnreadable("Each row must be an object or a list.")
    return len(row)


def _check_page(size: int, most: int) -> None:
    if size > most:
        raise FileTooLarge(
            f"Rows that are stored together take {size} bytes as JSON, more than {most} "
            "(MAX_PAGE_BYTES).",
            setting="MAX_PAGE_BYTES",
        )


def _dumped(value: Any) -> bytes:
    """Return JSON that reads back as it was given."""
    plain = to_plain(value)
    try:
        return orjson.dumps(plain)
    except TypeError:
        return orjson.dumps(_with_short_integers(plain))


def _with_short_integers(value: Any) -> Any:
    """Return a value with integers past 64 bits as texts: readers would make floats of them."""
    if isinstance(value, dict):
        return {key: _with_short_integers(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_with_short_integers(held) for held in value]
    is_long = type(value) is int and value not in _SHORT
    return str(value) if is_long else value
