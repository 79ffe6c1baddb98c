"""`manage.py worker_alive`: an exit status for probes."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from django.core.management import BaseCommand, CommandError
from django.db import Error

from config.models import SILENT_AFTER_SECONDS, WorkerHeartbeat

_MAX_AGE_SECONDS = 365 * 24 * 3600


class Command(BaseCommand):
    """Says whether a worker's jobs run, by what it has told PostgreSQL."""

    help = (
        "Exit 0 when a worker of this host has been seen to work lately, 1 when none has or the "
        "database does not answer. Redis is not asked."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take `--any-host` and `--max-age`."""
        parser.add_argument("--any-host", action="store_true", help="count workers of other hosts")
        parser.add_argument(
            "--max-age",
            type=_seconds,
            default=SILENT_AFTER_SECONDS,
            metavar="SECONDS",
            help=f"how long ago the last sign of life may be (default: {SILENT_AFTER_SECONDS})",
        )

    def handle(self, *_: Any, any_host: bool, max_age: float, **__: Any) -> None:
        """Look; exit 1 with one sentence when there is none."""
        workers = WorkerHeartbeat.objects.alive(max_age)
        if not any_host:
            workers = workers.of_host(socket.gethostname())
        try:
            count = workers.count()
        except Error as error:
            says = f"The database refused, so nobody knows: {str(error).strip()}"
            raise CommandError(says) from error
        if not count:
            where = "" if any_host else f" of {socket.gethostname()}"
            raise CommandError(
                f"No worker{where} has been seen to work within {max_age:g} s: start or restart "
                "`manage.py worker`, and read its log if one runs."
            )
        self.stdout.write("1 worker works." if count == 1 else f"{count:,} workers work.")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_AGE_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, a year at most")
    return seconds
