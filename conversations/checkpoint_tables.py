"""Where LangGraph's checkpoints are kept, and whose they are; pure: names, rules and SQL.

SQL about them is written without a schema, as in langgraph-checkpoint-postgres, and goes through
`in_schema` on its way to the database. A `search_path` would do that as well, but not behind
PgBouncer in transaction mode: it drops what a connection asks for at its start, and hands what is
`SET` later to somebody else (docs/decisions/0013-checkpoints.md).
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

SCHEMA: Final = "checkpoints"
TABLES: Final = ("checkpoint_writes", "checkpoints", "checkpoint_blobs")

_TABLE = re.compile(r"(?<![\w.])(checkpoints|checkpoint_(?:blobs|writes|migrations))\b")
_UUID_CHARS: Final = 36
_THREAD_ID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:.+)?"
_UUID6_EPOCH: Final = datetime(1582, 10, 15, tzinfo=UTC)


@lru_cache(maxsize=512)
def in_schema(sql: str) -> str:
    """Return `sql` with the schema before each table of checkpoints.

    >>> in_schema("SELECT v FROM checkpoint_migrations")
    'SELECT v FROM checkpoints.checkpoint_migrations'
    """
    return _TABLE.sub(rf"{SCHEMA}.\1", sql)


def thread_of(thread_id: object) -> uuid.UUID:
    """Return the thread that LangGraph's `thread_id` belongs to: `<uuid>` or `<uuid>:<suffix>`.

    Raises `ValueError` for any other: nothing would ever delete the checkpoints under it.
    """
    if isinstance(thread_id, str) and re.fullmatch(_THREAD_ID, thread_id, re.DOTALL):
        return uuid.UUID(thread_id[:_UUID_CHARS])
    raise ValueError(
        f"thread_id is {thread_id!r}; it must be the id of a thread, as str(uuid) writes it, "
        "or that with a suffix: '8a7e52f0-…' or '8a7e52f0-…:billing'."
    )


def bounds(thread_id: uuid.UUID) -> tuple[str, str]:
    """Return from where, and up to before where, all thread ids of a thread lie in "C" order."""
    return str(thread_id), f"{thread_id};"  # what follows a colon


def checkpoint_ids_from(at: datetime) -> str:
    """Return what ids of checkpoints (UUIDs of version 6) made since `at` are not less than.

    >>> checkpoint_ids_from(datetime(2026, 11, 30, tzinfo=UTC))
    '1f0cc8ec-84b0-6000'
    """
    past = at - _UUID6_EPOCH
    ticks = (past.days * 86_400 + past.seconds) * 10_000_000 + past.microseconds * 10
    return f"{ticks >> 28:08x}-{ticks >> 12 & 0xFFFF:04x}-6{ticks & 0xFFF:03x}"


# --- What is added to the tables of langgraph-checkpoint-postgres -------------------------------

# Raised with each change of `additions`.
ADDITIONS_VERSION: Final = 1

# The schema's comment says which versions of both it is at.
VERSION_SQL: Final = f"SELECT obj_description(to_regnamespace('{SCHEMA}'), 'pg_namespace') AS at"

THREADS_TABLE_SQL: Final = """
SELECT format('%I.%I', n.nspname, c.relname) AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass('conversation_threads')"""


def additions(threads: str) -> list[str]:
    """Return our own statements for tables that exist; `threads` is the table of the threads.

    They name the schema themselves. Thread ids are ordered by their bytes, so that the primary
    keys find all of one thread. And no checkpoint can be written for a deleted thread: whoever
    writes one locks the thread's row as a foreign key would, so that a deletion waits for the
    writer, or the writer sees it.
    """
    return [
        *(
            f'ALTER TABLE {SCHEMA}.{table} ALTER COLUMN thread_id TYPE text COLLATE "C"'
            for table in TABLES
        ),
        _RUNS_INDEX.format(schema=SCHEMA),
        _GUARD.format(schema=SCHEMA, threads=threads, pattern=_THREAD_ID),
        *(
            "CREATE OR REPLACE TRIGGER of_a_living_thread BEFORE INSERT "
            f"ON {SCHEMA}.{table} FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.of_a_living_thread()"
            for table in TABLES
        ),
    ]


_RUNS_INDEX: Final = """
CREATE INDEX CONCURRENTLY IF NOT EXISTS checkpoints_run_id_idx
ON {schema}.checkpoints ((metadata ->> 'run_id')) WHERE metadata ->> 'run_id' IS NOT NULL"""

_GUARD: Final = """
CREATE OR REPLACE FUNCTION {schema}.of_a_living_thread() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE is_deleted boolean;
BEGIN
  IF NEW.thread_id !~ '^{pattern}$' THEN
    RAISE EXCEPTION 'thread_id % is neither the id of a thread nor that with a suffix',
      NEW.thread_id USING ERRCODE = 'check_violation';
  END IF;
  SELECT deleted_at IS NOT NULL INTO is_deleted FROM {threads}
  WHERE id = left(NEW.thread_id, 36)::uuid FOR KEY SHARE;
  IF is_deleted THEN
    RAISE EXCEPTION 'thread % was deleted; nothing is kept of its runs',
      left(NEW.thread_id, 36) USING ERRCODE = 'foreign_key_violation';
  END IF;
  RETURN NEW;
END $$"""
