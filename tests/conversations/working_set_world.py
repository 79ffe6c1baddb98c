"""One thread, its table, its copy in Redis and the wire between them, to be played step by step.

Real: the Lua on Valkey, `RedisConversationMemory`, the read path of `ThreadManager`, what
`invalidation.tell` does when Redis fails, the breakers. Modelled: the table, the clock, and the
wire to Redis, which can lose a call, lose its answer, or deliver it late. Each actor is a thread
that stops before it touches table or wire; who goes on, and what becomes of a call, is one choice
after another, so that a run is a list of choices and can be played again.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import redis as redis_py
import time_machine
from redis.client import Pipeline

from config.redis import Breaker
from conversations import querysets
from conversations.context import ConversationContext
from conversations.conversation_memory import CopyHead, RedisConversationMemory
from conversations.exceptions import ThreadNotFound
from conversations.pieces import TurnPieces, TurnTokens
from conversations.querysets import ThreadManager
from rbac.principal import Person

THREAD = uuid.UUID("5e6f0a4f-0000-4000-8000-000000000001")
OWNER = Person(uuid.UUID("5e6f0a4f-0000-4000-8000-000000000002"), "acme", "ana")
WINDOW = 3
FATES = ("arrives", "lost", "answer lost", "late")


# --- What PostgreSQL holds --------------------------------------------------------------------


class Shown(NamedTuple):
    """What a read shows: the head, which names what it stands for, and the turns after it.

    `turns` are positions and revisions of those in the window.
    """

    folded: int
    head: str
    turns: list[tuple[int, int]]


@dataclass(frozen=True)
class State:
    """One thread at one version.

    `revisions[0]` is that of the turn at position 1, `heads` counts how often the head was made.
    """

    version: int = 0
    revisions: tuple[int, ...] = ()
    folded: int = 0
    heads: int = 0
    enabled: bool = True
    deleted: bool = False

    def next(self, **changes: Any) -> State:
        return replace(self, version=self.version + 1, **changes)

    @property
    def unfolded(self) -> int:
        return len(self.revisions) - self.folded

    @property
    def head(self) -> str:
        return f"t1-t{self.folded}, made {self.heads} times" if self.folded else ""

    @property
    def window(self) -> range:
        """The positions that a copy holds."""
        count = len(self.revisions)
        return range(max(self.folded, count - WINDOW) + 1, count + 1)

    @property
    def shown(self) -> Shown:
        if not self.enabled:
            return Shown(self.folded, "", [])
        return Shown(self.folded, self.head, [(at, self.revisions[at - 1]) for at in self.window])


class Table:
    """The versions of the thread, in order, and up to which they are acknowledged."""

    def __init__(self) -> None:
        self.states = [State()]
        self.acknowledged = 0
        self.epoch = "epoch-1"

    @property
    def now(self) -> State:
        return self.states[-1]

    def commit(self, **changes: Any) -> State:
        self.states.append(self.now.next(**changes))
        return self.now

    def acknowledge(self, state: State) -> None:
        if state in self.states:  # a restore may have lost it
            self.acknowledged = max(self.acknowledged, self.states.index(state))

    def restore(self, index: int) -> None:
        """Go back to a backup, as `manage.py renew_epoch` expects."""
        self.states = [self.states[index]]
        self.acknowledged = 0
        self.epoch = f"{self.epoch}'"


def pieces(position: int, revision: int) -> TurnPieces:
    """Return a turn as this process's release renders it."""
    question = f"{process().memory.fence_key} r{revision}\n"
    return TurnPieces(position, TurnTokens(*[1] * 7), question, 0, "", 0, "", "", "", [])


def head_of(state: State) -> CopyHead:
    """Return a thread's head as this process's release writes it."""
    return (f"{process().memory.fence_key} {state.head}" if state.head else "", {}, [])


def shown_of(context: ConversationContext) -> Shown:
    release = process().memory.fence_key
    turns = [
        (turn.position, int(turn.question.removeprefix(f"{release} r"))) for turn in context.turns
    ]
    return Shown(context.folded_through, context.summary.removeprefix(f"{release} "), turns)


class ModelledThreads(ThreadManager):
    """The real read path, on a modelled table."""

    world: World

    def _version_and_epoch(self, thread_id: uuid.UUID) -> tuple[int, str] | None:
        self.world.stop()
        state = self.world.table.now
        usable = state.version and state.enabled and not state.deleted
        return (state.version, self.world.table.epoch) if usable else None

    def _from_database(self, thread_id: uuid.UUID, owner: Any) -> tuple[ConversationContext, str]:
        self.world.stop()
        state, epoch = self.world.table.now, self.world.table.epoch
        if state.deleted or not state.version:
            raise ThreadNotFound
        querysets._epoch.last_seen = epoch
        context = ConversationContext(
            str(THREAD), str(OWNER.pk), "", state.version, len(state.revisions), state.folded
        )
        if not state.enabled:
            return context, epoch
        self.world.stop()  # before the second query
        revisions = self.world.table.now.revisions
        if len(revisions) < len(state.revisions):
            raise ThreadNotFound
        turns = [pieces(at, revisions[at - 1]) for at in state.window]
        return replace(context, summary=head_of(state)[0], turns=turns), epoch


# --- Processes, and the wire to Redis ---------------------------------------------------------


class Process:
    """What each process has of its own."""

    def __init__(self, release: str) -> None:
        self.memory = RedisConversationMemory(
            window_turns=WINDOW, fence_key=release, lease_seconds=60
        )
        self.breaker = Breaker(2.0, clock=lambda: datetime.now(UTC).timestamp())
        self.last_seen = ""
        self.missed_at = 0.0


class _Here(threading.local):
    actor: Actor | Soloist | None = None


here = _Here()


nobody = Process("none")


def process() -> Process:
    return here.actor.process if here.actor else nobody


class BreakerHere:
    def __getattr__(self, name: str) -> Any:
        return getattr(process().breaker, name)


class EpochHere:
    @property
    def last_seen(self) -> str:
        return process().last_seen

    @last_seen.setter
    def last_seen(self, epoch: str) -> None:
        process().last_seen = epoch


class WirePipeline(Pipeline):
    """A pipeline that meets one fate as a whole."""

    wire: Wire

    def execute(self, raise_on_error: bool = True) -> Any:
        send = super().execute
        return self.wire.world.call(lambda: send(raise_on_error), self.wire.is_fresh)


class Wire(redis_py.Redis):
    """A client whose calls meet the fate that the world chooses for them."""

    world: World
    is_fresh = False

    def execute_command(self, *args: Any, **options: Any) -> Any:
        send = super().execute_command
        return self.world.call(lambda: send(*args, **options), self.is_fresh)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        made = WirePipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.wire = self
        return made

    def close(self) -> None:
        """Stay connected: there are thousands of runs."""


# --- Actors, and who goes on ------------------------------------------------------------------


class Aborted(BaseException):
    """The run has failed elsewhere."""


class Actor:
    """Work of a process, in a thread that goes on by single steps."""

    def __init__(self, pool: ThreadPoolExecutor, owner: Process, work: Callable[[], None]) -> None:
        self.process = owner
        self.is_done = False
        self._work = work
        self._aborted = False
        self._may_go, self._has_stopped = threading.Lock(), threading.Lock()
        self._may_go.acquire()
        self._has_stopped.acquire()
        self._outcome = pool.submit(self._run)

    def _run(self) -> None:
        self._may_go.acquire()
        here.actor = self
        try:
            if not self._aborted:
                self._work()
        finally:
            self.is_done = True
            self._has_stopped.release()

    def step(self) -> None:
        self._may_go.release()
        self._has_stopped.acquire()
        if self.is_done:
            self._outcome.result()

    def stop(self) -> None:
        self._has_stopped.release()
        self._may_go.acquire()
        if self._aborted:
            raise Aborted

    def abort(self) -> None:
        self._aborted = True
        if not self.is_done:
            with suppress(Aborted):
                self.step()


class Soloist:
    """Work of a process while nobody else is at it: it never stops."""

    def __init__(self, owner: Process) -> None:
        self.process = owner

    def stop(self) -> None:
        """Go on."""


Choose = Callable[[int], int]


class World:
    """One run: a table, a Redis key, three processes of two releases, actors, and time."""

    def __init__(
        self, pool: ThreadPoolExecutor, redis: redis_py.Redis, clock: Any, choose: Choose,
        faults: int,
    ) -> None:  # fmt: skip
        self.table = Table()
        self.web, self.other_web, self.old_web = Process("new"), Process("new"), Process("old")
        self.key = self.web.memory.key(THREAD)
        self.faults_left = faults
        self.has_failed = False
        self.late: list[Callable[[], Any]] = []
        self.jobs = 0
        self.trace: list[str] = []
        self._pool, self._redis, self._clock, self._choose = pool, redis, clock, choose
        self._actors: list[Actor] = []
        self.threads = ModelledThreads()
        self.threads.world = self
        redis.delete(self.key)

    # What the code under test calls.

    def stop(self) -> None:
        assert here.actor
        here.actor.stop()

    def call(self, send: Callable[[], Any], is_fresh: bool) -> Any:
        self.stop()
        fate = FATES[self._choose(len(FATES))] if self.faults_left else "arrives"
        if fate == "arrives":
            return self.sent(send)
        self.faults_left -= 1
        self.has_failed = True
        self.trace.append(f"{fate}{' (fresh)' if is_fresh else ''}")
        if fate == "answer lost":
            self.sent(send)
        elif is_fresh:
            process().missed_at = self.time
        if fate == "late":
            self.late.append(send)
        raise redis_py.TimeoutError(fate)

    def sent(self, send: Callable[[], Any]) -> Any:
        answer = send()
        if not isinstance(answer, dict):  # it was no reading
            assert self._redis.ttl(self.key) != -1, "a key without a time to live"
        return answer

    def queue_job(self, *_: Any) -> None:
        self.jobs += 1

    # What happens in a run.

    @property
    def time(self) -> float:
        return datetime.now(UTC).timestamp()

    def wait(self, seconds: float) -> None:
        self.trace.append(f"{seconds} s pass")
        self._clock.shift(seconds)

    def begin(self, work: Callable[[World], None], owner: Process | None = None) -> Actor:
        actor = Actor(self._pool, owner or self.web, lambda: work(self))
        self.trace.append(f"{getattr(work, '__name__', work)} begins")
        self._actors.append(actor)
        return actor

    def at_once(self, work: Work, owner: Process | None = None) -> None:
        here.actor = Soloist(owner or self.web)
        try:
            work(self)
        finally:
            here.actor = None

    def interleave(self, *actors: Actor) -> None:
        while waiting := [actor for actor in actors if not actor.is_done]:
            self.step_one(waiting)

    def step_one(self, waiting: list[Actor]) -> None:
        choice = self._choose(len(waiting) + bool(self.late))
        if choice == len(waiting):
            self.deliver()
        else:
            waiting[choice].step()

    def deliver(self) -> None:
        self.trace.append("delivered late")
        send = self.late.pop(0)
        with suppress(redis_py.ResponseError):
            self.sent(send)

    def finish(self, read: Work) -> None:
        """Let all that is on its way arrive, then read once more in each process."""
        while self.late:
            self.deliver()
        self.faults_left = 0
        if not self.has_failed:
            self.assert_copy_is_tidy()
        # After a failure twice: with breakers that are open, and with closed ones.
        for pause_seconds in (0, 3) if self.has_failed else (0,):
            self.wait(pause_seconds)
            for owner in (self.web, self.other_web, self.old_web):
                self.at_once(read, owner)

    def assert_copy_is_tidy(self) -> None:
        """Once every change has arrived, a copy waits for none and holds no turn in vain."""
        copy = self._redis.hgetall(self.key)
        if b"v" in copy:
            held = {name for name in copy if name[:2] in (b"t:", b"x:")}
            assert held == {b"t:%d" % at for at in self.table.now.window}

    def abort(self) -> None:
        for actor in self._actors:
            actor.abort()


# --- Runs -------------------------------------------------------------------------------------

Work = Callable[[World], None]
Scenario = Callable[[World], None]


class Runs:
    """Plays scenarios, in every order or in many random ones, and counts."""

    def __init__(
        self, pool: ThreadPoolExecutor, redis: redis_py.Redis, enter: Any, last: Work
    ) -> None:
        self._pool, self._redis, self._enter, self._last = pool, redis, enter, last

    def play(self, scenario: Scenario, choose: Choose, faults: int) -> None:
        with time_machine.travel(datetime(2026, 11, 30, tzinfo=UTC), tick=False) as clock:
            world = World(self._pool, self._redis, clock, choose, faults)
            self._enter(world)
            try:
                scenario(world)
                world.finish(self._last)
            except BaseException:
                print("\n".join(world.trace))
                world.abort()
                raise

    def in_every_order(self, start: Scenario, works: list[Work], faults: int) -> None:
        """Play each list of choices there is, depth first."""

        def scenario(world: World) -> None:
            start(world)
            world.interleave(*map(world.begin, works))

        choices: list[list[int]] = []  # [taken, of how many]
        played = 0
        while choices or not played:
            self.play(scenario, Replay(choices), faults)
            played += 1
            while choices and choices[-1][0] == choices[-1][1] - 1:
                choices.pop()
            if choices:
                choices[-1][0] += 1
        print(played, "runs")

    def at_random(self, scenario: Scenario, runs: int, faults: int) -> None:
        for seed in range(runs):
            print(f"seed {seed}")
            self.play(scenario, random.Random(seed).randrange, faults)


class Replay:
    """Makes the choices of a list, then the first of each, adding them to the list."""

    def __init__(self, choices: list[list[int]]) -> None:
        self._choices = choices
        self._at = 0

    def __call__(self, options: int) -> int:
        if options == 1:
            return 0
        if self._at == len(self._choices):
            self._choices.append([0, options])
        self._at += 1
        return self._choices[self._at - 1][0]


def three_turns(world: World) -> None:
    for _ in range(WINDOW):
        world.table.acknowledge(world.table.commit(revisions=(*world.table.now.revisions, 0)))


def five_turns_of_which_two_are_folded(world: World) -> None:
    three_turns(world)
    for changes in ({"folded": 2, "heads": 1}, *[{"revisions": (0,) * n} for n in (4, 5)]):
        world.table.acknowledge(world.table.commit(**changes))
