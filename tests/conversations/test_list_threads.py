"""GET /threads lists a person's threads, newest activity first."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from psycopg import ClientCursor

from conversations.api.base import decode_cursor, encode_cursor
from conversations.models import ConversationThread

START = datetime(2026, 3, 1, tzinfo=UTC)


def make_threads(owner, count, at=lambda n: START + timedelta(minutes=n), **fields):
    return ConversationThread.objects.bulk_create(
        ConversationThread(
            id=uuid.uuid4(), tenant=owner.tenant, owner_id=owner.pk, agent_type="chat",
            title=f"thread {n}", turn_count=1, created_at=at(n), last_turn_at=at(n), **fields,
        )
        for n in range(count)
    )  # fmt: skip


def titles(answer):
    assert answer.status_code == 200, answer.content
    return [thread["title"] for thread in answer.json()["results"]]


def follow(agent, answer):
    """Read on until there is no next page; return every id seen, in order."""
    seen = [thread["thread_id"] for thread in answer.json()["results"]]
    while following := answer.json()["next"]:
        answer = agent.client.get(following)
        seen += [thread["thread_id"] for thread in answer.json()["results"]]
    return seen


def test_the_newest_activity_comes_first(agent, ana):
    make_threads(ana, 3)

    assert titles(agent.get("threads")) == ["thread 2", "thread 1", "thread 0"]


def test_pages_follow_each_other_without_gap_or_repeat(agent, ana):
    threads = make_threads(ana, 23)

    seen = follow(agent, agent.get("threads", limit=5))

    assert seen == [str(thread.pk) for thread in reversed(threads)]


def test_pages_hold_when_all_threads_share_one_instant(agent, ana):
    threads = make_threads(ana, 60, at=lambda _: START + timedelta(microseconds=123_456))

    seen = follow(agent, agent.get("threads", limit=7))

    assert len(seen) == len(set(seen)) == 60
    assert set(seen) == {str(thread.pk) for thread in threads}


def test_threads_touched_while_reading_on_are_never_shown_twice(agent, ana):
    threads = make_threads(ana, 60)
    first = agent.get("threads", limit=20)
    on_page_one = {thread["thread_id"] for thread in first.json()["results"]}
    touched = {str(thread.pk) for thread in threads[:5]}
    for thread_id in touched:
        agent.put_turn(thread_id)
    for _ in range(3):
        agent.put_turn(uuid.uuid4())

    seen = follow(agent, first)

    assert len(seen) == len(set(seen))
    assert set(seen) >= {str(thread.pk) for thread in threads} - touched
    assert on_page_one <= set(seen)


def test_a_list_takes_the_same_queries_whatever_its_length(agent, ana):
    agent.get("threads")
    counts = []
    for more in (1, 50):
        make_threads(ana, more)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            agent.get("threads", limit=100)
        counts.append(len(queries))

    assert counts[0] == counts[1] == 1


def test_a_list_reads_no_turn_body(agent, ana, thread_id):
    agent.put_turn(thread_id, answer="a long answer")

    with CaptureQueriesContext(connection) as queries:
        agent.get("threads")

    sql = " ".join(query["sql"] for query in queries)
    assert "response_payload" not in sql
    assert '"answer"' not in sql
    assert '"summary"' not in sql


@pytest.mark.parametrize(
    ("which", "expected"), [("false", ["open"]), ("true", ["away"]), ("all", ["open", "away"])]
)
def test_archived_threads_are_listed_when_asked_for(agent, which, expected):
    away, here = uuid.uuid4(), uuid.uuid4()
    agent.put_turn(away, query="away")
    agent.put_turn(here, query="open")
    agent.patch(f"threads/{away}", archived=True)

    assert titles(agent.get("threads", archived=which)) == expected


def test_lists_are_filtered_by_agent_type_pin_metadata_and_title(agent):
    chosen, other = uuid.uuid4(), uuid.uuid4()
    agent.put_turn(other, query="Costs")
    agent.put_turn(chosen, query="Revenue 100 % north", agent_type="copilot")
    agent.patch(f"threads/{chosen}", pinned=True, metadata={"team": "sales"})

    for params in (
        {"agent_type": "copilot"}, {"pinned": "true"}, {"metadata.team": "sales"},
        {"q": "REVENUE"}, {"q": "100 %"},
    ):  # fmt: skip
        assert titles(agent.get("threads", **params)) == ["Revenue 100 % north"], params
    assert titles(agent.get("threads", **{"metadata.team": "ops"})) == []


def test_what_waits_for_somebody_is_listed_by_status(agent, thread_id):
    agent.put_turn(uuid.uuid4())
    agent.put_turn(thread_id, query="Delete it?", status="pending", waiting_for="approval")

    answer = agent.get("threads", status="pending")

    assert titles(answer) == ["Delete it?"]
    assert answer.json()["results"][0]["waiting_for"] == "approval"


def test_the_next_page_keeps_the_filters(agent, ana):
    make_threads(ana, 5)
    make_threads(ana, 5, archived_at=START)

    seen = follow(agent, agent.get("threads", limit=2, archived="true"))

    assert len(seen) == 5


def test_pending_turns_are_found_by_their_index_in_a_general_plan(ana):
    """A prepared statement gets one after a few runs; it must not scan everybody's turns."""
    make_threads(ana, 3)
    owned = ConversationThread.objects.owned_by(ana).newest_first().for_list()[:51]
    sql, params = owned.query.sql_with_params()
    places = ", ".join(["%s"] * len(params))
    statement = sql
    for n in range(len(params)):
        statement = statement.replace("%s", f"${n + 1}", 1)

    with connection.cursor() as cursor:
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(f"PREPARE listing AS {statement}")
        execute = f"EXPLAIN EXECUTE listing ({places})"
        cursor.execute(ClientCursor(connection.connection).mogrify(execute, params))
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("DEALLOCATE listing")
        cursor.execute("RESET plan_cache_mode")
        cursor.execute("RESET enable_seqscan")

    assert "turn_pending" in plan
    assert "Seq Scan on thread_messages" not in plan


@pytest.mark.parametrize(
    "at",
    [
        datetime(1969, 12, 31, 23, 59, 58, 500_000, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2026, 3, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
)
def test_a_cursor_keeps_a_time_to_the_microsecond(at):
    thread_id = uuid.uuid4()

    assert decode_cursor(encode_cursor(at, thread_id)) == (at, thread_id)
