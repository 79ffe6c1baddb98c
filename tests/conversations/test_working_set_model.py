"""A read shows what was acknowledged before it began, and nothing deleted, whatever overtakes what.

How runs are played is told in `working_set_world.py`. The bound that is shown for the worst case,
an update lost *and* the DEL on a fresh connection lost: the process that met it never reads
stale, any other for at most MEMORY_CHECK_SECONDS.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis as redis_py

from config import redis as redis_gate
from conversations import invalidation, querysets
from conversations.conversation_memory import _script
from tests.conversations.working_set_world import (
    Actor,
    BreakerHere,
    EpochHere,
    Runs,
    Scenario,
    Wire,
    World,
    append,
    append_and_die,
    complete,
    evict,
    forget,
    process,
    read,
    restore,
    run_job,
    switch_off,
    switch_on,
    three_turns,
    three_turns_cached,
)  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=32) as threads:
        yield threads


@pytest.fixture
def runs(pool: ThreadPoolExecutor, redis: redis_py.Redis, monkeypatch: Any) -> Runs:
    pooled = Wire(connection_pool=redis.connection_pool)
    fresh = Wire(connection_pool=redis.connection_pool)
    fresh.is_fresh = True
    for module in (querysets, invalidation):
        monkeypatch.setattr(module, "get_conversation_memory", lambda: process().memory)
    monkeypatch.setattr(querysets, "_epoch", EpochHere())
    monkeypatch.setattr(redis_gate, "breaker", BreakerHere())
    monkeypatch.setattr(redis_gate, "client", lambda: pooled)
    monkeypatch.setattr(redis_gate, "_fresh_client", lambda: fresh)

    def enter(world: World) -> None:
        pooled.world = fresh.world = world
        monkeypatch.setattr(invalidation, "async_task", world.queue_job)
        monkeypatch.setattr(invalidation, "_missed", invalidation.Missed(lambda: world.time))

    for name in ("lease", "fill", "append", "replace", "confirm", "checked"):
        redis.script_load(_script(name).script)  # else the first run has more calls than the rest
    return Runs(pool, redis, enter)


TOGETHER = {
    "a reader and two appends": [read, append, append],
    "a slow reader, an append and a completion": [read, append, complete],
    "a slow reader and a deletion": [read, forget],
    "a slow reader and memory switched off": [read, switch_off],
    "a slow reader and an append whose process dies": [read, append_and_die],
    "a reader, an append and an eviction": [read, append, evict],
    "a slow reader, an append and a restored backup": [read, append, restore],
}
WITH_A_FAILURE = {
    "a slow reader and an append": [read, append],
    "a slow reader and a completion": [read, complete],
    "a slow reader and a deletion": [read, forget],
    "two appends": [append, append],
    "an append and a completion": [append, complete],
}
WITH_TWO_FAILURES = {
    "an append": [append],
    "a completion": [complete],
    "a deletion": [forget],
    "memory switched off": [switch_off],
    "a resent turn": [append_and_die],
}
either_way = pytest.mark.parametrize("start", [three_turns_cached, three_turns])


@either_way
@pytest.mark.parametrize("name", TOGETHER)
def test_in_every_order(runs: Runs, name: str, start: Scenario) -> None:
    runs.in_every_order(start, TOGETHER[name], faults=0)


@either_way
@pytest.mark.parametrize("name", WITH_A_FAILURE)
def test_with_each_call_failing_in_every_order(runs: Runs, name: str, start: Scenario) -> None:
    runs.in_every_order(start, WITH_A_FAILURE[name], faults=1)


@either_way
@pytest.mark.parametrize("name", WITH_TWO_FAILURES)
def test_with_any_two_calls_failing(runs: Runs, name: str, start: Scenario) -> None:
    runs.in_every_order(start, WITH_TWO_FAILURES[name], faults=2)


def test_two_readers_and_an_append(runs: Runs) -> None:
    runs.in_every_order(three_turns_cached, [read, read, append], faults=0)


WORKS = (append, append, append, complete, read, read, read, append_and_die, evict, run_job)
RARE = (forget, switch_off, switch_on)
PAUSES_SECONDS = (0.5, 3, 31)


def long_run(world: World) -> None:
    """Twelve actors of three processes, up to four of them at work at any time."""
    processes = (world.web, world.web, world.other_web, world.old_web)
    at_work: list[Actor] = []
    for _ in range(12):
        work = _pick(world, RARE) if world._choose(8) == 0 else _pick(world, WORKS)
        at_work.append(world.begin(work, _pick(world, processes)))
        for _ in range(world._choose(8)):
            if at_work := [actor for actor in at_work if not actor.is_done]:
                world.step_one(at_work)
        if world._choose(4) == 0:
            world.wait(_pick(world, PAUSES_SECONDS))
        if world._choose(20) == 0:
            restore(world)
    world.interleave(*at_work)


def _pick(world: World, options: Any) -> Any:
    return options[world._choose(len(options))]


@pytest.mark.parametrize("faults", [0, 1, 4])
def test_in_long_runs(runs: Runs, faults: int) -> None:
    runs.at_random(long_run, runs=400, faults=faults)
