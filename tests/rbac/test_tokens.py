"""Tokens: made, listed, expiring, revoked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine
from knox.crypto import hash_token

from rbac.models import AuthToken, User
from tests.rbac.conftest import Bearer


def test_only_the_digest_of_a_token_is_kept(bi: Bearer) -> None:
    assert bi.secret.startswith("rt_")
    assert bi.token.digest == hash_token(bi.secret)
    row = AuthToken.objects.values().get(digest=bi.token.digest)
    assert bi.secret not in str(row)
    assert bi.secret[:9] == bi.token.handle[:9]
    assert bi.secret[3:] not in str(bi.token)


def test_an_agents_token_never_expires(bi: Bearer) -> None:
    assert bi.token.expiry is None
    assert list(AuthToken.objects.usable()) == [bi.token]


def test_a_persons_token_expires(ana: User) -> None:
    with time_machine.travel(datetime(2026, 11, 30, 9, tzinfo=UTC), tick=False):
        token, _ = AuthToken.objects.issue(ana, name="log-in", ttl=timedelta(hours=10))
        assert token.expiry == datetime(2026, 11, 30, 19, tzinfo=UTC)
        assert AuthToken.objects.usable().exists()
    with time_machine.travel(datetime(2026, 11, 30, 19, tzinfo=UTC), tick=False):
        assert list(AuthToken.objects.expired()) == [token]


def test_a_new_token_clears_away_what_has_expired_of_the_same_user(ana: User, ben: User) -> None:
    for user in (ana, ben):
        AuthToken.objects.issue(user, name="old", ttl=timedelta(seconds=-1))
    AuthToken.objects.issue(ana, name="new")
    assert sorted(AuthToken.objects.values_list("name", flat=True)) == ["new", "old"]


def test_an_overlap_never_makes_a_token_live_longer(ana: User) -> None:
    AuthToken.objects.issue(ana, name="for ever")
    soon, _ = AuthToken.objects.issue(ana, name="soon", ttl=timedelta(minutes=5))
    AuthToken.objects.expire_within(timedelta(hours=24))
    ends = dict(AuthToken.objects.values_list("name", "expiry"))
    assert ends["soon"] == soon.expiry
    assert timedelta(hours=23) < ends["for ever"] - soon.created < timedelta(hours=25)


def test_a_bearer_is_one_query(bi: Bearer, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        found = AuthToken.objects.bearer(bi.token.digest)
    assert (found.pk, found.tenant, found.user_id, found.role) == (
        bi.user.pk, "acme", "bi", "agent",
    )  # fmt: skip
