"""Rebuild working sets in Redis from PostgreSQL."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.redis import RedisUnavailable
from conversations.exceptions import ThreadNotFound
from conversations.management.commands._console import Progress, finishing_first
from conversations.management.commands._folding import counted
from conversations.management.commands._selection import add_selection, keys, missing, selected
from conversations.models import ConversationThread


class Command(BaseCommand):
    """`rehydrate_thread ID…`, or `--owner acme/ana`, `--agent-type`, `--since 24h`, `--all`."""

    help = (
        "Rebuild working sets in Redis from PostgreSQL. Nothing needs it to be right: a view that "
        "finds no copy comes from PostgreSQL; this saves the first reader that wait. "
        "Exit 0 all done, 1 some failed, 2 usage, 130 stopped by Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take which threads, and how to report."""
        add_selection(parser)
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument(
            "--json", action="store_true", help="one JSON object a thread on stdout, then a summary"
        )

    def handle(self, *, dry_run: bool, json: bool, **options: Any) -> None:
        """Rebuild one thread after the other; each is whole or absent at any moment."""
        self.as_json, self.dry_run = json, dry_run
        self.rebuilt = self.turns = self.failed = 0
        threads = selected(**options)
        for thread_id in missing(threads, options["ids"]):
            self._fail(thread_id, ThreadNotFound())
        total = threads.count()
        with finishing_first() as interrupt, Progress(self.stderr, "threads", total) as progress:
            for thread_id in keys(threads):
                if interrupt.asked:
                    raise interrupt.stopped(self._how_far(total))
                self._rebuild(thread_id, total)
                progress.advance()
        self._summarise()

    def _rebuild(self, thread_id: uuid.UUID, total: int) -> None:
        try:
            turns = 0 if self.dry_run else ConversationThread.objects.rehydrate(thread_id)
        except ThreadNotFound as error:  # deleted meanwhile
            self._fail(thread_id, error)
        except RedisUnavailable as error:
            raise CommandError(
                f"Redis does not answer ({error}). Context views come from PostgreSQL meanwhile, "
                f"nothing is lost; {self._how_far(total)}"
            ) from error
        else:
            self.rebuilt += 1
            self.turns += turns
            status = "would_rebuild" if self.dry_run else "rebuilt"
            self._result(thread_id, status=status, turns=turns)

    def _fail(self, thread_id: uuid.UUID, error: ThreadNotFound) -> None:
        self.failed += 1
        self._result(thread_id, status="failed", code=error.code, message=error.detail)
        if not self.as_json:
            self.stderr.write(f"{thread_id}: {error.detail}")

    def _result(self, thread_id: uuid.UUID, **fields: Any) -> None:
        if self.as_json:
            self._line({"type": "thread", "thread_id": str(thread_id), **fields})

    def _line(self, fields: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(fields))

    def _how_far(self, total: int) -> str:
        of = f"{self.rebuilt:,} of {counted(total, 'working set')}"
        return f"{of} rebuilt. Run it again for the rest."

    def _summarise(self) -> None:
        verb = "Would rebuild" if self.dry_run else "Rebuilt"
        turns = "" if self.dry_run else f", {counted(self.turns, 'turn')}"
        if self.as_json:
            self._line({"type": "summary", "threads": self.rebuilt, "turns": self.turns,
                        "failed": self.failed, "dry_run": self.dry_run})  # fmt: skip
        else:
            sets = counted(self.rebuilt, "working set")
            self.stdout.write(f"{verb} {sets}{turns}.", self.style.SUCCESS)
        if self.failed:
            raise CommandError(f"{self.failed:,} failed.")
