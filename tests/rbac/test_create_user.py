"""manage.py create_user."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from rbac.models import User
from tests.rbac.conftest import PASSWORD


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(db: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run the command with this on its standard input."""

    def run_command(*args: str, stdin: str | io.StringIO = PASSWORD + "\n") -> str:
        given = io.StringIO(stdin) if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", given)
        out = io.StringIO()
        call_command("create_user", "--tenant", "acme", *args, stdout=out, no_color=True)
        return out.getvalue()

    return run_command


def test_a_user(run: Any) -> None:
    assert "acme/ana" in run("--user-id", "ana", "--password-stdin")
    ana = User.objects.person("acme", "ana")
    assert ana.check_password(PASSWORD)
    assert (ana.role, ana.is_staff) == ("user", False)


def test_an_admin_may_log_in_to_the_admin_pages(run: Any) -> None:
    run("--user-id", "ana", "--role", "admin", "--password-stdin")
    assert User.objects.person("acme", "ana").is_staff


def test_only_the_line_end_is_taken_off_a_password(run: Any) -> None:
    run("--user-id", "ana", "--password-stdin", stdin="  spaced out words \r\nmore")
    assert User.objects.person("acme", "ana").check_password("  spaced out words ")


@pytest.mark.parametrize("password", ["short", "password123", "1234567890", "", "\n"])
def test_weak_passwords_are_refused(run: Any, password: str) -> None:
    with pytest.raises(CommandError) as caught:
        run("--user-id", "ana", "--password-stdin", stdin=password)
    assert caught.value.returncode == 1
    assert not User.objects.exists()


def test_somebody_who_exists_is_refused_or_left_alone(run: Any, ana: User) -> None:
    with pytest.raises(CommandError, match="exists") as caught:
        run("--user-id", "ana", "--password-stdin", stdin="another long one")
    assert caught.value.returncode == 1
    assert "left as is" in run("--user-id", "ana", "--role", "admin", "--if-missing", stdin="")
    ana.refresh_from_db()
    assert (ana.role, ana.check_password(PASSWORD)) == ("user", True)


def test_without_a_terminal_the_password_must_come_from_stdin(run: Any) -> None:
    with pytest.raises(CommandError, match="--password-stdin") as caught:
        run("--user-id", "ana")
    assert caught.value.returncode == 2


def test_an_agent_is_not_made_here(run: Any) -> None:
    with pytest.raises(CommandError):
        run("--user-id", "bi", "--role", "agent", "--password-stdin")


@pytest.mark.parametrize("user_id", ["a#b", "", "system", "a/b"])
def test_an_impossible_name_is_refused(run: Any, user_id: str) -> None:
    with pytest.raises(CommandError):
        run("--user-id", user_id, "--password-stdin")


def test_on_a_terminal_the_password_is_asked_for_twice(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([PASSWORD, "typo", PASSWORD, PASSWORD])
    monkeypatch.setattr("getpass.getpass", lambda *_: next(answers))
    with pytest.raises(CommandError, match="differ"):
        run("--user-id", "ana", stdin=Terminal())
    run("--user-id", "ana", stdin=Terminal())
    assert User.objects.person("acme", "ana").check_password(PASSWORD)
