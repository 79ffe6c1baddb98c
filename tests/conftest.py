"""Fixtures that every test may use: real PostgreSQL, real Valkey, named people."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import TransactionTestCase
from django_redis import get_redis_connection
from redis import Redis
from rest_framework.test import APIClient

from config import redis as redis_gate

# What migrations put there, or Django makes by itself once and for all.
_KEPT = frozenset({"django_migrations", "django_content_type", "auth_permission", "database_epoch"})


def _empty_tables(self: TransactionTestCase) -> None:
    tables = sorted(set(connection.introspection.django_table_names(only_existing=True)) - _KEPT)
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(tables)}")


@pytest.fixture(autouse=True, scope="session")
def _quick_flush() -> None:
    """Empty tables between transactional tests without making all permissions anew."""
    TransactionTestCase._fixture_teardown = _empty_tables


@pytest.fixture(autouse=True)
def _static_files_by_their_own_names(settings) -> None:
    """Whatever a `make up` beside this has collected."""
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}


@pytest.fixture(autouse=True)
def _redis_as_new() -> Iterator[None]:
    """Start each test with an empty Redis and a closed breaker."""
    connection: Redis = get_redis_connection("default")
    connection.flushdb()
    redis_gate.breaker.succeeded()
    redis_gate.breaker.last_failure = 0.0
    yield
    redis_gate.breaker.succeeded()


@pytest.fixture
def redis() -> Redis:
    """The raw client: bytes in, bytes out."""
    connection: Redis = get_redis_connection("default")
    return connection


@pytest.fixture
def api() -> APIClient:
    """A client that nobody is logged in with."""
    return APIClient()
