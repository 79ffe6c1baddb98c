"""What this app refuses, each with the code that callers may rely on."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from rest_framework.exceptions import AuthenticationFailed

from config.errors import Problem


class UserIdRequired(Problem):
    """An agent did not say for whom it calls."""

    status = 422
    code = "user_id_required"
    title = "Name the person with user_id"


class NotYours(Problem):
    """Somebody who is no agent named another person."""

    status = 403
    code = "not_yours"
    title = "You can only act for yourself"


class UserInactive(Problem):
    """The person that an agent acts for has been deactivated."""

    status = 403
    code = "user_inactive"
    title = "This person has been deactivated"


class UnknownUser(Problem):
    """Nobody in the tenant has this user id.

    422 and not 404: the address is right, and what it says about a thread must not depend on
    who is named.
    """

    status = 422
    code = "unknown_user"
    title = "Nobody has this user id"


class NotAPerson(Problem):
    """The user id is an agent's, and agents have no memory of their own."""

    status = 422
    code = "not_a_person"
    title = "This user id is an agent's"


class UserExists(Problem):
    """The tenant has somebody of this user id already."""

    status = 409
    code = "user_exists"
    title = "This user id is taken"


class RoleIsFixed(Problem):
    """People don't become agents, nor agents people: threads belong to people only."""

    status = 409
    code = "role_is_fixed"
    title = "An agent stays an agent, a person a person"


class TooManyAttempts(Problem, PermissionDenied):
    """Too many failed log-ins of one person, or from one address.

    Django's `authenticate` takes `PermissionDenied` of a backend for a log-in that failed, so
    that the form of /admin says what it says of a wrong password.
    """

    status = 429
    code = "too_many_attempts"
    title = "Too many failed log-ins; wait a little"


class InvalidToken(AuthenticationFailed):
    """One answer for a token that is unknown, revoked, expired, malformed or of somebody gone."""

    default_detail = "This token can't be used."
    default_code = "invalid_token"


class InvalidCredentials(AuthenticationFailed):
    """One answer for an unknown person, a wrong password, an agent and somebody deactivated."""

    default_detail = "Tenant, user id and password do not match anybody who may log in."
    default_code = "invalid_credentials"
