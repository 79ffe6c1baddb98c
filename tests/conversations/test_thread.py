"""GET, PATCH and DELETE /threads/{thread_id}."""

import uuid

import pytest

from conversations.conversation_memory import get_conversation_memory
from conversations.events import SessionEvent
from conversations.models import ConversationThread, ThreadMessage


def test_a_thread_shows_what_it_is_and_not_its_turns(agent, thread_id):
    agent.put_turn(thread_id, query="Revenue by region", answer="North leads.")

    thread = agent.get(f"threads/{thread_id}").json()

    assert thread["title"] == "Revenue by region"
    assert (thread["turn_count"], thread["user_id"], thread["agent_type"]) == (1, "ana", "chat")
    assert (thread["archived"], thread["pinned"], thread["memory"]) == (False, False, True)
    assert "North leads." not in str(thread)


def test_a_rename_lasts_and_an_empty_one_brings_the_first_query_back(agent, thread_id):
    agent.put_turn(thread_id, query="Revenue by region")

    renamed = agent.patch(f"threads/{thread_id}", title="  Board\nmeeting ")
    assert (renamed.json()["title"], renamed.json()["title_is_custom"]) == ("Board meeting", True)

    restored = agent.patch(f"threads/{thread_id}", title="")
    assert restored.json()["title"] == "Revenue by region"
    assert restored.json()["title_is_custom"] is False


def test_a_patch_changes_only_what_it_names(agent, thread_id):
    agent.put_turn(thread_id)
    agent.patch(f"threads/{thread_id}", pinned=True, metadata={"team": "sales"})

    thread = agent.patch(f"threads/{thread_id}", archived=True).json()

    assert (thread["archived"], thread["pinned"]) == (True, True)
    assert thread["metadata"] == {"team": "sales"}


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {f"k{n}": "v" for n in range(17)}},
        {"metadata": {"k": 5}},
        {"metadata": {"k" * 65: "v"}},
        {"archived": "soon"},
        {"agent_type": "copilot"},
        {"memory": "half"},
        {"memory": None},
        {"archived": None},
        {"title": None},
        {"metadata": None},
    ],
)
def test_a_wrong_change_is_refused_whole(agent, thread_id, change):
    agent.put_turn(thread_id)

    answer = agent.patch(f"threads/{thread_id}", pinned=True, **change)

    assert answer.status_code == 422
    assert agent.get(f"threads/{thread_id}").json()["pinned"] is False


def test_memory_that_is_off_shows_nothing_and_comes_back_whole(agent, thread_id):
    agent.put_turn(thread_id, query="Revenue by region")
    assert "Revenue by region" in agent.context(thread_id).json()["text"]

    agent.patch(f"threads/{thread_id}", memory="off")
    assert agent.context(thread_id).json()["text"] == ""
    agent.put_turn(thread_id, query="Costs by region")
    assert agent.context(thread_id).json()["text"] == ""

    agent.patch(f"threads/{thread_id}", memory="on")
    assert agent.context(thread_id).json()["positions"] == [1, 2]


# --- Deletion -----------------------------------------------------------------------------


@pytest.fixture
def deleted(agent, thread_id):
    """A thread that was written, read warm and deleted; the turn's id is kept."""
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, query="Secret figures")
    agent.context(thread_id)
    SessionEvent.emit("memory_folded", thread_id)
    assert agent.delete(f"threads/{thread_id}").status_code == 204
    return turn_id


def test_a_deleted_thread_is_gone_from_every_road(agent, thread_id, deleted):
    for path in ("", "/context", "/turns", f"/turns/{deleted}", "/artifacts", "/events"):
        assert agent.get(f"threads/{thread_id}{path}").status_code == 404, path
    assert agent.get("threads").json()["results"] == []


def test_a_deleted_thread_leaves_an_emptied_row_and_nothing_else(agent, thread_id, deleted, redis):
    row = ConversationThread.objects.get(pk=thread_id)

    assert (row.title, row.owner_id, row.turn_count, row.summary) == ("", None, 0, "")
    assert not ThreadMessage.objects.filter(thread_id=thread_id).exists()
    assert not SessionEvent.objects.filter(thread_id=thread_id).exists()
    assert [key for key in redis.scan_iter() if str(thread_id).encode() in key] == []


def test_a_late_put_does_not_bring_a_deleted_thread_back(agent, thread_id, deleted):
    assert agent.put_turn(thread_id, deleted, query="Secret figures").status_code == 404
    assert agent.put_turn(thread_id).status_code == 404
    assert not ThreadMessage.objects.filter(thread_id=thread_id).exists()


def test_deleting_again_is_a_404_as_for_an_absent_thread(agent, thread_id, deleted):
    assert agent.delete(f"threads/{thread_id}").status_code == 404
    assert agent.delete(f"threads/{uuid.uuid4()}").status_code == 404


def test_a_retry_of_a_delete_drops_the_copy_that_the_first_try_left(agent, thread_id, redis):
    agent.put_turn(thread_id)
    agent.context(thread_id)
    key = get_conversation_memory().key(thread_id)
    copy = redis.dump(key)
    agent.delete(f"threads/{thread_id}")
    redis.restore(key, 60_000, copy)  # as if the first try had died after its commit

    assert agent.delete(f"threads/{thread_id}").status_code == 404
    assert agent.context(thread_id).status_code == 404
    assert redis.hget(key, "v") is None  # at most a lease that nobody will use


def test_deleting_one_thread_leaves_the_others(agent, thread_id):
    kept = uuid.uuid4()
    agent.put_turn(thread_id)
    agent.put_turn(kept)

    agent.delete(f"threads/{thread_id}")

    assert agent.context(kept).json()["positions"] == [1]


# --- Rehydration --------------------------------------------------------------------------


def test_rehydrate_rebuilds_the_working_set(agent, thread_id, redis):
    for n in range(3):
        agent.put_turn(thread_id, query=f"q{n}")

    answer = agent.client.post(f"/api/v1/threads/{thread_id}/rehydrate?user_id=ana")

    assert answer.json() == {"thread_id": str(thread_id), "turns": 3}
    assert redis.exists(get_conversation_memory().key(thread_id))
    assert agent.context(thread_id).json()["source"] == "cache"


def test_rehydrate_of_a_thread_without_memory_rebuilds_nothing(agent, thread_id):
    agent.put_turn(thread_id)
    agent.patch(f"threads/{thread_id}", memory="off")

    answer = agent.client.post(f"/api/v1/threads/{thread_id}/rehydrate?user_id=ana")

    assert answer.json()["turns"] == 0


def test_rehydrate_takes_whom_it_is_for_from_the_body_as_well(agent, thread_id):
    agent.put_turn(thread_id)
    address = f"/api/v1/threads/{thread_id}/rehydrate"

    assert agent.client.post(address, {"user_id": "ana"}, format="json").status_code == 200
    assert agent.client.post(address, {"user_id": "bob"}, format="json").status_code == 404
