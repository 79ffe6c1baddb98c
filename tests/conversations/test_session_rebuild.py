"""Redis lost, stale, corrupt or away: a session is put together from PostgreSQL, once each (E7, E14)."""

from __future__ import annotations

import pytest
from redis import Redis

from config import redis as redis_gate
from config.redis import RedisUnavailable
from conversations import session_copies
from conversations.models import ThreadMessage
from conversations.session_keys import SessionKey
from conversations.session_memory import (
    FORMAT,
    SessionMemory,
    SessionMeta,
    SessionMiss,
    get_session_memory,
)
from conversations.session_problems import SessionNotFound
from conversations.session_records import SessionRecord
from conversations.sessions import SessionStore
from embedded.services import Valkey
from tests.conversations.session_world import let_time_pass, line, question, tool_turn

KEY = SessionKey("acme", "s-81")


@pytest.fixture
def store(ana):
    store = SessionStore("acme")
    store.open(ana, "s-81")
    return store


@pytest.fixture
def said(store, ana):
    """Two turns and the beginning of a third."""
    store.add(ana, "s-81", [line("system", "Terse."), *question(1)])
    store.add(ana, "s-81", tool_turn(2))
    store.add(ana, "s-81", tool_turn(3)[:2])
    return store.read(ana, "s-81").messages


# --- Lost -------------------------------------------------------------------------------------


def test_a_lost_session_comes_back_as_it_was(store, said, ana, redis):
    redis.flushdb()
    cold = store.read(ana, "s-81")
    warm = store.read(ana, "s-81")

    assert (cold.source, warm.source) == ("database", "cache")
    assert cold.messages == warm.messages == said
    assert redis.ttl(KEY.session) == 30 * 60


def test_a_turn_that_had_begun_goes_on(store, said, ana, redis):
    redis.flushdb()
    added = store.add(ana, "s-81", tool_turn(3)[2:])

    assert added.turns[0].position == 3
    turn = ThreadMessage.objects.get(position=3)
    assert (turn.query, turn.answer) == ("Question 3", "Answer 3")
    assert len(turn.response_payload["messages"]) == 4


def test_a_message_that_comes_first_after_the_loss_stands_once_and_last(store, said, ana, redis):
    redis.flushdb()
    store.add(ana, "s-81", tool_turn(3)[2:3])

    read = store.read(ana, "s-81")
    assert read.source == "cache"
    assert [one.message_id for one in read.messages] == [
        *(one.message_id for one in said),
        "r-3",
    ]


def test_idle_past_its_time_a_session_is_reopened_with_its_history(store, said, ana, redis):
    let_time_pass(31, redis)
    with pytest.raises(SessionNotFound):
        store.read(ana, "s-81")
    added = store.add(ana, "s-81", [line("tool", "R", message_id="r-3", tool_call_id="call-3")])

    assert added.created
    texts = [one.content for one in store.read(ana, "s-81").messages]
    assert texts == ["Terse.", "Question 1", "Answer 1", "Question 2", "", "Result 2", "Answer 2",
                     "Question 3", "", "R"]  # fmt: skip


def test_a_week_later_the_same_id_goes_on_counting(store, said, ana, redis):
    let_time_pass(7 * 24 * 60, redis)
    opened = store.open(ana, "s-81")
    turn = store.add(ana, "s-81", question(4)).turns[0]

    assert opened.reopened
    assert turn.position == 4  # the third was broken off
    assert list(ThreadMessage.objects.order_by("position").values_list("status", flat=True)) == [
        "complete", "complete", "stopped", "complete",
    ]  # fmt: skip


# --- Corrupt or foreign (E7) ------------------------------------------------------------------


def _string(redis, value):
    redis.delete(KEY.session)
    redis.set(KEY.session, value)


FAULTS = {
    "a string": lambda r: _string(r, '{"a":'),
    "bytes": lambda r: _string(r, b"\xff\xfe"),
    "a list": lambda r: (r.delete(KEY.session), r.lpush(KEY.session, "1")),
    "no count": lambda r: r.hdel(KEY.session, "n"),
    "no number": lambda r: r.hset(KEY.session, "n", "many"),
    "no owner": lambda r: r.hdel(KEY.session, "o"),
    "another's": lambda r: r.hset(KEY.session, "o", "00000000-0000-0000-0000-000000000000"),
    "no meta": lambda r: r.hdel(KEY.session, "meta"),
    "meta is a list": lambda r: r.hset(KEY.session, "meta", "[]"),
    "meta without a thread": lambda r: r.hset(KEY.session, "meta", "{}"),
    "half a message": lambda r: r.hset(KEY.session, "m:3", '["user","u-2",{"a":'),
    "null for a message": lambda r: r.hset(KEY.session, "m:3", "null"),
    "another shape": lambda r: r.hset(KEY.session, "m:3", '["user","x",{"role":3}]'),
    "no utf-8": lambda r: r.hset(KEY.session, "m:3", b"\xff\xfe"),
    "a message missing": lambda r: r.hdel(KEY.session, "m:3"),
    "a message too many": lambda r: r.hset(KEY.session, "m:99", "[]"),
    "messages swapped": lambda r: r.hset(KEY.session, "m:3", r.hget(KEY.session, "m:2")),
    "no format": lambda r: r.hdel(KEY.session, "f"),
    "a lease without an end": lambda r: (r.delete(KEY.session), r.hset(KEY.session, "lease", "x")),
    "behind": lambda r: r.hset(KEY.session, "n", 3),
}


@pytest.mark.parametrize("spoil", FAULTS.values(), ids=FAULTS)
def test_a_copy_that_is_none_is_a_miss_and_put_right(store, said, ana, redis, spoil):
    spoil(redis)

    assert store.read(ana, "s-81").messages == said
    store.read(ana, "s-81")
    again = store.read(ana, "s-81")
    assert (again.source, again.messages) == ("cache", said)
    assert redis.ttl(KEY.session) > 0


@pytest.mark.parametrize("spoil", FAULTS.values(), ids=FAULTS)
def test_messages_are_taken_whatever_the_copy_holds(store, said, ana, redis, spoil):
    spoil(redis)
    again = store.add(ana, "s-81", tool_turn(2))
    store.add(ana, "s-81", tool_turn(3)[2:])

    assert not again.created
    numbers = [one.number for one in store.read(ana, "s-81").messages]
    assert numbers == list(range(1, 12))


def test_a_copy_of_another_format_is_a_miss_and_left_alone(store, said, ana, redis):
    redis.hset(KEY.session, "f", int(FORMAT) + 1)
    before = redis.hgetall(KEY.session)

    assert store.read(ana, "s-81").messages == said
    assert redis.hgetall(KEY.session) == before


def test_a_copy_from_before_a_backup_was_restored_goes(store, said, ana, redis):
    redis.hset(KEY.session, mapping={"n": 50, "m:50": "[]"})
    store.add(ana, "s-81", tool_turn(3)[2:])

    assert [one.number for one in store.read(ana, "s-81").messages] == list(range(1, 12))


# --- Behind -----------------------------------------------------------------------------------


def test_a_message_that_redis_missed_is_seen_at_once_by_this_process(
    store, said, ana, redis, monkeypatch
):
    def fail(*_):
        redis_gate.breaker.missed()
        raise RedisUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(SessionMemory, "append", fail)
        patch.setattr(SessionMemory, "drop_fresh", fail)
        store.add(ana, "s-81", tool_turn(3)[2:])

    assert len(store.read(ana, "s-81").messages) == len(said) + 2


def test_and_by_others_when_they_compare(store, said, ana, redis, settings, monkeypatch):
    monkeypatch.setattr(session_copies, "_tell", lambda *_: None)
    store.add(ana, "s-81", tool_turn(3)[2:])
    settings.MEMORY_CHECK_SECONDS = 0

    assert len(store.read(ana, "s-81").messages) == len(said) + 2


def test_an_end_that_redis_missed_is_seen_when_it_is_compared(
    store, said, ana, settings, monkeypatch
):
    monkeypatch.setattr(session_copies, "_tell", lambda *_: None)
    store.end(ana, "s-81")
    settings.MEMORY_CHECK_SECONDS = 0

    with pytest.raises(SessionNotFound):
        store.read(ana, "s-81")


def test_a_copy_that_was_compared_is_believed_again_for_a_while(
    store, said, ana, settings, django_assert_num_queries
):
    settings.MEMORY_CHECK_SECONDS = 0
    store.read(ana, "s-81")
    settings.MEMORY_CHECK_SECONDS = 30

    with django_assert_num_queries(0):
        store.read(ana, "s-81")


# --- Orders in which a change and a filling reader may meet -------------------------------------


def lease_of(memory):
    lease = memory.lease(KEY, SessionMiss("absent"))
    assert lease
    return lease


def test_a_message_that_comes_while_a_reader_fills_breaks_its_lease(store, said, ana, redis):
    redis.flushdb()
    memory = get_session_memory()
    lease = lease_of(memory)
    session = session_copies._of_record(ana, SessionRecord.objects.get(), said)
    # Without a copy to ask, and none put there: a lease stands.
    store.add(ana, "s-81", tool_turn(3)[2:3])

    meta = SessionMeta(session.thread_id, session.agent_type, session.opened_at)
    assert not memory.fill(KEY, lease, ana.pk, meta, len(said), said, 0.0)
    assert len(store.read(ana, "s-81").messages) == len(said) + 1


def test_only_one_reader_fills(store, said, ana, redis):
    redis.flushdb()
    memory = get_session_memory()
    lease_of(memory)

    assert memory.lease(KEY, SessionMiss("absent")) is None
    assert store.read(ana, "s-81").source == "database"


def test_a_message_that_overtakes_another_is_a_gap_until_that_has_come(
    store, said, ana, redis, monkeypatch
):
    held = []
    monkeypatch.setattr(session_copies, "_tell", lambda _key, change: held.append(change))
    store.add(ana, "s-81", tool_turn(3)[2:3])
    store.add(ana, "s-81", tool_turn(3)[3:])
    monkeypatch.undo()
    first, second = held
    second()
    assert isinstance(get_session_memory().read(KEY, ana.pk), SessionMiss)
    first()
    copy = get_session_memory().read(KEY, ana.pk)

    assert (copy.count, len(copy.messages)) == (len(said) + 2, len(said) + 2)


def test_a_message_that_comes_twice_changes_nothing(store, said, ana, redis):
    before = redis.hgetall(KEY.session)
    get_session_memory().append(KEY, said[-1:], 0.0)

    assert redis.hgetall(KEY.session) == {**before, b"c": redis.hget(KEY.session, "c")}


# --- Away -------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path, settings):
    with Valkey(tmp_path / "data", durable=False) as server:
        settings.REDIS_URL = server.url
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
        yield server


def test_without_redis_a_session_goes_on_from_the_database(server, store, said, ana):
    server.kill()
    added = store.add(ana, "s-81", tool_turn(3)[2:])
    read = store.read(ana, "s-81")

    assert added.turns[0].position == 3
    assert (read.source, len(read.messages)) == ("database", len(said) + 2)
    assert not store.add(ana, "s-81", tool_turn(3)).created
    assert store.open(ana, "s-82").created
    assert store.end(ana, "s-81")


def test_when_redis_is_back_nothing_old_is_shown(server, store, said, ana):
    server.pause()
    store.add(ana, "s-81", tool_turn(3)[2:])
    server.resume()
    redis_gate.breaker.succeeded()
    with Redis.from_url(server.url) as client:
        assert client.ping()

    assert len(store.read(ana, "s-81").messages) == len(said) + 2
