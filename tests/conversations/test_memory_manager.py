"""`MemoryManager`: the names of document B over both tiers."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from conversations.exceptions import TooLarge
from conversations.history_table import ensure_table_exists
from conversations.memory_manager import get_memory_manager
from conversations.models import ThreadMessage
from conversations.session_keys import SessionKey
from conversations.session_problems import CheckpointsUnavailable, SessionNotFound
from conversations.session_records import SessionRecord
from rbac.models import User

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = [{"region": "North", "revenue": 4.1}]
SAID = {"sql": "SELECT 1", "query_results": ROWS, "kpis": {"Total": 4.1}}


def run(steps):
    async def whole():
        try:
            return await steps()
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(whole())


@pytest.fixture
def manager():
    return get_memory_manager()


async def turn(manager, **metadata):
    await manager.save_turn("s-81", role="user", content="Revenue?", user_id="ana")
    return await manager.save_turn(
        "s-81", role="assistant", content="North leads.", metadata=metadata
    )


def test_there_is_one_a_process_and_tenant(manager):
    assert get_memory_manager() is manager
    assert (manager.tenant, get_memory_manager("acme").tenant) == ("default", "acme")


def test_the_calls_of_document_b(manager):
    async def steps():
        added = await turn(manager, **SAID)
        context = await manager.get_conversation_context("s-81", max_turns=5)
        return added, context, await manager.get_previous_results("s-81")

    added, context, previous = run(steps)
    assert len(added.turns) == 1
    assert ThreadMessage.objects.get().answer == "North leads."
    assert context == [
        {"role": "user", "content": "Revenue?"},
        {"role": "assistant", "content": "North leads."},
    ]
    assert previous == {
        "previous_query_results": ROWS,
        "previous_column_names": ["region", "revenue"],
        "previous_kpis": {"Total": 4.1},
    }


def test_a_session_of_nobody_is_empty_and_takes_nothing(manager):
    async def steps():
        with pytest.raises(SessionNotFound):
            await manager.save_turn("s-0", "user", "Revenue?")
        return (
            await manager.get_conversation_context("s-0"),
            await manager.get_previous_results("s-0"),
            await manager.load_checkpoint("s-0"),
            await manager.clear_checkpoint("s-0"),
        )

    assert run(steps) == (
        [],
        {"previous_query_results": [], "previous_column_names": [], "previous_kpis": {}},
        None,
        False,
    )


def test_a_checkpoint_is_saved_loaded_and_cleared(manager, redis):
    state = {"step": "clarify", "options": ["net", "gross"], "n": None}

    async def steps():
        await turn(manager)
        await manager.save_checkpoint("s-81", state)
        kept = redis.ttl(SessionKey("default", "s-81").checkpoint)
        await manager.save_checkpoint("s-81", state, keep_minutes=1)
        return (
            kept,
            redis.ttl(SessionKey("default", "s-81").checkpoint),
            await manager.load_checkpoint("s-81"),
            await manager.clear_checkpoint("s-81"),
            await manager.load_checkpoint("s-81"),
        )

    kept, shortest, *rest = run(steps)
    assert 3590 <= kept <= 3600
    assert 1790 <= shortest <= 1800, "as long as its session"
    assert rest == [state, True, None]


def test_a_checkpoint_over_the_limit_is_refused(manager, settings):
    settings.MAX_CHECKPOINT_BYTES = 10

    async def steps():
        await turn(manager)
        with pytest.raises(TooLarge):
            await manager.save_checkpoint("s-81", "x" * 20)

    run(steps)


def test_a_checkpoint_that_can_not_be_had_is_not_taken_for_none(manager, settings, monkeypatch):
    def away(*_):
        raise CheckpointsUnavailable

    async def steps():
        await turn(manager)
        monkeypatch.setattr("conversations.session_checkpoints._run", away)
        with pytest.raises(CheckpointsUnavailable):
            await manager.load_checkpoint("s-81")

    run(steps)


def test_somebody_else_finds_nothing_and_adds_nothing(manager):
    async def steps():
        await turn(manager)
        await manager.save_checkpoint("s-81", {"step": 1})
        with pytest.raises(SessionNotFound):
            await manager.save_turn("s-81", "user", "Mine?", user_id="bob")
        return (
            await manager.get_conversation_context("s-81", user_id="bob"),
            await manager.load_checkpoint("s-81", user_id="bob"),
            await manager.clear_checkpoint("s-81", user_id="bob"),
            await get_memory_manager("acme").load_checkpoint("s-81"),
        )

    assert run(steps) == ([], None, False, None)
    assert User.objects.get(live_sessions__isnull=False).user_id == "ana"


def test_a_new_session_is_told_of_the_one_before(manager):
    ensure_table_exists()

    async def steps():
        await turn(manager)
        return await manager.get_session_digest("s-82", "ana")

    assert "Revenue?" in run(steps)
    assert SessionRecord.objects.count() == 1
