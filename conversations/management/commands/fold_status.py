"""How folding stands: what is due and for how long, what fails, what was done."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError
from django.utils import timezone

from conversations.fold_backlog import (
    COUNT_AT_MOST,
    RETRY,
    WORKER,
    FoldBacklog,
    FoldFailure,
    FoldsDone,
    claim_age,
    claimed,
    marked,
)
from conversations.management.commands._folding import counted, database_error, span

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Command(BaseCommand):
    """`fold_status`, with `--json` for machines and `--fail-after 15m` for probes."""

    help = (
        "Show what is to be folded and for how long, what fails, what is being folded, and what "
        "was folded lately. Costs as much on a million threads as on a thousand. Exit 0, or 1 "
        "where the oldest fold has been due for longer than --fail-after."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take how to report, and from when on to fail."""
        parser.add_argument(
            "--limit", type=_limit, default=20, metavar="N", help="threads in a list (20; 0: none)"
        )
        parser.add_argument(
            "--fail-after",
            type=_duration,
            metavar="TIME",
            help="exit 1 where the oldest fold has been due for longer: 90s, 15m, 2h, 1d",
        )
        parser.add_argument("--json", action="store_true", help="one JSON object on stdout")

    def handle(self, *, limit: int, fail_after: timedelta | None, json: bool, **_: Any) -> None:
        """Read it, say it, and judge by it."""
        now = timezone.now()
        try:
            status = _read(now, limit)
        except (DatabaseError, InterfaceError) as error:
            raise database_error(error, "Nothing was changed.") from error
        (self._as_json if json else self._as_text)(status)
        oldest = status["oldest_due_seconds"]
        if fail_after is not None and oldest > fail_after.total_seconds():
            raise CommandError(
                f"The oldest fold has been due for {span(oldest)}, longer than "
                f"{span(fail_after.total_seconds())}."
            )

    def _as_json(self, status: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(status))

    def _as_text(self, status: dict[str, Any]) -> None:
        for line in (*_overview(status), *_lists(status)):
            self.stdout.write(line)


# --- Reading ------------------------------------------------------------------------------------


def _read(now: datetime, limit: int) -> dict[str, Any]:
    backlog = FoldBacklog.now(COUNT_AT_MOST)
    hour, day = FoldsDone.since(now - timedelta(hours=1), now - timedelta(days=1))
    waiting = _longest_due_first(chain(*marked())) if limit else []
    claims = claimed()
    return {
        "oldest_due_seconds": round(max(backlog.oldest_seconds.values()), 1),
        "backlog": asdict(backlog),
        "waiting": [_due(one, now) for one in _first(limit, waiting, WORKER)],
        "failing": [_failing(one, now) for one in _first(limit, waiting, RETRY)],
        "folding": [_claim(one, now) for one in claims[:limit]],
        "last_hour": asdict(hour),
        "last_day": asdict(day),
    }


def _longest_due_first(threads: Iterable[Any]) -> list[Any]:
    return sorted(threads, key=lambda thread: thread.due_since)


def _first(limit: int, threads: Sequence[Any], waits: str) -> list[Any]:
    return [thread for thread in threads if thread.waits == waits][:limit]


def _due(thread: Any, now: datetime) -> dict[str, Any]:
    return {
        "thread_id": str(thread.pk),
        "due_seconds": round((now - thread.due_since).total_seconds(), 1),
        "turns": thread.turns_to_fold,
        "has_job": thread.fold_due_at > now,
    }


def _failing(thread: Any, now: datetime) -> dict[str, Any]:
    failure = FoldFailure.newest_of(thread.pk)
    return {
        "thread_id": str(thread.pk),
        "due_seconds": round((now - thread.due_since).total_seconds(), 1),
        "failures": thread.fold_attempts,
        "code": failure.code,
        "next_attempt_at": thread.fold_blocked_until.isoformat(),
        "next_attempt_seconds": round((thread.fold_blocked_until - now).total_seconds(), 1),
    }


def _claim(thread: Any, now: datetime) -> dict[str, Any]:
    ends = (thread.fold_blocked_until - now).total_seconds()
    return {
        "thread_id": str(thread.pk),
        "running_seconds": round(claim_age(thread, now).total_seconds(), 1),
        "claim_ends_seconds": round(ends, 1),
        "abandoned": ends <= 0,
    }


# --- For people ---------------------------------------------------------------------------------


def _overview(status: dict[str, Any]) -> list[str]:
    backlog = status["backlog"]
    more = "" if backlog["counted_all"] else " or more"
    threads = counted(backlog["threads"], "thread")
    what = "Nothing is to be folded."
    if backlog["threads"]:
        what = (
            f"To fold    {threads}{more}, {counted(backlog['turns'], 'turn')} in "
            f"{counted(backlog['windows'], 'window')}; the oldest has been due for "
            f"{span(status['oldest_due_seconds'])}\n"
            f"           {backlog['due_now']:,} due now, {backlog['failing']:,} after a failure"
        )
    return [what, *(_done(name, status[key]) for name, key in _PERIODS)]


_PERIODS = (("Last hour", "last_hour"), ("Last day ", "last_day"))


def _done(name: str, done: dict[str, Any]) -> str:
    least = "" if done["counted_all"] else "at least "
    median = "" if done["median_ms"] is None else f", median {done['median_ms'] / 1000:.1f} s"
    refolds = f", {counted(done['refolds'], 'refold')}" if done["refolds"] else ""
    failed = sum(done["failed"].values())
    codes = ", ".join(f"{code} {number:,}" for code, number in sorted(done["failed"].items()))
    return (
        f"{name}  {least}{counted(done['folds'], 'fold')}{median}{refolds}; "
        f"{done['input_tokens']:,} tokens in, {done['output_tokens']:,} out; "
        f"{done['lost']:,} lost, {failed:,} failed{f' ({codes})' if codes else ''}"
    )


def _lists(status: dict[str, Any]) -> Iterable[str]:
    for title, key, columns in _TABLES:
        if status[key]:
            yield f"\n{title}"
            yield from _table(columns, status[key])


_Columns = dict[str, Callable[[dict[str, Any]], str]]
_THREAD: _Columns = {"thread": lambda row: row["thread_id"]}
_DUE_FOR: _Columns = {"due for": lambda row: span(row["due_seconds"])}
_TABLES: tuple[tuple[str, str, _Columns], ...] = (
    (
        "Waiting for a worker, the longest due first:",
        "waiting",
        {
            **_THREAD,
            **_DUE_FOR,
            "turns": lambda row: f"{row['turns']:,}",
            "job": lambda row: "queued" if row["has_job"] else "none lately",
        },
    ),
    (
        "Waiting for the next attempt after a failure, the longest due first:",
        "failing",
        {
            **_THREAD,
            **_DUE_FOR,
            "failures": lambda row: f"{row['failures']:,}",
            "last one": lambda row: row["code"],
            "next attempt": lambda row: f"in {span(row['next_attempt_seconds'])}",
        },
    ),
    (
        "Being folded:",
        "folding",
        {
            **_THREAD,
            "for": lambda row: span(row["running_seconds"]),
            "claim ends": lambda row: (
                "has ended: its worker is gone"
                if row["abandoned"]
                else f"in {span(row['claim_ends_seconds'])}"
            ),
        },
    ),
)


def _table(columns: _Columns, rows: Sequence[dict[str, Any]]) -> list[str]:
    cells = [list(columns), *([show(row) for show in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


# --- Arguments ----------------------------------------------------------------------------------


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 9999")
    return int(text)


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"([0-9]{1,7})([smhd])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 15m, 2h or 1d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
