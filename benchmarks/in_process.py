"""Append and hot context read in this process, against psycopg and redis-py by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from itertools import count

from benchmarks import bare
from benchmarks.bare import BareAppend
from benchmarks.bench import Bench, note
from benchmarks.report import Line
from benchmarks.rounds import alternate, timed
from conversations.context import render_conversation_context
from conversations.conversation_memory import get_conversation_memory
from conversations.models import ConversationThread

WARM_TURNS = 20
TOKEN_BUDGET = 4_000


def append(bench: Bench) -> Iterator[Line]:
    """Write turns to a warm thread."""
    note("append in process")
    ours, theirs = bench.thread_of(WARM_TURNS), bench.thread_of(WARM_TURNS)
    numbers = count()
    with BareAppend(theirs, bench.person.pk) as by_hand:
        sides = alternate(
            {
                "finalize_turn": _round(bench, lambda: bench.append(ours, next(numbers))),
                "bare psycopg": _round(bench, lambda: by_hand.append(next(numbers))),
            },
            bench.scale.rounds,
        )
    yield sides.line("append in process", "finalize_turn", "bare psycopg", 1.5)


def context(bench: Bench) -> Iterator[Line]:
    """Render 20 turns from a warm working set."""
    note("hot context read in process")
    thread_id = bench.thread_of(WARM_TURNS)
    key = get_conversation_memory().key(thread_id)
    sides = alternate(
        {
            "context view": _round(bench, lambda: view(bench, thread_id)),
            "bare HGETALL": _round(bench, lambda: bare.read(key)),
        },
        bench.scale.rounds,
    )
    yield sides.line("hot context in process", "context view", "bare HGETALL", 1.25)


def view(bench: Bench, thread_id: uuid.UUID) -> str:
    """Render a thread as its `sql` view."""
    recalled = ConversationThread.objects.conversation_context(thread_id, bench.person)
    return render_conversation_context(recalled.context, "sql", TOKEN_BUDGET).text


def _round(bench: Bench, call: Callable[[], object]) -> Callable[[], float]:
    return lambda: timed(call, bench.scale.calls)
