"""The sales schema: made anew for each demo, queried for real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from django.db import DatabaseError, connection, transaction

from config.plain_json import to_plain

SCHEMA = "rethread_demo"
_ROWS_KEPT = 50


class QueryFailed(Exception):
    """The database refused the query; `code` is its condition, `undefined_table`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Result:
    """What a query gave, as its rows can be named in an answer: `{first[region]}`."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    def figures(self) -> dict[str, Any]:
        """Return what an answer's template may name."""
        return {
            "rows": self.rows,
            "count": len(self.rows),
            "first": self.rows[0] if self.rows else {},
            "last": self.rows[-1] if self.rows else {},
        }

    def payload(self) -> dict[str, Any]:
        """Return columns and rows as the transcript shows them, the first 50."""
        rows = [list(row.values()) for row in self.rows[:_ROWS_KEPT]]
        payload: dict[str, Any] = to_plain({"columns": self.columns, "rows": rows})
        return payload


def make_schema() -> int:
    """Drop and make the schema; return how many orders it has."""
    script = files("conversations.demo").joinpath("sales.sql").read_text(encoding="utf-8")
    with transaction.atomic(), connection.cursor() as cursor:
        # Two demos at once take turns.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [SCHEMA])
        cursor.execute(script)
        cursor.execute("SELECT count(*) FROM orders")
        [orders] = cursor.fetchone()
    return int(orders)


def run(sql: str) -> Result:
    """Run one query on the schema; raises `QueryFailed`."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL search_path = {SCHEMA}")
            cursor.execute(sql)
            columns = [column.name for column in cursor.description]
            return Result(columns, [dict(zip(columns, row, strict=True)) for row in cursor])
    except DatabaseError as error:
        raise _failed(error) from error


def _failed(error: DatabaseError) -> QueryFailed:
    cause = error.__cause__
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(cause).__name__)
    return QueryFailed(words.lstrip("_"), str(error).splitlines()[0])
