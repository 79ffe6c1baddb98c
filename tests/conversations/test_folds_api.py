"""`GET /threads/{id}/folds`: why memory says what it says."""

from __future__ import annotations

import uuid

import pytest

from conversations.folds import FoldOutcome
from conversations.models import ConversationThread
from rbac.models import User
from tests.conversations.conftest import Caller
from tests.conversations.fold_world import ScriptedSummarizer, grow

pytestmark = pytest.mark.django_db(transaction=True)


def fold_all(thread: ConversationThread) -> None:
    while thread.fold(ScriptedSummarizer()) == FoldOutcome.FOLDED:
        pass


def test_newest_first_with_range_model_prompt_and_text(agent, ana) -> None:
    thread = grow(ana, 40)
    fold_all(thread)
    newest, oldest = agent.get(f"threads/{thread.pk}/folds").json()["results"]
    assert (oldest["first"], oldest["last"], newest["first"], newest["last"]) == (1, 11, 12, 22)
    assert (newest["model"], newest["prompt"]["source"]) == ("scripted", "none")
    assert newest["summary"] == agent.context(thread.pk).json()["summary"]


def test_the_pages_follow_each_other(agent, ana) -> None:
    thread = grow(ana, 60)
    fold_all(thread)
    lasts, page = [], agent.get(f"threads/{thread.pk}/folds", limit=2).json()
    while page["next"]:
        lasts += [fold["last"] for fold in page["results"]]
        page = agent.client.get(page["next"]).json()
    lasts += [fold["last"] for fold in page["results"]]
    assert lasts == [44, 33, 22, 11]


def test_a_thread_with_nothing_folded_has_none(agent, ana) -> None:
    thread = grow(ana, 3)
    assert agent.get(f"threads/{thread.pk}/folds").json() == {"results": [], "next": None}


def test_somebody_elses_and_an_absent_thread_answer_alike(bob, ana) -> None:
    thread = grow(ana, 21)
    fold_all(thread)
    caller = Caller(User.objects.get(pk=bob.pk))
    theirs, absent = (caller.get(f"threads/{one}/folds") for one in (thread.pk, uuid.uuid4()))
    assert (theirs.status_code, theirs.json()["code"]) == (404, absent.json()["code"])


def test_they_go_with_the_thread(agent, ana) -> None:
    thread = grow(ana, 21)
    fold_all(thread)
    agent.delete(f"threads/{thread.pk}")
    assert agent.get(f"threads/{thread.pk}/folds").status_code == 404
    assert not thread.folds.exists()


def test_the_events_say_what_was_folded_without_its_text(agent, ana) -> None:
    thread = grow(ana, 21)
    fold_all(thread)
    (event,) = agent.get(f"threads/{thread.pk}/events").json()["results"]
    assert (event["kind"], event["data"]["from"], event["data"]["to"]) == ("memory_folded", 1, 11)
    assert len(event["data"]["summary_sha256"]) == 64
