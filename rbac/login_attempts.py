"""Counts failed log-ins by person and by address, in Redis, or in this process without it.

An attempt is counted before the password is looked at, and taken back when it was right, so
that a burst of guesses in parallel can't all pass. `LOGIN_RATE` (`"10/min"`) is for one person;
an address, behind which many people may sit, gets ten times that. `rbac.backends` asks here for
every log-in of a request, on the pages as in the API.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import re
import threading
import time
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from config import redis as redis_gate
from rbac.exceptions import TooManyAttempts

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RATE = re.compile(r"(\d+) */ *(s|sec|second|m|min|minute|h|hour|d|day)", re.ASCII)
_ADDRESS_FACTOR = 10
_KEPT_HERE = 10_000

_lock = threading.Lock()
_here: dict[str, tuple[float, int]] = {}


def rate(text: str) -> tuple[int, int]:
    """Return number and seconds of `"10/min"`, `"100/hour"`; raises `ValueError`."""
    found = _RATE.fullmatch(text.strip().lower())
    if not found or not int(found[1]):
        raise ValueError(f"{text!r} is no rate")
    return int(found[1]), _SECONDS[found[2][0]]


def address_of(request: HttpRequest) -> str:
    """Return the address that an attempt comes from.

    X-Forwarded-For is anybody's to write: it counts only where `NUM_PROXIES` says how many
    proxies of ours have added to it.
    """
    if api_settings.NUM_PROXIES is None:
        return str(request.META.get("REMOTE_ADDR", ""))
    # It reads nothing but META, which Django's own request has as well.
    return str(BaseThrottle().get_ident(cast(Request, request)))


def begin(tenant: str, user_id: str, address: str) -> None:
    """Count an attempt; raises `TooManyAttempts`, which says when to come back."""
    allowed, seconds = rate(settings.LOGIN_RATE)
    keys = _keys(tenant, user_id, address)
    for name, limit in zip(keys, (allowed, allowed * _ADDRESS_FACTOR), strict=True):
        count, left = _count(name, seconds)
        if count > limit:
            raise TooManyAttempts(
                f"Try again in {left} seconds.", headers={"Retry-After": str(left)}
            )


def succeeded(tenant: str, user_id: str, address: str) -> None:
    """Forget what this person got wrong, and that this address tried.

    In both places, since Redis may have come or gone since the attempt was counted; nothing falls
    below zero.
    """
    person, place = _keys(tenant, user_id, address)

    def take_back(client: Any) -> None:
        with client.pipeline(transaction=False) as pipeline:
            pipeline.delete(person)
            # A counter that has run out meanwhile stays away.
            pipeline.eval(_TAKE_BACK, 1, place)
            pipeline.execute()

    with contextlib.suppress(redis_gate.RedisUnavailable, RedisError):
        redis_gate.attempt(take_back)
    with _lock:
        _here.pop(person, None)
        ends, number = _here.get(place, (0.0, 0))
        if number:
            _here[place] = (ends, number - 1)


_TAKE_BACK = """
if tonumber(redis.call('GET', KEYS[1]) or 0) > 0 then redis.call('DECR', KEYS[1]) end
"""


def _keys(tenant: str, user_id: str, address: str) -> tuple[str, str]:
    return _key("person", f"{tenant}#{user_id}"), _key("address", _network(address))


def _key(kind: str, value: str) -> str:
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"login:{kind}:{{{digest}}}"


def _network(address: str) -> str:
    """Return an IPv4 address, or the /64 of an IPv6 one: whoever has one has all of it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network(f"{parsed}/64", strict=False))


def _count(name: str, seconds: int) -> tuple[int, int]:
    """Return how many attempts there were in this window, and for how many seconds it lasts."""

    def count(client: Any) -> tuple[int, int]:
        with client.pipeline(transaction=True) as pipeline:
            pipeline.set(name, 0, ex=seconds, nx=True)
            pipeline.incr(name)
            pipeline.ttl(name)
            _, number, left = pipeline.execute()
        return number, max(left, 1)

    try:
        return redis_gate.attempt(count)
    except (redis_gate.RedisUnavailable, RedisError):
        return _count_here(name, seconds)


def _count_here(name: str, seconds: int) -> tuple[int, int]:
    now = time.monotonic()
    with _lock:
        ends, number = _here.get(name, (0.0, 0))
        if ends <= now:
            _make_room(now)
            ends, number = now + seconds, 0
        _here[name] = (ends, number + 1)
    return number + 1, int(ends - now) + 1


def _make_room(now: float) -> None:
    if len(_here) < _KEPT_HERE:
        return
    for name in [name for name, (ends, _) in _here.items() if ends <= now]:
        del _here[name]
    while len(_here) >= _KEPT_HERE:
        del _here[next(iter(_here))]
