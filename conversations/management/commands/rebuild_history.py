"""Write long-term history in DynamoDB again from PostgreSQL."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from config.errors import Problem
from conversations import history
from conversations.digest import SessionSummary
from conversations.history_problems import HistoryRefused, HistoryUnavailable
from conversations.history_table import ensure_table_exists
from conversations.management.commands._console import Progress, finishing_first
from conversations.management.commands._folding import counted
from conversations.management.commands._selection import owner_name, person
from conversations.session_archive import remembered, summary_of
from conversations.session_records import SessionQuerySet, SessionRecord
from rbac.principal import Person

_BATCH = 200


class Command(BaseCommand):
    """`rebuild_history`, `--owner acme/ana`, `--after ID` to go on where another run stopped."""

    help = (
        "Write the table of ended sessions in DynamoDB again from PostgreSQL: those that were "
        "archived before; what waits to be archived stays with the sweep. An item that is there "
        "and as new is written again, a newer one is left. Each expires by its own last message; "
        "what would have expired already is left out. "
        "Exit 0 all done, 1 some failed, 2 usage, 130 stopped by Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take whose sessions, where to begin, and how to report."""
        parser.add_argument(
            "--owner", type=owner_name, metavar="TENANT/USER",
            help="of this person (default tenant: USER)",
        )  # fmt: skip
        parser.add_argument(
            "--after", type=uuid.UUID, metavar="ID", help="go on after this session, as a run said"
        )
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument(
            "--json", action="store_true",
            help="one JSON object a session on stdout, then a summary",
        )  # fmt: skip

    def handle(
        self,
        *,
        owner: tuple[str, str] | None,
        after: uuid.UUID | None,
        dry_run: bool,
        json: bool,
        **_: Any,
    ) -> None:
        """Write one session after the other, in the order of their ids."""
        self.as_json, self.dry_run, self.last = json, dry_run, after
        self.counts = {"written": 0, "newer": 0, "expired": 0, "empty": 0, "failed": 0}
        sessions = remembered(SessionRecord.objects.filter(archived_seq__gt=0))
        if owner:
            sessions = sessions.filter(owner=person(owner))
        if after:
            sessions = sessions.filter(pk__gt=after)
        self.total = sessions.count()
        if not dry_run:
            self._table()
        with finishing_first() as stop, Progress(self.stderr, "sessions", self.total) as progress:
            for record in _each(sessions):
                if stop.asked:
                    raise stop.stopped(self._how_far())
                self._rebuild(record)
                self.last = record.pk
                progress.advance()
        self._summarise()

    def _table(self) -> None:
        try:
            ensure_table_exists()
        except (HistoryUnavailable, HistoryRefused) as error:
            raise self._stopped(error) from error

    def _rebuild(self, record: SessionRecord) -> None:
        try:
            summary = summary_of(record, Person.of(record.owner))
            status = self._write(summary, record) if summary else "empty"
        except (HistoryUnavailable, HistoryRefused) as error:
            raise self._stopped(error) from error
        except Problem as error:
            self.counts["failed"] += 1
            self._result(record, status="failed", code=error.code, message=error.detail)
            if not self.as_json:
                self.stderr.write(f"{record.pk}: {error.detail}")
        else:
            self.counts[status] += 1
            said = "would_write" if self.dry_run and status == "written" else status
            self._result(record, status=said)

    def _write(self, summary: SessionSummary, record: SessionRecord) -> str:
        kept = timedelta(days=settings.DYNAMODB_TTL_DAYS)
        if summary.last_message + kept <= timezone.now():
            return "expired"
        if self.dry_run:
            return "written"
        is_written = history.save_session_summary(summary)
        # Of a thread that was deleted meanwhile the sweep takes it away again.
        moved = SessionRecord.objects.filter(pk=record.pk).exclude(thread_id=record.thread_id)
        moved.update(archived_seq=0)
        return "written" if is_written else "newer"

    def _stopped(self, error: HistoryUnavailable | HistoryRefused) -> CommandError:
        reason = f": {error.reason}" if isinstance(error, HistoryRefused) else ""
        return CommandError(f"DynamoDB fails ({error.code}{reason}). {self._how_far()}")

    def _how_far(self) -> str:
        on = f" --after {self.last}" if self.last else ""
        done = f"{self.counts['written']:,} of {counted(self.total, 'session')} written."
        return f"{done} Go on with: manage.py rebuild_history{on}"

    def _result(self, record: SessionRecord, **fields: Any) -> None:
        if self.as_json:
            about = {"id": str(record.pk), "session_id": record.session_id}
            self._line({"type": "session", **about, **fields})

    def _line(self, fields: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(fields))

    def _summarise(self) -> None:
        counts = self.counts
        if self.as_json:
            self._line({"type": "summary", **counts, "dry_run": self.dry_run})
        else:
            verb = "Would write" if self.dry_run else "Wrote"
            left = {"newer": "newer there", "expired": "expired", "empty": "with nothing to tell"}
            others = "".join(
                f", {counts[key]:,} {says}" for key, says in left.items() if counts[key]
            )
            self.stdout.write(
                f"{verb} {counted(counts['written'], 'session')}{others}.", self.style.SUCCESS
            )
        if counts["failed"]:
            raise CommandError(f"{counts['failed']:,} failed.")


def _each(sessions: SessionQuerySet) -> Iterator[SessionRecord]:
    """Yield sessions in the order of their ids, a few hundred in memory at a time."""
    ordered = sessions.select_related("owner").order_by("pk")
    page = list(ordered[:_BATCH])
    while page:
        yield from page
        page = list(ordered.filter(pk__gt=page[-1].pk)[:_BATCH])
