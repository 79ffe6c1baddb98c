"""What Prometheus is told of folding at each scrape: what is due, for how long, what fails."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from config.looks import short_queries
from conversations.fold_backlog import LOOK_AT_MOST, FoldBacklog, due_now


class FoldCollector(Collector):
    """The backlog of folds, read when Prometheus asks: three queries, each of so much at most."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the figures of this moment; raises `DatabaseError`, and they are left out."""
        with short_queries():
            due, backlog = due_now(), FoldBacklog.now(LOOK_AT_MOST)
        yield from _figures(due, backlog)


def _figures(due: int, backlog: FoldBacklog) -> Iterator[GaugeMetricFamily]:
    yield GaugeMetricFamily(
        "rethread_folds_due",
        "Threads whose fold is to be made now, and of which nobody makes it; 10,000 at most.",
        value=due,
    )
    yield GaugeMetricFamily(
        "rethread_folds_failing",
        "Threads whose last fold failed, of the first 1,000 due now and the first 1,000 due later.",
        value=backlog.failing,
    )
    oldest = GaugeMetricFamily(
        "rethread_fold_oldest_due_seconds",
        "For how long the oldest fold has been due, by what it waits for: a worker, its retry "
        "after a failure, or the summary that is being made; 0 where none waits.",
        labels=["waits_for"],
    )
    for what, seconds in backlog.oldest_seconds.items():
        oldest.add_metric([what], seconds)
    yield oldest
