"""The part "folds" of /health/: whether the oldest turns still become summaries."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import DatabaseError

from config.health import LATE_AFTER_SECONDS, Finding
from config.looks import short_queries
from conversations.events import SessionEvent
from conversations.fold_backlog import COUNT_AT_MOST, LOOK_AT_MOST, WORKER, FoldBacklog
from conversations.folds import FAILED

_DO = "See what `manage.py fold_status` says, and docs/operating-folds.md."


def check_folds() -> Finding:
    """Ask whether folds fail, and whether workers take up what is due."""
    try:
        with short_queries():
            backlog = FoldBacklog.now(LOOK_AT_MOST)
            troubles = list(_troubles(backlog))
    except DatabaseError:
        return Finding("degraded", "Unknown while the database does not answer.")
    if troubles:
        return Finding("degraded", " ".join(troubles), _DO)
    waiting = _threads(backlog.threads, backlog)
    return Finding("ok", f"Waiting: {waiting}." if backlog.threads else "Nothing waits.")


def _troubles(backlog: FoldBacklog) -> Iterator[str]:
    """Yield a sentence for each thing that is wrong."""
    if backlog.failing:
        threads = _threads(backlog.failing, backlog)
        yield f"After a failed fold: {threads}; the latest failure is {_latest_failure()}."
    late = backlog.oldest_seconds[WORKER]
    if late > LATE_AFTER_SECONDS:
        yield f"The oldest fold has waited for a worker for {late / 60:,.0f} min."


def _latest_failure() -> str:
    """Return the code of the latest failure, "unknown" where thousands of events came after it."""
    events = SessionEvent.objects.newest_first()
    newest = events.values_list("pk", flat=True).first() or 0
    failures = events.filter(pk__gt=newest - COUNT_AT_MOST, kind=FAILED)
    return failures.values_list("code", flat=True).first() or "unknown"


def _threads(number: int, backlog: FoldBacklog) -> str:
    more = "" if backlog.counted_all else " or more"
    return f"{number:,}{more} thread{'' if number == 1 and not more else 's'}"
