"""People of two tenants: Ana, her team mate Ben, the outsider Olga, and agents of both."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import redis as redis_py
from django.db import connection
from redis.backoff import NoBackoff
from redis.retry import Retry
from rest_framework.test import APIClient

from config import redis as redis_gate
from rbac import login_attempts
from rbac.models import AuthToken, Role, User

PASSWORD = "correct horse battery"

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _fresh(redis: Any, settings: Any) -> Iterator[None]:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick
    yield
    redis_gate.breaker.succeeded()
    login_attempts._here.clear()


@pytest.fixture
def ana(db: None) -> User:
    return User.objects.create_user("acme", "ana", PASSWORD)


@pytest.fixture
def ben(db: None) -> User:
    return User.objects.create_user("acme", "ben", PASSWORD)


@pytest.fixture
def olga(db: None) -> User:
    return User.objects.create_user("globex", "olga", PASSWORD)


@dataclass
class Bearer:
    """Somebody with a token, and a client that sends it."""

    user: User
    token: AuthToken
    secret: str
    api: APIClient


def bearer_of(user: User) -> Bearer:
    token, secret = AuthToken.objects.issue(user, name="test")
    api = APIClient(headers={"Authorization": f"Token {secret}"})
    return Bearer(user, token, secret, api)


@pytest.fixture
def bi(db: None) -> Bearer:
    """The agent of acme."""
    return bearer_of(User.objects.create_user("acme", "bi", role=Role.AGENT))


@pytest.fixture
def globex_bot(db: None) -> Bearer:
    """The agent of globex, where Olga is."""
    return bearer_of(User.objects.create_user("globex", "bot", role=Role.AGENT))


@pytest.fixture
def ana_bearer(ana: User) -> Bearer:
    return bearer_of(ana)


@pytest.fixture
def no_redis(monkeypatch: pytest.MonkeyPatch, settings: Any, redis: Any) -> None:
    """Redis is away: its port refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    _point_redis_to(port, monkeypatch, settings)


@pytest.fixture
def silent_redis(monkeypatch: pytest.MonkeyPatch, settings: Any, redis: Any) -> Iterator[None]:
    """Redis takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        _point_redis_to(server.getsockname()[1], monkeypatch, settings)
        yield


def _point_redis_to(port: int, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{port}/0"
    lost = redis_py.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=settings.REDIS_TIMEOUT_SECONDS,
        socket_connect_timeout=settings.REDIS_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    monkeypatch.setattr(redis_gate, "client", lambda: lost)


def in_parallel(times: int, call: Callable[[int], T]) -> list[T]:
    """Run `call` in that many threads that start at once, each on its own connection."""
    gate = threading.Barrier(times)

    def run(number: int) -> T:
        gate.wait(timeout=10)
        try:
            return call(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(run, range(times)))
