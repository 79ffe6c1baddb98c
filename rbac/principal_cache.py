"""The Redis copy of who a token belongs to, so that a call need not ask Postgres.

One hash a token, `principal:{<32 hex digits of the token's digest>}`:

    .        {"v": 1, "pk": "0192…", "tenant": "acme", "user_id": "bi", "role": "agent",
              "expires_at": null}
    @ana     the primary key of a person that this agent has acted for

It lives for at most `PRINCIPAL_CACHE_SECONDS` from when it was made, however often it is read
or added to. What changes in Postgres drops it after the commit: in its place stands a marker, a
plain string, for `MARKER_SECONDS`, and while that stands nothing is filled in. So a reader that
loaded a row before the commit, and is slow, can't put the old state back; one that is slower
than the marker gives up filling by itself.

Plain types in and out; every function goes on without Redis.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson
import structlog
from django.conf import settings
from redis.exceptions import RedisError

from config import redis as redis_gate

if TYPE_CHECKING:
    from redis.client import Pipeline

log = structlog.get_logger(__name__)

FORMAT = 1
MARKER = b"dropped"
MARKER_SECONDS = 5
# One less than the marker stands for: the fill itself takes time, too.
SLOWEST_FILL_SECONDS = MARKER_SECONDS - 1
_DROP_AT_ONCE = 500

# KEYS[1] the hash; ARGV marker, seconds to live, field, value. A person's key is only added to
# a hash that holds its principal: that one's age bounds both. TTL is set once and never rolled.
_FILL = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then return 0 end
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
if ARGV[3] ~= '.' and redis.call('HEXISTS', KEYS[1], '.') == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
if redis.call('TTL', KEYS[1]) < 0 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return 1
"""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whose token it is, and until when (`expires_at` in Unix seconds; None for ever)."""

    pk: uuid.UUID
    tenant: str
    user_id: str
    role: str
    expires_at: float | None = None

    @property
    def has_expired(self) -> bool:
        """Whether the token's time is up."""
        return self.expires_at is not None and self.expires_at <= time.time()


@dataclass(frozen=True, slots=True)
class Cached:
    """What one read found: the bearer, and the key of the person that was asked for."""

    bearer: Bearer | None = None
    person: uuid.UUID | None = None


NOTHING = Cached()


class Loading:
    """Measures from before a row is loaded until it is to be filled in."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def may_fill(self) -> bool:
        """Whether any change since the row was loaded still shows as a marker."""
        return time.monotonic() - self._began < SLOWEST_FILL_SECONDS


def key(digest: str) -> str:
    """Return the name of the hash of the token with this digest."""
    return f"principal:{{{digest[:32]}}}"


def queue_read(pipeline: Pipeline, digest: str, user_id: str | None) -> None:
    """Queue the one command whose result `parse` understands."""
    pipeline.hmget(key(digest), _fields(user_id))


def read_person(digest: str, user_id: str) -> uuid.UUID | None:
    """Return the key of a person that this token has acted for; None when not known."""
    try:
        found = redis_gate.attempt(lambda client: client.hmget(key(digest), _fields(user_id)))
    except (redis_gate.RedisUnavailable, RedisError):
        return None
    return parse(found).person


def _fields(user_id: str | None) -> list[str]:
    return ["."] if user_id is None else [".", f"@{user_id}"]


def parse(result: Any) -> Cached:
    """Read what HMGET answered; whatever is not as we write it is nothing."""
    try:
        bearer = _bearer(orjson.loads(result[0]))
        person = result[1] if len(result) > 1 else None
        return Cached(bearer, uuid.UUID(person.decode()) if person else None)
    except (TypeError, ValueError, KeyError, AttributeError):
        return NOTHING


def _bearer(stored: Any) -> Bearer:
    if stored.pop("v") != FORMAT:
        raise ValueError("another format")
    expires_at = stored.pop("expires_at")
    if not (expires_at is None or isinstance(expires_at, float | int)):
        raise TypeError("expires_at is no time")
    return Bearer(
        uuid.UUID(stored["pk"]),
        str(stored["tenant"]),
        str(stored["user_id"]),
        str(stored["role"]),
        expires_at,
    )


def fill_bearer(digest: str, bearer: Bearer, loading: Loading) -> None:
    """Keep whose token it is, unless something changed while it was loaded."""
    _fill(digest, ".", orjson.dumps({"v": FORMAT, **asdict(bearer)}), loading)


def fill_person(digest: str, user_id: str, pk: uuid.UUID, loading: Loading) -> None:
    """Keep the key of a person that this token acts for."""
    _fill(digest, f"@{user_id}", str(pk).encode(), loading)


def _fill(digest: str, field: str, value: bytes, loading: Loading) -> None:
    seconds = settings.PRINCIPAL_CACHE_SECONDS
    if seconds <= 0 or not loading.may_fill:
        return
    try:
        redis_gate.attempt(
            lambda client: client.eval(_FILL, 1, key(digest), MARKER, seconds, field, value)
        )
    except redis_gate.RedisUnavailable:
        return
    except RedisError as error:
        log.warning("principal_not_cached", error=str(error))


def drop(digests: Iterable[str]) -> None:
    """Replace the hashes of these tokens by markers; call it after the commit.

    Pipelines. When Redis can't be used, DELs on a fresh connection are tried, once; when they
    fail, a log line is all: the copies die of age, within `PRINCIPAL_CACHE_SECONDS`.
    """
    keys = [key(digest) for digest in digests]
    try:
        for start in range(0, len(keys), _DROP_AT_ONCE):
            _drop(keys[start : start + _DROP_AT_ONCE])
    except redis_gate.RedisUnavailable as error:
        # The next ones would only wait as long again, with somebody's request waiting for them.
        log.warning(
            "principals_not_dropped",
            tokens=len(keys),
            stale_for_seconds=settings.PRINCIPAL_CACHE_SECONDS,
            error=str(error),
        )


def _drop(keys: list[str]) -> None:
    """Mark these, or delete them on a fresh connection; raises `RedisUnavailable`."""

    def mark(client: Any) -> None:
        with client.pipeline(transaction=False) as pipeline:
            for name in keys:
                pipeline.set(name, MARKER, ex=MARKER_SECONDS)
            pipeline.execute()

    try:
        redis_gate.attempt(mark)
    except (redis_gate.RedisUnavailable, RedisError):
        redis_gate.delete_fresh(*keys)
