"""Whether a thread gets slower as it grows: append and context at 10 turns and at thousands."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from benchmarks.bench import Bench, note
from benchmarks.in_process import view
from benchmarks.report import Line
from benchmarks.rounds import Round, alternate, timed
from benchmarks.seeding import long_thread
from conversations.conversation_memory import get_conversation_memory

GOAL = 1.2


def measure(bench: Bench) -> Iterator[Line]:
    """Everything against the shortest thread.

    Reads are of threads with as many unfolded turns, as folding leaves them. What a thread costs
    whose turns were never folded, up to the most that a working set holds, stands beside it.
    """
    shortest, *longer = bench.scale.lengths
    note(f"threads of {bench.scale.lengths} turns")
    yield from _append(bench, shortest, longer)
    folded = {turns: long_thread(bench, turns, shortest) for turns in bench.scale.lengths}
    yield from _compared(bench, "hot context", folded, _hot, GOAL)
    yield from _compared(bench, "cold context", folded, _cold, GOAL)
    unfolded = {turns: long_thread(bench, turns) for turns in (shortest, longer[-1])}
    yield from _compared(bench, "hot context, nothing folded,", unfolded, _hot, None)


def _append(bench: Bench, shortest: int, longer: list[int]) -> Iterator[Line]:
    threads = {turns: long_thread(bench, turns, shortest) for turns in longer}

    def to_a_short_one() -> float:
        thread_id = long_thread(bench, shortest, shortest)
        return timed(lambda: bench.append(thread_id, 7), bench.scale.calls)

    def to(thread_id: uuid.UUID) -> Round:
        return lambda: timed(lambda: bench.append(thread_id, 7), bench.scale.calls)

    sides = alternate(
        {_at(shortest): to_a_short_one}
        | {_at(turns): to(thread_id) for turns, thread_id in threads.items()},
        bench.scale.rounds,
    )
    for turns in longer:
        yield sides.line(f"append {_at(turns)}", _at(turns), _at(shortest), GOAL)


def _compared(
    bench: Bench,
    what: str,
    threads: dict[int, uuid.UUID],
    read: Callable[[Bench, uuid.UUID], Round],
    goal: float | None,
) -> Iterator[Line]:
    shortest, *longer = threads
    sides = alternate(
        {_at(turns): read(bench, thread_id) for turns, thread_id in threads.items()},
        bench.scale.rounds,
    )
    for turns in longer:
        yield sides.line(f"{what} {_at(turns)}", _at(turns), _at(shortest), goal)


def _hot(bench: Bench, thread_id: uuid.UUID) -> Round:
    return lambda: timed(lambda: view(bench, thread_id), bench.scale.calls)


def _cold(bench: Bench, thread_id: uuid.UUID) -> Round:
    def read() -> None:
        memory.drop(thread_id)
        view(bench, thread_id)

    memory = get_conversation_memory()
    return lambda: timed(read, bench.scale.calls)


def _at(turns: int) -> str:
    return f"at {turns:,} turns"
