"""The list of threads of somebody who has very many, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlencode

from benchmarks.bench import TENANT, Bench, note
from benchmarks.load import Job
from benchmarks.report import Line
from benchmarks.rounds import Sides, alternate
from benchmarks.seeding import owner_of
from conversations.api.base import encode_cursor
from conversations.models import ConversationThread
from rbac.principal import Person

GOAL = 1.3
_LIMIT = 50


def measure(bench: Bench) -> Iterator[Line]:
    """Read the first page and a deep one at many threads, against the first at few.

    What few threads cost is measured twice: before the many are there, which is what the others
    are held against, and beside them, since a list may also suffer from what others store.
    """
    few, many = bench.scale.threads
    note(f"lists at {many:,} threads")
    short = owner_of(TENANT, "few", few)
    least = f"first page at {few:,}"
    alone = alternate({least: _page(bench, short)}, bench.scale.rounds)
    long = owner_of(TENANT, "many", many)
    beside = alternate(
        {
            f"first page at {few:,}, beside {many:,}": _page(bench, short),
            f"first page at {many:,}": _page(bench, long),
            f"page {bench.scale.page:,} at {many:,}": _page(bench, long, bench.scale.page),
        },
        bench.scale.rounds,
    )
    both = Sides({**alone.figures, **beside.figures})
    for which in beside.figures:
        yield both.line(f"list, {which}", which, least, GOAL)


def _page(bench: Bench, owner: Person, number: int = 1) -> Callable[[], float]:
    query = {"user_id": owner.user_id, "limit": str(_LIMIT)}
    if number > 1:
        query["cursor"] = _cursor(owner, (number - 1) * _LIMIT)
    job = Job(
        port=bench.site.port,
        paths=[f"/api/v1/threads?{urlencode(query)}"],
        count=max(20, bench.scale.requests // 6),
        token=bench.token,
    )
    return lambda: bench.client.run(job).p50


def _cursor(owner: Person, rows_before: int) -> str:
    """Return the place behind so many rows, as `next` of the page before would give it."""
    rows = ConversationThread.objects.owned_by(owner).newest_first().values_list(
        "last_turn_at", "id"
    )  # fmt: skip
    return encode_cursor(*rows[rows_before - 1])
