"""PUT /threads/{thread_id}/turns/{turn_id} writes a turn once."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from conversations.models import ConversationThread, ThreadMessage
from tests.conversations.conftest import stored_positions

SQL = {"kind": "sql", "sql": "SELECT region, SUM(amount) FROM sales GROUP BY region"}


def stored(thread_id, position=1):
    return ThreadMessage.objects.get(thread_id=thread_id, position=position)


# --- A new turn ---------------------------------------------------------------------------


def test_a_first_turn_makes_the_thread_and_titles_it(agent, thread_id):
    answer = agent.put_turn(thread_id, query="Revenue by region this year", answer="North leads.")

    assert answer.status_code == 201
    assert answer.json()["position"] == 1
    assert answer.json()["title"] == "Revenue by region this year"
    assert ConversationThread.objects.get(pk=thread_id).agent_type == "chat"


def test_the_answer_names_thread_turn_position_status_title_and_time(agent, thread_id):
    turn_id = uuid.uuid4()

    answer = agent.put_turn(thread_id, turn_id).json()

    assert answer["thread_id"] == str(thread_id)
    assert answer["turn_id"] == str(turn_id)
    assert answer["status"] == "complete"
    assert datetime.fromisoformat(answer["created_at"]).utcoffset() == timedelta(0)


def test_turns_get_positions_in_the_order_they_arrive(agent, thread_id):
    positions = [agent.put_turn(thread_id, query=f"q{n}").json()["position"] for n in range(4)]

    assert positions == [1, 2, 3, 4]


def test_a_first_turn_without_agent_type_is_refused(agent, thread_id):
    answer = agent.put_turn(thread_id, agent_type=None)

    assert answer.status_code == 422
    assert answer.json()["code"] == "agent_type_required"
    assert not ConversationThread.objects.filter(pk=thread_id).exists()


def test_a_later_turn_may_be_of_another_agent(agent, thread_id):
    agent.put_turn(thread_id, agent_type="chat")

    assert agent.put_turn(thread_id, agent_type="copilot").status_code == 201
    assert ConversationThread.objects.get(pk=thread_id).agent_type == "chat"
    assert stored(thread_id, 2).agent_type == "copilot"


def test_who_wrote_a_turn_stands_on_it(agent, ana, thread_id):
    agent.put_turn(thread_id)

    assert stored(thread_id).written_by == agent.user.pk
    assert ConversationThread.objects.get(pk=thread_id).owner_id == ana.pk


def test_a_new_turn_takes_the_thread_out_of_the_archive(agent, thread_id):
    agent.put_turn(thread_id)
    agent.patch(f"threads/{thread_id}", archived=True)

    agent.put_turn(thread_id)

    assert ConversationThread.objects.get(pk=thread_id).archived_at is None


def test_whom_it_is_for_may_stand_in_the_query_string(agent, ana, thread_id):
    address = f"/api/v1/threads/{thread_id}/turns/{uuid.uuid4()}?user_id=ana"

    answer = agent.client.put(address, {"query": "Costs", "agent_type": "chat"}, format="json")

    assert answer.status_code == 201
    assert ConversationThread.objects.get(pk=thread_id).owner_id == ana.pk


def test_two_different_people_in_body_and_query_string_are_refused(agent, thread_id):
    address = f"/api/v1/threads/{thread_id}/turns/{uuid.uuid4()}?user_id=ana"
    body = {"query": "Costs", "agent_type": "chat", "user_id": "bob"}

    assert agent.client.put(address, body, format="json").status_code == 422


# --- The same turn again (C5, C6) ---------------------------------------------------------


def test_the_same_turn_again_is_a_200_with_the_same_position(agent, thread_id):
    turn_id = uuid.uuid4()
    first = agent.put_turn(thread_id, turn_id, answer="North leads.")

    again = agent.put_turn(thread_id, turn_id, answer="North leads.")

    assert again.status_code == 200
    assert again.json() == first.json()
    assert stored_positions(thread_id) == [1]


def test_the_same_turn_with_its_json_reordered_is_the_same(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, response_payload={"a": 1, "b": [{"c": 2, "d": 3}]})

    again = agent.put_turn(thread_id, turn_id, response_payload={"b": [{"d": 3, "c": 2}], "a": 1})

    assert again.status_code == 200


def test_the_same_turn_with_its_defaults_spelled_out_is_the_same(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, artifacts=[SQL])

    again = agent.put_turn(
        thread_id, turn_id, artifacts=[{**SQL, "title": None, "columns": []}],
        answer="", status="complete", revision=0, created_at="2020-01-01T00:00:00Z",
    )  # fmt: skip

    assert again.status_code == 200


def test_the_same_turn_without_its_agent_type_is_the_same(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, agent_type="chat")

    assert agent.put_turn(thread_id, turn_id, agent_type=None).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {"query": "Another question"},
        {"answer": "Another answer"},
        {"artifacts": [SQL]},
        {"response_payload": {"rows": []}},
        {"status": "stopped"},
        {"agent_type": "copilot"},
    ],
)
def test_the_same_turn_id_with_another_body_is_a_409_that_says_what_is_stored(
    agent, thread_id, change
):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id)

    answer = agent.put_turn(thread_id, turn_id, **change)

    assert answer.status_code == 409
    assert answer.json()["code"] == "turn_conflict"
    assert answer.json()["stored"] == {"position": 1, "status": "complete", "revision": 0}
    assert stored(thread_id).query == "Revenue by region"


def test_a_repeat_is_found_before_the_expected_position_is_looked_at(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, expected_position=1)
    agent.put_turn(thread_id)

    again = agent.put_turn(thread_id, turn_id, expected_position=1)

    assert again.status_code == 200
    assert again.json()["position"] == 1


def test_a_conflict_is_found_before_the_expected_position_is_looked_at(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id)

    answer = agent.put_turn(thread_id, turn_id, query="Another", expected_position=9)

    assert answer.json()["code"] == "turn_conflict"


# --- Where it must land -------------------------------------------------------------------


def test_a_turn_that_would_get_another_position_than_expected_is_refused(agent, thread_id):
    agent.put_turn(thread_id)

    answer = agent.put_turn(thread_id, expected_position=3)

    assert answer.status_code == 409
    assert answer.json()["code"] == "stale_position"
    assert answer.json()["turn_count"] == 1
    assert stored_positions(thread_id) == [1]


def test_a_first_turn_expected_further_on_is_refused(agent, thread_id):
    answer = agent.put_turn(thread_id, expected_position=2)

    assert answer.json()["code"] == "stale_position"
    assert not ConversationThread.objects.filter(pk=thread_id).exists()


def test_a_first_turn_that_stands_in_another_thread_of_the_person_is_refused(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id)

    answer = agent.put_turn(uuid.uuid4(), turn_id)

    assert answer.status_code == 409
    assert answer.json()["code"] == "turn_elsewhere"


def test_a_turn_id_of_somebody_else_is_free_for_use(agent, bob, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id)
    agent.acts_for = "bob"

    assert agent.put_turn(uuid.uuid4(), turn_id).status_code == 201


# --- Statuses -----------------------------------------------------------------------------


def test_a_pending_turn_may_be_put_again_until_it_is_final(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, status="pending", waiting_for="approval", revision=1)
    agent.put_turn(thread_id, turn_id, status="pending", answer="Nearly", revision=2)

    final = agent.put_turn(thread_id, turn_id, answer="Done", revision=3)

    assert final.status_code == 200
    assert final.json()["status"] == "complete"
    assert (stored(thread_id).answer, stored(thread_id).waiting_for) == ("Done", None)
    assert stored_positions(thread_id) == [1]


def test_an_older_revision_of_a_pending_turn_is_a_conflict(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, status="pending", answer="Newer", revision=5)

    answer = agent.put_turn(thread_id, turn_id, status="pending", answer="Older", revision=4)

    assert answer.status_code == 409
    assert stored(thread_id).answer == "Newer"


def test_a_revision_that_says_what_one_before_it_said_is_stored(agent, thread_id):
    turn_id = uuid.uuid4()
    for revision, answer in enumerate(["One", "Two", "One"], start=1):
        agent.put_turn(thread_id, turn_id, status="pending", answer=answer, revision=revision)

    assert stored(thread_id).answer == "One"
    assert stored(thread_id).revision == 3


def test_a_revision_may_change_only_whom_it_waits_for(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, status="pending", waiting_for="ana", revision=1)
    agent.put_turn(thread_id, turn_id, status="pending", waiting_for="finance", revision=2)

    assert stored(thread_id).waiting_for == "finance"
    assert "waiting for finance" in agent.context(thread_id).json()["text"]


def test_a_conflict_says_which_revision_is_to_be_beaten(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, status="pending", answer="Newer", revision=5)

    answer = agent.put_turn(thread_id, turn_id, status="pending", answer="Older", revision=5)

    assert answer.json()["stored"] == {"position": 1, "status": "pending", "revision": 5}


def test_a_late_retry_of_the_pending_body_does_not_undo_the_final_one(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, status="pending", revision=1)
    agent.put_turn(thread_id, turn_id, answer="Done", revision=2)

    late = agent.put_turn(thread_id, turn_id, status="pending", revision=1)

    assert late.status_code == 200
    assert late.json()["status"] == "complete"
    assert stored(thread_id).answer == "Done"


@pytest.mark.parametrize("status", ["complete", "stopped", "failed"])
def test_a_final_turn_can_not_be_put_again(agent, thread_id, status):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, status=status)

    answer = agent.put_turn(thread_id, turn_id, answer="More", revision=9)

    assert answer.status_code == 409


def test_a_stopped_turn_keeps_its_partial_answer_and_says_so_in_the_view(agent, thread_id):
    agent.put_turn(thread_id, answer="North leads, and", status="stopped")

    assert "[t1] you (stopped): North leads, and\n" in agent.context(thread_id).json()["text"]


def test_a_completed_turn_shows_in_a_warm_view(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, status="pending", waiting_for="approval")
    assert "(pending, waiting for approval)" in agent.context(thread_id).json()["text"]

    agent.put_turn(thread_id, turn_id, answer="Approved.", revision=1)

    view = agent.context(thread_id).json()
    assert view["source"] == "cache"
    assert "[t1] you: Approved.\n" in view["text"]


# --- Titles (I5) --------------------------------------------------------------------------

FAMILY = "👨‍👩‍👧‍👦"


@pytest.mark.parametrize("characters", [255, 256, 10_000, 2_000_000])
def test_a_long_first_message_is_stored_whole_and_cut_cleanly_in_the_title(
    agent, thread_id, characters
):
    query = "r" * characters

    answer = agent.put_turn(thread_id, query=query)

    assert answer.status_code == 201
    assert answer.json()["title"] == "r" * 120 + "…"
    assert stored(thread_id).query == query


@pytest.mark.parametrize("grapheme", [FAMILY, "é", "🇩🇪", "नि", "👍🏽"])
def test_a_title_is_never_cut_inside_what_reads_as_one_character(agent, thread_id, grapheme):
    title = agent.put_turn(thread_id, query=grapheme * 500).json()["title"].removesuffix("…")

    assert title
    assert title == grapheme * (len(title) // len(grapheme))


def test_a_turn_without_text_is_titled_by_its_file(agent, thread_id):
    answer = agent.put_turn(
        thread_id, query="", artifacts=[{"kind": "file", "name": "budget 2026.xlsx"}]
    )

    assert answer.status_code == 201
    assert answer.json()["title"] == "budget 2026.xlsx"


def test_a_file_that_is_only_found_in_the_payload_titles_a_turn_as_well(agent, thread_id):
    answer = agent.put_turn(
        thread_id, query="", response_payload={"files": [{"name": "budget 2026.xlsx"}]}
    )

    assert answer.status_code == 201, answer.content
    assert answer.json()["title"] == "budget 2026.xlsx"


def test_a_turn_with_neither_text_nor_file_is_refused(agent, thread_id):
    answer = agent.put_turn(thread_id, query="  ")

    assert answer.status_code == 422
    assert "query" in json.dumps(answer.json()["errors"])


# --- Times (C3, C8) -----------------------------------------------------------------------


def test_turns_of_one_instant_keep_their_order(agent, thread_id):
    for n in range(20):
        agent.put_turn(thread_id, query=f"q{n}", created_at="2026-03-01T10:00:00Z")

    turns = agent.get(f"threads/{thread_id}/turns").json()["results"]
    assert [turn["query"] for turn in turns] == [f"q{n}" for n in range(20)]


def test_a_clock_that_was_set_back_does_not_reorder_turns(agent, thread_id):
    agent.put_turn(thread_id, query="first", created_at="2026-03-01T10:00:01Z")
    agent.put_turn(thread_id, query="second", created_at="2026-03-01T10:00:00Z")

    text = agent.context(thread_id).json()["text"]
    assert text.index("first") < text.index("second")


def test_a_time_with_another_offset_is_one_instant_everywhere(agent, thread_id):
    answer = agent.put_turn(thread_id, created_at="2026-03-07T23:59:59-08:00")

    assert answer.json()["created_at"] == "2026-03-08T07:59:59Z"
    assert stored(thread_id).created_at == datetime(2026, 3, 8, 7, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    "sent", ["2026-03-01T10:00:00", "yesterday", 5, "1700000000", "", "2999-01-01T00:00:00Z"]
)
def test_a_time_that_is_naive_unreadable_or_in_the_future_is_refused(agent, thread_id, sent):
    answer = agent.put_turn(thread_id, created_at=sent)

    assert answer.status_code == 422
    assert "created_at" in answer.json()["errors"]


def test_a_clock_a_little_ahead_is_taken_as_now(agent, thread_id):
    ahead = datetime.now(UTC) + timedelta(minutes=2)

    answer = agent.put_turn(thread_id, created_at=ahead.isoformat())

    assert datetime.fromisoformat(answer.json()["created_at"]) <= datetime.now(UTC)
