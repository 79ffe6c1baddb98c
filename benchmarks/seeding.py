"""Threads and turns by the thousand, made inside PostgreSQL."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import connection

from benchmarks import material
from benchmarks.bench import Bench
from conversations.conversation_memory import get_conversation_memory
from conversations.models import ConversationThread
from rbac.models import User
from rbac.principal import Person

# As many as a working set holds, and more than any fold leaves.
_REAL_TURNS = 40

_COPY_TURNS = """
INSERT INTO thread_messages
  (thread_id, position, session_uuid, agent_type, status, query, answer, artifacts, revision,
   written_by, body_sha256, tokens, render_version, created_at)
SELECT thread_id, n, gen_random_uuid(), agent_type, status, query, answer, artifacts, revision,
       written_by, body_sha256, tokens, render_version, created_at
FROM thread_messages, generate_series(2, %(turns)s) n
WHERE thread_id = %(thread)s AND position = 1"""
_COUNT_TURNS = """
UPDATE conversation_threads SET turn_count = %(turns)s, version = %(turns)s WHERE id = %(thread)s"""
_FOLD = """
UPDATE conversation_threads SET folded_through = turn_count - %s, version = version + 1
WHERE id = %s"""
_THREADS = """
INSERT INTO conversation_threads
  (id, tenant, owner_id, agent_type, title, turn_count, version,
   created_at, last_turn_at, touched_at)
SELECT gen_random_uuid(), %(tenant)s, %(owner)s, 'chat', %(title)s || n, 1, 1, at, at, at
FROM generate_series(1, %(threads)s) n,
     LATERAL (SELECT now() - n * interval '7 minutes' - random() * interval '9 days' AS at) t"""
_TURN_EACH = """
INSERT INTO thread_messages
  (thread_id, position, session_uuid, agent_type, status, query, answer, artifacts, revision,
   written_by, body_sha256, tokens, render_version, created_at)
SELECT id, 1, gen_random_uuid(), 'chat', 'complete', title, %(answer)s, '[]', 0, owner_id,
       sha256(id::text::bytea), '{20,120,15,110,0,0,0}', 0, created_at
FROM conversation_threads WHERE owner_id = %(owner)s"""


def long_thread(bench: Bench, turns: int, unfolded: int | None = None) -> uuid.UUID:
    """Return a new thread of `turns`, its working set in place.

    `unfolded` of them at its end, as a fold would leave them; all where it is None.
    """
    thread_id = uuid.uuid4()
    bench.append(thread_id, 0)
    copied = max(1, turns - _REAL_TURNS)
    run(_COPY_TURNS, thread=thread_id, turns=copied)
    run(_COUNT_TURNS, thread=thread_id, turns=copied)
    get_conversation_memory().drop(thread_id)
    for number in range(turns - copied):
        bench.append(thread_id, number)
    if unfolded is not None:
        with connection.cursor() as cursor:
            cursor.execute(_FOLD, [unfolded, thread_id])
    ConversationThread.objects.rehydrate(thread_id)
    return thread_id


def owner_of(tenant: str, user_id: str, threads: int) -> Person:
    """Return a new person with so many threads of one turn, active at scattered times."""
    user = User.objects.get_or_create_person(tenant, user_id)
    title = material.turns()[0]["query"][:60]
    run(_THREADS, tenant=tenant, owner=user.pk, title=title, threads=threads)
    run(_TURN_EACH, owner=user.pk, answer=material.turns()[0]["answer"])
    run("ANALYZE conversation_threads, thread_messages")
    return Person.of(user)


def run(sql: str, **params: Any) -> None:
    """Run a statement, however long it takes."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute(sql, params or None)
