"""LangGraph checkpoints: a run that waits for somebody is resumed later, in any process.

    with checkpoints.RethreadSaver.from_settings() as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke(question, {"configurable": {"thread_id": f"{thread_id}:{turn_id}"}})

They are apart from conversation memory: a checkpoint resumes one run, memory carries over to the
next. They stand in a schema of their own (`checkpoint_tables.py`), go with their thread, and after
a time unused (`checkpoint_retention.py`). LangGraph is optional: without the packages of
`requirements-langgraph.txt` only the savers are missing.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.db import connection

from conversations.checkpoint_tables import SCHEMA, TABLES, bounds, in_schema

if TYPE_CHECKING:
    from conversations.checkpoint_savers import AsyncRethreadSaver, RethreadSaver

__all__ = [
    "AsyncRethreadSaver",
    "RethreadSaver",
    "delete_checkpoints_of",
    "ensure_checkpoint_tables",
    "tables_exist",
]

_SAVERS = ("AsyncRethreadSaver", "RethreadSaver")
# Of these names, what can't be found means that LangGraph is not installed.
_OPTIONAL = ("langgraph", "langchain_core", "psycopg_pool")


def __getattr__(name: str) -> Any:
    """Return a saver, importing LangGraph only now: it takes a second, and may be absent."""
    if name not in _SAVERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_savers(), name)


def ensure_checkpoint_tables() -> bool:
    """Make schema and tables, or bring them to this version; False where LangGraph is absent.

    `manage.py release` calls this under its lock. Outside of any transaction.
    """
    try:
        savers = _savers()
    except ImportError:
        return False
    savers.make_tables()
    return True


def tables_exist() -> bool:
    """Whether there are tables of checkpoints; never a statement that fails."""
    with connection.cursor() as cursor:
        # The last that langgraph-checkpoint-postgres makes.
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{SCHEMA}.checkpoint_writes"])
        [exist] = cursor.fetchone()
    return bool(exist)


def delete_checkpoints_of(thread_id: uuid.UUID) -> int:
    """Delete all checkpoints of a thread, with and without suffix; return how many.

    In the caller's transaction, which must hold the thread's row `FOR UPDATE`, so that no run
    is writing meanwhile, and marks it deleted, so that none can afterwards. Needs no LangGraph.
    """
    if not tables_exist():
        return 0
    deleted = 0
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(_DELETE[table], bounds(thread_id))
            deleted += cursor.rowcount if table == "checkpoints" else 0
    return deleted


_DELETE = {
    table: in_schema(
        f'DELETE FROM {table} WHERE thread_id >= %s COLLATE "C" AND thread_id < %s COLLATE "C"'  # noqa: S608
    )
    for table in TABLES
}


def _savers() -> Any:
    try:
        from conversations import checkpoint_savers
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OPTIONAL:
            raise
        raise ImportError(
            "LangGraph is not installed; a saver needs it: "
            "pip install -r requirements-langgraph.txt"
        ) from error
    return checkpoint_savers
