"""The least that the same work can cost: psycopg and redis-py by hand, no model, no rule.

Same tables, same connection settings, same Redis client and connections as the product's.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import Any

import orjson
import psycopg
from django.db import connection
from django.utils import timezone
from redis.commands.core import Script

from benchmarks import material
from config import redis as redis_gate

_COUNT = """
UPDATE conversation_threads
SET turn_count = turn_count + 1, version = version + 1, last_turn_at = %s, touched_at = now()
WHERE id = %s RETURNING turn_count"""
_INSERT = """
INSERT INTO thread_messages
  (thread_id, position, session_uuid, agent_type, status, query, answer, artifacts, revision,
   written_by, body_sha256, tokens, render_version, created_at)
VALUES (%s, %s, %s, 'chat', 'complete', %s, %s, %s::json, 0, %s, %s, %s, 1, %s)"""
_PUT = "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) redis.call('EXPIRE', KEYS[1], ARGV[3])"

_SHA256, _TOKENS = bytes(range(32)), [40, 120, 30, 110, 12, 90, 60]
_DAY_SECONDS = 86_400


class BareAppend(closing["BareAppend"]):
    """Writes turns: two prepared statements in one transaction, one EVALSHA."""

    def __init__(self, thread_id: uuid.UUID, owner_pk: uuid.UUID) -> None:
        super().__init__(self)
        params = connection.get_connection_params()
        for ours in ("cursor_factory", "context"):
            params.pop(ours, None)
        self._connection: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(**params)
        self._thread, self._owner = thread_id, owner_pk
        self._script: Script = redis_gate.client().register_script(_PUT)
        self._key = f"bare:{{{thread_id}}}"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def append(self, number: int) -> None:
        """Write a turn."""
        made = material.turns()[number % len(material.turns())]
        artifacts = orjson.dumps(made["artifacts"]).decode()
        at = timezone.now()
        row = self._connection.execute(_COUNT, (at, self._thread), prepare=True).fetchone()
        assert row is not None
        self._connection.execute(
            _INSERT,
            (
                self._thread, row[0], uuid.uuid4(), made["query"], made["answer"], artifacts,
                self._owner, _SHA256, _TOKENS, at,
            ),
            prepare=True,
        )  # fmt: skip
        self._connection.commit()
        self._script(keys=[self._key], args=[f"t:{row[0]}", orjson.dumps(made), _DAY_SECONDS])


def read(key: str) -> list[Any]:
    """Read a working set and parse its turns."""
    raw: Any = redis_gate.client().hgetall(key)
    turns: list[Any] = orjson.loads(
        b"[" + b",".join([raw[name] for name in raw if name[:2] == b"t:"]) + b"]"
    )
    return turns
