"""Ended and expired sessions on their way into long-term history."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.utils import timezone
from django_q.models import OrmQ

from config import dynamodb
from conversations import history, session_archive
from conversations.digest import SessionSummary
from conversations.events import SessionEvent
from conversations.history_table import ensure_table_exists
from conversations.models import ConversationThread, ThreadMessage
from conversations.session_archive import ArchiveOutcome
from conversations.session_records import SessionRecord
from conversations.sessions import SessionStore
from conversations.tasks import archive_session, sweep_sessions
from rbac.models import User
from rbac.principal import Person
from tests.conversations.history_world import raw
from tests.conversations.session_world import let_time_pass, line, new_id, question


@pytest.fixture(autouse=True)
def _table():
    ensure_table_exists()


@pytest.fixture
def ana(transactional_db):
    """Ana under a name that no other test has used: DynamoDB is not emptied."""
    return Person.of(User.objects.create_user("acme", f"ana-{uuid.uuid4().hex[:8]}"))


@pytest.fixture
def store():
    return SessionStore("acme")


@pytest.fixture
def away(settings):
    here = settings.DYNAMODB_ENDPOINT_URL

    def point(away):
        settings.DYNAMODB_ENDPOINT_URL = "http://127.0.0.1:9" if away else here
        dynamodb.forget_client()

    point(True)
    yield point
    point(False)


def item(owner, session_id="s-1"):
    return raw(history.Owner(owner.tenant, owner.user_id), session_id)


def asked(store, owner, *numbers, session_id="s-1"):
    store.open(owner, session_id)
    for n in numbers:
        store.add(owner, session_id, question(n))
    return SessionRecord.objects.get(session_id=session_id)


@pytest.fixture
def over(store, ana):
    """A session of two turns that has expired."""
    record = asked(store, ana, 1, 2)
    let_time_pass(31)
    return record


def test_an_expired_session_stands_in_dynamodb_with_every_attribute(store, ana):
    store.open(ana, "s-1")
    kpis = {"sql": "SELECT 1", "query_results": [{"n": 1}], "kpis": {"Total Ingresos": "$8.2M"}}
    store.add(
        ana,
        "s-1",
        [line("user", "ingresos del periodo"), line("assistant", "8.2", metadata=kpis)],
    )
    store.add(ana, "s-1", question(2))
    let_time_pass(31)

    record = SessionRecord.objects.get()
    assert record.archive() == ArchiveOutcome.ARCHIVED

    stored, turns = item(ana), list(ThreadMessage.objects.order_by("position"))
    assert {name: next(iter(value)) for name, value in stored.items()} == {
        "user_id": "S", "session_id": "S", "summary": "S", "message_count": "N",
        "queries_executed": "N", "topics": "SS", "first_message": "S", "last_message": "S",
        "ttl": "N",
    }  # fmt: skip
    assert stored["user_id"] == {"S": f"acme#{ana.user_id}"}
    assert 'Question: "ingresos del periodo" | Result: 1 row' in stored["summary"]["S"]
    assert (stored["message_count"]["N"], stored["queries_executed"]["N"]) == ("4", "1")
    assert stored["topics"]["SS"] == ["ingresos"]
    assert stored["last_message"]["S"] == history._written(turns[1].created_at)
    assert stored["first_message"]["S"] <= history._written(turns[0].created_at)
    record.refresh_from_db()
    assert (record.archived_seq, record.topics, record.queries_executed) == (2, ["ingresos"], 1)
    assert (record.claimed_until, record.attempts) == (None, 0)
    assert record.archive() == ArchiveOutcome.NOT_DUE


def test_a_session_that_is_in_use_is_not_due(store, ana):
    assert asked(store, ana, 1).archive() == ArchiveOutcome.NOT_DUE
    assert item(ana) is None


def test_it_needs_no_redis(over, ana, redis):
    redis.flushdb()
    assert over.archive() == ArchiveOutcome.ARCHIVED
    assert 'Conversation: "Question 2"' in item(ana)["summary"]["S"]


def test_it_refuses_to_run_inside_a_transaction(over):
    with transaction.atomic(), pytest.raises(transaction.TransactionManagementError):
        over.archive()


def test_a_claim_keeps_others_away_until_it_ends(over):
    SessionRecord.objects.update(claimed_until=timezone.now() + timedelta(seconds=30))
    assert over.archive() == ArchiveOutcome.NOT_DUE
    assert sweep_sessions() == 0
    SessionRecord.objects.update(claimed_until=timezone.now())  # its worker was killed
    assert over.archive() == ArchiveOutcome.ARCHIVED


def test_a_claim_that_was_lost_notes_nothing(over, monkeypatch):
    def slow(_summary: SessionSummary):
        SessionRecord.objects.update(claimed_until=timezone.now() + timedelta(hours=1))

    monkeypatch.setattr(history, "save_session_summary", slow)
    assert over.archive() == ArchiveOutcome.LOST
    over.refresh_from_db()
    assert over.archived_seq == 0
    assert over.claimed_until > timezone.now()


def test_a_message_during_the_write_leaves_it_due(over, store, ana, monkeypatch):
    save = history.save_session_summary

    def meanwhile(summary):
        monkeypatch.setattr(history, "save_session_summary", save)
        assert not transaction.get_connection().in_atomic_block
        store.add(ana, "s-1", question(3))
        return save(summary)

    monkeypatch.setattr(history, "save_session_summary", meanwhile)
    assert over.archive() == ArchiveOutcome.ARCHIVED
    over.refresh_from_db()
    assert (over.archived_seq, over.turn_seq) == (2, 3)
    assert "Question 3" not in item(ana)["summary"]["S"]

    let_time_pass(31)
    assert over.archive() == ArchiveOutcome.ARCHIVED
    assert "Question 3" in item(ana)["summary"]["S"]


def test_a_dynamodb_that_is_away_is_waited_for_ever_longer(over, ana, away):
    waits = []
    for _ in range(3):
        assert over.archive() == ArchiveOutcome.FAILED
        assert over.archive() == ArchiveOutcome.NOT_DUE, "not before its time"
        over.refresh_from_db()
        waits.append(round((over.next_attempt_at - timezone.now()).total_seconds(), -1))
        assert over.claimed_until is None
        SessionRecord.objects.update(next_attempt_at=timezone.now())
    assert waits == [60, 120, 240]
    away(False)

    assert over.archive() == ArchiveOutcome.ARCHIVED
    assert item(ana) is not None
    over.refresh_from_db()
    assert over.attempts == 0


def test_the_pause_ends_at_an_hour(over, away):
    SessionRecord.objects.update(attempts=30)
    over.archive()
    over.refresh_from_db()
    assert 3500 < (over.next_attempt_at - timezone.now()).total_seconds() <= 3600


def test_a_failure_is_an_event_with_a_code_and_no_text(over, away):
    over.archive()
    event = SessionEvent.objects.get(kind=session_archive.FAILED)
    assert (event.code, event.attempt, event.thread_id) == (
        "history_unavailable", 1, over.thread_id,
    )  # fmt: skip
    assert event.next_attempt_at > timezone.now()
    assert event.data == {"session": str(over.pk)}


def test_a_fault_of_ours_is_told_without_what_was_said(over, monkeypatch):
    def broken(*_):
        raise ValueError("Question 1 was secret")

    monkeypatch.setattr(history, "save_session_summary", broken)
    assert over.archive() == ArchiveOutcome.FAILED
    event = SessionEvent.objects.get(kind=session_archive.FAILED)
    assert (event.code, event.data["error"]) == ("unexpected", "ValueError")
    assert "secret" not in str(event.data)


def test_nothing_is_archived_while_the_threads_memory_is_off(over, ana):
    thread = ConversationThread.objects.filter(pk=over.thread_id)
    thread.update(memory_enabled=False)
    assert (over.archive(), sweep_sessions()) == (ArchiveOutcome.NOT_DUE, 0)
    assert item(ana) is None

    thread.update(memory_enabled=True)
    assert over.archive() == ArchiveOutcome.ARCHIVED


def test_a_thread_deleted_during_the_write_leaves_no_digest(over, ana, monkeypatch):
    save = history.save_session_summary

    def meanwhile(summary):
        with transaction.atomic():
            ConversationThread.objects.get(pk=over.thread_id).forget()
        return save(summary)

    monkeypatch.setattr(history, "save_session_summary", meanwhile)
    assert over.archive() == ArchiveOutcome.LOST
    assert OrmQ.objects.get().func() == "conversations.tasks.archive_session"
    assert over.archive() == ArchiveOutcome.ARCHIVED
    assert item(ana) is None


def test_deleting_the_thread_takes_the_digest_away(over, store, ana):
    over.archive()
    assert item(ana) is not None
    with transaction.atomic():
        ConversationThread.objects.get(pk=over.thread_id).forget()
    assert archive_session(*OrmQ.objects.get().args()) == "archived"
    assert item(ana) is None
    assert sweep_sessions() == 0


def test_what_is_said_after_the_thread_was_deleted_is_a_digest_of_its_own(over, store, ana):
    over.archive()
    with transaction.atomic():
        ConversationThread.objects.get(pk=over.thread_id).forget()
    asked(store, ana, 3)
    let_time_pass(31)
    assert over.archive() == ArchiveOutcome.ARCHIVED
    told = item(ana)["summary"]["S"]
    assert ("Question 3" in told, "Question 1" in told) == (True, False)


def test_the_same_id_a_week_later_keeps_the_turns_of_both_times(over, store, ana):
    over.archive()
    let_time_pass(7 * 24 * 60)
    asked(store, ana, 3)
    let_time_pass(31)
    assert over.archive() == ArchiveOutcome.ARCHIVED
    told = item(ana)["summary"]["S"]
    assert all(f"Question {n}" in told for n in (1, 2, 3))


def test_two_at_once_write_it_once(over, ana):
    came = []

    def run():
        came.append(over.archive())
        connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == ["archived", "not_due", "not_due", "not_due"]


# --- Jobs -------------------------------------------------------------------------------------


def test_the_sweep_hands_its_claim_to_the_job(over, ana):
    assert (sweep_sessions(), sweep_sessions()) == (1, 0)
    job = OrmQ.objects.get()
    assert over.archive() == ArchiveOutcome.NOT_DUE, "it is the job's"
    assert job.func() == "conversations.tasks.archive_session"
    assert archive_session(*job.args()) == "archived"
    assert item(ana) is not None


def test_a_job_that_was_lost_is_queued_again(over):
    sweep_sessions()
    OrmQ.objects.all().delete()
    SessionRecord.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert sweep_sessions() == 1


def test_the_sweep_leaves_a_full_queue_alone(over, monkeypatch):
    monkeypatch.setattr("conversations.tasks._QUEUE_AT_MOST", 1)
    asked(SessionStore("acme"), Person.of(over.owner), 1, session_id=new_id())
    let_time_pass(31)
    assert (sweep_sessions(), sweep_sessions()) == (1, 0)


def test_an_end_queues_the_job_with_the_same_commit(store, ana):
    record = asked(store, ana, 1)
    OrmQ.objects.all().delete()
    with transaction.atomic():
        store.end(ana, "s-1")
        transaction.set_rollback(True)
    assert not OrmQ.objects.exists()

    store.end(ana, "s-1")
    store.end(ana, "s-1")
    job = OrmQ.objects.get()
    assert (job.func(), job.args()[0]) == ("conversations.tasks.archive_session", str(record.pk))
    assert archive_session(*job.args()) == "archived"
    assert item(ana) is not None


def test_an_end_of_nothing_queues_nothing(store, ana):
    store.open(ana, "s-1")
    store.end(ana, "s-1")
    assert not OrmQ.objects.exists()
