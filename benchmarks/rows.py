"""The rows of the table by name, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks import folding, in_process, lengths, lists, memory, over_http, reuse, sizes
from benchmarks.bench import Bench
from benchmarks.report import Line

ROWS: dict[str, Callable[[Bench], Iterable[Line]]] = {
    "append": in_process.append,
    "context": in_process.context,
    "context-http": over_http.context,
    "append-http": over_http.append,
    "append-folding": folding.measure,
    "lengths": lengths.measure,
    "lists": lists.measure,
    "bytes": sizes.measure,
    "memory": memory.measure,
    "prompt-cache": reuse.measure,
}


def measure(bench: Bench, names: Sequence[str]) -> Iterator[Line]:
    """Measure the named rows, in the table's order."""
    for name, row in ROWS.items():
        if name in names:
            yield from row(bench)
