"""Counting failed log-ins."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import Error

from rbac import checks, login_attempts
from rbac.exceptions import TooManyAttempts
from tests.rbac.conftest import in_parallel


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("10/min", (10, 60)),
        ("3/s", (3, 1)),
        ("100/hour", (100, 3600)),
        ("5/d", (5, 86400)),
        (" 7 / Minute ", (7, 60)),
    ],
)
def test_a_rate_is_read(settings: Any, text: str, meaning: tuple[int, int]) -> None:
    settings.LOGIN_RATE = text
    assert login_attempts.rate(text) == meaning
    assert checks.login_rate() == []


@pytest.mark.parametrize(
    "text", ["", "10", "ten/min", "10/", "/min", "10/month", "10/min/s", "0/min", "-1/min", "1.5/s"]
)
def test_what_is_no_rate_is_refused_before_anybody_logs_in(settings: Any, text: str) -> None:
    settings.LOGIN_RATE = text
    [refusal] = checks.login_rate()
    assert (type(refusal), refusal.id) == (Error, "rethread.E008")
    assert repr(text) in refusal.msg
    assert "10/min" in str(refusal.hint)


def attempts(count: int, user_id: str = "ana", address: str = "192.0.2.1") -> int:
    passed = 0
    for _ in range(count):
        try:
            login_attempts.begin("acme", user_id, address)
            passed += 1
        except TooManyAttempts:
            pass
    return passed


@pytest.fixture(params=["redis", "no_redis"])
def _both_stores(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(request.param)


@pytest.mark.usefixtures("_both_stores")
def test_ten_attempts_for_a_person_pass() -> None:
    assert attempts(15) == 10
    assert attempts(15, user_id="ben") == 10


@pytest.mark.usefixtures("_both_stores")
def test_an_address_that_tries_many_people_is_stopped() -> None:
    assert sum(attempts(1, user_id=f"u{number}") for number in range(150)) == 100
    assert attempts(1, user_id="ana", address="198.51.100.7") == 1


@pytest.mark.usefixtures("_both_stores")
def test_a_right_password_forgets_what_was_wrong() -> None:
    attempts(9)
    login_attempts.succeeded("acme", "ana", "192.0.2.1")
    assert attempts(15) == 10


@pytest.mark.usefixtures("_both_stores")
def test_right_passwords_do_not_lock_an_office_behind_one_address() -> None:
    for number in range(300):
        assert attempts(1, user_id=f"u{number}") == 1
        login_attempts.succeeded("acme", f"u{number}", "192.0.2.1")
    assert sum(attempts(1, user_id=f"v{number}") for number in range(150)) == 100


@pytest.mark.usefixtures("_both_stores")
def test_right_passwords_that_were_never_counted_give_nothing_away() -> None:
    """As when Redis comes back between an attempt and its taking back."""
    attempts(1)
    for _ in range(50):
        login_attempts.succeeded("acme", "ana", "192.0.2.1")
    assert sum(attempts(1, user_id=f"u{number}") for number in range(150)) == 100


def test_neighbours_in_ipv6_are_one_address() -> None:
    assert login_attempts._network("2001:db8::1") == login_attempts._network("2001:db8::ffff")
    assert login_attempts._network("2001:db8::1") != login_attempts._network("2001:db8:0:1::1")
    assert login_attempts._network("not an address") == "not an address"


def test_a_burst_in_parallel_does_not_slip_through(redis: Any) -> None:
    assert sum(in_parallel(20, lambda _: attempts(1))) == 10


def test_counters_have_an_end(redis: Any) -> None:
    attempts(3)
    keys = redis.keys("login:*")
    assert len(keys) == 2
    assert all(0 < redis.ttl(key) <= 60 for key in keys)


def test_without_redis_the_counters_of_a_process_are_bounded(
    no_redis: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_attempts, "_KEPT_HERE", 20)
    for number in range(100):
        attempts(1, user_id=f"u{number}", address=f"192.0.2.{number}")
    assert len(login_attempts._here) <= 20
