"""Make an agent and its first token."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from rbac import names
from rbac.exceptions import UserExists
from rbac.models import AuthToken, Role, User


class Command(BaseCommand):
    """`create_agent --tenant acme --name bi`: the token stands alone on the last line."""

    help = "Make an agent; prints its token, which never expires, alone on the last line."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the tenant and the agent's name."""
        parser.add_argument("--tenant", default=names.DEFAULT_TENANT)
        parser.add_argument("--name", required=True, help="the agent's name, its user id")

    def handle(self, *, tenant: str, name: str, **_: Any) -> None:
        """Make both or neither; exit 1 when the name is taken or can't be one."""
        try:
            with transaction.atomic():
                agent = User.objects.create_user(tenant, name, role=Role.AGENT)
                _token, secret = AuthToken.objects.issue(agent, name="create_agent")
        except names.BadName as error:
            raise CommandError(f"{error} (in the name or the tenant)") from error
        except UserExists as error:
            raise CommandError(_taken(tenant, name)) from error
        self.stdout.write(f"Agent {agent} made. Its token, shown this once:", self.style.SUCCESS)
        self.stdout.write(secret)


def _taken(tenant: str, name: str) -> str:
    holder = User.objects.person(tenant, name)
    if not holder.is_agent:
        return f"{holder} is a person; choose another name for the agent."
    return (
        f"Agent {holder} exists. For a new token: "
        f"manage.py agent_token rotate --tenant {tenant} --name {name}"
    )
