"""manage.py prune_checkpoints, and the job of the same name"""

from __future__ import annotations

import io
import json
import secrets
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import Annotated, Any, TypedDict

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from conversations import checkpoint_retention, checkpoint_tables, checkpoints
from conversations.checkpoint_retention import prune_checkpoints
from conversations.models import ConversationThread

pytest.importorskip("langgraph.checkpoint.postgres", reason="LangGraph is not installed")

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import id as ids
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from conversations.checkpoints import RethreadSaver


def joined(have: list[str], new: list[str]) -> list[str]:
    return [*have, *new]


class State(TypedDict, total=False):
    messages: Annotated[list[str], joined]


def answer(state: State) -> State:
    return {"messages": [secrets.token_urlsafe(750)]}  # a kilobyte


def chat(saver: Any) -> Any:
    """An agent that keeps all messages in its state, as most do, and says a kilobyte a turn."""
    made = StateGraph(State).add_node("answer", answer)
    return made.add_edge(START, "answer").add_edge("answer", END).compile(checkpointer=saver)


def at(thread_id: Any) -> Any:
    return {"configurable": {"thread_id": str(thread_id)}}


def turns(saver: Any, thread_id: Any, count: int = 2) -> None:
    graph = chat(saver)
    for number in range(count):
        graph.invoke({"messages": [f"Question {number}"]}, at(thread_id))


def rows(thread_id: Any = "") -> list[int]:
    """How many rows the three tables have, of thread ids that begin so."""
    counts = []
    with connection.cursor() as cursor:
        for table in checkpoint_tables.TABLES:
            cursor.execute(
                f"SELECT count(*) FROM checkpoints.{table} WHERE starts_with(thread_id, %s)",  # noqa: S608
                [str(thread_id)],
            )
            counts += cursor.fetchone()
    return counts


@pytest.fixture
def saver(transactional_db: None) -> Iterator[RethreadSaver]:
    checkpoints.ensure_checkpoint_tables()
    with connection.cursor() as cursor:
        for table in checkpoint_tables.TABLES:
            cursor.execute(f"TRUNCATE checkpoints.{table}")
    with RethreadSaver.from_settings() as made:
        yield made


@pytest.fixture
def old(saver: RethreadSaver) -> uuid.UUID:
    """A thread of two turns, forty days ago."""
    with forty_days_ago():
        turns(saver, thread_id := uuid.uuid4())
    return thread_id


@pytest.fixture
def new(saver: RethreadSaver) -> uuid.UUID:
    """One that began forty days ago and went on today."""
    thread_id = uuid.uuid4()
    with forty_days_ago():
        turns(saver, thread_id)
    turns(saver, thread_id)
    return thread_id


@contextmanager
def forty_days_ago() -> Iterator[None]:
    ids._last_v6_timestamp = None  # LangGraph's ids never go back by themselves
    with time_machine.travel(timezone.now() - timedelta(days=40)):
        yield
    ids._last_v6_timestamp = None


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("prune_checkpoints", *args, stdout=out, stderr=io.StringIO(), no_color=True)
    return out.getvalue()


def failure(*args: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(*args)
    return caught.value


# --- E12 ------------------------------------------------------------------------------------------


def test_two_hundred_turns_leave_nothing(agent, saver, thread_id, capsys):
    agent.put_turn(thread_id, answer="North leads.")
    turns(saver, thread_id, 200)
    turns(saver, other := uuid.uuid4(), 200)
    full = run("--older-than", "0d", "--dry-run")

    checkpoints.delete_checkpoints_of(thread_id)
    assert rows(thread_id) == [0, 0, 0]

    run("--older-than", "0d", "--keep-latest")
    assert rows(other) == [0, 1, 1]
    latest = run("--older-than", "0d", "--dry-run")

    run("--older-than", "0d")
    assert rows() == [0, 0, 0]
    with capsys.disabled():
        print(f"\n  Two threads of 200 turns. {full}  One of them, its latest. {latest}", end="")


# --- What goes ------------------------------------------------------------------------------------


def test_what_was_unused_for_so_long_goes_and_the_rest_stays_whole(saver, old, new):
    before = rows(new)
    says = run("--older-than", "30d")
    assert says.startswith("Pruned 1 thread id: 6 checkpoints, 6 writes, 6 blobs, ")
    assert (rows(old), rows(new)) == ([0, 0, 0], before)
    assert len(chat(saver).get_state(at(new)).values["messages"]) == 8


def test_the_age_of_the_settings_is_the_default(settings, old):
    settings.CHECKPOINT_RETENTION_DAYS = 41
    run()
    assert rows(old) != [0, 0, 0]
    settings.CHECKPOINT_RETENTION_DAYS = 39
    run()
    assert rows(old) == [0, 0, 0]


def test_thread_ids_with_a_suffix_age_by_themselves(saver, old):
    turns(saver, f"{old}:today")
    run()
    assert rows(old) == rows(f"{old}:today") != [0, 0, 0]


def test_what_a_dead_run_left_without_a_checkpoint_goes_too(saver, old):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM checkpoints.checkpoints")
    run()
    assert rows() == [0, 0, 0]


def test_what_a_living_run_wrote_ahead_of_its_checkpoint_stays(saver, new):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM checkpoints.checkpoints")
    before = rows()
    run()
    assert rows() == before


def test_a_run_that_begins_meanwhile_keeps_everything(saver, old, monkeypatch):
    lock = checkpoint_retention._lock

    def too_late(thread_id: str, how: str) -> None:
        turns(saver, old, 1)
        lock(thread_id, how)

    monkeypatch.setattr(checkpoint_retention, "_lock", too_late)
    before = [*rows(old)]
    assert run().startswith("Pruned 0 thread ids")
    assert all(now > was for now, was in zip(rows(old), before, strict=True))


def test_many_thread_ids_go_a_page_at_a_time(saver, old, monkeypatch):
    monkeypatch.setattr(checkpoint_retention, "_PAGE", 2)
    for number in range(5):
        saver.copy_thread(str(old), str(uuid.UUID(int=number)))
    assert run().startswith("Pruned 6 thread ids")
    assert rows() == [0, 0, 0]


# --- Keeping the latest ---------------------------------------------------------------------------


def test_the_latest_state_stays_if_asked(saver, old):
    state = chat(saver).get_state(at(old)).values
    assert run("--keep-latest").startswith("Pruned 1 thread id: 5 checkpoints, ")
    assert rows(old) == [0, 1, 1]
    assert chat(saver).get_state(at(old)).values == state


def test_a_dry_run_counts_what_the_run_then_does(saver, old):
    would = run("--keep-latest", "--dry-run")
    assert would.removeprefix("Would prune") == run("--keep-latest").removeprefix("Pruned")
    would = run("--dry-run")
    assert would.removeprefix("Would prune") == run().removeprefix("Pruned")


def test_a_run_that_waits_for_somebody_can_be_resumed_from_its_latest(saver, thread_id):
    def ask(state: State) -> State:
        return {"messages": [interrupt("Which year?")]}

    graph = (
        StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver)
    )
    with forty_days_ago():
        graph.invoke({"messages": ["Revenue"]}, at(thread_id))
    run("--keep-latest")
    assert graph.invoke(Command(resume="2026"), at(thread_id))["messages"] == ["Revenue", "2026"]


def test_a_thread_with_a_delta_channel_is_left_alone_and_said(saver, old):
    class Delta(TypedDict, total=False):
        messages: Annotated[list[str], DeltaChannel(lambda a, b: [*a, *chain(*b)])]

    graph = StateGraph(Delta).add_node("answer", lambda _state: {"messages": ["Yes"]})
    graph = graph.add_edge(START, "answer").compile(checkpointer=saver)
    delta = uuid.uuid4()
    with forty_days_ago():
        graph.invoke({"messages": ["Is it?"]}, at(delta))
    before = rows(delta)
    assert str(failure("--keep-latest")) == "1 failed."
    assert (rows(delta), rows(old)) == (before, [0, 1, 1])


# --- How it is said -------------------------------------------------------------------------------


def test_a_dry_run_touches_nothing(old):
    before = rows()
    assert run("--dry-run").startswith("Would prune 1 thread id: 6 checkpoints, 6 writes, 6 blobs")
    assert run("--dry-run", "--keep-latest").startswith("Would prune 1 thread id: 5 checkpoints, ")
    assert rows() == before


def test_json_is_a_line_a_thread_id_and_a_summary(old):
    thread, summary = map(json.loads, run("--json").splitlines())
    size = thread["bytes"]
    counts = {"checkpoints": 6, "writes": 6, "blobs": 6, "bytes": size}
    assert size > 1_000
    assert thread == {"type": "thread", "thread_id": str(old), "status": "pruned", **counts}
    assert summary == {"type": "summary", "threads": 1, **counts, "failed": 0, "dry_run": False}


def test_where_there_are_no_tables_there_is_nothing_to_do(saver):
    with connection.cursor() as cursor:
        cursor.execute("ALTER SCHEMA checkpoints RENAME TO elsewhere")
    try:
        assert run() == "Pruned 0 thread ids: 0 checkpoints, 0 writes, 0 blobs, 0 bytes.\n"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER SCHEMA elsewhere RENAME TO checkpoints")


def test_never_means_never_unless_said(settings, old):
    settings.CHECKPOINT_RETENTION_DAYS = 0
    assert failure().returncode == 2
    run("--older-than", "30d")
    assert rows() == [0, 0, 0]


@pytest.mark.parametrize("age", ["30", "soon", "-1d", "1w"])
def test_what_is_no_age_is_a_usage_error(db, age):
    assert "argument --older-than" in str(failure(f"--older-than={age}"))


def test_ctrl_c_finishes_the_thread_that_has_begun(saver, old, monkeypatch):
    saver.copy_thread(str(old), str(uuid.uuid4()))
    lock = checkpoint_retention._lock

    def interrupted(thread_id: str, how: str) -> None:
        signal.raise_signal(signal.SIGINT)
        lock(thread_id, how)

    monkeypatch.setattr(checkpoint_retention, "_lock", interrupted)
    error = failure()
    assert error.returncode == 130
    assert "1 thread id: 6 checkpoints" in str(error)
    assert rows() == [6, 6, 6]


def test_a_busy_thread_is_left_to_the_next_run(agent, saver, settings, thread_id):
    agent.put_turn(thread_id, answer="North leads.")
    with forty_days_ago():
        turns(saver, thread_id)
    before = rows()
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as elsewhere, connection.cursor() as cursor:
            elsewhere.execute("SELECT 1 FROM conversation_threads FOR UPDATE")
            cursor.execute("SET lock_timeout = '50ms'")
            totals = prune_checkpoints(30)
            cursor.execute("RESET lock_timeout")
    finally:
        other.close()
    assert (totals.failed, totals.threads, rows()) == (1, 0, before)
    assert ConversationThread.objects.filter(pk=thread_id).exists()


# --- The job --------------------------------------------------------------------------------------


def test_the_job_prunes_and_says_what(old):
    assert prune_checkpoints(30, dry_run=True).rows.checkpoints == 6
    totals = prune_checkpoints(30)
    assert (totals.threads, totals.failed, totals.rows[:3]) == (1, 0, (6, 6, 6))
    assert rows() == [0, 0, 0]


def test_the_job_stops_when_its_time_is_over(saver, old):
    saver.copy_thread(str(old), str(uuid.uuid4()))
    assert prune_checkpoints(30, at_most_seconds=0).threads == 1
    assert rows() == [6, 6, 6]
