"""Make a person who can log in."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from rbac import names
from rbac.exceptions import UserExists
from rbac.models import Role, User


class Command(BaseCommand):
    """`create_user --tenant acme --user-id ana --role admin`; the password is asked for."""

    help = "Make a person; an admin may log in to /admin. Exit 0 made, 1 refused, 2 usage."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take who, and where the password comes from."""
        parser.add_argument("--tenant", default=names.DEFAULT_TENANT)
        parser.add_argument("--user-id", required=True)
        parser.add_argument("--role", choices=[Role.USER.value, Role.ADMIN.value], default="user")
        parser.add_argument(
            "--password-stdin", action="store_true", help="read the password's line from stdin"
        )
        parser.add_argument(
            "--if-missing", action="store_true", help="leave somebody who exists as they are"
        )

    def handle(
        self,
        *,
        tenant: str,
        user_id: str,
        role: str,
        password_stdin: bool,
        if_missing: bool,
        **_: Any,
    ) -> None:
        """Make the person, or say why not."""
        who = _unsaved(tenant, user_id, role)
        if User.objects.named(tenant, user_id).exists():
            self._found(who, if_missing=if_missing)
            return
        password = _password(from_stdin=password_stdin)
        try:
            validate_password(password, who)
            User.objects.create_user(tenant, user_id, password, role=role)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except UserExists:
            self._found(who, if_missing=if_missing)
            return
        self.stdout.write(f"{role.capitalize()} {who} made.", self.style.SUCCESS)

    def _found(self, who: User, *, if_missing: bool) -> None:
        if not if_missing:
            raise CommandError(f"{who} exists; --if-missing would accept that.")
        self.stdout.write(f"{who} exists and was left as is.")


def _unsaved(tenant: str, user_id: str, role: str) -> User:
    try:
        return User(tenant=names.tenant(tenant), user_id=names.user_id(user_id), role=role)
    except names.BadName as error:
        raise CommandError(f"{error} (in the user id or the tenant)") from error


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass()
        if password != getpass.getpass("Password (again): "):
            raise CommandError("The two passwords differ.")
    else:
        raise CommandError("There is no terminal to ask on; use --password-stdin.", returncode=2)
    if not password:
        raise CommandError("The password is empty.")
    return password
