"""Log-in with tenant, user id and password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest

from rbac import login_attempts, names
from rbac.models import User


class TenantBackend(ModelBackend):
    """Takes `tenant` and `user_id`, or a `username`: `"acme/ana"`, `"ana"` in the default tenant.

    Agents have tokens and never log in. An unknown person takes as long as a wrong password.
    What comes with a request is counted (`rbac.login_attempts`), whichever page or call it is.
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
        """Return the person whose password it is; None for everybody else.

        Raises `TooManyAttempts`, which Django's `authenticate` takes for a wrong password.
        """
        if password is None or (username is None and user_id is None):
            return None
        if user_id is None:
            tenant, user_id = _parts(username or "")
        if request is None:
            return self._whose(tenant, user_id, password)
        # One person has one counter, however their name is typed.
        address = login_attempts.address_of(request)
        attempt = (names.normal(tenant), names.normal(user_id), address)
        login_attempts.begin(*attempt)
        user = self._whose(tenant, user_id, password)
        if user is not None:
            login_attempts.succeeded(*attempt)
        return user

    def _whose(self, tenant: str, user_id: str, password: str) -> User | None:
        user: User | None = User.objects.named(tenant, user_id).first()
        if user is None:
            User().set_password(password)  # takes the time of a check
            return None
        may = user.check_password(password) and self.user_can_authenticate(user)
        return user if may else None

    def user_can_authenticate(self, user: User | AnonymousUser | None) -> bool:
        """Refuse who is deactivated, and agents, in a session made before as well."""
        return super().user_can_authenticate(user) and not getattr(user, "is_agent", False)


def _parts(username: str) -> tuple[str, str]:
    """Return tenant and user id; of what can be no name, a pair that is nobody's."""
    try:
        return names.split(username)
    except names.BadName:
        return "", username
