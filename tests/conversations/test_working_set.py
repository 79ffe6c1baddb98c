"""The copy of a thread in Redis: what it holds, when it is believed, what becomes of a bad one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from redis import Redis

from config import redis as redis_gate
from conversations import invalidation, tasks
from conversations.conversation_memory import (
    Miss,
    RedisConversationMemory,
    get_conversation_memory,
)
from conversations.models import ConversationThread, DatabaseEpoch, ThreadMessage
from tests.conversations.cached_thread import Thread
from tests.conversations.conftest import Caller, stored_positions

DAY_SECONDS = 24 * 3600


@pytest.fixture
def thread(agent: Caller, redis: Redis) -> Thread:
    return Thread(agent, redis)


@pytest.fixture
def cached(thread: Thread) -> Thread:
    """A thread of three turns with a copy."""
    thread.append_three()
    thread.cache()
    return thread


@pytest.fixture(autouse=True)
def _every_key_has_a_time_to_live(redis: Redis) -> Iterator[None]:
    yield
    assert [key for key in redis.scan_iter() if redis.ttl(key) == -1] == []


# --- What a copy holds ------------------------------------------------------------------------


def test_a_read_fills_it_and_the_next_is_from_it(thread):
    thread.append()
    assert [thread.view()["source"], thread.view()["source"]] == ["database", "cache"]


def test_it_stands_under_the_prefix_with_the_id_in_braces(cached):
    assert cached.redis.exists(f"chat_conversation:{{{cached.id}}}")


def test_it_lives_for_a_day_after_a_change(cached):
    cached.redis.expire(cached.key, 60)
    cached.append()
    assert cached.redis.ttl(cached.key) > DAY_SECONDS - 60


def test_it_lives_for_a_day_after_it_was_checked(cached):
    cached.redis.expire(cached.key, 60)
    with time_machine.travel(time.time() + 31):
        cached.view()
    assert cached.redis.ttl(cached.key) > DAY_SECONDS - 60


def test_an_append_adds_to_it(cached):
    cached.append(query="And by month?")
    view = cached.view()
    assert view["source"] == "cache"
    assert "[t4" in view["text"]
    assert "And by month?" in view["text"]


def test_a_completed_turn_is_replaced_in_it(cached):
    turn = uuid.uuid4()
    cached.append(turn=turn, query="Delete them?", status="pending")
    cached.append(turn=turn, query="Delete them?", answer="Deleted.", revision=1)
    view = cached.view()
    assert view["source"] == "cache"
    assert "Deleted." in view["text"]
    assert "pending" not in view["text"]


def test_the_newest_show_in_order_however_long_the_thread(thread):
    window = get_conversation_memory().window_turns
    for n in range(1, 3 * window + 1):
        thread.append(query=f"Question {n}")
        if n == 10:
            thread.cache()
    view = thread.view(token_budget=100_000)
    assert view["source"] == "cache"
    newest = list(range(2 * window + 1, 3 * window + 1))
    assert view["positions"] == newest
    assert (
        thread.view(token_budget=100_000)["text"] == thread.cold_view(token_budget=100_000)["text"]
    )
    assert len(thread.copy) == 8 + window


def test_after_its_time_the_thread_goes_on_with_all_its_turns_once_each(cached):
    cached.redis.flushdb()
    cached.append()
    assert cached.view()["positions"] == [1, 2, 3, 4]
    assert cached.cache()["positions"] == [1, 2, 3, 4]


@pytest.mark.parametrize("prefix", ["chat_conversation", "", "other:deployment"])
def test_a_deleted_thread_leaves_no_key(agent, redis, settings, prefix):
    settings.MEMORY_KEY_PREFIX = prefix
    get_conversation_memory.cache_clear()
    thread = Thread(agent, redis)
    thread.append()
    thread.cache()
    assert agent.delete(f"threads/{thread.id}").status_code == 204
    assert [key for key in redis.scan_iter() if str(thread.id).encode() in key] == []
    assert agent.context(thread.id).status_code == 404
    get_conversation_memory.cache_clear()


@pytest.mark.parametrize("spelled", [str.upper, lambda text: text.replace("-", "")])
def test_an_id_is_one_thread_however_it_is_spelled(cached, spelled):
    answer = cached.agent.context(spelled(str(cached.id)))
    assert answer.status_code in (200, 404)
    cached.agent.put_turn(spelled(str(cached.id)), query="Spelled otherwise")
    assert cached.view()["text"] == cached.cold_view()["text"]
    assert len(list(cached.redis.scan_iter("chat_conversation:*"))) == 1


def test_memory_switched_off_drops_it_and_switched_on_brings_it_back(cached):
    cached.agent.patch(f"threads/{cached.id}", memory="off")
    assert cached.copy == {}
    assert cached.view()["positions"] == []
    cached.append()
    assert cached.view()["positions"] == []
    cached.agent.patch(f"threads/{cached.id}", memory="on")
    assert cached.cache()["positions"] == [1, 2, 3, 4]


def test_nothing_changes_when_somebody_else_writes_to_the_id(cached, outsider):
    before = cached.copy
    agents = Caller(_agent_of(outsider), acts_for=outsider.user_id)
    assert agents.put_turn(cached.id, query="Mine now").status_code == 404
    assert agents.context(cached.id).status_code == 404
    assert cached.copy == before


def _agent_of(person: Any) -> Any:
    from rbac.models import User

    return User.objects.create_user(person.tenant, "bi", role="agent")


# --- When a copy is believed ------------------------------------------------------------------


def test_one_that_was_not_compared_for_30_seconds_is_looked_up_once(cached):
    with time_machine.travel(time.time() + 31):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert cached.view()["source"] == "cache"
        assert len(_about_threads(queries)) == 1
        with CaptureQueriesContext(connection) as queries:
            assert cached.view()["source"] == "cache"
        assert _about_threads(queries) == []


def _about_threads(queries: CaptureQueriesContext) -> list[str]:
    """The queries, without the one that finds out whose token it is every 30 s."""
    return [query["sql"] for query in queries if "conversation_threads" in query["sql"]]


def test_one_that_is_behind_is_found_out_after_30_seconds(cached):
    stale = cached.copy
    cached.append()
    cached.redis.hset(cached.key, mapping=stale)
    cached.redis.hdel(cached.key, "t:4")
    assert cached.view()["positions"] == [1, 2, 3], "believed for now"
    with time_machine.travel(time.time() + 31):
        assert cached.view()["positions"] == [1, 2, 3, 4]
        assert cached.view()["source"] == "cache"


@pytest.mark.parametrize("ahead_seconds", [2, 60, 10**9])
def test_one_from_a_clock_that_is_ahead_is_looked_up(cached, ahead_seconds):
    cached.set("c", b"%d" % ((time.time() + ahead_seconds) * 1000))
    with CaptureQueriesContext(connection) as queries:
        assert cached.view()["source"] == "cache"
    assert len(_about_threads(queries)) == 1
    with CaptureQueriesContext(connection) as queries:
        cached.view()
    assert _about_threads(queries) == []


def test_an_append_says_nothing_of_what_may_have_been_missed(cached):
    before = cached.copy[b"c"]
    cached.append()
    assert cached.copy[b"c"] == before


def test_a_fill_dates_the_copy_to_when_it_began_to_read(thread):
    thread.append()
    began_ms = int(time.time() * 1000)
    with mock.patch.object(
        RedisConversationMemory, "fill", autospec=True, side_effect=RedisConversationMemory.fill
    ) as fill:
        thread.view()
    assert began_ms <= int(thread.copy[b"c"]) <= fill.call_args.args[-1] * 1000 + 1


def test_a_copy_of_another_database_on_the_same_redis_is_never_shown(cached):
    """Two deployments share a Redis, or a backup was restored: versions agree by chance."""
    cached.set("e", str(uuid.uuid4()).encode())
    ConversationThread.objects.filter(pk=cached.id).update(version=3)
    view = cached.view()
    assert view["source"] == "database"
    assert cached.view()["source"] == "cache"


def test_a_turn_never_joins_a_copy_of_another_database(cached):
    cached.set("e", str(uuid.uuid4()).encode())
    cached.append()
    assert cached.copy == {}


def test_a_new_epoch_makes_every_copy_a_miss(cached):
    DatabaseEpoch.renew()
    with time_machine.travel(time.time() + 31):
        assert cached.view()["source"] == "database"
        assert cached.view()["source"] == "cache"


def _of_another_release() -> RedisConversationMemory:
    return RedisConversationMemory(fence_key="the other release's")


def test_readers_leave_a_copy_of_another_release_alone(cached):
    cached.set("f", _of_another_release().format.encode())
    before = cached.copy
    assert [cached.view()["source"], cached.view()["source"]] == ["database", "database"]
    assert cached.copy == before


@pytest.mark.parametrize("change", ["append", "complete"])
def test_a_writer_drops_a_copy_of_another_release(cached, change):
    turn = uuid.uuid4()
    cached.append(turn=turn, query="Delete them?", status="pending")
    cached.set("f", _of_another_release().format.encode())
    if change == "append":
        cached.append()
    else:
        cached.append(turn=turn, query="Delete them?", answer="Done.", revision=1)
    assert cached.copy == {}


def test_a_writer_breaks_the_lease_of_another_release(cached):
    cached.redis.delete(cached.key)
    other = _of_another_release()
    lease = other.lease(cached.id, Miss("absent"))
    cached.append()
    context = ConversationThread.objects.conversation_context(
        cached.id, _person(cached.agent)
    ).context
    assert lease
    assert not other.fill(cached.id, lease, context, "any", time.time())


def _person(agent: Caller) -> Any:
    from rbac.models import User
    from rbac.principal import Person

    return Person.of(User.objects.get(tenant=agent.user.tenant, user_id=agent.acts_for))


def test_what_a_transaction_reads_is_not_kept(cached):
    """It may be rolled back, and the next turn would then get the same version."""
    cached.redis.delete(cached.key)
    owner = _person(cached.agent)
    with transaction.atomic():
        ConversationThread.objects.conversation_context(cached.id, owner)
        with pytest.raises(transaction.TransactionManagementError):
            ConversationThread.objects.rehydrate(cached.id)
        assert cached.copy == {}


def test_a_turn_that_is_rolled_back_is_never_told(cached):
    before = cached.copy
    with transaction.atomic():
        invalidation.once_committed(cached.id, lambda memory: memory.drop(cached.id))
        transaction.set_rollback(True)
    assert cached.copy == before


def test_several_nodes_read_one_copy_without_parsing_it_again(cached):
    memory = get_conversation_memory()
    first, again = memory.read(cached.id), memory.read(cached.id)
    assert first is again
    cached.append()
    assert memory.read(cached.id) is not first


def test_a_rebuild_replaces_a_copy_whatever_it_was(cached):
    expected = cached.view()["text"]
    cached.redis.hset(cached.key, "t:2", "nonsense")
    assert ConversationThread.objects.rehydrate(cached.id) == 3
    view = cached.view()
    assert (view["source"], view["text"]) == ("cache", expected)


# --- Changes that Redis did not take, and retries ---------------------------------------------


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def lost_call(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the next script that runs for a change fail with an error, once."""

    def lose(error: BaseException) -> None:
        run, failed = redis_gate.attempt, []

        def failing(call: Any) -> Any:
            if not failed and call.__qualname__.startswith("RedisConversationMemory._eval"):
                failed.append(True)
                raise error
            return run(call)

        monkeypatch.setattr(redis_gate, "attempt", failing)

    return lose


@pytest.mark.parametrize("change", ["append", "complete"])
def test_a_change_that_fails_once_leaves_no_stale_copy(cached, lost_call, change):
    turn = uuid.uuid4()
    cached.append(turn=turn, query="Delete them?", status="pending")
    lost_call(redis_gate.RedisUnavailable("once"))
    if change == "append":
        cached.append(query="Newest")
    else:
        cached.append(turn=turn, query="Delete them?", answer="Newest", revision=1)
    assert cached.copy == {}
    assert "Newest" in cached.view()["text"]


def test_a_fault_of_ours_leaves_no_stale_copy_either(cached, lost_call):
    lost_call(ValueError("a fault"))
    cached.append(query="Newest")
    assert cached.copy == {}


def test_a_rename_needs_nothing_of_redis(cached, lost_call):
    lost_call(redis_gate.RedisUnavailable("once"))
    assert cached.agent.patch(f"threads/{cached.id}", title="Renamed").status_code == 200
    assert cached.agent.get(f"threads/{cached.id}").json()["title"] == "Renamed"


def test_a_process_that_dies_after_the_commit_and_a_retry(cached, lost_call):
    turn = uuid.uuid4()
    sent = {"query": "Newest", "answer": "Written before the end"}
    lost_call(Killed())
    with pytest.raises(Killed):
        cached.agent.put_turn(cached.id, turn, **sent)
    answer = cached.agent.put_turn(cached.id, turn, **sent)
    assert (answer.status_code, answer.json()["position"]) == (200, 4)
    assert stored_positions(cached.id) == [1, 2, 3, 4]
    assert cached.view()["positions"] == [1, 2, 3, 4]


def test_a_connection_that_breaks_at_the_commit_and_a_retry(cached, monkeypatch):
    """PostgreSQL has committed, and nobody was told."""
    turn = uuid.uuid4()
    sent = {"query": "Newest", "answer": "Written before the end"}
    commit, broken = connection._commit, []

    def breaking() -> None:
        commit()
        if not broken:
            broken.append(True)
            connection.connection.close()
            raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(connection, "_commit", breaking)
    assert cached.agent.put_turn(cached.id, turn, **sent).status_code >= 500
    assert ThreadMessage.objects.filter(session_uuid=turn).count() == 1
    answer = cached.agent.put_turn(cached.id, turn, **sent)
    assert (answer.status_code, answer.json()["position"]) == (200, 4)
    assert stored_positions(cached.id) == [1, 2, 3, 4]
    assert cached.view()["positions"] == [1, 2, 3, 4]


def test_a_retry_leaves_a_copy_that_is_up_to_date(cached):
    turn = uuid.uuid4()
    cached.append(turn=turn, query="Once")
    before = cached.copy
    cached.append(turn=turn, query="Once")
    assert cached.copy == before


def test_the_job_drops_what_was_touched_and_nothing_else(cached, agent, redis):
    other = Thread(agent, redis)
    other.append()
    other.cache()
    ConversationThread.objects.filter(pk=other.id).update(touched_at="2020-01-01T00:00Z")
    assert tasks.drop_copies_touched_since("2026-01-01T00:00:00+00:00") == 1
    assert cached.copy == {}
    assert other.copy != {}


def test_missed_copies_queue_a_job_every_ten_seconds_and_none_is_forgotten():
    now = [100.0]
    missed = invalidation.Missed(clock=lambda: now[0])
    assert missed.due() is None
    first = missed.note()
    assert first
    assert [missed.note() for _ in range(1000)] == [None] * 1000
    now[0] += 10
    assert missed.due() >= first, "those of the ten seconds, at the next change that is told"
    assert missed.due() is None
