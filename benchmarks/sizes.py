"""What is stored beyond the text itself: in Redis, and in PostgreSQL with indexes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from django.db import connection

from benchmarks import material
from benchmarks.bench import Bench, note
from benchmarks.report import Line
from benchmarks.seeding import run
from config import redis as redis_gate
from conversations.conversation_memory import get_conversation_memory

_TURNS = 5
_TABLES = ("conversation_threads", "thread_messages")
_THREAD_COLUMNS = (
    "id, tenant, owner_id, agent_type, title, turn_count, version, created_at, last_turn_at,"
    " touched_at"
)
_TURN_COLUMNS = (
    "thread_id, position, session_uuid, agent_type, status, query, answer, artifacts, revision,"
    " written_by, body_sha256, tokens, render_version, created_at"
)


def measure(bench: Bench) -> Iterator[Line]:
    """Bytes stored against bytes of text."""
    note("bytes in Redis")
    for turns in (20, 40):
        yield _in_redis(bench, turns)
    note(f"bytes of {bench.scale.stored:,} threads in PostgreSQL")
    yield _in_postgres(bench)


def _in_redis(bench: Bench, turns: int) -> Line:
    thread_id = bench.thread_of(turns)
    key = get_conversation_memory().key(thread_id)
    stored = redis_gate.client().memory_usage(key, samples=0) or 0
    text = sum(material.text_bytes(material.turns()[number]) for number in range(turns))
    return _line(f"working set of {turns} turns in Redis", stored, text, 1.3)


def _in_postgres(bench: Bench) -> Line:
    """Fill tables made like the product's, with their indexes, in a schema of their own."""
    run("CREATE SCHEMA sizes")
    for table in _TABLES:
        run(f"CREATE TABLE sizes.{table} (LIKE public.{table} INCLUDING ALL)")
    text = _fill(bench.scale.stored, bench.person.pk)
    stored = sum(_total_bytes(f"sizes.{table}") for table in _TABLES)
    run("DROP SCHEMA sizes CASCADE")
    return _line(f"{bench.scale.stored:,} threads in PostgreSQL", stored, text, 1.75)


def _line(what: str, stored: int, text: int, goal: float) -> Line:
    measured = f"{stored / 1e6:,.2f} MB : {text / 1e6:,.2f} MB"
    return Line(f"bytes, {what}", measured, "its text", stored / text, goal)


def _total_bytes(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size(%s)", [table])
        size: int = cursor.fetchone()[0]
        return size


def _fill(threads: int, owner: uuid.UUID) -> int:
    """Copy threads with their turns, in the order in which they would come; return their text."""
    chance = random.Random(1)
    began = datetime(2026, 1, 1, tzinfo=UTC)
    ids = [uuid.uuid4() for _ in range(threads)]
    rows = [(ids[n], "bench", owner, "chat", _title(chance), _TURNS, _TURNS, began, began, began)
            for n in range(threads)]  # fmt: skip
    _copy(f"COPY sizes.conversation_threads ({_THREAD_COLUMNS}) FROM STDIN", rows)
    text = 0

    def turns() -> Iterator[tuple[Any, ...]]:
        nonlocal text
        for position in range(1, _TURNS + 1):
            for number, thread_id in enumerate(ids):
                made = chance.choice(material.turns())
                text += material.text_bytes(made)
                at = began + timedelta(seconds=number)
                yield _turn_row(thread_id, position, made, owner, at, chance)

    _copy(f"COPY sizes.thread_messages ({_TURN_COLUMNS}) FROM STDIN", turns())
    return text


def _title(chance: random.Random) -> str:
    title: str = chance.choice(material.turns())["query"]
    return title


def _turn_row(
    thread_id: uuid.UUID,
    position: int,
    made: dict[str, Any],
    owner: uuid.UUID,
    at: datetime,
    chance: random.Random,
) -> tuple[Any, ...]:
    return (
        thread_id, position, uuid.uuid4(), "chat", "complete", made["query"], made["answer"],
        orjson.dumps(made["artifacts"]).decode(), 0, owner, chance.randbytes(32),
        [40, 120, 30, 110, 12, 90, 60], 1, at,
    )  # fmt: skip


def _copy(statement: str, rows: Any) -> None:
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
