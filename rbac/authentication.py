"""Who sent a request: by a token for agents and scripts, by the log-in session for pages.

`request.user` becomes a `Principal`; `request.auth` the token's digest (None for a session).

## Riding along

A token costs one round trip to Redis, and so does what most views read next. A view that knows
from its URL which keys it will want can put its commands in the same round trip:

    class ContextView(APIView):
        def ride_along(self, request: Request, pipeline: Pipeline) -> None:
            pipeline.hgetall(working_set_key(self.kwargs["thread_id"]))

        def get(self, request: Request, thread_id: UUID) -> Response:
            owner = request.user.acting_for(request.query_params.get("user_id"))
            ridden = ridden_of(request)         # [<what HGETALL answered>], or None
            stored = ridden[0] if ridden else self.read(thread_id)

What to know when writing one:

- `ride_along` runs **before anybody is authenticated**: queue reads only, never a write, and
  raise nothing (on a malformed request queue nothing: the view will find out). The results are
  for the view to authorise, against `request.user`.
- The pipeline is no transaction. A command that failed leaves its exception in the list.
- `ridden_of` is None when Redis was not asked (a session, a test that forces a user) or could
  not be used: then the view asks for itself, or goes to Postgres.
- An agent's `user_id` in the query string is looked up in the same trip, so that
  `request.user.acting_for` costs nothing more.
"""

from __future__ import annotations

from typing import Any, Protocol

from django.http import HttpRequest
from knox.crypto import hash_token
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import RedisError
from rest_framework import authentication
from rest_framework.request import Request

from config import redis as redis_gate
from rbac import names, principal_cache
from rbac.exceptions import InvalidToken
from rbac.models import AuthToken
from rbac.principal import Principal, known_from
from rbac.principal_cache import NOTHING, Bearer, Cached

SCHEME = "Token"
# Ours have 67; the bound keeps a header of a megabyte from being hashed.
MAX_TOKEN_CHARS = 128


class RidesAlong(Protocol):
    """A view that reads from Redis in the round trip in which the token is looked up."""

    def ride_along(self, request: Request, pipeline: Pipeline) -> None:
        """Queue reads; see above for the rules."""


def ridden_of(request: Request) -> list[Any] | None:
    """Return the results of the view's own commands; None when Redis was not asked or failed."""
    ridden: list[Any] | None = getattr(request, "ridden", None)
    return ridden


class TokenAuthentication(authentication.BaseAuthentication):
    """`Authorization: Token rt_…`.

    Redis first; Postgres, in one query, when the cache does not know. Unknown, revoked,
    expired, malformed and deactivated give the same answer.
    """

    def authenticate_header(self, request: Request) -> str:
        """Return what the client is asked for with a 401."""
        return SCHEME

    def authenticate(self, request: Request) -> tuple[Principal, str] | None:
        """Return the principal and the token's digest; None when there is no token."""
        token = token_of(request.META.get("HTTP_AUTHORIZATION", ""))
        if token is None:
            return None
        digest = hash_token(token)
        person = _person_asked_for(request)
        loading = principal_cache.Loading()
        cached = _read(request, digest, person)
        bearer = cached.bearer or _look_up(digest, loading)
        if bearer is None or bearer.has_expired:
            raise InvalidToken
        return Principal.of_bearer(bearer, digest, known_from(cached, person)), digest


class SessionAuthentication(authentication.SessionAuthentication):
    """The log-in session of Django, with its CSRF check on everything that writes."""

    def authenticate(self, request: Request) -> tuple[Principal, None] | None:
        """Return the principal; None when nobody is logged in."""
        found = super().authenticate(request)
        return (Principal.of_user(found[0]), None) if found else None


def token_of(header: str) -> str | None:
    """Return the token of an Authorization header; None when it is of another scheme.

    Raises `InvalidToken` when it can't be one: missing, of several words, too long, not ASCII.
    """
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() != SCHEME.lower():
        return None
    token = rest.strip()
    if not (0 < len(token) <= MAX_TOKEN_CHARS and token.isascii() and token.isprintable()):
        raise InvalidToken
    if " " in token:
        raise InvalidToken
    return token


def _person_asked_for(request: Request) -> str | None:
    text = request.query_params.get("user_id")
    try:
        return names.user_id(text) if text else None
    except names.BadName:
        return None


def _read(request: Request, digest: str, person: str | None) -> Cached:
    """Ask Redis who it is, with the view's own commands in the same round trip."""
    view = (request.parser_context or {}).get("view")
    ride_along = getattr(view, "ride_along", None)

    def ask(client: Redis) -> list[Any]:
        with client.pipeline(transaction=False) as pipeline:
            principal_cache.queue_read(pipeline, digest, person)
            if ride_along is not None:
                ride_along(request, pipeline)
            return pipeline.execute(raise_on_error=False)

    try:
        first, *ridden = redis_gate.attempt(ask)
    except (redis_gate.RedisUnavailable, RedisError):
        _leave(request, None)
        return NOTHING
    _leave(request, ridden)
    return principal_cache.parse(first)


def _leave(request: Request, ridden: list[Any] | None) -> None:
    request.ridden = ridden  # type: ignore[attr-defined]


def _look_up(digest: str, loading: principal_cache.Loading) -> Bearer | None:
    bearer: Bearer | None = AuthToken.objects.bearer(digest)
    if bearer is not None and not bearer.has_expired:
        principal_cache.fill_bearer(digest, bearer, loading)
    return bearer


def plain_request(request: Request) -> HttpRequest:
    """Return Django's request under DRF's."""
    inner: HttpRequest = request._request  # noqa: SLF001  DRF documents it as the way
    return inner
