"""A read shows what was acknowledged before it began, and nothing deleted, whatever overtakes what.

How runs are played is told in `working_set_world.py`. The bound that is shown for the worst case,
an update lost *and* the DEL on a fresh connection lost: the process that met it never reads
stale, any other for at most MEMORY_CHECK_SECONDS.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis as redis_py
from django.conf import settings

from config import redis as redis_gate
from conversations import invalidation, querysets
from conversations.conversation_memory import _script
from conversations.exceptions import ThreadNotFound
from tests.conversations.working_set_world import (
    OWNER,
    THREAD,
    Actor,
    BreakerHere,
    EpochHere,
    Runs,
    Scenario,
    Shown,
    State,
    Wire,
    World,
    five_turns_of_which_two_are_folded,
    head_of,
    pieces,
    process,
    shown_of,
    three_turns,
)


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

    for name in ("lease", "fill", "append", "replace", "fold", "confirm", "checked"):
        redis.script_load(_script(name).script)  # else the first run has more calls than the rest
    return Runs(pool, redis, enter, read)


# --- What actors do ---------------------------------------------------------------------------


def append(world: World) -> None:
    if world.table.now.deleted:
        return
    state = world.table.commit(revisions=(*world.table.now.revisions, 0))
    epoch, turn = world.table.epoch, pieces(len(state.revisions), 0)
    invalidation.tell(THREAD, lambda memory: memory.append(THREAD, state.version, turn, epoch))
    world.table.acknowledge(state)


def complete(world: World) -> None:
    """Write the newest turn again: it was pending."""
    _complete(world, len(world.table.now.revisions))


def complete_the_first(world: World) -> None:
    """Write a turn again that is folded, if any is: the next fold amends the head."""
    _complete(world, 1)


def _complete(world: World, position: int) -> None:
    revisions = list(world.table.now.revisions)
    if world.table.now.deleted or not revisions:
        return
    revisions[position - 1] += 1
    state = world.table.commit(revisions=tuple(revisions))
    epoch, turn = world.table.epoch, pieces(position, revisions[position - 1])
    invalidation.tell(THREAD, lambda memory: memory.replace(THREAD, state.version, turn, epoch))
    world.table.acknowledge(state)


def fold(world: World) -> None:
    """Fold the older half of what is unfolded."""
    _tell_of_head(world, _commit_fold(world))


def refold(world: World) -> None:
    """Make the head anew, be it from the start or for a folded turn that was completed."""
    now = world.table.now
    usable = now.folded and now.enabled and not now.deleted
    _tell_of_head(world, world.table.commit(heads=now.heads + 1) if usable else None)


def fold_and_die(world: World) -> None:
    """A worker ends between commit and Redis: nobody is told, and nobody waits for it."""
    if _commit_fold(world):
        world.has_failed = True


def _commit_fold(world: World) -> State | None:
    now = world.table.now
    if now.unfolded < 2 or not now.enabled or now.deleted:
        return None
    return world.table.commit(folded=now.folded + now.unfolded // 2, heads=now.heads + 1)


def _tell_of_head(world: World, state: State | None) -> None:
    if state is None:
        return
    epoch, head = world.table.epoch, head_of(state)
    invalidation.tell(
        THREAD, lambda memory: memory.fold(THREAD, state.version, state.folded, head, epoch)
    )
    world.table.acknowledge(state)


def append_and_die(world: World) -> None:
    """A process ends between commit and Redis; the client, unanswered, sends the turn again."""
    if world.table.now.deleted:
        return
    world.has_failed = True
    written = world.table.commit(revisions=(*world.table.now.revisions, 0))
    world.stop()
    state, epoch = world.table.now, world.table.epoch
    if written not in world.table.states or state.deleted:
        return
    invalidation.tell(THREAD, lambda memory: memory.confirm(THREAD, state.version, epoch))
    world.table.acknowledge(state)


def forget(world: World) -> None:
    _change(world, deleted=True, revisions=(), folded=0)


def switch_off(world: World) -> None:
    _change(world, enabled=False)


def switch_on(world: World) -> None:
    _change(world, enabled=True)


def _change(world: World, **changes: Any) -> None:
    if world.table.now.deleted:
        return
    state = world.table.commit(**changes)
    invalidation.tell(THREAD, lambda memory: memory.drop(THREAD))
    world.table.acknowledge(state)


def evict(world: World) -> None:
    """Eviction, a flush, the end of a lease: the key is gone."""
    world._redis.delete(world.key)


def restore(world: World) -> None:
    """Restore a backup that lacks the last change, and wait until every process has noticed."""
    world.has_failed = True
    world.table.restore(max(0, len(world.table.states) - 2))
    world.wait(settings.MEMORY_CHECK_SECONDS + 1)


def run_job(world: World) -> None:
    if world.jobs:
        with suppress(redis_gate.RedisUnavailable):
            process().memory.drop(THREAD)
            world.jobs = 0


def read(world: World) -> None:
    """Read, and compare with what the table has shown since the last acknowledged version."""
    table, began_at = world.table, world.time
    history, first = table.states, table.acknowledged
    try:
        recalled = world.threads.conversation_context(THREAD, OWNER)
    except ThreadNotFound:
        shown, source = None, "database"
    else:
        shown, source = shown_of(recalled.context), recalled.source
    if table.states is not history:
        return  # restored meanwhile
    newest = table.now.revisions
    if any(_agrees(shown, state, newest) for state in history[first:]):
        return
    excused = source == "cache" and any(
        began_at <= owner.missed_at + settings.MEMORY_CHECK_SECONDS
        for owner in (world.web, world.other_web, world.old_web)
        if owner is not process()
    )
    assert excused, f"{source} showed {shown}, the table {history[first:]}"


def _agrees(shown: Shown | None, state: State, newest: tuple[int, ...]) -> bool:
    """Whether `state` can have looked so: a turn may show a later revision than its header.

    A head goes with the turns after it and with no others, lest a turn be in both or in neither.
    """
    if state.deleted or not state.version:
        return shown is None
    expected = state.shown
    if shown is None or shown[:2] != expected[:2]:
        return False
    if [at for at, _ in shown.turns] != [at for at, _ in expected.turns]:
        return False
    latest = dict(enumerate(newest, start=1))
    return all(
        written <= revision <= max(written, latest.get(at, revision))
        for (at, revision), (_, written) in zip(shown.turns, expected.turns, strict=True)
    )


def three_turns_cached(world: World) -> None:
    three_turns(world)
    _cache(world)


def folded_turns_cached(world: World) -> None:
    five_turns_of_which_two_are_folded(world)
    _cache(world)


def _cache(world: World) -> None:
    faults, world.faults_left = world.faults_left, 0
    for owner in (world.web, world.other_web):  # both then know the epoch
        world.at_once(read, owner)
    world.faults_left = faults


# --- Every order, and long runs ----------------------------------------------------------------


TOGETHER = {
    "a reader and two appends": [read, append, append],
    "a slow reader, an append and a completion": [read, append, complete],
    "a slow reader and a deletion": [read, forget],
    "a slow reader and memory switched off": [read, switch_off],
    "a slow reader and an append whose process dies": [read, append_and_die],
    "a reader, an append and an eviction": [read, append, evict],
    "a slow reader, an append and a restored backup": [read, append, restore],
}
WITH_FOLDS = {
    "a slow reader, a fold and an append": [read, fold, append],
    "a slow reader, a fold and a head made anew": [read, fold, refold],
    "a slow reader, a fold and a deletion": [read, fold, forget],
    "a slow reader, a fold and a restored backup": [read, fold, restore],
    "a slow reader, a fold whose worker dies and an append": [read, fold_and_die, append],
    "a fold and two appends": [fold, append, append],
    "a fold, a completion and an append": [fold, complete, append],
    "a fold, an append and the completion of a folded turn": [fold, append, complete_the_first],
    "a fold, an append and an eviction": [fold, append, evict],
}
WITH_A_FAILURE = {
    "a slow reader and an append": [read, append],
    "a slow reader and a completion": [read, complete],
    "a slow reader and a deletion": [read, forget],
    "two appends": [append, append],
    "an append and a completion": [append, complete],
    "a slow reader and a fold": [read, fold],
    "an append and a fold": [append, fold],
    "a fold and a head made anew": [fold, refold],
}
WITH_TWO_FAILURES = {
    "an append": [append],
    "a completion": [complete],
    "a deletion": [forget],
    "memory switched off": [switch_off],
    "a resent turn": [append_and_die],
    "a fold": [fold],
}
either_way = pytest.mark.parametrize("start", [three_turns_cached, three_turns])


@either_way
@pytest.mark.parametrize("name", TOGETHER)
def test_in_every_order(runs: Runs, name: str, start: Scenario) -> None:
    runs.in_every_order(start, TOGETHER[name], faults=0)


@pytest.mark.parametrize("start", [folded_turns_cached, five_turns_of_which_two_are_folded])
@pytest.mark.parametrize("name", WITH_FOLDS)
def test_folds_in_every_order(runs: Runs, name: str, start: Scenario) -> None:
    runs.in_every_order(start, WITH_FOLDS[name], faults=0)


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


WORKS = (
    append, append, append, append, complete, complete_the_first, fold, fold, refold,
    read, read, read, read, append_and_die, fold_and_die, evict, run_job,
)  # fmt: skip
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
    runs.at_random(long_run, runs=200, faults=faults)
