"""Stores that are away, hang or refuse, and what the log holds."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.cache import caches
from django.db import connections

from config import dynamodb, health
from embedded.services import Valkey

CURL = {"accept": "*/*"}
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    """Each test starts with checks that are not under way, and without collected static files."""
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    for name, check in health.CHECKS.items():
        monkeypatch.setitem(health.CHECKS, name, health.Check(check._look))
    yield
    dynamodb.forget_client()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture
def use_redis(settings: Any) -> Callable[[str], None]:
    """Point cache and client at another Redis."""

    def use(url: str) -> None:
        moved = deepcopy(django_settings.CACHES)
        moved["default"]["LOCATION"] = url
        settings.REDIS_URL = url
        settings.CACHES = moved

    return use


@pytest.fixture
def own_valkey(tmp_path: Path, use_redis: Callable[[str], None]) -> Iterator[Valkey]:
    """A Valkey that the test may freeze, already in use."""
    with Valkey(tmp_path / "valkey", durable=False) as server:
        use_redis(server.url)
        yield server
        caches.close_all()


@pytest.fixture
def use_dynamodb(settings: Any) -> Callable[[str], None]:
    """Point the DynamoDB client at another server."""

    def use(url: str) -> None:
        settings.DYNAMODB_ENDPOINT_URL = url
        dynamodb.forget_client()

    return use


@pytest.fixture
def use_database_port(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Point connections that other threads will open at another port."""

    def use(port: int) -> None:
        monkeypatch.setitem(connections.settings["default"], "PORT", port)

    return use


@pytest.fixture
def log_lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Return what has been logged meanwhile, as a deployment would write it."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging._handlers["stderr"].formatter)  # type: ignore[attr-defined]
    logging.getLogger().addHandler(handler)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    logging.getLogger().removeHandler(handler)
