"""`python -m benchmarks`: measure, print one table, say what meets its goal.

On a database and a Redis of its own, as `make bench` gives it: it fills them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    """Measure what was asked for; return 0, whatever was met, or 2 for a wrong call."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    # In production each metric is a file that all processes share.
    metrics = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="bench-metrics-")
    try:
        return _measure(_arguments())
    finally:
        shutil.rmtree(metrics, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="ROW", help="rows to measure, by name")
    parser.add_argument("--quick", action="store_true", help="a smoke run: small and imprecise")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON, too")
    return parser.parse_args()


def _measure(asked: argparse.Namespace) -> int:
    import logging

    import django

    django.setup()
    logging.getLogger("django-q").setLevel(logging.WARNING)
    from django.core.management import call_command

    from benchmarks import rows
    from benchmarks.bench import QUICK, Bench, Scale
    from benchmarks.report import Line, missed, save, show
    from conversations.models import ConversationThread
    from conversations.tokenizer import warm

    unknown = set(asked.only or ()) - set(rows.ROWS)
    if unknown:
        print(f"No such row: {', '.join(unknown)}. There are {', '.join(rows.ROWS)}.")
        return 2
    call_command("migrate", verbosity=0)
    if ConversationThread.objects.exists():
        print("This database is in use: run `make bench`, which has servers of its own.")
        return 2
    warm()
    started = time.monotonic()
    lines: list[Line] = []
    try:
        with Bench(QUICK if asked.quick else Scale()) as bench:
            lines.extend(rows.measure(bench, asked.only or list(rows.ROWS)))
    finally:  # a run that breaks off has measured something
        show(lines)
    if asked.json:
        save(lines, asked.json)
    failed = missed(lines)
    print(f"{time.monotonic() - started:.0f} s; goals missed: {', '.join(failed) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
