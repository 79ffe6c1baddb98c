"""LangGraph's checkpoints: ours by schema, thread id and deletion."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connection, transaction
from django.utils import timezone

from conversations import checkpoint_tables, checkpoints
from conversations.models import ConversationThread

pytest.importorskip("langgraph.checkpoint.postgres", reason="LangGraph is not installed")

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from conversations import checkpoint_savers
from conversations.checkpoints import AsyncRethreadSaver, RethreadSaver


class State(TypedDict, total=False):
    asked: list[str]
    answer: str


def ask(state: State) -> State:
    return {"answer": interrupt({"question": "Which year?"})}


def builder() -> Any:
    made = StateGraph(State).add_node("ask", ask)
    return made.add_edge(START, "ask").add_edge("ask", END)


def at(thread_id: Any, **metadata: str) -> Any:
    return {"configurable": {"thread_id": str(thread_id)}, "metadata": metadata}


def run(saver: Any, thread_id: Any, **metadata: str) -> None:
    """A run that asks somebody, and is answered."""
    graph = builder().compile(checkpointer=saver)
    graph.invoke({"asked": ["Revenue"]}, at(thread_id, **metadata))
    graph.invoke(Command(resume="2026"), at(thread_id, **metadata))


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


def states(saver: Any, thread_id: Any) -> list[Any]:
    return [one.checkpoint["channel_values"] for one in saver.list(at(thread_id))]


@pytest.fixture
def tables(transactional_db: None) -> None:
    checkpoints.ensure_checkpoint_tables()
    with connection.cursor() as cursor:
        for table in checkpoint_tables.TABLES:
            cursor.execute(f"TRUNCATE checkpoints.{table}")


@pytest.fixture
def saver(tables: None) -> Iterator[RethreadSaver]:
    with RethreadSaver.from_settings() as made:
        yield made


@pytest.fixture
def thread(agent: Any, thread_id: uuid.UUID) -> ConversationThread:
    agent.put_turn(thread_id, answer="North leads.")
    return ConversationThread.objects.get(pk=thread_id)


def forget(thread_id: uuid.UUID) -> None:
    """What deleting a thread does, as far as checkpoints are concerned."""
    with transaction.atomic():
        ConversationThread.objects.select_for_update().get(pk=thread_id)
        checkpoints.delete_checkpoints_of(thread_id)
        ConversationThread.objects.filter(pk=thread_id).update(deleted_at=timezone.now())


# --- Where they stand -----------------------------------------------------------------------------


def test_they_stand_in_a_schema_of_their_own(saver, thread_id):
    run(saver, thread_id)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass('public.checkpoints'), count(*) FROM checkpoints.checkpoints"
        )
        assert cursor.fetchone() == (None, 3)


def test_no_search_path_is_needed(tables, thread_id, monkeypatch):
    """PgBouncer drops what a connection asks for at its start."""
    how = checkpoint_savers.connection_parameters

    def elsewhere(**differing: Any) -> Any:
        return how(**{"options": "-c search_path=pg_catalog", **differing})

    monkeypatch.setattr(checkpoint_savers, "connection_parameters", elsewhere)
    with RethreadSaver.from_settings() as saver:
        run(saver, thread_id, run_id="1")
        saver.copy_thread(str(thread_id), f"{thread_id}:copy")
        saver.prune([str(thread_id)])
        saver.delete_for_runs(["1"])
    assert rows() == [0, 0, 0]


def test_a_saver_that_would_write_elsewhere_is_refused(tables):
    with (
        psycopg.connect(**checkpoint_savers.connection_parameters()) as plain,
        pytest.raises(ValueError, match="from_settings"),
    ):
        RethreadSaver(plain)


def test_calls_end_when_djangos_do(saver):
    with saver.conn.connection() as conn:
        timeout = conn.execute("SHOW statement_timeout").fetchone()
    assert timeout == {
        "statement_timeout": f"{django_settings.DATABASE_STATEMENT_TIMEOUT_SECONDS}s"
    }


def test_making_the_tables_again_changes_nothing(saver, thread_id):
    run(saver, thread_id)
    assert checkpoints.ensure_checkpoint_tables() is True
    saver.setup()
    assert rows() != [0, 0, 0]


def test_tables_that_langgraph_made_become_ours(tables):
    with connection.cursor() as cursor:
        cursor.execute("COMMENT ON SCHEMA checkpoints IS 'version 9.0'")
        cursor.execute("DROP TRIGGER of_a_living_thread ON checkpoints.checkpoints")
        cursor.execute(
            'ALTER TABLE checkpoints.checkpoints ALTER thread_id TYPE text COLLATE "default"'
        )
        checkpoints.ensure_checkpoint_tables()
        cursor.execute(
            "SELECT (SELECT count(*) FROM pg_trigger WHERE tgname = 'of_a_living_thread'), collation_name "
            "FROM information_schema.columns WHERE (table_schema, table_name, column_name)"
            " = ('checkpoints', 'checkpoints', 'thread_id')"
        )
        assert cursor.fetchone() == (3, "C")


def test_many_threads_share_a_saver(saver):
    ids = [uuid.uuid4() for _ in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda one: run(saver, one), ids))
    assert {tuple(rows(one)) for one in ids} == {tuple(rows(ids[0]))}


# --- Whose they are -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "foreign",
    [
        "1",
        "",
        "x:y",
        "A7C5B4F0-8F6E-4E35-9E51-0E5E4D0E5A11",
        "25b81134-2661-4ee3-8352-da3c5c53ae96-2",
        "25b81134-2661-4ee3-8352-da3c5c53ae96:",
    ],
)
def test_a_thread_id_that_is_no_threads_is_refused(saver, foreign):
    with pytest.raises(ValueError, match="must be the id of a thread"):
        run(saver, foreign)


def test_the_database_refuses_it_too(saver):
    with (
        connection.cursor() as cursor,
        pytest.raises(Exception, match="neither the id of a thread"),
    ):
        cursor.execute(
            "INSERT INTO checkpoints.checkpoint_blobs VALUES ('1', '', 'c', '1', 'null', NULL)"
        )


def test_thread_ids_are_a_threads_own_or_that_with_a_suffix():
    thread = uuid.uuid4()
    assert checkpoint_tables.thread_of(str(thread)) == thread
    assert checkpoint_tables.thread_of(f"{thread}:a:b\nc") == thread


def test_a_thread_of_which_no_turn_was_written_yet_may_run(saver, thread_id):
    run(saver, thread_id)
    assert rows(thread_id) == [6, 3, 2]


# --- Deletion -------------------------------------------------------------------------------------


def test_deleting_a_thread_deletes_its_checkpoints_with_every_suffix(saver, thread):
    other = uuid.UUID(int=thread.pk.int + 1)
    for thread_id in (thread.pk, f"{thread.pk}:billing", f"{thread.pk}:~", other, f"{other}:x"):
        run(saver, thread_id)
    with transaction.atomic():
        assert checkpoints.delete_checkpoints_of(thread.pk) == 9
    assert rows(thread.pk) == [0, 0, 0]
    assert rows(other) == [12, 6, 4]


def test_a_deletion_that_is_undone_keeps_them(saver, thread):
    run(saver, thread.pk)
    with transaction.atomic():
        checkpoints.delete_checkpoints_of(thread.pk)
        transaction.set_rollback(True)
    assert rows(thread.pk) == [6, 3, 2]


def test_where_there_are_no_tables_a_deletion_does_nothing_and_breaks_nothing(tables, thread_id):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER SCHEMA checkpoints RENAME TO elsewhere")
        assert checkpoints.delete_checkpoints_of(thread_id) == 0
        assert ConversationThread.objects.count() == 0  # the transaction still works
        transaction.set_rollback(True)


def test_a_run_that_outlives_its_thread_brings_nothing_back(saver, thread):
    graph = builder().compile(checkpointer=saver)
    graph.invoke({"asked": ["Revenue"]}, at(thread.pk))
    forget(thread.pk)
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="was deleted"):
        graph.invoke({"asked": ["Again"]}, at(thread.pk))
    assert rows(thread.pk) == [0, 0, 0]


def test_a_deletion_waits_for_who_is_writing_and_takes_that_as_well(saver, thread):
    run(saver, thread.pk)
    with saver.conn.connection() as conn, ThreadPoolExecutor(1) as pool:
        with conn.transaction():
            conn.execute(
                "INSERT INTO checkpoint_blobs VALUES (%s, '', 'late', '1', 'null', NULL)",
                [str(thread.pk)],
            )
            deleting = pool.submit(_and_close, forget, thread.pk)
            wait_for_a_lock()
        deleting.result(timeout=20)
    assert rows(thread.pk) == [0, 0, 0]


def test_who_writes_while_a_deletion_is_going_is_refused(saver, thread):
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            forget(thread.pk)
            writing = pool.submit(run, saver, thread.pk)
            wait_for_a_lock()
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            writing.result(timeout=20)
    assert rows(thread.pk) == [0, 0, 0]


def _and_close(verb: Any, *args: Any) -> None:
    try:
        verb(*args)
    finally:
        connection.close()


def wait_for_a_lock() -> None:
    pause = threading.Event()
    with psycopg.connect(**checkpoint_savers.connection_parameters()) as watcher:
        for _ in range(400):
            waiting: Any = watcher.execute(
                "SELECT count(*) AS n FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
            if waiting["n"]:
                return
            pause.wait(0.02)
    raise AssertionError("nobody waits")


# --- Copies and runs ------------------------------------------------------------------------------


def test_a_copy_is_resumed_for_itself(saver, thread_id):
    graph = builder().compile(checkpointer=saver)
    graph.invoke({"asked": ["Revenue"]}, at(thread_id))
    saver.copy_thread(str(thread_id), f"{thread_id}:fork")
    assert graph.invoke(Command(resume="2025"), at(f"{thread_id}:fork"))["answer"] == "2025"
    assert graph.invoke(Command(resume="2026"), at(thread_id))["answer"] == "2026"


def test_a_copy_onto_others_is_refused(saver, thread_id):
    run(saver, thread_id)
    with pytest.raises(ValueError, match="has checkpoints already"):
        saver.copy_thread(str(thread_id), str(thread_id))
    with pytest.raises(ValueError, match="must be the id of a thread"):
        saver.copy_thread(str(thread_id), "copy")


def test_a_copy_leaves_no_column_out(saver, thread_id):
    """A later langgraph-checkpoint-postgres may have more of them."""
    run(saver, thread_id)
    saver.copy_thread(str(thread_id), f"{thread_id}:copy")
    with connection.cursor() as cursor:
        for table in checkpoint_tables.TABLES:
            cursor.execute(
                f"SELECT thread_id, to_jsonb(t) - 'thread_id' FROM checkpoints.{table} t"  # noqa: S608
                " ORDER BY 1, 2"
            )
            found = cursor.fetchall()
            half = len(found) // 2
            assert [row for _, row in found[:half]] == [row for _, row in found[half:]]


def test_deleting_a_run_keeps_the_state_of_those_after_it(saver, thread_id):
    for number in "123":
        run(saver, thread_id, run_id=number)
    before = states(saver, thread_id)
    saver.delete_for_runs(["2"])
    assert states(saver, thread_id) == before[:3] + before[-3:]


def test_what_came_after_a_deleted_run_descends_from_what_came_before(saver, thread_id):
    for number in "1234":
        run(saver, thread_id, run_id=number)
    saver.delete_for_runs(["2", "3"])
    kept = [one.config["configurable"]["checkpoint_id"] for one in saver.list(at(thread_id))]
    parents = [one.parent_config for one in saver.list(at(thread_id))]
    assert [parent and parent["configurable"]["checkpoint_id"] for parent in parents] == [
        *kept[1:],
        None,
    ]


def test_deleting_every_run_leaves_nothing(saver, thread_id):
    for number in "12":
        run(saver, thread_id, run_id=number)
    saver.delete_for_runs(["1", "2", "3"])
    assert rows() == [0, 0, 0]


def test_a_run_is_resumed_by_another_kind_of_saver(saver, thread_id):
    builder().compile(checkpointer=saver).invoke({"asked": ["Revenue"]}, at(thread_id))

    async def resume() -> Any:
        async with AsyncRethreadSaver.from_settings() as other:
            graph = builder().compile(checkpointer=other)
            return await graph.ainvoke(Command(resume="2026"), at(thread_id))

    assert asyncio.run(resume())["answer"] == "2026"


def test_the_async_saver_serves_other_threads_too(tables, thread_id):
    async def work() -> None:
        async with AsyncRethreadSaver.from_settings() as saver:
            await asyncio.to_thread(run, saver, thread_id, run_id="1")
            await asyncio.to_thread(saver.copy_thread, str(thread_id), f"{thread_id}:copy")
            await asyncio.to_thread(saver.delete_for_runs, ["1"])

    asyncio.run(work())
    assert rows() == [0, 0, 0]


# --- Without LangGraph ----------------------------------------------------------------------------

WITHOUT = """
import sys
sys.modules["langgraph"] = None
import django
django.setup()
from conversations import checkpoints
assert checkpoints.ensure_checkpoint_tables() is False
try:
    checkpoints.RethreadSaver
except ImportError as error:
    print(error)
"""


def test_without_langgraph_only_the_savers_are_missing():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=django_settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "requirements-langgraph.txt" in done.stdout, done.stderr


def test_langgraph_is_imported_only_when_a_saver_is_asked_for():
    script = (
        "import sys, django; django.setup(); import conversations.checkpoints; "
        "import conversations.checkpoint_retention; print('langgraph' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=django_settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "False\n", done.stderr
