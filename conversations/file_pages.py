"""How an uploaded file stands in Redis; the only module that knows.

One hash a file, of which field `m` is its head as JSON (`[page_rows, row_count, metadata]`) and
`p:<n>` its n-th page, a JSON list of rows compressed by zlib. So a page costs the same however
many there are. Nothing is pickled, and what does not have this shape is no file.

A file is written under a name of its own that expires, and renamed when it is whole: a reader
sees all of it or none, and only then does it become the session's newest. Uploads leave room in
Redis for what else is kept there (`UPLOAD_REDIS_SHARE`): under an eviction policy it is sessions
that would have to go for them. All keys of a session stand in one slot, so one script may change
several.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import orjson
import redis
import structlog

from config import redis as redis_gate
from config.redis import RedisUnavailable
from conversations.session_keys import SessionKey
from conversations.upload_problems import (
    FileNotFound,
    FileTooLarge,
    StorageFull,
    UploadsUnavailable,
)

if TYPE_CHECKING:
    from redis import Redis
    from redis.commands.core import Script

T = TypeVar("T")

_SCRIPTS = files("conversations").joinpath("lua")
# What one call carries, and how many times that has to be free for it: it stands in the server's
# buffers as well while it is taken.
_BATCH_BYTES = 64 * 1024
_BATCH_PAGES = 500
_ROOM = 4
_READ_AT_ONCE = 50


@dataclass(frozen=True)
class Bounds:
    """How long files stay, and how much room they may take.

    `unfinished_seconds` is how long a file is left lying that nobody goes on writing,
    `session_bytes` what the files of a session take together, `redis_share` how full uploads may
    make Redis, `page_bytes` the most that a page is unpacked to.
    """

    ttl_seconds: int
    unfinished_seconds: int
    session_bytes: int
    redis_share: float
    page_bytes: int


@dataclass(frozen=True)
class Head:
    """What stands before the pages."""

    page_rows: int
    row_count: int
    metadata: dict[str, Any]


class _Damaged(Exception):
    """What is stored is not what is written here."""


class FileWriter:
    """Writes one file, page by page; leaves nothing of it unless it is published.

    with FileWriter(session_key, "f-1", bounds) as writer:
        writer.add(page)
        writer.publish(head)

    Raises `StorageFull`, `FileTooLarge` and `UploadsUnavailable`.
    """

    def __init__(self, session_key: SessionKey, file_id: str, bounds: Bounds) -> None:
        self._file_id = file_id
        self._file = session_key.file(file_id)
        self._unfinished = session_key.unfinished_file(uuid.uuid4().hex)
        self._keys = (session_key.active_file, session_key.file_index)
        self._bounds = bounds
        self._waiting: list[bytes] = []
        self._written = self.page_count = self.stored_bytes = 0

    def __enter__(self) -> Self:
        """See whether there is room at all."""
        index = _found(lambda client: client.hgetall(self._keys[1])) or {}
        index.pop(self._file_id.encode(), None)
        self._others_bytes = sum(int(size) for size in index.values() if size.isdigit())
        self._room = self._write([])
        self._check_room(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Delete what has been written, unless it was renamed; it would expire as well."""
        if error is not None:
            with suppress(StorageFull, UploadsUnavailable):
                _run(lambda client: client.delete(self._unfinished))

    def add(self, page: bytes) -> None:
        """Add the next page, compressed."""
        self._waiting.append(page)
        self.page_count += 1
        self._count(page)
        if sum(map(len, self._waiting)) > _BATCH_BYTES or len(self._waiting) >= _BATCH_PAGES:
            self._flush()

    def publish(self, head: Head) -> None:
        """Put the file in place, and make it the session's newest."""
        self._flush()
        encoded = orjson.dumps([head.page_rows, head.row_count, head.metadata])
        self._check_room(len(encoded))
        self._count(encoded)
        args = (
            *(self._file_id, self.page_count, encoded),
            *(self._bounds.ttl_seconds, self.stored_bytes),
        )
        if not _eval("publish", (self._unfinished, self._file, *self._keys), args):
            raise StorageFull

    def _count(self, part: bytes) -> None:
        """Refuse what the session has no room for; of two uploads at once each counts alone."""
        self.stored_bytes += len(part)
        most = self._bounds.session_bytes
        if self._others_bytes + self.stored_bytes > most:
            raise FileTooLarge(
                f"With its other files the session would have more than {most} bytes of files, "
                "compressed (MAX_SESSION_UPLOAD_BYTES); delete one first.",
                setting="MAX_SESSION_UPLOAD_BYTES",
            )

    def _flush(self) -> None:
        if self._waiting:
            self._check_room(sum(map(len, self._waiting)))
            self._room = self._write(self._waiting)
            self._written += len(self._waiting)
            self._waiting = []

    def _check_room(self, size: int) -> None:
        if self._room < size * _ROOM:
            raise StorageFull

    def _write(self, pages: Sequence[bytes]) -> int:
        """Write pages; return how many bytes uploads may still take of Redis."""
        fields = [
            part
            for number, page in enumerate(pages, self._written)
            for part in (f"p:{number}", page)
        ]
        args = (self._bounds.redis_share, self._bounds.unfinished_seconds, *fields)
        return _eval("write", (self._unfinished,), args)


def read(
    session_key: SessionKey, file_id: str, rows: slice, page_rows: int, page_bytes: int
) -> tuple[Head, list[Any]]:
    """Return the head of a file, and of its rows those of the slice (`slice(0, 100)`).

    One round trip where the file is cut into pages of `page_rows`, as most are, and the rows
    are on 50 of them. Once more than `page_bytes` have been unpacked, no further page is: with
    an open slice that does not count. Raises `FileNotFound`.
    """
    key = session_key.file(file_id)
    try:
        head, fetched = _fetch(key, rows, page_rows)
        if head.page_rows != page_rows:
            head, fetched = _fetch(key, rows, head.page_rows)
        return head, _rows(key, head, rows, fetched, page_bytes)
    except _Damaged as error:
        raise FileNotFound from error


def active_file_id(session_key: SessionKey) -> str | None:
    """Return the id of the session's newest file; None where it has none, or no longer."""
    stored = _found(lambda client: client.get(session_key.active_file))
    return stored.decode() if stored else None


def renew(session_key: SessionKey, ttl_seconds: int) -> int:
    """Let the session's files live for `ttl_seconds` from now; return how many there are."""
    keys = (session_key.file_index, session_key.active_file)
    return _eval("renew", keys, (ttl_seconds, session_key.files))


def delete(session_key: SessionKey, file_ids: Sequence[str]) -> int:
    """Delete files of a session, all where none is named; return how many there were."""
    keys = (session_key.file_index, session_key.active_file)
    for file_id in file_ids:
        session_key.file(file_id)
    return _eval("delete", keys, (session_key.files, *file_ids))


# --- Pages ------------------------------------------------------------------------------------


def _fetch(key: str, rows: slice, page_rows: int) -> tuple[Head, dict[int, bytes | None]]:
    """Return the head, and the first pages that the rows are on if a page has `page_rows`."""
    first, last = _page_span(rows, page_rows)
    numbers = range(first, min(last, first + _READ_AT_ONCE))
    head, *pages = _hmget(key, ["m", *(f"p:{number}" for number in numbers)])
    return _head(head), dict(zip(numbers, pages, strict=True))


def _page_span(rows: slice, page_rows: int) -> tuple[int, int]:
    first = rows.start // page_rows
    last = first + _READ_AT_ONCE if rows.stop is None else -(-rows.stop // page_rows)
    return first, last


def _head(stored: bytes | None) -> Head:
    try:
        head = Head(*orjson.loads(stored or b""))
    except (ValueError, TypeError) as error:
        raise _Damaged from error
    numbers = (head.page_rows, head.row_count)
    if not all(type(n) is int for n in numbers) or head.page_rows < 1 or head.row_count < 0:
        raise _Damaged
    return head


def _rows(
    key: str, head: Head, rows: slice, fetched: dict[int, bytes | None], page_bytes: int
) -> list[Any]:
    stop = head.row_count if rows.stop is None else min(rows.stop, head.row_count)
    first, last = rows.start // head.page_rows, -(-stop // head.page_rows)
    found: list[Any] = []
    unpacked = 0
    for page in _pages(key, range(first, last), fetched):
        text = _unpacked(page, page_bytes)
        unpacked += len(text)
        if found and unpacked > page_bytes and rows.stop is not None:
            break
        found += _page(text)
    skipped = first * head.page_rows
    return found[rows.start - skipped : max(stop - skipped, 0)]


def _pages(key: str, numbers: range, fetched: dict[int, bytes | None]) -> Iterator[bytes | None]:
    """Yield the pages; those that have not been fetched yet are, some at a time."""
    for number in numbers:
        if number not in fetched:
            wanted = range(number, min(number + _READ_AT_ONCE, numbers.stop))
            pages = _hmget(key, [f"p:{each}" for each in wanted])
            fetched = dict(zip(wanted, pages, strict=True))
        yield fetched[number]


def _hmget(key: str, fields: list[str]) -> list[bytes | None]:
    return _found(lambda client: client.hmget(key, fields)) or [None] * len(fields)


def _unpacked(page: bytes | None, page_bytes: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(page or b"", page_bytes)
    except zlib.error as error:
        raise _Damaged from error
    if not unpacker.eof:
        raise _Damaged
    return text


def _page(text: bytes) -> list[Any]:
    try:
        rows = orjson.loads(text)
    except ValueError as error:
        raise _Damaged from error
    if not isinstance(rows, list):
        raise _Damaged
    return rows


# --- Calls ------------------------------------------------------------------------------------


def _eval(script: str, keys: Sequence[str], args: Sequence[Any]) -> int:
    def call(client: Redis) -> Any:
        return _script(script)(keys=keys, args=args, client=client)

    try:
        return int(_run(call))
    except redis.ResponseError as error:  # a key of another type, a command that is not allowed
        structlog.get_logger(__name__).error(
            "upload_script_failed", script=script, error=str(error)
        )
        raise UploadsUnavailable from error


def _found(call: Callable[[Redis], Any]) -> Any:
    """Return what a key holds; None where it is of a type that is not written here."""
    try:
        return _run(call)
    except redis.ResponseError:
        return None


def _run(call: Callable[[Redis], Any]) -> Any:
    try:
        return redis_gate.attempt(call)
    except RedisUnavailable as error:
        full = isinstance(error.__cause__, redis.OutOfMemoryError)
        raise (StorageFull() if full else UploadsUnavailable()) from error


@lru_cache
def _script(name: str) -> Script:
    return redis_gate.client().register_script(_SCRIPTS.joinpath(f"file_{name}.lua").read_text())
