"""Redis may be away, hang or refuse: callers go on within a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_py

from config import redis as gate
from config.redis import Breaker, RedisUnavailable
from embedded.services import Valkey

# Connecting and one command may each take the whole time-out of 0.2 s; ten retries would take 2 s.
BOUND_SECONDS = 1.5


class Clock:
    """A clock that stands still unless it is told otherwise."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(2.0, clock)


def admits(breaker: Breaker) -> bool:
    try:
        breaker.admit()
    except RedisUnavailable:
        return False
    return True


def seconds_of(call: Callable[[], Any]) -> float:
    started = time.monotonic()
    with pytest.raises(RedisUnavailable):
        call()
    return time.monotonic() - started


# --- The breaker


def test_it_admits_until_something_fails(breaker: Breaker) -> None:
    assert [admits(breaker) for _ in range(3)] == [True] * 3


def test_it_refuses_after_one_failure(breaker: Breaker) -> None:
    breaker.failed()

    assert not admits(breaker)
    assert breaker.is_open


def test_it_lets_one_caller_try_when_the_time_is_up(breaker: Breaker, clock: Clock) -> None:
    breaker.failed()
    clock.now += 2.0

    assert [admits(breaker) for _ in range(3)] == [True, False, False]


def test_it_lets_another_try_when_the_first_never_reports(breaker: Breaker, clock: Clock) -> None:
    breaker.failed()
    clock.now += 2.0
    admits(breaker)
    clock.now += 2.0

    assert admits(breaker)


def test_it_closes_on_success(breaker: Breaker, clock: Clock) -> None:
    breaker.failed()
    clock.now += 2.0
    admits(breaker)
    breaker.succeeded()

    assert [admits(breaker) for _ in range(3)] == [True] * 3
    assert not breaker.is_open


def test_it_stays_open_when_the_trial_fails(breaker: Breaker, clock: Clock) -> None:
    breaker.failed()
    clock.now += 2.0
    admits(breaker)
    breaker.failed()
    clock.now += 1.9

    assert not admits(breaker)


def test_with_zero_seconds_it_never_refuses(clock: Clock) -> None:
    breaker = Breaker(0.0, clock)
    breaker.failed()

    assert [admits(breaker) for _ in range(3)] == [True] * 3


def test_an_update_that_was_refused_is_remembered_without_refusing(breaker: Breaker) -> None:
    before = time.time()
    breaker.missed()

    assert before <= breaker.last_failure <= time.time()
    assert admits(breaker)


def test_it_remembers_when_an_update_may_have_been_missed(breaker: Breaker) -> None:
    before = time.time()
    breaker.failed()
    breaker.succeeded()

    assert before <= breaker.last_failure <= time.time()


# --- Calls


def test_a_call_is_given_the_client(own_valkey: Valkey) -> None:
    gate.attempt(lambda client: client.set("key", b"\xff\x00"))

    assert gate.attempt(lambda client: client.get("key")) == b"\xff\x00"


def test_a_refused_connection_is_told_at_once(
    use_redis: Callable[[str], None], closed_port: int
) -> None:
    use_redis(f"redis://127.0.0.1:{closed_port}/0")

    assert seconds_of(lambda: gate.attempt(lambda client: client.ping())) < BOUND_SECONDS
    assert gate.breaker.is_open


def test_a_frozen_server_costs_one_time_out(own_valkey: Valkey) -> None:
    gate.attempt(lambda client: client.ping())
    own_valkey.pause()

    assert seconds_of(lambda: gate.attempt(lambda client: client.ping())) < BOUND_SECONDS


def test_callers_after_the_first_do_not_wait(own_valkey: Valkey) -> None:
    own_valkey.pause()
    seconds_of(lambda: gate.attempt(lambda client: client.ping()))

    assert seconds_of(lambda: gate.attempt(lambda client: client.ping())) < 0.15


def test_a_server_that_is_back_is_used_again(
    own_valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(gate, "breaker", Breaker(2.0, clock))
    own_valkey.pause()
    seconds_of(lambda: gate.attempt(lambda client: client.ping()))
    own_valkey.resume()
    clock.now += 2.0

    assert gate.attempt(lambda client: client.ping())


def test_a_wrong_password_counts_as_away(
    own_valkey: Valkey, use_redis: Callable[[str], None]
) -> None:
    use_redis(f"redis://:wrong@127.0.0.1:{own_valkey.port}/0")

    assert seconds_of(lambda: gate.attempt(lambda client: client.ping())) < BOUND_SECONDS


def test_a_full_server_can_not_be_used_but_is_not_away(own_valkey: Valkey) -> None:
    gate.attempt(lambda client: client.config_set("maxmemory", "1"))

    seconds_of(lambda: gate.attempt(lambda client: client.set("key", "value")))

    assert not gate.breaker.is_open


def test_a_value_of_the_wrong_type_is_the_caller_s_own_affair(own_valkey: Valkey) -> None:
    gate.attempt(lambda client: client.set("key", "value"))

    with pytest.raises(redis_py.ResponseError, match="WRONGTYPE"):
        gate.attempt(lambda client: client.hgetall("key"))
    assert not gate.breaker.is_open


def test_a_paused_server_costs_one_time_out(own_valkey: Valkey) -> None:
    gate.attempt(lambda client: client.execute_command("CLIENT", "PAUSE", "10000"))

    assert seconds_of(lambda: gate.attempt(lambda client: client.ping())) < BOUND_SECONDS


# --- The last deletion


def test_a_fresh_deletion_ignores_the_breaker(own_valkey: Valkey) -> None:
    gate.attempt(lambda client: client.set("key", "value"))
    gate.breaker.failed()

    gate.delete_fresh("key")

    assert gate.client().get("key") is None


def test_many_keys_are_deleted_one_by_one_as_a_cluster_wants_it(own_valkey: Valkey) -> None:
    names = [f"key{number}" for number in range(500)]
    gate.attempt(lambda client: client.mset(dict.fromkeys(names, "value")))

    gate.delete_fresh(*names)

    assert gate.client().dbsize() == 0
    assert gate.client().info("commandstats")["cmdstat_del"]["calls"] == 500


def test_a_deletion_that_is_refused_is_missed_but_the_server_is_not_away(
    own_valkey: Valkey,
) -> None:
    gate.attempt(lambda client: client.execute_command("ACL", "SETUSER", "default", "-del"))
    before = time.time()

    with pytest.raises(RedisUnavailable, match="permissions"):
        gate.delete_fresh("a", "b")

    assert not gate.breaker.is_open
    assert gate.breaker.last_failure >= before


def test_a_fresh_deletion_does_not_wait_for_a_frozen_server(own_valkey: Valkey) -> None:
    own_valkey.pause()

    names = [f"key{number}" for number in range(500)]
    assert seconds_of(lambda: gate.delete_fresh(*names)) < BOUND_SECONDS
    assert gate.breaker.is_open
