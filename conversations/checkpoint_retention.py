"""Checkpoints that nobody has used for long go: whole, or all but what a run can be resumed from.

LangGraph keeps each state that a run has been in: 200 turns of an agent with its messages in the
state leave some 20 MB for 0.2 MB of text. One thread id after the other, each in a transaction of
its own, so that it may be stopped at any moment, and goes on where it was.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from django.db import Error, connection, transaction
from django.utils import timezone

from conversations import checkpoints
from conversations.checkpoint_tables import checkpoint_ids_from, in_schema, thread_of
from conversations.checkpoints import tables_exist

if TYPE_CHECKING:
    from conversations.checkpoint_savers import RethreadSaver

_PAGE: Final = 200


class Rows(NamedTuple):
    """Rows of the three tables, and the bytes of what they hold, as PostgreSQL keeps it."""

    checkpoints: int = 0
    writes: int = 0
    blobs: int = 0
    bytes: int = 0


NONE: Final = Rows()


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was pruned of one thread id; `failed` says why it was left as it was."""

    thread_id: str
    rows: Rows = NONE
    failed: str = ""


@dataclass(slots=True)
class Totals:
    """What was pruned of all: thread ids that lost something, that could not be, and rows."""

    threads: int = 0
    failed: int = 0
    rows: Rows = NONE

    def add(self, pruned: Pruned) -> None:
        """Take in one thread id."""
        self.threads += any(pruned.rows)
        self.failed += bool(pruned.failed)
        self.rows = Rows(*map(sum, zip(self.rows, pruned.rows, strict=True)))


def prune_checkpoints(
    older_than_days: float,
    dry_run: bool = False,
    *,
    keep_latest: bool = False,
    at_most_seconds: float | None = None,
) -> Totals:
    """Prune what was not used for so many days, and return what that was; see `pruned`.

    Stops after `at_most_seconds`, between two thread ids; the next run goes on.
    """
    totals, began = Totals(), time.monotonic()
    for one in pruned(timedelta(days=older_than_days), dry_run=dry_run, keep_latest=keep_latest):
        totals.add(one)
        if at_most_seconds is not None and time.monotonic() - began > at_most_seconds:
            break
    return totals


def pruned(
    older_than: timedelta, *, dry_run: bool = False, keep_latest: bool = False
) -> Iterator[Pruned]:
    """Prune thread id by thread id, yielding each that was looked at and is old enough.

    With `keep_latest` the newest state of each graph stays, so that a run that still waits for
    somebody can be resumed; that needs LangGraph and raises `ImportError` without. A thread that
    is busy, or has a DeltaChannel, is yielded as failed and left as it is. `dry_run` only counts:
    with `keep_latest` at least that much goes, since calls of subgraphs may go with their root.
    """
    if not tables_exist():
        return
    before = checkpoint_ids_from(timezone.now() - older_than)
    with _way(before, dry_run=dry_run, keep_latest=keep_latest) as prune:
        for thread_id in _idle(before):
            yield _tried(prune, thread_id)


def _idle(before: str) -> Iterator[str]:
    """Yield thread ids whose newest checkpoint is older, a page of all in memory at a time."""
    after = ""
    while page := _fetch(_PAGE_OF_THREADS, {"after": after, "limit": _PAGE}):
        yield from (thread_id for thread_id, newest in page if newest < before)
        after = page[-1][0]


@contextmanager
def _way(before: str, *, dry_run: bool, keep_latest: bool) -> Iterator[Callable[[str], Rows]]:
    if dry_run:
        yield partial(_rows, _COUNT_OLD if keep_latest else _COUNT)
    elif not keep_latest:
        yield partial(_delete, before)
    else:
        with checkpoints.RethreadSaver.from_settings() as saver:
            yield partial(_keep_latest, saver)


def _tried(prune: Callable[[str], Rows], thread_id: str) -> Pruned:
    try:
        with transaction.atomic():
            return Pruned(thread_id, prune(thread_id))
    except (Error, psycopg.Error, NotImplementedError) as error:
        return Pruned(thread_id, failed=str(error).partition("\n")[0])


def _delete(before: str, thread_id: str) -> Rows:
    # Who writes a checkpoint locks this row as well: whoever came first is seen.
    _lock(thread_id, "FOR UPDATE")
    return _rows(_DELETE, thread_id, before=before)


def _keep_latest(saver: RethreadSaver, thread_id: str) -> Rows:
    # A deletion of the thread waits, so that the two don't wait for each other's rows.
    _lock(thread_id, "FOR KEY SHARE")
    earlier = _rows(_COUNT, thread_id)
    saver.prune([thread_id])
    later = _rows(_COUNT, thread_id)
    return Rows(*(max(0, was - now) for was, now in zip(earlier, later, strict=True)))


def _lock(thread_id: str, how: str) -> None:
    _fetch(f"SELECT 1 FROM conversation_threads WHERE id = %s {how}", [_uuid(thread_id)])  # noqa: S608


def _uuid(thread_id: str) -> uuid.UUID | None:
    try:
        return thread_of(thread_id)
    except ValueError:  # written before the tables were ours
        return None


def _rows(sql: str, thread_id: str, **parameters: str) -> Rows:
    [row] = _fetch(sql, {"thread": thread_id, **parameters})
    return Rows(*map(int, row))


def _fetch(sql: str, parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


# --- SQL ----------------------------------------------------------------------------------------

# Writes and blobs without a checkpoint are what a run left that died, or an older deletion.
_PAGE_OF_THREADS = in_schema("""
SELECT thread_id, max(newest) FROM (
  (SELECT thread_id, max(checkpoint_id COLLATE "C") AS newest FROM checkpoints
   WHERE thread_id > %(after)s COLLATE "C" GROUP BY thread_id ORDER BY thread_id LIMIT %(limit)s)
  UNION ALL
  (SELECT thread_id, max(checkpoint_id COLLATE "C") FROM checkpoint_writes
   WHERE thread_id > %(after)s COLLATE "C" GROUP BY thread_id ORDER BY thread_id LIMIT %(limit)s)
  UNION ALL
  (SELECT DISTINCT thread_id, '' FROM checkpoint_blobs
   WHERE thread_id > %(after)s COLLATE "C" ORDER BY thread_id LIMIT %(limit)s)
) of_each GROUP BY thread_id ORDER BY thread_id LIMIT %(limit)s""")

_IDLE = """
NOT EXISTS (
  SELECT 1 FROM checkpoints WHERE thread_id = %(thread)s
    AND checkpoint_id COLLATE "C" >= %(before)s
  UNION ALL
  SELECT 1 FROM checkpoint_writes WHERE thread_id = %(thread)s
    AND checkpoint_id COLLATE "C" >= %(before)s
)"""

_SIZES = {
    "checkpoints": "pg_column_size(checkpoint) + pg_column_size(metadata)",
    "checkpoint_writes": "pg_column_size(blob)",
    "checkpoint_blobs": "coalesce(pg_column_size(blob), 0)",
}


def _of_all(each: str) -> str:
    """Return SQL that answers `Rows`; `each` makes the rows of one table."""
    c, w, b = (
        each.format(table=table, size=size, old=_OLD[table], idle=_IDLE)
        for table, size in _SIZES.items()
    )
    counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in "cwb")  # noqa: S608
    size = " + ".join(f"(SELECT coalesce(sum(size), 0) FROM {name})" for name in "cwb")  # noqa: S608
    return in_schema(
        f"WITH heads AS ({_HEADS}), c AS ({c}), w AS ({w}), b AS ({b}) SELECT {counts}, {size}"
    )


# By namespace the newest checkpoint, and the blobs that it refers to.
_HEADS = """
SELECT DISTINCT ON (checkpoint_ns) checkpoint_ns, checkpoint_id,
  checkpoint -> 'channel_versions' AS versions
FROM checkpoints WHERE thread_id = %(thread)s
ORDER BY checkpoint_ns, checkpoint_id COLLATE "C" DESC"""
_KEPT = "(checkpoint_ns, checkpoint_id) NOT IN (SELECT checkpoint_ns, checkpoint_id FROM heads)"
_SAVED = (
    "(checkpoint_ns, checkpoint_id) IN "
    "(SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %(thread)s)"
)
_OLD = {
    "checkpoints": _KEPT,
    # A run writes in the background: what has no checkpoint yet stays.
    "checkpoint_writes": _KEPT + " AND " + _SAVED,
    "checkpoint_blobs": "(checkpoint_ns, channel, version) NOT IN "
    "(SELECT checkpoint_ns, v.key, v.value FROM heads, jsonb_each_text(versions) v)",
}

_COUNT = _of_all("SELECT {size} AS size FROM {table} WHERE thread_id = %(thread)s")
_COUNT_OLD = _of_all("SELECT {size} AS size FROM {table} WHERE thread_id = %(thread)s AND {old}")
_DELETE = _of_all(
    "DELETE FROM {table} WHERE thread_id = %(thread)s AND {idle} RETURNING {size} AS size"
)
