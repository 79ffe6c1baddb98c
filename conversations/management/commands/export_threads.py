"""Export threads as JSON Lines (docs/import-format.md)."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction

from conversations.management.commands._console import Progress, finishing_first
from conversations.management.commands._selection import add_selection, keys, missing, selected
from conversations.models import ConversationThread, ThreadMessage
from conversations.querysets import ThreadQuerySet
from conversations.thread_lines import dump_line
from conversations.turns import Status, TurnBody

_TURNS_AT_A_TIME = 25


class Command(BaseCommand):
    """`export_threads --all --output threads.jsonl.gz`; without `--output` to stdout."""

    help = (
        "Export threads as JSON Lines, which import_threads reads. Each thread is consistent in "
        "itself. Exit 0 all written, 1 failed, 2 usage, 130 stopped by Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take which threads, and where they go."""
        add_selection(parser)
        parser.add_argument(
            "--output",
            type=Path,
            metavar="FILE",
            help="write this file, whole or not at all, readable by you alone; .gz is packed",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count")
        parser.add_argument("--json", action="store_true", help="the summary as JSON on stdout")

    def handle(
        self,
        *,
        output: Path | None,
        dry_run: bool,
        json: bool,
        **options: Any,
    ) -> None:
        """Write the threads in the order of their ids; what is deleted meanwhile is left out."""
        if json and not (output or dry_run):
            raise CommandError("--json goes with --output or --dry-run.", returncode=2)
        threads = selected(**options)
        if absent := missing(threads, options["ids"]):
            raise CommandError(f"There is no such thread: {', '.join(map(str, absent))}.")
        try:
            written, turns = self._export(threads, output, dry_run=dry_run)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise CommandError("Nobody reads on.") from None
        except OSError as error:
            raise CommandError(f"{output or 'stdout'}: {error.strerror}.") from error
        self._summarise(written, turns, output, dry_run=dry_run, as_json=json)

    def _export(
        self, threads: ThreadQuerySet, output: Path | None, *, dry_run: bool
    ) -> tuple[int, int]:
        total = threads.count()
        if dry_run:
            return total, ThreadMessage.objects.filter(thread__in=threads).count()
        written = turns = 0
        with (
            _file(output) if output else self._stdout() as write,
            finishing_first() as interrupt,
            Progress(self.stderr, "threads", total) as progress,
        ):
            for thread_id in keys(threads):
                if interrupt.asked:
                    gone = "nothing was written." if output else f"{written:,} threads are written."
                    raise interrupt.stopped(gone)
                count = _write_thread(thread_id, write)
                written, turns = written + bool(count), turns + count
                progress.advance()
        return written, turns

    @contextmanager
    def _stdout(self) -> Iterator[Callable[[bytes], object]]:
        """Yield what writes to stdout: bytes where it takes them, whatever the locale is."""
        buffer: BinaryIO | None = getattr(self.stdout, "buffer", None)
        if buffer is None:
            yield lambda line: self.stdout.write(line.decode(), ending="")
            return
        yield buffer.write
        buffer.flush()

    def _summarise(
        self, threads: int, turns: int, output: Path | None, *, dry_run: bool, as_json: bool
    ) -> None:
        if as_json:
            summary = {"type": "summary", "threads": threads, "turns": turns, "dry_run": dry_run}
            self.stdout.write(json.dumps(summary))
            return
        verb = "Would write" if dry_run else "Wrote"
        text = f"{verb} {threads:,} threads, {turns:,} turns{f' to {output}' if output else ''}."
        (self.stdout if output or dry_run else self.stderr).write(text, str)


def _write_thread(thread_id: uuid.UUID, write: Callable[[bytes], object]) -> int:
    """Write one thread as it stands at one moment; return how many turns that are."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        thread = ConversationThread.objects.alive().select_related("owner").filter(pk=thread_id)
        found = thread.first()
        if found is None or found.owner is None:
            return 0
        write(_thread_line(found))
        count = 0
        for turn in _turns(thread_id):
            write(_turn_line(turn, found.owner.user_id))
            count += 1
    return count


def _turns(thread_id: uuid.UUID) -> Iterator[ThreadMessage]:
    position = 0
    while page := list(
        ThreadMessage.objects.filter(thread_id=thread_id).after(position)[:_TURNS_AT_A_TIME]
    ):
        yield from page
        position = page[-1].position


def _thread_line(thread: ConversationThread) -> bytes:
    assert thread.owner is not None  # noqa: S101  tombstones are not exported
    return dump_line(
        {
            "type": "thread",
            "tenant": thread.tenant,
            "user_id": thread.owner.user_id,
            "thread_id": thread.pk,
            "agent_type": thread.agent_type,
            "title": thread.title if thread.title_is_custom else None,
            "metadata": thread.metadata,
            "memory": thread.memory_enabled,
            "archived_at": thread.archived_at,
            "pinned_at": thread.pinned_at,
        }
    )


def _turn_line(turn: ThreadMessage, user_id: str) -> bytes:
    derived = _was_derived(turn, user_id)
    # Nothing but an object is ever looked into for artifacts.
    leave_out = derived and not turn.artifacts and not isinstance(turn.response_payload, dict)
    return dump_line(
        {
            "type": "turn",
            "turn_id": turn.session_uuid,
            "position": turn.position,
            "created_at": turn.created_at,
            "agent_type": turn.agent_type,
            "status": turn.status,
            "query": turn.query,
            "answer": turn.answer,
            "artifacts": None if leave_out else turn.artifacts,
            "derived": derived and not leave_out,
            "response_payload": turn.response_payload,
            "waiting_for": turn.waiting_for,
            "error_code": turn.error_code,
            "revision": turn.revision,
            "session_id": turn.session_id,
        }
    )


def _was_derived(turn: ThreadMessage, user_id: str) -> bool:
    """Whether the turn came without artifacts: its identity tells."""
    bare = TurnBody(
        query=turn.query,
        answer=turn.answer,
        artifacts=None,
        response_payload=turn.response_payload,
        status=Status(turn.status),
    )
    return bare.sha256(user_id, turn.agent_type) == bytes(turn.body_sha256)


@contextmanager
def _file(output: Path) -> Iterator[Callable[[bytes], object]]:
    """Yield what writes a file that takes its name only once it is whole and on the disk."""
    with tempfile.NamedTemporaryFile(
        dir=output.parent, prefix=f".{output.name}.", delete=False
    ) as file:
        try:
            if output.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                    yield packed.write
            else:
                yield file.write
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(output)
        except BaseException:
            with suppress(OSError):
                Path(file.name).unlink()
            raise
