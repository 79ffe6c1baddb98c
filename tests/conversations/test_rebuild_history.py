"""manage.py rebuild_history"""

from __future__ import annotations

import io
import json
import signal
import uuid
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models import F

from config import dynamodb
from conversations import history
from conversations.history import Owner
from conversations.history_table import ensure_table_exists
from conversations.management.commands import rebuild_history
from conversations.models import ConversationThread, ThreadMessage
from conversations.session_records import SessionRecord
from conversations.sessions import SessionStore
from rbac.models import User
from rbac.principal import Person
from tests.conversations.history_world import raw
from tests.conversations.session_world import question


def run(*args):
    out, err = io.StringIO(), io.StringIO()
    call_command("rebuild_history", *args, stdout=out, stderr=err, no_color=True)
    return out.getvalue(), err.getvalue()


def failure(*args):
    with pytest.raises(CommandError) as caught:
        run(*args)
    return caught.value


@pytest.fixture
def ana(transactional_db):
    ensure_table_exists()
    return Person.of(User.objects.create_user("acme", f"ana-{uuid.uuid4().hex[:8]}"))


@pytest.fixture
def items(ana):
    """Returns what the table has of three archived sessions; it has been emptied."""
    store, owner = SessionStore("acme"), Owner("acme", ana.user_id)
    for n in range(3):
        store.open(ana, f"s-{n}")
        store.add(ana, f"s-{n}", question(n))
        store.end(ana, f"s-{n}")
        SessionRecord.objects.get(session_id=f"s-{n}").archive()

    def read():
        return [raw(owner, f"s-{n}") for n in range(3)]

    read.before = read()
    history.delete_user(owner)
    return read


def test_the_table_is_as_it_was(items):
    assert items() == [None] * 3
    assert run()[0] == "Wrote 3 sessions.\n"
    assert items() == items.before, "the time to live included"
    assert run()[0] == "Wrote 3 sessions.\n", "and again"


def test_a_dry_run_writes_nothing(items):
    assert run("--dry-run")[0] == "Would write 3 sessions.\n"
    assert items() == [None] * 3


def test_one_persons(items, ana):
    bob = Person.of(User.objects.create_user("acme", "bob"))
    assert run("--owner", "acme/bob")[0] == "Wrote 0 sessions.\n"
    assert run("--owner", f"acme/{ana.user_id}")[0] == "Wrote 3 sessions.\n"
    assert "nobody" in str(failure("--owner", "acme/eve"))
    assert bob.user_id == "bob"


def test_what_has_expired_and_what_is_silent_is_left_out(items, settings):
    old, silent = SessionRecord.objects.order_by("session_id")[:2]
    ThreadMessage.objects.filter(thread_id=old.thread_id).update(
        created_at=F("created_at") - timedelta(days=settings.DYNAMODB_TTL_DAYS, hours=1)
    )
    ConversationThread.objects.filter(pk=silent.thread_id).update(memory_enabled=False)
    assert run()[0] == "Wrote 1 session, 1 expired.\n"
    assert [bool(one) for one in items()] == [False, False, True]


def test_what_waits_to_be_archived_stays_with_the_sweep(items):
    SessionRecord.objects.filter(session_id="s-0").update(archived_seq=0)
    assert run()[0] == "Wrote 2 sessions.\n"


def test_a_newer_item_is_left(items):
    run()
    ThreadMessage.objects.update(created_at=F("created_at") - timedelta(days=1))
    assert run()[0] == "Wrote 0 sessions, 3 newer there.\n"
    assert items() == items.before


def test_a_thread_deleted_meanwhile_leaves_its_session_to_the_sweep(items, monkeypatch):
    record = SessionRecord.objects.get(session_id="s-0")
    save = history.save_session_summary

    def meanwhile(summary):
        if summary.session_id == "s-0":
            with transaction.atomic():
                ConversationThread.objects.get(pk=record.thread_id).forget()
            record.archive()
        return save(summary)

    monkeypatch.setattr(history, "save_session_summary", meanwhile)
    run()
    assert items()[0] is not None
    record.archive()
    assert items()[0] is None


def test_lines_for_programs(items):
    *lines, summary = map(json.loads, run("--json")[0].splitlines())
    assert [(one["type"], one["status"]) for one in lines] == [("session", "written")] * 3
    assert {one["session_id"] for one in lines} == {"s-0", "s-1", "s-2"}
    assert summary == {
        "type": "summary", "written": 3, "newer": 0, "expired": 0, "empty": 0, "failed": 0,
        "dry_run": False,
    }  # fmt: skip


def test_pages_are_gone_through(items, monkeypatch):
    monkeypatch.setattr(rebuild_history, "_BATCH", 2)
    assert run()[0] == "Wrote 3 sessions.\n"


def test_it_goes_on_where_it_was_stopped(items, monkeypatch):
    first, *_ = SessionRecord.objects.order_by("pk")
    save = history.save_session_summary

    def stopping(summary):
        signal.raise_signal(signal.SIGINT)
        return save(summary)

    monkeypatch.setattr(history, "save_session_summary", stopping)
    error = failure()
    monkeypatch.setattr(history, "save_session_summary", save)
    assert error.returncode == 130
    assert (
        f"1 of 3 sessions written. Go on with: manage.py rebuild_history --after {first.pk}"
        in str(error)
    )
    assert run("--after", str(first.pk))[0] == "Wrote 2 sessions.\n"
    assert items() == items.before


def test_a_dynamodb_that_is_away_ends_it(items, settings):
    settings.DYNAMODB_ENDPOINT_URL = "http://127.0.0.1:9"
    dynamodb.forget_client()
    try:
        error = failure()
    finally:
        dynamodb.forget_client()
    assert "history_unavailable" in str(error)
    assert error.returncode == 1


def test_a_missing_table_is_made(items, settings):
    settings.HISTORY_TABLE = f"t-{uuid.uuid4().hex[:8]}"
    assert run()[0] == "Wrote 3 sessions.\n"
