"""The Redis copy of principals: bounded in age, dropped at once, never wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from rbac import principal_cache
from rbac.models import AuthToken, User
from rbac.principal import Principal
from tests.rbac.conftest import Bearer, bearer_of

pytestmark = pytest.mark.django_db


def key_of(bearer: Bearer) -> str:
    return principal_cache.key(bearer.token.digest)


def warm(bearer: Bearer, acting_for: str | None = None) -> None:
    """Make the copy as calls make it."""
    assert bearer.api.get("/api/v1/me").status_code == 200
    if acting_for:
        user = bearer.user
        digest = bearer.token.digest
        Principal(user.pk, user.tenant, user.user_id, user.role, digest).acting_for(acting_for)


def is_marked(redis: Any, bearer: Bearer) -> bool:
    return redis.type(key_of(bearer)) == b"string" and 0 < redis.ttl(key_of(bearer)) <= 5


def test_the_copy_lives_for_at_most_thirty_seconds_from_when_it_was_made(
    redis: Any, bi: Bearer, ana: User
) -> None:
    warm(bi)
    assert 0 < redis.ttl(key_of(bi)) <= 30
    redis.expire(key_of(bi), 7)
    warm(bi, acting_for="ana")
    assert redis.hkeys(key_of(bi)) == [b".", b"@ana"]
    redis.hdel(key_of(bi), ".")
    warm(bi)
    assert 0 < redis.ttl(key_of(bi)) <= 7


def test_a_copy_without_an_end_is_given_one(redis: Any, bi: Bearer, ana: User) -> None:
    warm(bi)
    redis.persist(key_of(bi))
    warm(bi, acting_for="ana")
    assert 0 < redis.ttl(key_of(bi)) <= 30


def test_nothing_of_a_token_stands_in_redis_but_half_its_digest(redis: Any, bi: Bearer) -> None:
    warm(bi)
    everything = b"".join(redis.keys("*")) + b"".join(redis.hvals(key_of(bi)))
    assert bi.secret.encode() not in everything
    assert bi.token.digest.encode() not in everything
    assert bi.token.digest[:32].encode() in everything


def test_a_warm_call_asks_postgres_nothing(bi: Bearer, django_assert_num_queries: Any) -> None:
    warm(bi)
    with django_assert_num_queries(0):
        warm(bi)


def test_with_caching_off_nothing_is_kept(redis: Any, bi: Bearer, settings: Any) -> None:
    settings.PRINCIPAL_CACHE_SECONDS = 0
    warm(bi, acting_for="ana")
    assert redis.keys("principal:*") == []


CHANGES: dict[str, Callable[[User], Any]] = {
    "deactivate": lambda user: user.deactivate(),
    "change_role": lambda user: user.change_role("admin"),
    "save": lambda user: user.save(),
    "save password": lambda user: (user.set_password("x"), user.save(update_fields=["password"])),
    "update": lambda user: User.objects.filter(pk=user.pk).update(is_active=False),
    "bulk_update": lambda user: User.objects.bulk_update([user], ["role"]),
    "update_or_create": lambda user: User.objects.update_or_create(
        pk=user.pk, defaults={"is_active": False}
    ),
    "delete": lambda user: user.delete(),
    "queryset delete": lambda user: User.objects.filter(pk=user.pk).delete(),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_of_a_person_drops_their_copy_and_their_agents(
    redis: Any, ana_bearer: Bearer, bi: Bearer, globex_bot: Bearer, change: Callable[[User], Any]
) -> None:
    warm(ana_bearer)
    warm(bi, acting_for="ana")
    warm(globex_bot)
    change(ana_bearer.user)
    assert is_marked(redis, ana_bearer)
    assert is_marked(redis, bi)
    assert redis.type(key_of(globex_bot)) == b"hash"


REVOCATIONS: dict[str, Callable[[AuthToken], Any]] = {
    "delete": lambda token: AuthToken.objects.get(pk=token.pk).delete(),
    "queryset delete": lambda token: AuthToken.objects.filter(pk=token.pk).delete(),
    "save": lambda token: token.save(),
    "expire": lambda token: AuthToken.objects.filter(pk=token.pk).expire_within(timedelta(0)),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", REVOCATIONS.values(), ids=REVOCATIONS)
def test_every_change_of_a_token_drops_its_copy_alone(
    redis: Any, bi: Bearer, change: Callable[[AuthToken], Any]
) -> None:
    other = bearer_of(bi.user)
    warm(bi)
    warm(other)
    change(bi.token)
    assert is_marked(redis, bi)
    assert redis.type(key_of(other)) == b"hash"


@pytest.mark.django_db(transaction=True)
def test_a_log_in_drops_nothing(redis: Any, ana_bearer: Bearer) -> None:
    warm(ana_bearer)
    ana_bearer.user.save(update_fields=["last_login"])
    User.objects.update(last_login=None)
    assert redis.type(key_of(ana_bearer)) == b"hash"


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_rolled_back_drops_nothing(redis: Any, ana_bearer: Bearer) -> None:
    warm(ana_bearer)
    with transaction.atomic():
        ana_bearer.user.deactivate()
        transaction.set_rollback(True)
    assert redis.type(key_of(ana_bearer)) == b"hash"


@pytest.mark.django_db(transaction=True)
def test_a_bulk_change_of_very_many_drops_their_tenants(
    redis: Any, bi: Bearer, ana_bearer: Bearer, globex_bot: Bearer
) -> None:
    User.objects.bulk_create(
        User(tenant="acme", user_id=f"u{number}", password="!") for number in range(1100)
    )
    for bearer in (bi, ana_bearer, globex_bot):
        warm(bearer)
    User.objects.filter(tenant="acme").people().update(is_active=False)
    assert is_marked(redis, bi)
    assert is_marked(redis, ana_bearer)
    assert redis.type(key_of(globex_bot)) == b"hash"


@pytest.mark.django_db(transaction=True)
def test_a_slow_reader_can_not_put_back_what_it_loaded_before_the_commit(
    redis: Any, ana_bearer: Bearer
) -> None:
    changed, loaded = threading.Event(), threading.Event()

    def deactivate() -> None:
        with transaction.atomic():
            ana_bearer.user.deactivate()
            changed.set()
            assert loaded.wait(10)
        connection.close()

    writer = threading.Thread(target=deactivate)
    writer.start()
    assert changed.wait(10)
    loading = principal_cache.Loading()
    old = AuthToken.objects.bearer(ana_bearer.token.digest)  # the commit has not come yet
    assert old is not None
    loaded.set()
    writer.join()
    principal_cache.fill_bearer(ana_bearer.token.digest, old, loading)
    assert is_marked(redis, ana_bearer)
    assert ana_bearer.api.get("/api/v1/me").status_code == 401


@pytest.mark.django_db(transaction=True)
def test_a_slow_reader_can_not_put_back_a_person_either(redis: Any, bi: Bearer, ana: User) -> None:
    warm(bi)
    loading = principal_cache.Loading()
    person = User.objects.get_or_create_person("acme", "ana")
    ana.deactivate()
    principal_cache.fill_person(bi.token.digest, "ana", person.pk, loading)
    assert is_marked(redis, bi)
    assert principal_cache.read_person(bi.token.digest, "ana") is None


@pytest.mark.django_db(transaction=True)
def test_a_reader_slower_than_the_marker_gives_up(redis: Any, bi: Bearer) -> None:
    loading = principal_cache.Loading()
    old = AuthToken.objects.bearer(bi.token.digest)
    bi.user.deactivate()
    redis.delete(key_of(bi))  # as when the marker's time is up
    loading._began -= principal_cache.SLOWEST_FILL_SECONDS
    principal_cache.fill_bearer(bi.token.digest, old, loading)
    assert not redis.exists(key_of(bi))


@pytest.mark.django_db(transaction=True)
def test_while_the_marker_stands_calls_go_to_postgres(
    redis: Any, bi: Bearer, ana: User, django_assert_num_queries: Any
) -> None:
    warm(bi)
    ana.save()
    with django_assert_num_queries(1):
        warm(bi)
    redis.delete(key_of(bi))
    warm(bi)
    with django_assert_num_queries(0):
        warm(bi)


def test_a_person_is_not_added_to_a_hash_that_holds_no_principal(redis: Any, bi: Bearer) -> None:
    principal_cache.fill_person(bi.token.digest, "ana", bi.user.pk, principal_cache.Loading())
    assert not redis.exists(key_of(bi))


PK = b"0192d1a0-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    "stored",
    [b"", b"{", b'{"a":', b"\xff\xfe", b"[]", b"null", b"1", b'{"v":2}', b'{"v":1}',
     b'{"v":1,"pk":"x","tenant":"a","user_id":"b","role":"c","expires_at":null}',
     b'{"v":1,"pk":"' + PK + b'","tenant":"a","user_id":"b","role":"c","expires_at":"soon"}'],
)  # fmt: skip
def test_a_corrupt_copy_is_a_miss_and_is_mended(
    redis: Any, bi: Bearer, stored: bytes, django_assert_num_queries: Any
) -> None:
    redis.hset(key_of(bi), mapping={".": stored, "@ana": stored})
    with django_assert_num_queries(1):
        warm(bi)
    with django_assert_num_queries(0):
        warm(bi)
    assert 0 < redis.ttl(key_of(bi)) <= 30


@pytest.mark.parametrize("kind", ["string", "list", "set"])
def test_a_copy_of_another_type_is_a_miss_and_is_mended(
    redis: Any, bi: Bearer, kind: str, django_assert_num_queries: Any
) -> None:
    write = {"string": redis.set, "list": redis.rpush, "set": redis.sadd}[kind]
    write(key_of(bi), b"x")
    warm(bi)
    with django_assert_num_queries(0):
        warm(bi)


@pytest.mark.django_db(transaction=True)
def test_without_redis_a_change_goes_through_and_says_how_long_copies_stay(
    no_redis: None, ana_bearer: Bearer, caplog: pytest.LogCaptureFixture
) -> None:
    ana_bearer.user.deactivate()
    assert "principals_not_dropped" in caplog.text
    assert "30" in caplog.text


def test_however_many_tokens_there_are_a_redis_that_hangs_costs_two_time_outs(
    silent_redis: None, caplog: pytest.LogCaptureFixture
) -> None:
    started = time.monotonic()
    principal_cache.drop(f"{number:064x}" for number in range(5_000))
    # 0.2 s for the pooled connection and 0.2 s for the fresh; ten times 500 would be 2 s more.
    assert time.monotonic() - started < 1.5
    assert caplog.text.count("principals_not_dropped") == 1
    assert "5000" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_with_the_breaker_open_a_fresh_connection_drops_the_copy(
    redis: Any, ana_bearer: Bearer
) -> None:
    from config import redis as redis_gate

    warm(ana_bearer)
    redis_gate.breaker.failed()
    ana_bearer.user.deactivate()
    assert not redis.exists(key_of(ana_bearer))
