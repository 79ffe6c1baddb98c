"""How many queries and round trips a read and a write cost."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ
from redis import Redis
from redis.connection import AbstractConnection

from conversations.conversation_memory import _script, get_conversation_memory
from conversations.models import ConversationThread, ThreadMessage
from tests.conversations.cached_thread import Thread
from tests.conversations.conftest import Caller


@pytest.fixture
def thread(agent: Caller, redis: Redis) -> Thread:
    return Thread(agent, redis)


@pytest.fixture
def cached(thread: Thread) -> Thread:
    """A thread of three turns with a copy."""
    thread.append_three()
    thread.cache()
    return thread


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch, redis: Redis) -> list[Any]:
    """What was sent to Redis, one entry a round trip; the scripts are there already."""
    for name in ("append", "checked", "confirm", "fill", "lease", "replace"):
        redis.script_load(_script(name).script)
    sent: list[Any] = []
    send = AbstractConnection.send_packed_command

    def counted(self: Any, command: Any, check_health: bool = True) -> Any:
        sent.append(command)
        return send(self, command, check_health)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", counted)
    return sent


def test_a_hot_read_costs_no_query_and_one_round_trip(cached, round_trips):
    with CaptureQueriesContext(connection) as queries:
        assert cached.view()["source"] == "cache"
    assert len(queries) == 0
    assert len(round_trips) == 1, "token, person and copy together"


def test_a_hot_read_that_looks_the_version_up_costs_one_query_and_two_round_trips(
    cached, round_trips
):
    cached.set("c", b"%d" % ((time.time() - 31) * 1000))
    round_trips.clear()
    with CaptureQueriesContext(connection) as queries:
        assert cached.view()["source"] == "cache"
    assert len(queries) == 1
    assert len(round_trips) == 2


@pytest.mark.parametrize("turns", [1, 100, 1000])
def test_a_cold_read_costs_two_queries_whatever_the_length(thread, ana, turns):
    thread.append()
    _lengthen(thread.id, turns)
    thread.view()
    thread.redis.delete(thread.key)
    with CaptureQueriesContext(connection) as queries:
        view = thread.view(token_budget=100_000)
    assert view["through_position"] == turns
    assert len(queries) == 2


def _lengthen(thread_id: uuid.UUID, turns: int) -> None:
    """Copy the first turn until there are as many."""
    columns = [field.column for field in ThreadMessage._meta.concrete_fields]
    same = ", ".join(name for name in columns if name not in ("position", "session_uuid"))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO thread_messages (position, session_uuid, {same}) "  # noqa: S608
            f"SELECT n, gen_random_uuid(), {same} FROM thread_messages, "
            "generate_series(2, %s) n WHERE thread_id = %s AND position = 1",
            [turns, thread_id],
        )
    ConversationThread.objects.filter(pk=thread_id).update(turn_count=turns, version=turns)


@pytest.mark.parametrize("what", ["first", "next", "completion", "repeat"])
def test_a_write_costs_four_statements_at_most(thread, what):
    turn = uuid.uuid4()
    sent: dict[str, Any] = {"turn": turn, "query": "Delete them?", "status": "pending"}
    if what != "first":
        thread.append()
    if what in ("completion", "repeat"):
        thread.append(**sent)
    if what == "completion":
        sent = {**sent, "status": "complete", "answer": "Deleted.", "revision": 1}
    with CaptureQueriesContext(connection) as queries:
        thread.append(**sent)
    assert len(_in_transaction(queries)) <= 4


def _in_transaction(queries: CaptureQueriesContext) -> list[str]:
    sql = [query["sql"] for query in queries]
    begin = next(i for i, text in enumerate(sql) if text.startswith("BEGIN"))
    return sql[begin + 1 : sql.index("COMMIT")]


def test_an_append_tells_redis_in_one_round_trip(cached, round_trips):
    memory = get_conversation_memory()
    held = memory.read(cached.id)
    round_trips.clear()
    memory.append(cached.id, 4, held.context.turns[-1]._replace(position=4), held.epoch)
    assert len(round_trips) == 1


def test_scripts_are_sent_again_when_redis_has_forgotten_them(cached):
    cached.redis.script_flush()
    cached.append(query="Newest")
    assert cached.view()["source"] == "cache"
    assert "Newest" in cached.view()["text"]
    assert OrmQ.objects.count() == 0
