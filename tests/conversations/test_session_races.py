"""Many at once on sessions, from processes of their own: nothing lost, order kept, no key for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import connection

from config.errors import Problem
from conversations.models import ThreadMessage
from conversations.session_keys import SessionKey
from conversations.session_problems import OutOfTurn
from conversations.session_records import SessionRecord
from conversations.sessions import SessionStore
from tests.conversations.cached_thread import in_parallel
from tests.conversations.session_world import question, tool_turn

ROOT = Path(__file__).resolve().parent.parent.parent
PROCESSES, SESSIONS, MESSAGES = 4, 50, 40
KEY = SessionKey("acme", "s-81")

# Each process sends its quarter of every session's messages, so that all four meet on each.
WRITER = """
import json, sys
import django
django.setup()
from django.db import connection
connection.settings_dict["NAME"] = {database!r}
from conversations.message_input import message_of
from conversations.sessions import SessionStore
from rbac.principal import Person

writer, store, owner = int(sys.argv[1]), SessionStore("acme"), Person.named("acme", "ana")
sent = []
for n in range({messages} // {processes}):
    for session in range({sessions}):
        at = (session + writer * 13) % {sessions}
        one = message_of(role="user", content=f"{{writer}}.{{n}}", message_id=f"{{writer}}.{{n}}")
        added = store.add(owner, f"s-{{at}}", [one])
        sent.append([at, one.message_id, added.messages[0].number])
print(json.dumps(sent))
"""


@pytest.fixture
def store(ana):
    return SessionStore("acme")


def test_50_sessions_of_40_messages_from_4_processes(store, ana, redis, django_db_blocker):
    for n in range(SESSIONS):
        store.open(ana, f"s-{n}")
    code = WRITER.format(
        database=connection.settings_dict["NAME"], messages=MESSAGES, processes=PROCESSES,
        sessions=SESSIONS,
    )  # fmt: skip
    began = time.perf_counter()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(n)], cwd=ROOT, env=os.environ, stdout=subprocess.PIPE
        )
        for n in range(PROCESSES)
    ]
    told = [json.loads(writer.communicate(timeout=180)[0].splitlines()[-1]) for writer in writers]
    print(f"{SESSIONS * MESSAGES} messages in {time.perf_counter() - began:.1f} s")

    numbers: dict[int, dict[int, str]] = {}
    for at, message_id, number in (one for sent in told for one in sent):
        assert number not in numbers.setdefault(at, {})
        numbers[at][number] = message_id
    sources = set()
    for n in range(SESSIONS):
        warm = store.read(ana, f"s-{n}")
        sources.add(warm.source)
        assert {one.number: one.message_id for one in warm.messages} == numbers[n]
        assert [one.number for one in warm.messages] == list(range(1, MESSAGES + 1))
        for writer in range(PROCESSES):
            own = [one.content for one in warm.messages if one.content.startswith(f"{writer}.")]
            assert own == [f"{writer}.{k}" for k in range(MESSAGES // PROCESSES)]
    assert sources == {"cache"}
    ttls = {redis.ttl(key) for key in redis.scan_iter("session:*")}
    assert ttls <= set(range(30 * 60 - 60, 30 * 60 + 1))
    assert len(list(redis.scan_iter("session:*"))) == SESSIONS


def say_until_taken(store, owner, message):
    while True:
        with suppress(OutOfTurn):
            return store.add(owner, "s-81", [message])


def test_two_clients_with_a_tool_turn_on_one_session(store, ana):
    """Each waits its turn or is told 409: never call, call, result, result (C9)."""
    store.open(ana, "s-81")

    def client(name):
        for n in range(10):
            for message in tool_turn(f"{name}.{n}"):
                say_until_taken(store, ana, message)

    in_parallel(lambda: client("a"), lambda: client("b"))

    lines = store.read(ana, "s-81").messages
    calls = [one for one in lines if one.role == "assistant" and one.calls]
    assert len(calls) == 20
    for call in calls:
        follower = lines[lines.index(call) + 1]
        assert (follower.role, follower.calls) == ("tool", call.calls)


def test_the_same_list_20_times_at_once(store, ana):
    store.open(ana, "s-81")
    sent = tool_turn(1)
    answers = in_parallel(*[lambda: store.add(ana, "s-81", sent)] * 20)

    assert sum(one.created for one in answers) == 1
    assert len({one.turns[0] for one in answers}) == 1
    assert ThreadMessage.objects.count() == 1
    assert len(store.read(ana, "s-81").messages) == 4


def test_20_first_uses_of_one_id(store, ana):
    opened = in_parallel(*[lambda: store.open(ana, "s-81")] * 20)

    assert sum(one.created for one in opened) == 1
    assert SessionRecord.objects.count() == 1


def test_two_people_race_for_one_id(store, ana, bob):
    def claim(owner):
        try:
            return store.open(owner, "s-81").created
        except Problem as problem:
            return problem.code

    assert sorted(map(str, in_parallel(lambda: claim(ana), lambda: claim(bob)))) == [
        "True", "session_not_found",
    ]  # fmt: skip


def test_readers_among_writers_never_see_a_hole_or_go_back(store, ana, redis):
    store.open(ana, "s-81")

    def write(writer):
        for n in range(15):
            store.add(ana, "s-81", question(f"{writer}.{n}"))
            seen = {one.message_id for one in store.read(ana, "s-81").messages}
            assert f"a-{writer}.{n}" in seen  # what was answered is there

    def read():
        before = 0
        for n in range(60):
            if n % 20 == 0:
                redis.delete(KEY.session)
            read = store.read(ana, "s-81")
            assert [one.number for one in read.messages] == list(range(1, read.message_count + 1))
            assert read.message_count >= before
            before = read.message_count

    in_parallel(lambda: write(1), lambda: write(2), lambda: write(3), read, read)
    assert len(store.read(ana, "s-81").messages) == 90
    assert ThreadMessage.objects.count() == 45


def test_deleting_the_thread_under_writers(store, ana, agent):
    """Whoever comes late is refused or goes on in a new thread; nothing of the old one is left."""
    store.open(ana, "s-81")
    store.add(ana, "s-81", question("first"))
    thread_id = store.read(ana, "s-81").thread_id
    codes = set()

    def write(writer):
        for n in range(10):
            try:
                store.add(ana, "s-81", question(f"{writer}.{n}"))
            except Problem as problem:
                codes.add(problem.code)

    _, _, deleted = in_parallel(
        lambda: write("a"), lambda: write("b"), lambda: agent.delete(f"threads/{thread_id}")
    )
    assert deleted.status_code == 204
    assert codes <= {"not_found"}
    assert not ThreadMessage.objects.filter(thread_id=thread_id).exists()
    assert store.open(ana, "s-81").session.thread_id != thread_id
