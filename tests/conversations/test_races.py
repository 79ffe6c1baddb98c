"""Many at once on one thread, over HTTP: nothing lost, nothing twice, no number skipped."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from typing import Any

import pytest

from conversations.conversation_memory import Copy, get_conversation_memory
from conversations.models import ConversationThread, ThreadMessage
from tests.conversations.cached_thread import in_parallel
from tests.conversations.conftest import Caller, stored_positions

WRITERS = 8
TURNS_EACH = 25


@pytest.fixture(autouse=True)
def _tokenizer_is_loaded(agent: Caller) -> None:
    """The first turn of a process loads it; a race would wait for that."""
    agent.put_turn(uuid.uuid4())


def test_eight_writers_of_25_turns_with_readers_in_between(agent, thread_id, ana):
    agent.put_turn(thread_id, query="The first")
    acknowledged, done = [1], threading.Event()
    reads: Counter[str] = Counter()

    def write(writer: int) -> list[int]:
        positions = []
        for n in range(TURNS_EACH - (writer == 0)):
            answer = agent.put_turn(thread_id, query=f"Writer {writer}, turn {n}")
            assert answer.status_code == 201, answer.content
            positions.append(answer.json()["position"])
            acknowledged.append(answer.json()["position"])
        return positions

    def read() -> list[int]:
        while not done.is_set():
            wanted = max(acknowledged[:])
            view = agent.context(thread_id).json()
            assert view["through_position"] >= wanted
            reads[view["source"]] += 1
        return []

    def write_all() -> list[int]:
        try:
            written = in_parallel(*[lambda w=w: write(w) for w in range(WRITERS)])
        finally:
            done.set()
        return [position for positions in written for position in positions]

    positions, *_ = in_parallel(write_all, read, read)
    print(f"{reads['cache'] + reads['database']} reads, {reads['database']} of them misses")
    everything = list(range(1, WRITERS * TURNS_EACH + 1))
    assert sorted([1, *positions]) == everything
    assert stored_positions(thread_id) == everything
    assert_copy_is_as_the_table(thread_id, ana)


def assert_copy_is_as_the_table(thread_id: uuid.UUID, owner: Any) -> None:
    threads = ConversationThread.objects
    threads.conversation_context(thread_id, owner)
    copy = get_conversation_memory().read(thread_id)
    assert isinstance(copy, Copy)
    table, _ = threads._from_database(thread_id, owner)
    assert list(copy.context.turns) == list(table.turns)
    assert (copy.context.version, copy.context.turn_count) == (table.version, table.turn_count)


def test_20_first_turns_that_are_the_same(agent, thread_id, ana):
    turn = uuid.uuid4()
    answers = in_parallel(*[lambda: agent.put_turn(thread_id, turn, query="First")] * 20)
    codes = Counter(answer.status_code for answer in answers)
    assert codes == {201: 1, 200: 19}
    assert len({answer.content for answer in answers}) == 1
    assert stored_positions(thread_id) == [1]
    assert_copy_is_as_the_table(thread_id, ana)


def test_20_first_turns_that_differ(agent, thread_id, ana):
    works = [lambda n=n: agent.put_turn(thread_id, query=f"First {n}") for n in range(20)]
    answers = in_parallel(*works)
    assert {answer.status_code for answer in answers} == {201}
    assert stored_positions(thread_id) == list(range(1, 21))
    assert_copy_is_as_the_table(thread_id, ana)


def test_one_turn_sent_to_two_new_threads(agent):
    turn, threads = uuid.uuid4(), [uuid.uuid4(), uuid.uuid4()]
    answers = in_parallel(*[lambda t=t: agent.put_turn(t, turn, query="First") for t in threads])
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    assert ThreadMessage.objects.filter(session_uuid=turn).count() == 1


def test_one_pending_turn_completed_by_ten(agent, thread_id, ana):
    turn = uuid.uuid4()
    agent.put_turn(thread_id, turn, query="Delete them?", status="pending")
    agent.context(thread_id)
    works = [
        lambda n=n: agent.put_turn(
            thread_id, turn, query="Delete them?", answer=f"Answer {n}", revision=1
        )
        for n in range(10)
    ]
    codes = Counter(answer.status_code for answer in in_parallel(*works))
    assert codes == {200: 1, 409: 9}
    assert_copy_is_as_the_table(thread_id, ana)


def test_turns_while_the_thread_is_deleted(agent, thread_id, redis):
    agent.put_turn(thread_id, query="First")
    agent.context(thread_id)
    works = [lambda: [agent.put_turn(thread_id).status_code for _ in range(10)]] * 4
    reader = [lambda: [agent.context(thread_id).status_code for _ in range(20)]]
    *codes, _ = in_parallel(
        *works, *reader, lambda: [agent.delete(f"threads/{thread_id}").status_code]
    )
    assert {code for each in codes for code in each} <= {200, 201, 404}
    assert agent.context(thread_id).status_code == 404
    assert ThreadMessage.objects.filter(thread_id=thread_id).count() == 0
    assert not redis.hexists(get_conversation_memory().key(thread_id), "v")
