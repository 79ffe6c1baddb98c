"""What Prometheus is told beside django-prometheus's own figures."""

from prometheus_client import Counter, Gauge, Histogram

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
