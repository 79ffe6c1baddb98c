"""What Prometheus is told beside django-prometheus's own figures."""

from collections.abc import Iterable, Iterator
from concurrent.futures import wait

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from config.looks import PATIENCE_SECONDS, Look, short_queries

_FAST = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

WORKING_SET_READS = Counter(
    "rethread_working_set_reads",
    "Reads of a thread's working set by outcome: hit, or why it was a miss.",
    ["outcome"],
)
REHYDRATIONS = Counter(
    "rethread_rehydrations", "Working sets rebuilt from PostgreSQL, by outcome.", ["outcome"]
)
REDIS_BREAKER_OPEN = Gauge(
    "rethread_redis_breaker_open",
    "1 while this process goes on without Redis.",
    multiprocess_mode="livemax",
)
APPEND_SECONDS = Histogram(
    "rethread_append_seconds", "Time to write one turn, Redis included.", buckets=_FAST
)
CONTEXT_SECONDS = Histogram(
    "rethread_context_seconds",
    "Time to recall a thread and render one context view.",
    ["source"],
    buckets=_FAST,
)
FOLDS = Counter(
    "rethread_folds", "Folds by outcome: folded, lost to a change meanwhile, failed.", ["outcome"]
)
FOLD_FAILURES = Counter("rethread_fold_failures", "Folds without a summary, by code.", ["code"])
FOLD_SECONDS = Histogram(
    "rethread_fold_seconds",
    "Time to fold one window, the summariser's call included.",
    buckets=(0.05, 0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120),
)


# --- Asked when Prometheus asks: figures of the database, the same from every process -----


class QueueCollector(Collector):
    """What waits in the queue of jobs, and who is there to run it."""

    def collect(self) -> Iterator[Metric]:
        """Ask PostgreSQL; raises `DatabaseError`."""
        from config.jobs import Backlog

        backlog = Backlog.now()
        yield GaugeMetricFamily("rethread_queue_jobs", "Jobs that wait.", backlog.jobs)
        yield GaugeMetricFamily(
            "rethread_queue_oldest_seconds",
            "For how long the oldest job has waited.",
            backlog.oldest_seconds,
        )
        yield from _workers()


def _workers() -> Iterator[Metric]:
    from django.db.models import Sum

    from config.models import WorkerHeartbeat

    workers = WorkerHeartbeat.objects
    with short_queries():
        alive = workers.alive().count()
        restarts = dict(workers.values_list("host").annotate(Sum("restarts")))
    yield GaugeMetricFamily("rethread_workers", "Workers that report.", alive)
    family = CounterMetricFamily(
        "rethread_worker_restarts",
        "Times a worker has started its cluster again, since the worker's own start.",
        labels=["host"],
    )
    for host, count in restarts.items():
        family.add_metric([host], count)
    yield family


# A collector here makes its queries in `short_queries()`. It may raise: its figures are left out.
AT_SCRAPE: list[Collector] = [QueueCollector()]


class AtScrape(Collector):
    """Asks all of `AT_SCRAPE` side by side and goes without those that don't answer in time."""

    def __init__(self) -> None:
        self._looks: dict[Collector, Look[Iterable[Metric]]] = {}

    def collect(self) -> Iterator[Metric]:
        """Give what was found within `PATIENCE_SECONDS`."""
        looks = [self._look(collector).start() for collector in AT_SCRAPE]
        wait(looks, timeout=PATIENCE_SECONDS)
        for look in looks:
            if look.done() and not look.exception():
                yield from look.result()

    def _look(self, collector: Collector) -> Look[Iterable[Metric]]:
        look: Look[Iterable[Metric]] = Look(lambda: list(collector.collect()))
        return self._looks.setdefault(collector, look)
