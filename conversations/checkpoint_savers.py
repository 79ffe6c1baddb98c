"""LangGraph's checkpointers for our database; the one module that imports LangGraph.

Reached through `conversations.checkpoints`, which says what to install where LangGraph is absent.
`langgraph-checkpoint-postgres` underneath; of ours are the schema, thread ids, pool and time-outs,
`copy_thread` and `delete_for_runs`. DeltaChannels, beta in LangGraph, are refused where deleting
some checkpoints would break others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, Final, Self

import psycopg
from django.conf import settings
from django.db import connection
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.postgres.base import PRUNE_DELTA_THREADS_SQL
from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from conversations.checkpoint_tables import (
    ADDITIONS_VERSION,
    SCHEMA,
    THREADS_TABLE_SQL,
    VERSION_SQL,
    additions,
    in_schema,
    thread_of,
)

# How long a call waits for a connection, and for a server that no longer takes what is sent.
POOL_TIMEOUT_SECONDS: Final = 10
_DEAD_AFTER_SECONDS: Final = 30

Statements = Generator[tuple[str, Sequence[Any]], list[DictRow], None]


# --- Connections --------------------------------------------------------------------------------


class SchemaCursor(psycopg.Cursor[Any]):
    """A cursor that finds the tables of checkpoints whatever the `search_path` is."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Self:
        """Execute `query` with the schema before each table."""
        return super().execute(in_schema(query), *args, **kwargs)

    def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        """Execute `query` with the schema before each table, once for each of the parameters."""
        super().executemany(in_schema(query), *args, **kwargs)


class AsyncSchemaCursor(psycopg.AsyncCursor[Any]):
    """`SchemaCursor` for asyncio."""

    async def execute(self, query: Any, *args: Any, **kwargs: Any) -> Self:
        """Execute `query` with the schema before each table."""
        return await super().execute(in_schema(query), *args, **kwargs)

    async def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        """Execute `query` with the schema before each table, once for each of the parameters."""
        await super().executemany(in_schema(query), *args, **kwargs)


def connection_parameters(**differing: Any) -> dict[str, Any]:
    """Return what psycopg connects by: the database, time-outs and TLS that Django has."""
    ours = dict(connection.get_connection_params())
    for djangos in ("cursor_factory", "context", "server_side_binding"):
        ours.pop(djangos, None)
    return {
        **ours,
        "autocommit": True,
        "row_factory": dict_row,
        "application_name": "rethread checkpoints",
        "tcp_user_timeout": _DEAD_AFTER_SECONDS * 1000,
        **differing,
    }


def _pool_parameters(cursor_factory: type) -> dict[str, Any]:
    return {
        "kwargs": connection_parameters(cursor_factory=cursor_factory),
        "min_size": 1,
        "max_size": settings.CHECKPOINT_POOL_SIZE,
        "timeout": POOL_TIMEOUT_SECONDS,
        "num_workers": 1,
        "name": "checkpoints",
        "open": False,
    }


def _refuse_without_schema(conn: Any, cursor_factory: type) -> None:
    """Raise `ValueError` for a connection, or pool of them, that would write elsewhere."""
    pooled = getattr(conn, "kwargs", None)
    found = conn.cursor_factory if pooled is None else pooled.get("cursor_factory")
    if not issubclass(found or object, cursor_factory):
        raise ValueError("A saver of Rethread is made by from_settings(): it brings its own pool.")


# --- Tables -------------------------------------------------------------------------------------


def make_tables() -> None:
    """Make schema and tables, or bring them to this version; nothing where they are."""
    without_limit = f"{connection_parameters().get('options', '')} -c statement_timeout=0"
    how = connection_parameters(cursor_factory=SchemaCursor, options=without_limit)
    with psycopg.connect(**how) as conn, psycopg.Cursor(conn, row_factory=dict_row) as ours:
        version = f"version {len(PostgresSaver.MIGRATIONS)}.{ADDITIONS_VERSION}"
        row: Any = ours.execute(VERSION_SQL).fetchone()
        if row["at"] == version:
            return
        ours.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        PostgresSaver(conn).setup()
        threads: Any = ours.execute(THREADS_TABLE_SQL).fetchone()
        for statement in additions(threads["name"]):
            ours.execute(statement)
        ours.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{version}'")


# --- The savers ---------------------------------------------------------------------------------


class RethreadSaver(PostgresSaver):
    """A checkpointer for graphs that are invoked; `with RethreadSaver.from_settings() as saver:`.

    A `thread_id` is that of a thread, or that with a suffix: `<uuid>` or `<uuid>:<suffix>`. What
    is written under it goes when the thread is deleted; a run that is still going then fails with
    `psycopg.errors.ForeignKeyViolation`. Safe to share between threads of a process.
    """

    def __init__(
        self, conn: Any, pipe: Any = None, serde: SerializerProtocol | None = None
    ) -> None:
        _refuse_without_schema(conn, SchemaCursor)
        super().__init__(conn, pipe, serde)
        if isinstance(conn, ConnectionPool):
            # Each call has a connection of its own; there is nothing to take turns at.
            self.lock: AbstractContextManager[Any] = nullcontext()  # type: ignore[assignment]

    @classmethod
    @contextmanager
    def from_settings(cls, *, serde: SerializerProtocol | None = None) -> Iterator[Self]:
        """Yield a saver on a pool of connections to the database that Django's settings name.

        A call raises `psycopg_pool.PoolTimeout` when it gets no connection in 10 s.
        """
        check = ConnectionPool.check_connection
        with ConnectionPool(**_pool_parameters(SchemaCursor), check=check) as pool:
            yield cls(pool, serde=serde)

    def setup(self) -> None:
        """Make the tables; `manage.py release` has done so already."""
        make_tables()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint; raises `ValueError` for a thread id that is none of ours."""
        thread_of(config["configurable"]["thread_id"])
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a task wrote; raises `ValueError` for a thread id that is none of ours."""
        thread_of(config["configurable"]["thread_id"])
        super().put_writes(config, writes, task_id, task_path)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread id to another, as they are at one moment.

        Raises `ValueError` where the other has some, or is none of ours.
        """
        self._transact(_copy(source_thread_id, target_thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what was saved with `metadata={"run_id": …}` of these; no run may be going.

        What came after stays, with its whole state, and takes the nearest kept checkpoint for
        its parent. Raises `NotImplementedError` for threads with a DeltaChannel.
        """
        self._transact(_delete_for_runs(run_ids))

    def _transact(self, statements: Statements) -> None:
        with self._cursor() as cursor, cursor.connection.transaction():
            step = next(statements, None)
            while step is not None:
                cursor.execute(*step, prepare=False)
                step = _send(statements, cursor.fetchall() if cursor.description else [])


class AsyncRethreadSaver(AsyncPostgresSaver):
    """`RethreadSaver` for asyncio; `async with AsyncRethreadSaver.from_settings() as saver:`.

    The methods without an `a` in front are for other threads than that of the event loop.
    """

    def __init__(
        self, conn: Any, pipe: Any = None, serde: SerializerProtocol | None = None
    ) -> None:
        _refuse_without_schema(conn, AsyncSchemaCursor)
        super().__init__(conn, pipe, serde)
        if isinstance(conn, AsyncConnectionPool):
            # Each call has a connection of its own; there is nothing to take turns at.
            self.lock: AbstractAsyncContextManager[Any] = nullcontext()  # type: ignore[assignment]

    @classmethod
    @asynccontextmanager
    async def from_settings(cls, *, serde: SerializerProtocol | None = None) -> AsyncIterator[Self]:
        """Yield a saver on a pool of connections to the database that Django's settings name.

        A call raises `psycopg_pool.PoolTimeout` when it gets no connection in 10 s.
        """
        check = AsyncConnectionPool.check_connection
        async with AsyncConnectionPool(**_pool_parameters(AsyncSchemaCursor), check=check) as pool:
            yield cls(pool, serde=serde)

    async def setup(self) -> None:
        """Make the tables; `manage.py release` has done so already."""
        await asyncio.to_thread(make_tables)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint; raises `ValueError` for a thread id that is none of ours."""
        thread_of(config["configurable"]["thread_id"])
        return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a task wrote; raises `ValueError` for a thread id that is none of ours."""
        thread_of(config["configurable"]["thread_id"])
        await super().aput_writes(config, writes, task_id, task_path)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread id to another: `RethreadSaver.copy_thread`."""
        await self._transact(_copy(source_thread_id, target_thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what was saved for these runs: `RethreadSaver.delete_for_runs`."""
        await self._transact(_delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread id to another: `RethreadSaver.copy_thread`."""
        copying = self.acopy_thread(source_thread_id, target_thread_id)
        asyncio.run_coroutine_threadsafe(copying, self.loop).result()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what was saved for these runs: `RethreadSaver.delete_for_runs`."""
        deleting = self.adelete_for_runs(run_ids)
        asyncio.run_coroutine_threadsafe(deleting, self.loop).result()

    async def _transact(self, statements: Statements) -> None:
        async with self._cursor() as cursor, cursor.connection.transaction():
            step = next(statements, None)
            while step is not None:
                await cursor.execute(*step, prepare=False)
                step = _send(statements, await cursor.fetchall() if cursor.description else [])


def _send(statements: Statements, rows: list[DictRow]) -> tuple[str, Sequence[Any]] | None:
    try:
        return statements.send(rows)
    except StopIteration:
        return None


# --- What the savers do in one transaction, sync or async ---------------------------------------

_ANY_OF_THREAD = "SELECT 1 FROM checkpoints WHERE thread_id = %s LIMIT 1"

# One statement, so that all three are of one moment.
_COPY = """
WITH s AS (SELECT %s AS source, %s AS target), blobs AS (
  INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
  SELECT target, checkpoint_ns, channel, version, type, blob
  FROM checkpoint_blobs JOIN s ON thread_id = source
), writes AS (
  INSERT INTO checkpoint_writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)
  SELECT target, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob
  FROM checkpoint_writes JOIN s ON thread_id = source
)
INSERT INTO checkpoints
  (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata)
SELECT target, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
FROM checkpoints JOIN s ON thread_id = source"""

_OF_RUNS = """
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id AS parent
FROM checkpoints WHERE metadata ->> 'run_id' = ANY(%s)"""
_CHILDREN = """
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id AS parent
FROM checkpoints WHERE thread_id = ANY(%s) AND parent_checkpoint_id = ANY(%s)
  AND NOT coalesce(metadata ->> 'run_id' = ANY(%s), false)"""

# Those of before LangGraph 0.4 (v < 4) take writes of their parent for their own, and get no
# parent instead of a wrong one.
_REPARENT = """
UPDATE checkpoints c
SET parent_checkpoint_id = CASE WHEN (c.checkpoint ->> 'v')::int >= 4 THEN moved.parent END
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])
  AS moved (thread_id, checkpoint_ns, checkpoint_id, parent)
WHERE (c.thread_id, c.checkpoint_ns, c.checkpoint_id)
  = (moved.thread_id, moved.checkpoint_ns, moved.checkpoint_id)"""

# What no kept checkpoint refers to is a difference of two sets: joined row by row, it would take
# the square of a thread's length.
_DELETE_FOR_RUNS = """
WITH of AS (SELECT %s::text[] AS runs, %s::text[] AS threads), gone AS (
  DELETE FROM checkpoints WHERE metadata ->> 'run_id' = ANY((SELECT runs FROM of)::text[])
  RETURNING thread_id, checkpoint_ns, checkpoint_id, checkpoint -> 'channel_versions' AS versions
), written AS (
  DELETE FROM checkpoint_writes w USING gone
  WHERE w.thread_id = ANY((SELECT threads FROM of)::text[])
    AND (w.thread_id, w.checkpoint_ns, w.checkpoint_id)
      = (gone.thread_id, gone.checkpoint_ns, gone.checkpoint_id)
), freed AS (
  SELECT gone.thread_id, gone.checkpoint_ns, v.key, v.value
  FROM gone CROSS JOIN LATERAL jsonb_each_text(gone.versions) v
  EXCEPT
  SELECT c.thread_id, c.checkpoint_ns, v.key, v.value
  FROM checkpoints c CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') v
  WHERE c.thread_id = ANY((SELECT threads FROM of)::text[])
    AND NOT coalesce(c.metadata ->> 'run_id' = ANY((SELECT runs FROM of)::text[]), false)
)
DELETE FROM checkpoint_blobs b USING freed
WHERE b.thread_id = ANY((SELECT threads FROM of)::text[])
  AND (b.thread_id, b.checkpoint_ns, b.channel, b.version)
    = (freed.thread_id, freed.checkpoint_ns, freed.key, freed.value)"""


def _copy(source: str, target: str) -> Statements:
    thread_of(target)
    if (yield _ANY_OF_THREAD, (target,)):
        raise ValueError(f"{target} has checkpoints already; copy to an id that has none.")
    yield _COPY, (source, target)


def _delete_for_runs(run_ids: Sequence[str]) -> Statements:
    runs = [str(run_id) for run_id in run_ids]
    gone = yield _OF_RUNS, (runs,)
    threads = sorted({row["thread_id"] for row in gone})
    if not threads:
        return
    if delta := (yield PRUNE_DELTA_THREADS_SQL, (threads, threads)):
        names = ", ".join(sorted(row["thread_id"] for row in delta))
        raise NotImplementedError(f"Runs of threads with a DeltaChannel can't be deleted: {names}")
    children = yield _CHILDREN, (threads, [row["checkpoint_id"] for row in gone], runs)
    if moved := list(_climbed(children, gone)):
        yield _REPARENT, [list(column) for column in zip(*moved, strict=True)]
    yield _DELETE_FOR_RUNS, (runs, threads)


def _climbed(
    children: list[DictRow], gone: list[DictRow]
) -> Iterator[tuple[str, str, str, str | None]]:
    """Yield the keys of `children`, each with its nearest ancestor that is not `gone`."""
    parents = {
        (row["thread_id"], row["checkpoint_ns"], row["checkpoint_id"]): row["parent"]
        for row in gone
    }
    for child in children:
        of, parent = (child["thread_id"], child["checkpoint_ns"]), child["parent"]
        while (*of, parent) in parents:
            parent = parents[*of, parent]
        yield *of, child["checkpoint_id"], parent
