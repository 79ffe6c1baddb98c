"""Another's thread and an absent one give the same 404, on every road (H1, H3)."""

import uuid

import pytest
from django.db.models import ProtectedError

from conversations.models import ConversationThread, ThreadMessage
from conversations.urls import urlpatterns
from rbac.models import User
from tests.conversations.conftest import Caller

TURN = uuid.UUID("7c5fd2f0-3f3a-4d61-9c53-5d1a6a8e2b11")
ROADS = [
    ("get", ""),
    ("patch", ""),
    ("delete", ""),
    ("get", "/turns"),
    ("get", f"/turns/{TURN}"),
    ("get", "/artifacts"),
    ("get", "/artifacts/t1.1"),
    ("get", "/context"),
    ("get", "/events"),
    ("get", "/folds"),
    ("post", "/rehydrate"),
]


# Where nothing of a thread is named, or one is made: tested elsewhere.
NOT_ABOUT_ONE_THREAD = {("get", "threads"), ("post", "turns"), ("put", "turn")}
NAMES = {"": "thread", "/turns": "turns", f"/turns/{TURN}": "turn", "/artifacts": "artifacts",
         "/artifacts/t1.1": "artifact", "/context": "context", "/events": "events", "/folds": "folds",
         "/rehydrate": "rehydrate"}  # fmt: skip


def test_every_road_there_is_is_tried():
    there = {
        (method, pattern.name)
        for pattern in urlpatterns
        if str(pattern.pattern).startswith("threads")  # sessions: test_sessions_api.py
        for method in ("get", "post", "put", "patch", "delete")
        if hasattr(pattern.callback.view_class, method)
    }

    assert {(method, NAMES[road]) for method, road in ROADS} == there - NOT_ABOUT_ONE_THREAD


@pytest.fixture
def anas_thread(agent, thread_id):
    agent.put_turn(
        thread_id, TURN, query="Ana's figures", artifacts=[{"kind": "sql", "sql": "SELECT 1"}]
    )
    agent.context(thread_id)
    return thread_id


def callers(agent, bob, outsider):
    """Everybody who must not see Ana's thread."""
    return {
        "the agent acting for Bob": Caller(agent.user, acts_for="bob"),
        "Bob himself": Caller(User.objects.get(pk=bob.pk)),
        "an admin of the tenant": Caller(User.objects.create_user("acme", "root", role="admin")),
        "Ana of another tenant": Caller(User.objects.get(pk=outsider.pk)),
        "another tenant's agent for its Ana": Caller(
            User.objects.create_user("other", "bot", role="agent"), acts_for="ana"
        ),
    }


def call(caller, method, thread_id, road):
    query = f"?user_id={caller.acts_for}" if caller.acts_for else ""
    address = f"/api/v1/threads/{thread_id}{road}{query}"
    body = {"pinned": True} if method == "patch" else None
    return getattr(caller.client, method)(address, body, format="json")


@pytest.mark.parametrize(("method", "road"), ROADS)
def test_anothers_thread_answers_as_an_absent_one(agent, bob, outsider, anas_thread, method, road):
    for who, caller in callers(agent, bob, outsider).items():
        foreign = call(caller, method, anas_thread, road)
        absent = call(caller, method, uuid.uuid4(), road)

        assert foreign.status_code == absent.status_code == 404, who
        strip = lambda answer: {k: v for k, v in answer.json().items() if k != "request_id"}  # noqa: E731
        assert strip(foreign) == strip(absent), who


def test_a_turn_put_into_anothers_thread_is_refused_and_changes_nothing(
    agent, bob, outsider, anas_thread
):
    before = ConversationThread.objects.values().get(pk=anas_thread)

    for who, caller in callers(agent, bob, outsider).items():
        assert caller.put_turn(anas_thread).status_code == 404, who
        assert caller.put_turn(anas_thread, TURN, query="Ana's figures").status_code == 404, who
        assert caller.put_turn(anas_thread, expected_position=9).status_code == 404, who
        post = {"query": "q", "agent_type": "chat"} | (
            {"user_id": caller.acts_for} if caller.acts_for else {}
        )
        answer = caller.client.post(f"/api/v1/threads/{anas_thread}/turns", post, format="json")
        assert answer.status_code == 404, who

    assert ConversationThread.objects.values().get(pk=anas_thread) == before
    assert ThreadMessage.objects.count() == 1


def test_with_missing_empty_a_foreign_and_an_absent_thread_are_the_same_empty_view(
    agent, bob, anas_thread
):
    bobs = Caller(agent.user, acts_for="bob")
    foreign = bobs.context(anas_thread, missing="empty")
    absent_id = uuid.uuid4()
    absent = bobs.context(absent_id, missing="empty")

    assert foreign.status_code == absent.status_code == 200
    assert foreign.json()["text"] == ""
    same = {"thread_id": None}
    assert {**foreign.json(), **same} == {**absent.json(), **same}


def test_the_owner_is_refused_nothing(anas_thread, ana):
    own = Caller(User.objects.get(pk=ana.pk))

    for method, road in ROADS[3:]:
        assert call(own, method, anas_thread, road).status_code == 200, road


def test_a_warm_thread_is_refused_by_its_row_alone(
    agent, bob, anas_thread, django_assert_num_queries
):
    bobs = Caller(agent.user, acts_for="bob")
    bobs.context(uuid.uuid4())  # now the token and Bob are cached

    with django_assert_num_queries(1):
        assert bobs.context(anas_thread).status_code == 404


@pytest.mark.parametrize("road", ["", "/context", "/turns"])
def test_nobody_is_answered_without_a_token(api, anas_thread, road):
    answer = api.get(f"/api/v1/threads/{anas_thread}{road}")

    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"


def test_an_agent_that_names_nobody_is_told_to(agent, thread_id):
    agent.acts_for = None

    answer = agent.get("threads")

    assert answer.status_code == 422
    assert answer.json()["code"] == "user_id_required"


def test_a_person_who_names_another_is_refused(ana, anas_thread):
    own = Caller(User.objects.get(pk=ana.pk))

    assert own.get("threads", user_id="bob").status_code == 403


def test_a_person_who_still_has_threads_can_not_be_deleted(anas_thread, ana):
    with pytest.raises(ProtectedError):
        User.objects.get(pk=ana.pk).delete()


def test_a_person_made_anew_under_an_old_name_inherits_nothing(agent, anas_thread, ana):
    agent.delete(f"threads/{anas_thread}")
    User.objects.get(pk=ana.pk).delete()
    User.objects.create_user("acme", "ana")

    assert agent.context(anas_thread).status_code == 404
    assert agent.get("threads").json()["results"] == []
    assert agent.put_turn(anas_thread, TURN, query="Ana's figures").status_code == 404
