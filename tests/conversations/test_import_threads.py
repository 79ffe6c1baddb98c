"""manage.py import_threads"""

from __future__ import annotations

import gzip
import io
import json
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from conversations.conversation_memory import Copy, get_conversation_memory
from conversations.management.commands import _importing
from conversations.models import ConversationThread, ThreadMessage
from conversations.thread_lines import parse_line
from rbac.models import User

THREAD = {"type": "thread", "tenant": "acme", "user_id": "ana", "key": "k", "agent_type": "chat"}
Run = Callable[..., str]


def turn(query: str = "Revenue by region", **fields: Any) -> dict[str, Any]:
    return {"type": "turn", "query": query, **fields}


def jsonl(*lines: Any) -> bytes:
    return b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )


@pytest.fixture
def run(tmp_path: Path, transactional_db: None) -> Run:
    """Import lines, dicts or bytes; return what stdout got."""

    def run(*lines: Any, content: bytes | None = None, **options: Any) -> str:
        file = tmp_path / "threads.jsonl"
        file.write_bytes(jsonl(*lines) if content is None else content)
        out = io.StringIO()
        call_command("import_threads", str(file), stdout=out, no_color=True, **options)
        return out.getvalue()

    return run


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Import lines some of which are refused; return the refusals as --json prints them."""

    def refused(*lines: Any, **options: Any) -> list[dict[str, Any]]:
        file = tmp_path / "threads.jsonl"
        file.write_bytes(jsonl(*lines))
        out = io.StringIO()
        with pytest.raises(CommandError) as caught:
            call_command("import_threads", str(file), stdout=out, json=True, **options)
        assert caught.value.returncode == 1
        printed = map(json.loads, out.getvalue().splitlines())
        return [line for line in printed if line["type"] == "refused"]

    return refused


def queries() -> list[str]:
    return list(
        ThreadMessage.objects.order_by("thread", "position").values_list("query", flat=True)
    )


def the_thread() -> ConversationThread:
    return ConversationThread.objects.get()


# --- What is written ------------------------------------------------------------------------------


def test_turns_come_in_order_with_all_their_fields(run):
    turn_id = str(uuid.uuid4())
    run(
        THREAD,
        turn("First", turn_id=turn_id, answer="Yes.", created_at="2026-01-02T03:04:05+02:00",
             artifacts=[{"kind": "sql", "sql": "SELECT 1"}], response_payload={"rows": [[1]]},
             session_id="s-1"),
        turn("Second", status="failed", error_code="timeout", agent_type="copilot"),
        turn("Third", status="pending", waiting_for="a name", revision=2),
    )  # fmt: skip
    first, second, third = ThreadMessage.objects.order_by("position")
    assert (str(first.session_uuid), first.answer, first.session_id) == (turn_id, "Yes.", "s-1")
    assert first.created_at.isoformat() == "2026-01-02T01:04:05+00:00"
    assert first.artifacts == [{"kind": "sql", "sql": "SELECT 1"}]
    assert first.response_payload == {"rows": [[1]]}
    assert (second.status, second.error_code, second.agent_type) == ("failed", "timeout", "copilot")
    assert (third.status, third.waiting_for, third.revision) == ("pending", "a name", 2)


def test_what_people_have_set_of_a_thread_comes_with_it(run):
    times = {"archived_at": "2026-02-01T00:00:00Z", "pinned_at": "2026-01-15T00:00:00Z"}
    run(
        {**THREAD, **times, "title": "Sales", "metadata": {"team": "x"}, "memory": False},
        turn(created_at="2026-01-02T00:00:00Z"),
    )
    thread = the_thread()
    assert (thread.title, thread.title_is_custom) == ("Sales", True)
    assert (thread.metadata, thread.memory_enabled) == ({"team": "x"}, False)
    assert thread.archived_at.isoformat() == "2026-02-01T00:00:00+00:00"
    assert thread.pinned_at.isoformat() == "2026-01-15T00:00:00+00:00"
    assert thread.last_turn_at.isoformat() == "2026-01-02T00:00:00+00:00"


def test_artifacts_that_are_not_there_are_derived(run):
    run(THREAD, turn(response_payload={"sql": "SELECT region FROM sales"}))
    assert ThreadMessage.objects.get().artifacts[0]["sql"] == "SELECT region FROM sales"


def test_a_person_who_is_not_known_is_made(run):
    run(THREAD, turn())
    assert User.objects.person("acme", "ana").role == "user"


def test_the_working_set_shows_what_was_imported(agent, run):
    run({**THREAD, "thread_id": "0b6f2f5e-6f0a-4f0e-9d0c-2f6d6c1f9a11"}, turn("Where is it?"))
    view = agent.context("0b6f2f5e-6f0a-4f0e-9d0c-2f6d6c1f9a11").json()
    assert "Where is it?" in view["text"]


def test_importing_fills_no_working_sets(run):
    run(THREAD, *[turn(f"Question {number}") for number in range(5)])
    assert not isinstance(get_conversation_memory().read(the_thread().pk), Copy)


# --- Again, and after a stop ----------------------------------------------------------------------


def test_the_same_file_again_writes_nothing(run):
    lines = [THREAD, turn("One"), turn("One"), turn("Two", key="two")]
    run(*lines)
    before = list(ThreadMessage.objects.values())
    out = run(*lines)
    assert "Wrote 0 turns of 1 threads" in out
    assert "3 were stored already" in out
    assert list(ThreadMessage.objects.values()) == before


def test_a_repeat_leaves_alone_what_people_have_changed_since(run):
    lines = [{**THREAD, "title": "Imported", "archived_at": "2026-02-01T00:00:00Z"}, turn()]
    run(*lines)
    the_thread().rename("By hand")
    the_thread().archive(archived=False)
    run(*lines)
    assert (the_thread().title, the_thread().archived_at) == ("By hand", None)


def test_ids_are_made_of_the_owner_and_the_key(run):
    run(THREAD, turn(), {**THREAD, "user_id": "bob"}, turn(), {**THREAD, "tenant": "other"}, turn())
    assert ConversationThread.objects.count() == 3


def test_a_thread_that_is_there_is_completed(run):
    run(THREAD, turn("One"))
    run({**THREAD, "pinned_at": "2026-01-15T00:00:00Z"}, turn("One"), turn("Two"))
    assert queries() == ["One", "Two"]
    assert the_thread().pinned_at is not None


def test_what_stopped_half_way_goes_on_with_nothing_twice_and_nothing_missing(run, monkeypatch):
    monkeypatch.setattr(_importing, "_BATCH_TURNS", 3)
    lines = [{**THREAD, "title": "Sales"}, *[turn(f"Question {number}") for number in range(10)]]
    write = type(ConversationThread.objects).finalize_turn

    def dies_at_the_eighth(manager: Any, **turn: Any) -> Any:
        if turn["body"].query == "Question 7":
            raise OperationalError("terminating connection")
        return write(manager, **turn)

    monkeypatch.setattr(type(ConversationThread.objects), "finalize_turn", dies_at_the_eighth)
    with pytest.raises(CommandError, match="lines 1 to 7 are done, 6 turns written"):
        run(*lines)
    assert (len(queries()), the_thread().title) == (6, "Sales")
    monkeypatch.setattr(type(ConversationThread.objects), "finalize_turn", write)
    run(*lines)
    assert queries() == [f"Question {number}" for number in range(10)]


def test_ctrl_c_finishes_the_batch_and_says_how_far_it_got(run, monkeypatch):
    monkeypatch.setattr(_importing, "_BATCH_TURNS", 2)
    write = type(ConversationThread.objects).finalize_turn

    def interrupted(manager: Any, **turn: Any) -> Any:
        if turn["body"].query == "One":
            signal.raise_signal(signal.SIGINT)
        return write(manager, **turn)

    monkeypatch.setattr(type(ConversationThread.objects), "finalize_turn", interrupted)
    with pytest.raises(CommandError, match="lines 1 to 3 are done, 2 turns written") as caught:
        run(THREAD, turn("One"), turn("Two"), turn("Three"))
    assert caught.value.returncode == 130
    assert queries() == ["One", "Two"]


# --- What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "place"),
    [
        (b'{"type": "turn", "query": ', "malformed_json", ("column", 26)),
        (b'{"type": "turn", "query": "\xff"}', "not_utf8", ("column", 28)),
        (b"\xff\xfe{\x00", "not_utf8", ("column", 1)),
        (b"[" * 200 + b"]" * 200, "too_deep", ("column", None)),
        (b"1" * 5000, "malformed_json", ("column", None)),
        (b"[]", "invalid", ("field", None)),
        ({"query": "What?"}, "invalid", ("field", "type")),
        (turn(colour="red"), "invalid", ("field", "colour")),
        ({"type": "turn"}, "invalid", ("field", "query")),
        (turn(created_at="2999-01-01T00:00:00Z"), "invalid", ("field", "created_at")),
        (turn(created_at="2026-01-01T00:00:00"), "invalid", ("field", "created_at")),
        (turn(created_at="0001-01-01T00:00:00+14:00"), "invalid", ("field", "created_at")),
        (turn(position=7), "stale_position", ("field", None)),
        (turn(artifacts=[{"kind": "chart", "chart_type": "bar", "data": 5}]), "unknown_data",
         ("field", "artifacts.0.data")),
        (turn(status="failed", waiting_for="x"), "invalid", ("field", None)),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_with_its_place_and_code(refused, line, code, place):
    [refusal] = refused(THREAD, turn("Good"), line)
    assert (refusal["line"], refusal["code"], refusal[place[0]]) == (3, code, place[1])
    assert queries() == ["Good"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"user_id": "a#b"}, "user_id"),
        ({"tenant": "SYSTEM"}, "tenant"),
        ({"key": None}, None),
        ({"format": 2}, "format"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"thread_id": "7"}, "thread_id"),
    ],
)
def test_a_bad_thread_is_refused_and_its_turns_held_back(refused, fields, field):
    [refusal] = refused({**THREAD, **fields}, turn(), turn())
    assert (refusal["line"], refusal["field"]) == (1, field)
    assert queries() == []


def test_a_refused_turn_holds_back_its_thread_and_no_other(run, refused):
    other = {**THREAD, "key": "other"}
    lines = [THREAD, turn("One"), {"type": "turn"}, turn("Three"), other, turn("Else")]
    assert [refusal["line"] for refusal in refused(*lines)] == [3]
    assert sorted(queries()) == ["Else", "One"]
    lines[2] = turn("Two")
    run(*lines)
    thread = ConversationThread.objects.get(turn_count=3)
    assert list(thread.turns.order_by("position").values_list("query", flat=True)) == [
        "One", "Two", "Three",
    ]  # fmt: skip


def test_another_body_under_the_same_id_is_a_conflict(run, refused):
    run(THREAD, turn("One", key="1"))
    [refusal] = refused(THREAD, turn("Another", key="1"))
    assert refusal["code"] == "turn_conflict"
    assert queries() == ["One"]


def test_a_thread_of_somebody_else_is_not_found(run, refused):
    thread_id = str(uuid.uuid4())
    run({**THREAD, "thread_id": thread_id}, turn("Mine"))
    [refusal] = refused({**THREAD, "user_id": "bob", "thread_id": thread_id}, turn("Mine too"))
    assert refusal["code"] == "not_found"
    assert queries() == ["Mine"]


def test_nobody_is_made_where_that_is_off(refused, settings):
    settings.PEOPLE_MADE_ON_FIRST_USE = False
    [refusal] = refused(THREAD, turn())
    assert refusal["code"] == "unknown_user"


def test_an_agent_has_no_threads(agent, refused):
    [refusal] = refused({**THREAD, "user_id": "bi"}, turn())
    assert refusal["code"] == "not_a_person"


def test_a_turn_without_a_thread_and_a_thread_without_a_turn(refused):
    refusals = refused(turn(), THREAD)
    assert [(one["line"], one["code"]) for one in refusals] == [(1, "no_thread"), (2, "no_turns")]


def test_a_line_over_the_limit_is_passed_by_unread(refused, settings):
    settings.MAX_BODY_BYTES = 500
    [refusal] = refused(THREAD, turn("One"), turn("x" * 3_000_000), turn("Three"))
    assert (refusal["line"], refusal["code"]) == (3, "line_too_large")
    assert queries() == ["One"]


def test_stop_on_error_stops_there(run):
    with pytest.raises(CommandError, match="Stopped at line 3; lines 1 to 3 are done, 1 turns"):
        run(
            THREAD,
            turn("One"),
            {"type": "turn"},
            {**THREAD, "key": "x"},
            turn(),
            stop_on_error=True,
        )
    assert queries() == ["One"]


def test_people_read_what_was_refused_on_stderr(run, capsys):
    err = io.StringIO()
    with pytest.raises(CommandError, match="1 lines were refused"):
        run(THREAD, {"type": "turn"}, stderr=err)
    assert err.getvalue() == "line 2, query: invalid: Field required\n"


# --- Dry run --------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_finds_what_the_run_would(run, refused, monkeypatch):
    monkeypatch.setattr(_importing, "_BATCH_TURNS", 2)
    run(THREAD, turn("One", key="1"))
    [refusal] = refused(
        {**THREAD, "key": "new", "user_id": "new"}, *[turn(f"{n}") for n in range(5)],
        THREAD, turn("Another", key="1"), dry_run=True,
    )  # fmt: skip
    assert (refusal["line"], refusal["code"]) == (8, "turn_conflict")
    assert queries() == ["One"]
    assert not User.objects.named("acme", "new").exists()


def test_a_dry_run_says_what_would_be_written(run):
    assert "Would write 1 turns of 1 threads" in run(THREAD, turn(), dry_run=True)


# --- Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + jsonl(THREAD, turn("One")),
        jsonl(THREAD, turn("One")).replace(b"\n", b"\r\n"),
        b"\n \n" + jsonl(THREAD, b"", turn("One"), b"  "),
        jsonl(THREAD, turn("One")).rstrip(b"\n"),
        gzip.compress(jsonl(THREAD, turn("One"))),
    ],
    ids=["BOM", "CRLF", "blank lines", "no last newline", "gzip"],
)
def test_how_the_file_was_saved_makes_no_difference(run, content):
    run(content=content)
    assert queries() == ["One"]


def test_stdin_is_a_file_too(monkeypatch, transactional_db):
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(jsonl(THREAD, turn("One")))))
    monkeypatch.setattr(sys, "stdin", stdin)
    call_command("import_threads", "-", stdout=io.StringIO())
    assert queries() == ["One"]


def test_a_damaged_gzip_keeps_what_was_read(run):
    # Random ids do not compress, so that the second thread stands in what is cut off.
    more = [turn(str(uuid.uuid4()) * 50) for _ in range(200)]
    packed = gzip.compress(jsonl(THREAD, turn("One"), {**THREAD, "key": "2"}, *more))
    with pytest.raises(CommandError, match="The gzip file is damaged"):
        run(content=packed[: len(packed) // 2])
    assert "One" in queries()


def test_a_file_that_can_not_be_read_is_a_usage_error(db):
    with pytest.raises(CommandError, match="No such file") as caught:
        call_command("import_threads", "absent.jsonl")
    assert caught.value.returncode == 2


def test_an_empty_file_is_nothing(run):
    assert "Wrote 0 turns of 0 threads" in run()


def test_the_summary_has_the_speed(run):
    summary = json.loads(run(THREAD, turn(), json=True).splitlines()[-1])
    assert summary.pop("seconds") > 0
    assert summary.pop("turns_per_second") >= 0
    assert summary == {
        "type": "summary", "threads": 1, "written": 1, "stored_already": 0, "refused": 0,
        "held_back": 0, "dry_run": False,
    }  # fmt: skip


def test_what_json_can_not_hold_takes_its_documented_form():
    line = parse_line(b'{"type": "turn", "query": "a\\u0000b", "response_payload": {"v": NaN}}')
    assert line.query == "a\N{REPLACEMENT CHARACTER}b"
    assert line.response_payload == {"v": None}
