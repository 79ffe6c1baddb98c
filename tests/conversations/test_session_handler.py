"""save_session_to_thread_safe: an agent's run becomes a turn, or a logged event, never a raise."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import OperationalError, connection

from conversations.events import SessionEvent
from conversations.models import ThreadMessage
from conversations.session_handler import save_session_to_thread_safe
from rbac.models import User


@pytest.fixture
def snapshot(transactional_db, thread_id):
    return {
        "tenant": "acme", "user_id": "ana", "thread_id": thread_id, "session_uuid": uuid.uuid4(),
        "agent_type": "chat", "query": "Revenue by region", "answer": "North leads.",
    }  # fmt: skip


def test_a_run_becomes_a_turn(snapshot, thread_id):
    assert save_session_to_thread_safe(snapshot) is True
    assert ThreadMessage.objects.get(thread_id=thread_id).answer == "North leads."


def test_the_same_run_again_is_stored_once(snapshot, thread_id):
    save_session_to_thread_safe(snapshot)

    assert save_session_to_thread_safe(snapshot) is True
    assert ThreadMessage.objects.filter(thread_id=thread_id).count() == 1


def test_live_python_values_take_their_documented_form(snapshot, thread_id):
    key = uuid.uuid4()
    snapshot["response_payload"] = {
        "rows": [[date(2026, 1, 2), Decimal("1.10"), key, b"\x00\xff", float("nan")]],
        "took": timedelta(seconds=90),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    }

    assert save_session_to_thread_safe(snapshot)
    stored = ThreadMessage.objects.get(thread_id=thread_id).response_payload
    assert stored["rows"] == [["2026-01-02", "1.10", str(key), "AP8=", None]]
    assert (stored["took"], stored["at"]) == ("P0DT00H01M30S", "2026-01-02T03:04:05Z")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"query": ""}, "invalid"),
        ({"agent_type": None}, "agent_type_required"),
        ({"created_at": "2999-01-01T00:00:00Z"}, "invalid"),
        ({"user_id": "a#b"}, "invalid"),
    ],
)
def test_what_can_not_be_stored_is_an_event_with_a_code_and_without_the_text(
    snapshot, thread_id, change, code
):
    snapshot["answer"] = "a very private figure"

    assert save_session_to_thread_safe({**snapshot, **change}) is False

    event = SessionEvent.objects.get(thread_id=thread_id)
    assert (event.kind, event.code) == ("turn_not_stored", code)
    assert "private" not in str(event.__dict__)


@pytest.mark.parametrize(
    "change",
    [{"query": ""}, {"status": "a very private figure"}, {"answer": ["a very private figure"]},
     {"session_id": "a very private figure" * 20}],
)  # fmt: skip
def test_the_log_says_what_went_wrong_and_not_what_was_said(snapshot, change, capsys, caplog):
    snapshot["answer"] = "a very private figure"

    save_session_to_thread_safe({**snapshot, **change})

    logged = caplog.text + "".join(capsys.readouterr())
    assert "turn_not_stored" in logged
    assert "private" not in logged


def test_a_run_on_somebody_elses_thread_leaves_no_trace_there(snapshot, thread_id):
    save_session_to_thread_safe(snapshot)

    assert save_session_to_thread_safe({**snapshot, "user_id": "bob"}) is False
    assert not SessionEvent.objects.exists()


def test_a_late_run_on_a_deleted_thread_leaves_nothing_behind(snapshot, agent, thread_id):
    save_session_to_thread_safe(snapshot)
    agent.delete(f"threads/{thread_id}")

    assert save_session_to_thread_safe(snapshot) is False
    assert not SessionEvent.objects.exists()
    assert not ThreadMessage.objects.exists()


def test_an_agent_is_no_person_to_keep_a_thread_for(snapshot, agent):
    assert save_session_to_thread_safe({**snapshot, "user_id": "bi"}) is False


def test_nothing_is_stored_for_somebody_who_was_deactivated(snapshot, ana):
    User.objects.get(pk=ana.pk).deactivate()

    assert save_session_to_thread_safe(snapshot) is False
    assert not ThreadMessage.objects.exists()


@pytest.mark.parametrize("missing", ["tenant", "user_id", "thread_id", "session_uuid", "query"])
def test_a_snapshot_without_what_it_needs_does_not_raise(snapshot, missing):
    del snapshot[missing]

    assert save_session_to_thread_safe(snapshot) is False


def test_a_value_that_no_store_knows_does_not_raise(snapshot):
    circle = {}
    circle["circle"] = circle
    snapshot["response_payload"] = circle

    assert save_session_to_thread_safe(snapshot) is False


def test_a_database_that_is_gone_does_not_raise(snapshot, monkeypatch):
    def gone(*args, **kwargs):
        raise OperationalError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "cursor", gone)
        assert save_session_to_thread_safe(snapshot) is False


def test_the_event_is_read_by_the_threads_owner(snapshot, agent, thread_id):
    save_session_to_thread_safe(snapshot)
    save_session_to_thread_safe({**snapshot, "query": "Another"})

    events = agent.get(f"threads/{thread_id}/events").json()["results"]

    assert [(event["kind"], event["code"]) for event in events] == [
        ("turn_not_stored", "turn_conflict")
    ]
