"""manage.py agent_token."""

from __future__ import annotations

import argparse
import io
from datetime import timedelta

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.utils import timezone
from rest_framework.test import APIClient

from rbac.management.commands.agent_token import duration
from rbac.models import AuthToken, User
from tests.rbac.conftest import Bearer

pytestmark = pytest.mark.django_db


def run(action: str, *args: str) -> list[str]:
    out = io.StringIO()
    call_command(
        "agent_token", action, "--tenant", "acme", "--name", "bi", *args, stdout=out, no_color=True
    )
    return out.getvalue().splitlines()


def status(secret: str) -> int:
    return APIClient().get("/api/v1/me", HTTP_AUTHORIZATION=f"Token {secret}").status_code


@pytest.mark.parametrize(
    ("text", "length"),
    [("30m", timedelta(minutes=30)), ("24h", timedelta(hours=24)), ("7d", timedelta(days=7)),
     ("0s", timedelta(0))],
)  # fmt: skip
def test_durations(text: str, length: timedelta) -> None:
    assert duration(text) == length


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1.5h", "1w", "999999999d", "٣h", "1h "])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration(text)


@pytest.mark.django_db(transaction=True)
def test_rotating_gives_a_new_token_and_ends_the_old_after_the_overlap(bi: Bearer) -> None:
    assert status(bi.secret) == 200
    secret = run("rotate", "--overlap", "24h")[-1]
    assert (status(bi.secret), status(secret)) == (200, 200)
    with time_machine.travel(timezone.now() + timedelta(hours=24, seconds=1), tick=False):
        assert (status(bi.secret), status(secret)) == (401, 200)


@pytest.mark.django_db(transaction=True)
def test_rotating_without_an_overlap_refuses_the_old_at_once(bi: Bearer) -> None:
    assert status(bi.secret) == 200
    secret = run("rotate", "--overlap", "0s")[-1]
    assert (status(bi.secret), status(secret)) == (401, 200)


@pytest.mark.django_db(transaction=True)
def test_revoking_refuses_all_at_once_and_rotating_brings_one_back(bi: Bearer) -> None:
    second = run("rotate")[-1]
    assert status(second) == 200
    assert run("revoke") == ["2 token(s) of acme/bi revoked."]
    assert (status(bi.secret), status(second)) == (401, 401)
    assert status(run("rotate")[-1]) == 200


def test_listing_shows_no_token(bi: Bearer) -> None:
    run("rotate", "--overlap", "1h")
    lines = run("list")
    assert len(lines) == 2
    assert bi.token.handle in lines[0]
    assert "expires" in lines[0]
    assert "never expires" in lines[1]
    assert bi.secret[:12] not in "".join(lines)


def test_an_absent_agent_and_a_person_are_no_agents(db: None) -> None:
    for make in (lambda: None, lambda: User.objects.create_user("acme", "bi")):
        make()
        with pytest.raises(CommandError, match="no agent") as caught:
            run("list")
        assert caught.value.returncode == 1
    assert not AuthToken.objects.exists()
