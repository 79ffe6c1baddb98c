"""POST /threads/{thread_id}/turns writes a turn whose id is made here, or of Idempotency-Key."""

import uuid

import pytest

from tests.conversations.conftest import stored_positions


def post(agent, thread_id, key=None, **body):
    headers = {} if key is None else {"HTTP_IDEMPOTENCY_KEY": key}
    sent = {"user_id": "ana", "agent_type": "chat", "query": "Revenue", **body}
    return agent.client.post(
        f"/api/v1/threads/{thread_id}/turns", sent, format="json", **headers
    )  # fmt: skip


def test_each_call_writes_a_turn_of_its_own(agent, thread_id):
    answers = [post(agent, thread_id) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert len({answer.json()["turn_id"] for answer in answers}) == 2
    assert stored_positions(thread_id) == [1, 2]


@pytest.mark.parametrize(
    "key", ["order 66", "ключ".encode().hex(), "0b6f2f5e-6f0a-4f0e-9d0c-2f6d6c1f9a11", "a" * 200]
)
def test_the_same_key_again_is_the_same_turn(agent, thread_id, key):
    first, again = post(agent, thread_id, key), post(agent, thread_id, key)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()


def test_a_key_that_is_a_uuid_is_the_turns_id(agent, thread_id):
    key = str(uuid.uuid4())

    assert post(agent, thread_id, key).json()["turn_id"] == key


def test_the_same_key_in_another_thread_is_another_turn(agent, thread_id):
    first, other = post(agent, thread_id, "k"), post(agent, uuid.uuid4(), "k")

    assert other.status_code == 201
    assert first.json()["turn_id"] != other.json()["turn_id"]


def test_the_same_key_with_another_body_is_a_conflict(agent, thread_id):
    post(agent, thread_id, "k")

    assert post(agent, thread_id, "k", query="Costs").json()["code"] == "turn_conflict"


@pytest.mark.parametrize("key", ["", "  ", "a" * 201])
def test_a_key_that_is_blank_or_too_long_is_refused(agent, thread_id, key):
    answer = post(agent, thread_id, key)

    assert answer.status_code == 422
    assert "Idempotency-Key" in answer.json()["errors"]
