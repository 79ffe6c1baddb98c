"""Log-in with tenant, user id and password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest

from rbac import names
from rbac.models import User


class TenantBackend(ModelBackend):
    """Takes `tenant` and `user_id`, or a `username`: `"acme/ana"`, `"ana"` in the default tenant.

    Agents have tokens and never log in. An unknown person takes as long as a wrong password.
    """

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        *,
        tenant: str = names.DEFAULT_TENANT,
        user_id: str | None = None,
        **_: Any,
    ) -> User | None:
        """Return the person whose password it is; None for everybody else."""
        if password is None or (username is None and user_id is None):
            return None
        user = _found(username) if user_id is None else _named(tenant, user_id)
        if user is None:
            User().set_password(password)  # takes the time of a check
            return None
        may = user.check_password(password) and self.user_can_authenticate(user)
        return user if may else None

    def user_can_authenticate(self, user: User | AnonymousUser | None) -> bool:
        """Refuse who is deactivated, and agents, in a session made before as well."""
        return super().user_can_authenticate(user) and not getattr(user, "is_agent", False)


def _named(tenant: str, user_id: str) -> User | None:
    found: User | None = User.objects.named(tenant, user_id).first()
    return found


def _found(username: str | None) -> User | None:
    try:
        return _named(*names.split(username or ""))
    except names.BadName:
        return None
