"""Delete LangGraph's checkpoints that nobody has used for long."""

from __future__ import annotations

import argparse
import json
import re
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError
from django.template.defaultfilters import filesizeformat

from conversations.checkpoint_retention import Pruned, Rows, Totals, pruned
from conversations.management.commands._console import Progress, finishing_first
from conversations.management.commands._folding import counted

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Command(BaseCommand):
    """`prune_checkpoints`, or `--older-than 7d`, `--keep-latest`, `--dry-run`."""

    help = (
        "Delete LangGraph's checkpoints of threads that no run has written to for so long "
        "(CHECKPOINT_RETENTION_DAYS); conversations and their memory stay as they are. A run that "
        "waits for somebody can't be resumed afterwards, unless --keep-latest. One thread after "
        "the other; safe at any time. Exit 0 all done, 1 some failed, 2 usage, 130 stopped by "
        "Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take how old, how much of it, and how to report."""
        parser.add_argument(
            "--older-than", type=_age, metavar="AGE", help="unused for so long: 90m, 24h, 30d, 0d"
        )
        parser.add_argument(
            "--keep-latest",
            action="store_true",
            help="leave the newest state of each, from which a run can be resumed",
        )
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument(
            "--json", action="store_true", help="one JSON object a thread on stdout, then a summary"
        )

    def handle(
        self,
        *,
        older_than: timedelta | None,
        keep_latest: bool,
        dry_run: bool,
        json: bool,
        **_: Any,
    ) -> None:
        """Prune one thread after the other; each is done whole or not at all."""
        self.as_json, self.dry_run, self.totals = json, dry_run, Totals()
        age = older_than if older_than is not None else _age_of_settings()
        try:
            self._run(age, keep_latest=keep_latest)
        except ImportError as error:
            raise CommandError(f"--keep-latest: {error}.") from error
        except (DatabaseError, InterfaceError) as error:
            says = str(error).partition("\n")[0]
            raise CommandError(f"The database refused: {says}. {self._how_far()}") from error
        self._summarise()

    def _run(self, age: timedelta, *, keep_latest: bool) -> None:
        threads = pruned(age, dry_run=self.dry_run, keep_latest=keep_latest)
        with finishing_first() as interrupt, Progress(self.stderr, "threads", None) as progress:
            for thread in threads:
                self._take_in(thread)
                progress.advance()
                if interrupt.asked:
                    raise interrupt.stopped(self._how_far())

    def _take_in(self, thread: Pruned) -> None:
        self.totals.add(thread)
        if self.as_json and (thread.failed or any(thread.rows)):
            self._line({"type": "thread", "thread_id": thread.thread_id, **self._fields(thread)})
        elif thread.failed:
            self.stderr.write(f"{thread.thread_id}: {thread.failed}")

    def _fields(self, thread: Pruned) -> dict[str, Any]:
        if thread.failed:
            return {"status": "failed", "message": thread.failed}
        status = "would_prune" if self.dry_run else "pruned"
        return {"status": status, **thread.rows._asdict()}

    def _line(self, fields: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(fields))

    def _how_far(self) -> str:
        return f"{_sized(self.totals.threads, self.totals.rows)}. Run it again for the rest."

    def _summarise(self) -> None:
        totals = self.totals
        if self.as_json:
            self._line({"type": "summary", "threads": totals.threads, **totals.rows._asdict(),
                        "failed": totals.failed, "dry_run": self.dry_run})  # fmt: skip
        else:
            verb = "Would prune" if self.dry_run else "Pruned"
            says = f"{verb} {_sized(totals.threads, totals.rows)}."
            self.stdout.write(says, self.style.SUCCESS)
        if totals.failed:
            raise CommandError(f"{totals.failed:,} failed.")


def _sized(threads: int, rows: Rows) -> str:
    size = filesizeformat(rows.bytes).replace("\xa0", " ")
    return (
        f"{counted(threads, 'thread id')}: {counted(rows.checkpoints, 'checkpoint')}, "
        f"{counted(rows.writes, 'write')}, {counted(rows.blobs, 'blob')}, {size}"
    )


def _age_of_settings() -> timedelta:
    if not settings.CHECKPOINT_RETENTION_DAYS:
        raise CommandError(
            "CHECKPOINT_RETENTION_DAYS is 0, so nothing is ever too old: say --older-than.",
            returncode=2,
        )
    return timedelta(days=settings.CHECKPOINT_RETENTION_DAYS)


def _age(text: str) -> timedelta:
    if age := re.fullmatch(r"([0-9]{1,5})([mhd])", text):
        return timedelta(**{_UNITS[age[2]]: int(age[1])})
    raise argparse.ArgumentTypeError(f"{text!r} is no age such as 90m, 24h or 30d")
