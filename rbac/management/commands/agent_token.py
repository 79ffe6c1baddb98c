"""List, rotate and revoke the tokens of an agent."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from rbac import names
from rbac.models import AuthToken, AuthTokenQuerySet, User

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LONGEST = timedelta(days=3660)


def duration(text: str) -> timedelta:
    """Return the time of `"30m"`, `"24h"`, `"7d"`, `"0s"`; argparse prints what is wrong."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration like 30m, 24h or 7d")
    length = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if length > _LONGEST:
        raise argparse.ArgumentTypeError("at most ten years")
    return length


class Command(BaseCommand):
    """`agent_token rotate --tenant acme --name bi --overlap 24h`."""

    help = "List, rotate or revoke the tokens of an agent."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take what to do, and with whose tokens."""
        parser.add_argument("action", choices=["list", "rotate", "revoke"])
        parser.add_argument("--tenant", default=names.DEFAULT_TENANT)
        parser.add_argument("--name", required=True, help="the agent's name")
        parser.add_argument(
            "--overlap",
            type=duration,
            default=timedelta(hours=24),
            help="rotate: for how long the old tokens go on (30m, 24h, 7d; default 24h; "
            "0s for a token that has leaked)",
        )

    def handle(self, *, action: str, tenant: str, name: str, overlap: timedelta, **_: Any) -> None:
        """Do one of the three; exit 1 when there is no such agent."""
        agent = User.objects.agents().named(tenant, name).first()
        if agent is None:
            raise CommandError(f"There is no agent {tenant}/{name}; create_agent makes one.")
        if action == "list":
            self._list(agent)
        elif action == "rotate":
            self._rotate(agent, overlap)
        else:
            self._revoke(agent)

    def _list(self, agent: User) -> None:
        for token in _tokens(agent):
            self.stdout.write(
                f"{token.handle}  {token.name or '-'}  made {token.created:%Y-%m-%d %H:%MZ}  "
                f"{_until(token)}"
            )

    def _rotate(self, agent: User, overlap: timedelta) -> None:
        with transaction.atomic():
            old = _tokens(agent).usable().expire_within(overlap)
            _token, secret = AuthToken.objects.issue(agent, name="rotate")
        self.stdout.write(
            f"{old} old token(s) of {agent} end by {timezone.now() + overlap:%Y-%m-%d %H:%M:%SZ}. "
            "The new one, shown this once:",
            self.style.SUCCESS,
        )
        self.stdout.write(secret)

    def _revoke(self, agent: User) -> None:
        revoked, _ = _tokens(agent).delete()
        self.stdout.write(f"{revoked} token(s) of {agent} revoked.", self.style.SUCCESS)


def _tokens(agent: User) -> AuthTokenQuerySet:
    tokens: AuthTokenQuerySet = AuthToken.objects.filter(user=agent).order_by("created")
    return tokens


def _until(token: AuthToken) -> str:
    if token.expiry is None:
        return "never expires"
    verb = "expires" if token.expiry > timezone.now() else "expired"
    return f"{verb} {token.expiry:%Y-%m-%d %H:%M:%SZ}"
