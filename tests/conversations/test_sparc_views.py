"""Context views of real conversations: the same from a warm copy, a cold one and without Redis.

The 1,203 questions of SParC, as one thread a database and as one a conversation.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple, get_args
from unittest.mock import patch

import pytest
from django.db import transaction
from pytest_django.plugin import DjangoDbBlocker

from benchmarks.prompt_cache import GOAL, measure
from config import redis as redis_gate
from conversations.context import ConversationContext, Focus, render_conversation_context
from conversations.conversation_memory import get_conversation_memory
from conversations.models import ConversationThread, DatabaseEpoch, ThreadMessage
from conversations.querysets import Recalled
from conversations.tokenizer import encoding
from conversations.turns import AgentType, TurnBody
from rbac.models import User
from rbac.principal import Person
from tests import sparc

pytestmark = [
    pytest.mark.data,
    pytest.mark.django_db,  # makes the database; the tests themselves only look at what was read
    pytest.mark.skipif(bool(sparc.ABSENT), reason=sparc.ABSENT or "the data are here"),
]

FOCUSES = get_args(Focus)
BUDGETS = (300, 1_000, 4_000)
THREADS = {"database": 20, "conversation": 422}


class Remembered(NamedTuple):
    """One thread as three reads give it."""

    thread: sparc.SparcThread
    warm: Recalled
    cold: Recalled
    without_redis: Recalled


@pytest.fixture(scope="module")
def remembered(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[list[Remembered]]:
    """Every thread imported once, really committed, and taken away again at the end."""
    with django_db_blocker.unblock():
        DatabaseEpoch.objects.get_or_create(id=1)
        user = User.objects.create_user("sparc", "analyst")
        person = Person.of(user)
        try:
            threads = [thread for kind in THREADS for thread in sparc.threads(kind)]
            yield [_read(thread, person) for thread in threads]
        finally:
            ThreadMessage.objects.filter(thread__owner=user).delete()
            ConversationThread.objects.filter(owner=user).delete()
            user.delete()


def _read(thread: sparc.SparcThread, person: Person) -> Remembered:
    with transaction.atomic():
        _write(thread, 1, person)
    _recall(thread, person)  # from here on each turn is appended to a copy
    with transaction.atomic():
        for position in range(2, len(thread.turns) + 1):
            _write(thread, position, person)
    warm = _recall(thread, person)
    get_conversation_memory().drop(thread.id)
    cold = _recall(thread, person)
    with _redis_down():
        return Remembered(thread, warm, cold, _recall(thread, person))


def _write(thread: sparc.SparcThread, position: int, owner: Person) -> None:
    turn = thread.turns[position - 1]
    ConversationThread.objects.finalize_turn(
        owner=owner,
        thread_id=thread.id,
        turn_id=uuid.uuid5(thread.id, str(position)),
        body=TurnBody(turn.query, turn.answer, artifacts=turn.artifacts, agent_type=AgentType.CHAT),
    )


def _recall(thread: sparc.SparcThread, person: Person) -> Recalled:
    return ConversationThread.objects.conversation_context(thread.id, person)


def _redis_down():
    down = redis_gate.RedisUnavailable("stopped by the test")
    return patch.object(redis_gate.breaker, "admit", side_effect=down)


def views(context: ConversationContext) -> Iterator[tuple[Focus, int, str, int]]:
    for focus in FOCUSES:
        for budget in BUDGETS:
            view = render_conversation_context(context, focus, budget)
            yield focus, budget, view.text, view.tokens


def test_every_thread_and_turn_is_there(remembered):
    assert len(remembered) == sum(THREADS.values())
    for thread, warm, *_ in remembered:
        assert warm.context.turn_count == len(thread.turns)
        assert len(warm.context.turns) == min(40, len(thread.turns))


def test_the_three_reads_came_from_where_they_say(remembered):
    for read in remembered:
        sources = (read.warm.source, read.cold.source, read.without_redis.source)
        assert sources == ("cache", "database", "database")


def test_a_view_is_the_same_warm_cold_and_without_redis(remembered):
    for read in remembered:
        warm = list(views(read.warm.context))
        assert warm == list(views(read.cold.context))
        assert warm == list(views(read.without_redis.context))


def test_tokens_are_tiktokens_and_within_the_budget(remembered):
    shown = [view for read in remembered for view in views(read.warm.context)]
    counts = encoding().encode_ordinary_batch([text for _, _, text, _ in shown], num_threads=2)
    for (_, budget, _, tokens), counted in zip(shown, counts, strict=True):
        assert tokens == len(counted) <= budget


def test_the_newest_statement_stands_verbatim_in_the_sql_view(remembered):
    for thread, warm, *_ in remembered:
        for budget in BUDGETS:
            text = render_conversation_context(warm.context, "sql", budget).text
            assert f"```sql\n{thread.turns[-1].sql}\n```\n" in text
            assert f"user: {thread.turns[-1].query}\n" in text


@pytest.mark.parametrize("focus", FOCUSES)
def test_a_prompt_cache_can_reuse_most_of_a_long_threads_view(focus, capsys):
    reuse = measure("database", focus)
    with capsys.disabled():
        print(f"\n{focus}: {reuse.prefix_share:.1%} of a view was there before ({GOAL:.0%} wanted)")
    assert reuse.prefix_share > 0.74
    assert reuse.budget_share > 0.75
