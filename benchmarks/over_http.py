"""Append and hot context read over HTTP, against a view that does nothing.

Both are served by the same gunicorn, behind the same middleware, to the same client.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from benchmarks import material
from benchmarks.bench import PERSON, Bench, note
from benchmarks.in_process import TOKEN_BUDGET, WARM_TURNS
from benchmarks.load import Answer, Job
from benchmarks.report import Line, ms
from benchmarks.rounds import alternate

WRITERS = 16
_EMPTY = "/empty"


def context(bench: Bench) -> Iterator[Line]:
    """Ask for a hot context view as an agent."""
    note("hot context read over HTTP")
    thread_id = bench.thread_of(WARM_TURNS)
    path = (
        f"/api/v1/threads/{thread_id}/context"
        f"?user_id={PERSON}&focus=sql&token_budget={TOKEN_BUDGET}"
    )
    for connections, goal, what in ((1, 1.75, "p50 at 1"), (WRITERS, 2.2, "time a request at 16")):
        jobs = {
            "context view": _job(bench, path, connections),
            "empty view": _job(bench, f"{_EMPTY}?user_id={PERSON}&focus=sql", connections),
        }
        yield _compared(bench, jobs, f"hot context over HTTP, {what}", goal)


def append(bench: Bench) -> Iterator[Line]:
    """Write turns as an agent: one at a time, then 16 at once."""
    note("append over HTTP")
    thread_id = bench.thread_of(WARM_TURNS)
    jobs = {
        "append": _job(bench, _turn_path(thread_id), 1, "PUT", _bodies()),
        "empty PUT": _job(bench, _EMPTY, 1, "PUT", _bodies()),
    }
    yield _compared(bench, jobs, "append over HTTP, p50 at 1", 4.5)
    for threads in (50, 1):
        yield writers(bench, threads)


def writers(bench: Bench, threads: int) -> Line:
    """Have 16 writers at once write to so many threads."""
    job = Job(
        port=bench.site.port,
        paths=[_turn_path(bench.thread_of(WARM_TURNS)) for _ in range(threads)],
        count=bench.scale.requests * 2,
        method="PUT",
        bodies=_bodies(),
        token=bench.token,
        connections=WRITERS,
    )
    answers = [bench.client.run(job) for _ in range(max(3, bench.scale.rounds // 3))]
    on = "1 thread" if threads == 1 else f"{threads} threads"
    return Line(f"append over HTTP, {WRITERS} writers on {on}", _rate(answers))


def turn_job(bench: Bench, threads: Sequence[uuid.UUID]) -> Job:
    """Return the writing of turns to these threads in turn, one at a time."""
    return Job(
        port=bench.site.port,
        paths=[_turn_path(thread_id) for thread_id in threads],
        count=bench.scale.requests,
        method="PUT",
        bodies=_bodies(),
        token=bench.token,
    )


def _turn_path(thread_id: uuid.UUID) -> str:
    return f"/api/v1/threads/{thread_id}/turns/{{turn}}"


def _bodies() -> list[str]:
    return [_body(number) for number in range(64)]


def _body(number: int) -> str:
    sent = {"user_id": PERSON, "agent_type": "chat", **material.turns()[number]}
    return json.dumps(sent, ensure_ascii=False)


def _job(
    bench: Bench, path: str, connections: int, method: str = "GET", bodies: list[str] | None = None
) -> Job:
    return Job(
        port=bench.site.port,
        paths=[path],
        count=bench.scale.requests * (2 if connections > 1 else 1),
        method=method,
        bodies=bodies or [""],
        token=bench.token,
        connections=connections,
    )


def _compared(bench: Bench, jobs: dict[str, Job], what: str, goal: float) -> Line:
    shares: list[float] = []
    ours, theirs = jobs
    sides = alternate(
        {name: _round(bench, job, shares) for name, job in jobs.items()}, bench.scale.rounds
    )
    return sides.line(what, ours, theirs, goal, f"client {median(shares):.0%} of a core")


def _round(bench: Bench, job: Job, shares: list[float]) -> Callable[[], float]:
    def run() -> float:
        answer = bench.client.run(job)
        shares.append(answer.client_share)
        return answer.p50 if job.connections == 1 else answer.a_request

    return run


def _rate(answers: list[Answer]) -> str:
    a_second = median(answer.count / answer.seconds for answer in answers)
    p50, p95 = (median(getattr(answer, name) for answer in answers) for name in ("p50", "p95"))
    return f"{a_second:,.0f} turns/s, p50 {ms(p50)}, p95 {ms(p95)}"
