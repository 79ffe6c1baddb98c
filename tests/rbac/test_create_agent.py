"""manage.py create_agent."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from rbac.models import AuthToken, User


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("create_agent", *args, stdout=out, no_color=True)
    return out.getvalue()


def test_the_token_stands_alone_on_the_last_line_and_works(db: None) -> None:
    secret = run("--tenant", "acme", "--name", "bi").splitlines()[-1]
    me = APIClient().get("/api/v1/me", HTTP_AUTHORIZATION=f"Token {secret}")
    assert me.json() == {"tenant": "acme", "user_id": "bi", "role": "agent"}
    assert AuthToken.objects.get().expiry is None
    assert not User.objects.get().has_usable_password()


def test_the_same_name_again_points_to_agent_token(db: None) -> None:
    run("--tenant", "acme", "--name", "bi")
    with pytest.raises(CommandError, match="agent_token rotate") as caught:
        run("--tenant", "acme", "--name", "bi")
    assert caught.value.returncode == 1
    assert AuthToken.objects.count() == 1


def test_a_person_of_that_name_is_in_the_way(ana: User) -> None:
    with pytest.raises(CommandError, match="is a person"):
        run("--tenant", "acme", "--name", "ana")


@pytest.mark.parametrize("name", ["a#b", "", "SYSTEM", "x" * 200])
def test_an_impossible_name_is_refused(db: None, name: str) -> None:
    with pytest.raises(CommandError):
        run("--tenant", "acme", "--name", name)
    assert not User.objects.exists()


def test_a_missing_name_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "create_agent"],
        cwd=settings.BASE_DIR,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
