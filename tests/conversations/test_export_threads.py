"""manage.py export_threads"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations.management.commands import export_threads
from conversations.models import ConversationThread, ThreadMessage
from rbac.models import User
from rbac.principal import Person


def export(*args: Any, **options: Any) -> str:
    out = io.StringIO()
    call_command(
        "export_threads",
        *map(str, args),
        stdout=out,
        stderr=io.StringIO(),
        no_color=True,
        **options,
    )
    return out.getvalue()


def empty_the_database() -> None:
    ThreadMessage.objects.all().delete()
    ConversationThread.objects.all().delete()
    User.objects.all().delete()


def import_again(exported: str, tmp_path: Path) -> None:
    file = tmp_path / "again.jsonl"
    file.write_text(exported, encoding="utf-8", newline="")
    call_command("import_threads", str(file), stdout=io.StringIO())


@pytest.fixture
def rich(agent: Any) -> uuid.UUID:
    """A thread with a turn of each kind, renamed, described, pinned and archived."""
    thread = uuid.uuid4()
    payload = {"sql": "SELECT 'ü\u2028' -- 🙂", "rows": [[1e2, -0.0, 5e-324, 2**70, None, "\x7f"]]}
    bodies: list[dict[str, Any]] = [
        {"query": "Revenue?\r\n\tPlease", "response_payload": payload},
        {"answer": "Here.", "artifacts": [], "response_payload": {"b": 1, "a": {"z": [], "y": {}}}},
        {"artifacts": [{"kind": "sql", "sql": " SELECT 1;\n"},
                       {"kind": "chart", "chart_type": "bar", "data": 1, "title": "T"}]},
        {"status": "failed", "error_code": "timeout", "session_id": "s-1"},
        {"status": "stopped", "answer": "Par…", "agent_type": "copilot", "response_payload": []},
        {"query": "", "artifacts": [{"kind": "file", "name": "b.xlsx", "row_count": 0}]},
        {"status": "pending", "waiting_for": "a name", "revision": 3, "response_payload": False},
    ]  # fmt: skip
    for body in bodies:
        answer = agent.put_turn(thread, created_at="2026-01-02T03:04:05.000600Z", **body)
        assert answer.status_code == 201, answer.content
    agent.patch(
        f"threads/{thread}", title="  Säles 👩‍👩‍👧 ", metadata={"zeta": "1", "a": "ü"}, pinned=True,
        archived=True, memory="off",
    )  # fmt: skip
    return thread


def test_export_import_export_is_the_same_to_the_byte(agent, rich, tmp_path):
    agent.put_turn(uuid.uuid4(), user_id="bob", agent_type="copilot")
    first = export("--all")
    empty_the_database()
    import_again(first, tmp_path)
    assert export("--all") == first


def test_importing_what_is_still_there_changes_nothing(rich, tmp_path):
    first = export("--all")
    before = list(ThreadMessage.objects.values()), list(ConversationThread.objects.values())
    import_again(first, tmp_path)
    assert before == (
        list(ThreadMessage.objects.values()),
        list(ConversationThread.objects.values()),
    )


def test_the_agents_own_repeat_is_still_a_repeat_after_a_move(agent, thread_id, tmp_path):
    turn_id = uuid.uuid4()
    body = {"response_payload": {"sql": "SELECT 1 FROM t"}, "answer": "One."}
    agent.put_turn(thread_id, turn_id, **body)
    exported = export(thread_id)
    ThreadMessage.objects.all().delete()
    ConversationThread.objects.all().delete()
    import_again(exported, tmp_path)
    assert agent.put_turn(thread_id, turn_id, **body).status_code == 200


def test_a_completed_first_turn_keeps_the_threads_agent_type(agent, thread_id, tmp_path):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, status="pending", agent_type="chat")
    agent.put_turn(thread_id, turn_id, answer="Done.", revision=1, agent_type="copilot")
    first = export("--all")
    empty_the_database()
    import_again(first, tmp_path)
    assert export("--all") == first


text = st.text(max_size=40)
short = st.text(min_size=1, max_size=20).filter(str.strip)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
artifacts = st.none() | st.lists(
    st.builds(lambda sql, title: {"kind": "sql", "sql": sql, "title": title}, short, short)
    | st.builds(lambda term: {"kind": "definition", "term": term, "meaning": term}, short),
    max_size=3,
)
turns = st.fixed_dictionaries(
    {"query": short, "answer": text, "artifacts": artifacts, "response_payload": json_values,
     "status": st.sampled_from(["complete", "stopped", "failed", "pending"]),
     "agent_type": st.sampled_from(["chat", "copilot"]),
     "revision": st.integers(0, 9), "session_id": st.none() | short},
    optional={"created_at": st.datetimes(datetime(2000, 1, 1), datetime(2026, 1, 1),  # noqa: DTZ001
                                         timezones=st.just(UTC)).map(datetime.isoformat)},
)  # fmt: skip
threads = st.fixed_dictionaries(
    {"title": text, "archived": st.booleans(), "pinned": st.booleans(),
     "metadata": st.dictionaries(short, text, max_size=3), "turns": st.lists(turns, min_size=1, max_size=3)}
)  # fmt: skip


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(made=st.lists(threads, min_size=1, max_size=2))
def test_whatever_the_api_took_comes_through(agent, tmp_path, made):
    for thread in made:
        thread_id = uuid.uuid4()
        for turn in thread["turns"]:
            sent = json.loads(json.dumps(turn))
            answer = agent.put_turn(thread_id, **sent)
            assert answer.status_code == 201, answer.content
        changes = {name: thread[name] for name in ("title", "archived", "pinned", "metadata")}
        assert agent.patch(f"threads/{thread_id}", **changes).status_code == 200
    first = export("--all")
    ThreadMessage.objects.all().delete()
    ConversationThread.objects.all().delete()
    import_again(first, tmp_path)
    assert export("--all") == first
    ThreadMessage.objects.all().delete()
    ConversationThread.objects.all().delete()


def test_what_has_its_default_is_left_out(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, query="Why?", created_at="2026-01-02T03:04:05Z")
    assert [json.loads(line) for line in export(thread_id).splitlines()] == [
        {"type": "thread", "tenant": "acme", "user_id": "ana", "thread_id": str(thread_id),
         "agent_type": "chat"},
        {"type": "turn", "turn_id": str(turn_id), "position": 1, "query": "Why?",
         "created_at": "2026-01-02T03:04:05Z", "agent_type": "chat"},
    ]  # fmt: skip


def test_threads_come_in_the_order_of_their_ids_with_turns_in_theirs(agent, monkeypatch):
    monkeypatch.setattr(export_threads, "_TURNS_AT_A_TIME", 2)
    for _ in range(3):
        thread = uuid.uuid4()
        for number in range(5):
            agent.put_turn(thread, query=str(number))
    lines = [json.loads(line) for line in export("--all").splitlines()]
    ids = [line["thread_id"] for line in lines if line["type"] == "thread"]
    assert ids == sorted(ids)
    assert [line["query"] for line in lines if line["type"] == "turn"] == list("01234") * 3


def test_a_deleted_thread_is_not_exported(agent, thread_id):
    agent.put_turn(thread_id)
    agent.delete(f"threads/{thread_id}")
    assert export("--all") == ""


def test_the_same_options_choose_threads_as_in_rehydrate_thread(agent, thread_id, bob):
    agent.put_turn(thread_id)
    other = uuid.uuid4()
    agent.put_turn(other, user_id="bob", agent_type="copilot")
    for chosen in (["--owner", "acme/bob"], ["--agent-type", "copilot"], [other]):
        assert str(thread_id) not in export(*chosen)
        assert str(other) in export(*chosen)


def test_an_absent_thread_fails_before_anything_is_written(agent, thread_id, tmp_path):
    agent.put_turn(thread_id)
    with pytest.raises(CommandError, match="There is no such thread"):
        export(thread_id, uuid.uuid4(), "--output", tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_a_file_is_what_stdout_would_be_and_can_be_imported(rich, tmp_path, name):
    first, file = export("--all"), tmp_path / name
    export("--all", "--output", file)
    assert file.stat().st_mode & 0o077 == 0
    empty_the_database()
    call_command("import_threads", str(file), stdout=io.StringIO())
    assert export("--all") == first
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_is_written_whole_or_not_at_all(agent, tmp_path, monkeypatch):
    for _ in range(2):
        agent.put_turn(uuid.uuid4())
    file = tmp_path / "out.jsonl"
    file.write_text("the one before")
    write = export_threads._write_thread

    def interrupted(*args: Any) -> int:
        signal.raise_signal(signal.SIGINT)
        return write(*args)

    monkeypatch.setattr(export_threads, "_write_thread", interrupted)
    with pytest.raises(CommandError, match="nothing was written") as caught:
        export("--all", "--output", file)
    assert caught.value.returncode == 130
    assert file.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_said_so(db, tmp_path):
    with pytest.raises(CommandError, match="No such file or directory"):
        export("--all", "--output", tmp_path / "absent" / "out.jsonl")


def test_a_turn_that_lands_meanwhile_is_not_torn_in(agent, ana, thread_id, monkeypatch):
    for _ in range(3):
        agent.put_turn(thread_id)
    monkeypatch.setattr(export_threads, "_TURNS_AT_A_TIME", 2)
    read = export_threads._turns

    def while_somebody_writes(thread: uuid.UUID) -> Any:
        for turn in read(thread):
            if turn.position == 1:
                put_from_another_connection(agent, thread)
            yield turn

    monkeypatch.setattr(export_threads, "_turns", while_somebody_writes)
    assert len(export(thread_id).splitlines()) == 1 + 3
    assert ThreadMessage.objects.count() == 4


def put_from_another_connection(agent: Any, thread: uuid.UUID) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from django.db import connection

    def put() -> None:
        assert agent.put_turn(thread).status_code == 201
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(put).result()


def test_a_dry_run_counts(rich, tmp_path):
    assert export("--all", "--dry-run") == "Would write 1 threads, 7 turns.\n"


def test_the_summary_as_json(rich, tmp_path):
    out = export("--all", "--json", "--output", tmp_path / "out.jsonl")
    assert json.loads(out) == {"type": "summary", "threads": 1, "turns": 7, "dry_run": False}


def test_json_on_stdout_beside_the_export_is_a_usage_error(db):
    with pytest.raises(CommandError) as caught:
        export("--all", "--json")
    assert caught.value.returncode == 2


def test_a_reader_who_goes_away_is_no_traceback(db):
    code = (
        "import os, sys; from unittest import mock; from django.core.management import "
        "execute_from_command_line as run; import django; django.setup()\n"
        "from conversations.management.commands import export_threads as e\n"
        "e.keys = lambda threads: iter([None] * 9999)\n"
        "e._write_thread = lambda key, write: write(b'x' * 9999) or 1\n"
        "e.missing = lambda *_: []\n"
        "e.ConversationThread.objects.none().__class__.count = lambda self: 9999\n"
        "run(['manage.py', 'export_threads', '--all', '--skip-checks'])"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read().decode()
        assert process.wait(timeout=30) == 1
    assert "Nobody reads on." in err
    assert "Traceback" not in err


def test_people_are_told_on_stderr_while_lines_go_to_stdout(rich):
    err = io.StringIO()
    call_command("export_threads", "--all", stdout=io.StringIO(), stderr=err)
    assert err.getvalue() == "Wrote 1 threads, 7 turns.\n"


def test_the_owner_of_the_import_is_who_it_was(agent, rich, tmp_path):
    first = export("--all")
    empty_the_database()
    import_again(first, tmp_path)
    ana = User.objects.person("acme", "ana")
    owner = Person(ana.pk, ana.tenant, ana.user_id)
    assert ConversationThread.objects.owned_by(owner).count() == 1
