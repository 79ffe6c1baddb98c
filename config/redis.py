"""The one road to Redis: pooled client, short time-outs, a breaker that opens at the first one.

Redis is a cache (W3): every caller must be able to go on without it, so everything here raises
one exception, `RedisUnavailable`, and never waits longer than `REDIS_TIMEOUT_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from django.conf import settings
from django_redis import get_redis_connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from config import metrics

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")

# Refused connections and passwords, time-outs, a server that still loads its data.
_DOWN = (redis.ConnectionError, redis.TimeoutError, OSError)
# A server that answers, but takes no change.
_UNFIT = (redis.ReadOnlyError, redis.OutOfMemoryError)

# By how much the clocks of hosts may differ before a guarantee gives way to a bound.
CLOCK_SKEW_SECONDS = 1.0


class RedisUnavailable(Exception):
    """Redis can't be used now; go on without it."""


class Breaker:
    """Refuses calls for a while after one has failed, then lets a single one try.

    `last_failure` (seconds of `time.time()`) tells readers since when this process may have
    missed an update: what was cached before it is looked up again before it is believed.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.last_failure = 0.0
        self._clock = clock
        self._open_until = 0.0
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether calls are being refused."""
        return self._clock() < self._open_until

    def admit(self) -> None:
        """Let this call through, or raise `RedisUnavailable` at once.

        When the time is up the first caller becomes the trial: until it reports, the others
        are refused for another round.
        """
        if not self._open_until:
            return
        with self._lock:
            if self._open_until:
                if self._clock() < self._open_until:
                    raise RedisUnavailable("the breaker is open")
                self._open_until = self._clock() + self.seconds

    def failed(self) -> None:
        """Open, or stay open."""
        self.missed()
        self._open_until = self._clock() + self.seconds
        metrics.REDIS_BREAKER_OPEN.set(1)

    def missed(self) -> None:
        """Note that an update was not taken, by a server that need not be left alone for it."""
        self.last_failure = time.time()

    def succeeded(self) -> None:
        """Close."""
        if self._open_until:
            self._open_until = 0.0
            metrics.REDIS_BREAKER_OPEN.set(0)

    def reconnected(self) -> None:
        """Note that what is read from now on may come from a server that has lost something.

        One that was restarted or failed over has perhaps forgotten its last changes. No margin
        for clocks: less time than they differ by does not make a server start.
        """
        self.last_failure = max(self.last_failure, time.time() - CLOCK_SKEW_SECONDS)


breaker = Breaker(settings.REDIS_BREAKER_SECONDS)


def client() -> Redis:
    """Return the pooled client of this process (bytes in, bytes out)."""
    connection: Redis = get_redis_connection("default")
    if pool := getattr(connection, "connection_pool", None):  # a cluster's client has none
        pool.connection_kwargs["redis_connect_func"] = _on_connect
    return connection


def _on_connect(connection: Any) -> None:
    connection.on_connect()
    breaker.reconnected()


def attempt(call: Callable[[Redis], T]) -> T:
    """Run `call` with the pooled client; raise `RedisUnavailable` when Redis can't be used.

    Other errors of Redis (a wrong type, a script's own error) reach the caller as they are.
    """
    breaker.admit()
    try:
        result = call(client())
    except _DOWN as error:
        breaker.failed()
        raise RedisUnavailable(str(error)) from error
    except redis.ResponseError as error:  # an answer all the same
        breaker.succeeded()
        if isinstance(error, _UNFIT):
            raise RedisUnavailable(str(error)) from error
        raise
    breaker.succeeded()
    return result


def delete_fresh(*keys: str) -> None:
    """Delete `keys` on a connection of its own, whatever the breaker says.

    The last try after an update that may or may not have arrived: a pooled connection could
    still have it in flight. One DEL a key, since a cluster keeps keys in different places.
    Raises `RedisUnavailable`, also when the server refuses.
    """
    fresh = _fresh_client()
    try:
        with fresh.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.delete(key)
            pipeline.execute()
    except _DOWN as error:
        breaker.failed()
        raise RedisUnavailable(str(error)) from error
    except redis.RedisError as error:  # an answer all the same, but the keys are still there
        breaker.missed()
        raise RedisUnavailable(str(error)) from error
    finally:
        fresh.close()


def _fresh_client() -> Redis:
    timeout = settings.REDIS_TIMEOUT_SECONDS
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
    )
