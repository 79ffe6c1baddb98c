"""manage.py rehydrate_thread"""

from __future__ import annotations

import io
import json
import signal
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from config.redis import RedisUnavailable
from conversations.conversation_memory import Copy, get_conversation_memory
from conversations.management.commands import _selection
from conversations.models import ConversationThread


def run(*args: Any, **options: Any) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command(
        "rehydrate_thread", *map(str, args), stdout=out, stderr=err, no_color=True, **options
    )
    return out.getvalue(), err.getvalue()


def failure(*args: Any, **options: Any) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(*args, **options)
    return caught.value


def is_warm(thread_id: uuid.UUID) -> bool:
    return isinstance(get_conversation_memory().read(thread_id), Copy)


@pytest.fixture
def threads(agent: Any) -> list[uuid.UUID]:
    """Three threads of Ana's, of two turns each, in the order of their ids."""
    made = sorted(uuid.uuid4() for _ in range(3))
    for thread in made:
        agent.put_turn(thread, answer="North leads.")
        agent.put_turn(thread, answer="North leads.")
    return made


def test_the_named_thread_gets_its_working_set_back(threads):
    out, _ = run(threads[0])
    assert out == "Rebuilt 1 working set, 2 turns.\n"
    assert [is_warm(thread) for thread in threads] == [True, False, False]


def test_all_means_all(threads, monkeypatch):
    monkeypatch.setattr(_selection, "_BATCH", 2)  # more than a page of ids
    run("--all")
    assert all(map(is_warm, threads))


def test_an_owner_means_their_threads_only(agent, threads, bob, thread_id):
    agent.put_turn(thread_id, user_id="bob", answer="It does.")
    run("--owner", "acme/bob")
    assert [is_warm(thread) for thread in [*threads, thread_id]] == [False, False, False, True]


def test_an_agent_type_and_a_time_narrow_it_down(agent, threads, thread_id):
    agent.put_turn(thread_id, agent_type="copilot", answer="Done.")
    old = uuid.uuid4()
    agent.put_turn(old, agent_type="copilot")
    ConversationThread.objects.filter(pk=old).update(touched_at=timezone.now() - timedelta(days=3))
    run("--agent-type", "copilot", "--since", "24h")
    assert [is_warm(thread) for thread in [*threads, thread_id, old]] == [
        False, False, False, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("since", ["2026-11-30", "2026-11-30T09:00Z", "90m", "7d"])
def test_a_time_is_a_date_or_so_long_ago(since):
    assert _selection._since(since).tzinfo is not None


@pytest.mark.parametrize(
    "args",
    [[], ["--all", uuid.uuid4()], ["--all", "--since", "1h"], [uuid.uuid4(), "--owner", "ana"]],
)
def test_what_does_not_say_which_threads_is_a_usage_error(db, args):
    assert failure(*args).returncode == 2


@pytest.mark.parametrize(
    "args", [["x"], ["--since", "soon"], ["--owner", "a#b"], ["--agent-type", "x"]]
)
def test_what_is_no_id_time_or_name_is_a_usage_error(db, args):
    assert "argument" in str(failure(*args))


def test_nobody_of_that_name_is_said_so(db):
    assert "There is nobody called nobody in tenant acme" in str(failure("--owner", "acme/nobody"))


def test_an_absent_thread_fails_and_the_others_are_rebuilt(threads):
    absent = uuid.uuid4()
    error = failure(absent, threads[0])
    assert (error.returncode, str(error)) == (1, "1 failed.")
    assert is_warm(threads[0])


def test_a_deleted_thread_is_absent(agent, threads):
    agent.delete(f"threads/{threads[0]}")
    assert failure(threads[0]).returncode == 1
    run("--all")
    assert not is_warm(threads[0])


def test_a_dry_run_touches_nothing(threads):
    out, _ = run("--all", "--dry-run")
    assert out == "Would rebuild 3 working sets.\n"
    assert not any(map(is_warm, threads))


def test_json_is_a_line_a_thread_and_a_summary_and_nothing_else(threads):
    absent = uuid.uuid4()
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("rehydrate_thread", str(absent), str(threads[0]), "--json", stdout=out)
    missing, rebuilt, summary = map(json.loads, out.getvalue().splitlines())
    assert (missing["thread_id"], missing["code"]) == (str(absent), "not_found")
    assert rebuilt == {
        "type": "thread", "thread_id": str(threads[0]), "status": "rebuilt", "turns": 2,
    }  # fmt: skip
    assert summary == {
        "type": "summary", "threads": 1, "turns": 2, "failed": 1, "dry_run": False,
    }  # fmt: skip


def test_away_from_a_terminal_progress_is_a_few_plain_lines(agent, threads, monkeypatch):
    ConversationThread.objects.bulk_create(
        ConversationThread(tenant="acme", owner_id=agent_owner(threads), agent_type="chat")
        for _ in range(1_000)
    )
    _, err = run("--all", "--dry-run")
    assert err.splitlines()[0] == "100 of 1,003 threads"
    assert len(err.splitlines()) == 10


def agent_owner(threads: list[uuid.UUID]) -> Any:
    return ConversationThread.objects.get(pk=threads[0]).owner_id


def test_without_redis_it_says_so_and_how_far_it_got(threads, monkeypatch):
    rebuild = type(ConversationThread.objects).rehydrate

    def until_the_second(manager: Any, thread_id: uuid.UUID) -> int:
        if thread_id == threads[1]:
            raise RedisUnavailable("refused")
        return rebuild(manager, thread_id)

    monkeypatch.setattr(type(ConversationThread.objects), "rehydrate", until_the_second)
    error = failure("--all")
    assert error.returncode == 1
    assert "Redis does not answer (refused)" in str(error)
    assert "1 of 3 working sets rebuilt" in str(error)


def test_ctrl_c_finishes_the_thread_that_has_begun(threads, monkeypatch):
    rebuild = type(ConversationThread.objects).rehydrate

    def interrupted(manager: Any, thread_id: uuid.UUID) -> int:
        signal.raise_signal(signal.SIGINT)
        return rebuild(manager, thread_id)

    monkeypatch.setattr(type(ConversationThread.objects), "rehydrate", interrupted)
    error = failure("--all")
    assert error.returncode == 130
    assert "1 of 3 working sets rebuilt" in str(error)
    assert [is_warm(thread) for thread in threads] == [True, False, False]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_ends_it_at_once(threads, monkeypatch):
    def impatient(manager: Any, thread_id: uuid.UUID) -> int:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(type(ConversationThread.objects), "rehydrate", impatient)
    error = failure("--all")
    assert error.returncode == 130
    assert "at once" in str(error)
