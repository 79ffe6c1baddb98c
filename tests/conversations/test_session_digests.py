"""What a session is told of itself and of those before it, and a person of theirs, over HTTP."""

from __future__ import annotations

import uuid

import pytest

from config import dynamodb
from conversations import history
from conversations.history import Owner
from conversations.history_table import ensure_table_exists
from conversations.models import ConversationThread
from conversations.session_records import SessionRecord
from conversations.session_turns import thread_id_of
from rbac.models import User
from tests.conversations.conftest import Caller
from tests.conversations.history_world import at, ended
from tests.conversations.session_world import SessionCaller, let_time_pass


@pytest.fixture(autouse=True)
def _table():
    ensure_table_exists()


@pytest.fixture
def agent(transactional_db):
    """An agent for somebody whom no other test knows: DynamoDB is not emptied."""
    name = f"ana-{uuid.uuid4().hex[:8]}"
    User.objects.create_user("acme", name)
    return Caller(User.objects.create_user("acme", "bi", role="agent"), acts_for=name)


@pytest.fixture
def owner(agent):
    return Owner("acme", agent.acts_for)


@pytest.fixture
def away(settings):
    settings.DYNAMODB_ENDPOINT_URL = "http://127.0.0.1:9"
    dynamodb.forget_client()
    yield
    dynamodb.forget_client()


def over(agent, session_id, number):
    """A session with one turn, ended and archived."""
    talk = SessionCaller(agent, session_id)
    talk.open()
    talk.ask(number)
    assert talk.send("post", "/end").status_code == 200
    assert SessionRecord.objects.get(session_id=session_id).archive() == "archived"
    return talk


def test_a_new_session_is_told_of_the_newest_five_of_ten_and_again_on_a_retry(agent, owner):
    for n in range(10):
        line = f'Question: "Q{n}" | Result: 1 row'
        history.save_session_summary(ended(owner, f"s-{n}", line, last_message=at(-n)))

    first, again = (SessionCaller(agent, "new").open().json() for _ in range(2))
    told = first["session_digest"]
    assert [f'"Q{n}"' in told for n in range(10)] == [True] * 5 + [False] * 5
    assert again["session_digest"] == told
    assert (first["digest"], first["history_available"]) == ("", True)


def test_its_own_digest_stands_apart(agent):
    talk = over(agent, "s-1", 1)
    opened = talk.open().json()
    assert opened["reopened"] is True
    assert 'Conversation: "Question 1"' in opened["digest"]
    assert opened["session_digest"] == ""
    assert talk.send("get", "/digest").json() == {"session_id": "s-1", "digest": opened["digest"]}
    assert "Question 1" in SessionCaller(agent, "s-2").open().json()["session_digest"]


def test_a_session_that_is_not_archived_yet_is_told_of_as_well(agent):
    talk = over(agent, "s-1", 1)
    talk.open()
    talk.ask(2)
    told = SessionCaller(agent, "s-2").open().json()["session_digest"]
    assert told.count("Question 1") == told.count("Question 2") == 1


def test_while_dynamodb_is_away_postgresql_tells_what_waits(agent, away):
    talk = SessionCaller(agent, "s-1")
    talk.open()
    talk.ask(1)
    talk.send("post", "/end")

    answer = SessionCaller(agent, "s-2").open()
    assert answer.status_code == 201
    assert answer.json()["history_available"] is False
    assert "Question 1" in answer.json()["session_digest"]
    listed = agent.client.get(f"/api/v1/users/{agent.acts_for}/sessions").json()
    assert ([one["session_id"] for one in listed["results"]], listed["history_available"]) == (
        ["s-1"], False,
    )  # fmt: skip


def test_a_missing_table_is_no_error_either(agent, settings):
    settings.HISTORY_TABLE = "nowhere"
    answer = SessionCaller(agent, "s-1").open()
    assert (answer.status_code, answer.json()["session_digest"]) == (201, "")
    assert answer.json()["history_available"] is False


@pytest.mark.parametrize("archived", [True, False])
def test_a_thread_without_memory_is_not_told_of(agent, archived):
    talk = SessionCaller(agent, "s-1")
    if archived:
        over(agent, "s-1", 1)
    else:
        talk.open()
        talk.ask(1)
    ConversationThread.objects.update(memory_enabled=False)

    assert SessionCaller(agent, "s-2").open().json()["session_digest"] == ""
    over(agent, "s-3", 3)
    assert talk.open().json()["session_digest"] == "", "nor told"


def test_a_deleted_threads_session_is_not_told_of_while_its_digest_is_still_there(agent):
    talk = over(agent, "s-1", 1)
    assert agent.delete(f"threads/{thread_id_of(talk.key)}").status_code == 204
    answer = SessionCaller(agent, "s-2").open().json()
    assert (answer["session_digest"], answer["history_available"]) == ("", True)


def test_the_digest_of_an_expired_or_foreign_session_is_a_404(agent, redis):
    talk = SessionCaller(agent, "s-1")
    talk.open()
    stranger = SessionCaller(Caller(agent.user, acts_for="bob"), "s-1")
    assert stranger.send("get", "/digest").status_code == 404
    let_time_pass(31, redis)
    assert talk.send("get", "/digest").status_code == 404


def test_a_persons_sessions_are_listed_newest_first(agent):
    for n in (1, 2, 3):
        over(agent, f"s-{n}", n)
    path = f"/api/v1/users/{agent.acts_for}/sessions"
    listed = agent.client.get(path, {"limit": 2}).json()
    assert [one["session_id"] for one in listed["results"]] == ["s-3", "s-2"]
    newest = listed["results"][0]
    assert (newest["message_count"], newest["queries_executed"], newest["topics"]) == (2, 0, [])
    assert newest["first_message"] <= newest["last_message"]
    assert agent.client.get(path, {"limit": 0}).status_code == 422


def test_a_persons_digest(agent):
    over(agent, "s-1", 1)
    answer = agent.client.get(f"/api/v1/users/{agent.acts_for}/digest").json()
    assert "Question 1" in answer["session_digest"]


@pytest.mark.parametrize("what", ["sessions", "digest"])
def test_a_person_reads_their_own_and_nobody_elses(agent, what):
    over(agent, "s-1", 1)
    ana = Caller(User.objects.get(user_id=agent.acts_for))
    bob = Caller(User.objects.create_user("acme", "bob"))
    path = f"/api/v1/users/{agent.acts_for}/{what}"
    assert "Question 1" in ana.client.get(path).content.decode()
    assert bob.client.get(path).status_code == 403
    namesake = Caller(User.objects.create_user("other", agent.acts_for))
    assert "Question 1" not in namesake.client.get(path).content.decode()
