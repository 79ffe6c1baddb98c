"""Which threads and turns: visibility, lists, and the two queries of a cold context read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.db import models, transaction
from django.db.models import Exists, Func, OuterRef, Q, Subquery, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast, Coalesce, Now

from config import metrics
from config import redis as redis_gate
from config.redis import RedisUnavailable
from conversations import finalize
from conversations.context import ConversationContext
from conversations.conversation_memory import Copy, Miss, RawCopy, get_conversation_memory
from conversations.exceptions import PositionNotReached, ThreadNotFound
from conversations.fold_schedule import REQUEUE_SECONDS, queue_fold
from conversations.folding import FoldTurn, turn_text
from conversations.pieces import TurnPieces, turn_pieces
from conversations.tokenizer import count_tokens
from conversations.turns import Status, TurnBody, turn_title
from rbac.principal import Person, Principal

if TYPE_CHECKING:
    from conversations.models import ConversationThread, ThreadMessage  # noqa: F401  as strings

_OTHER_OWNER = "other_owner"
# What a turn says; a fold is given all of it but the payload.
_FOLDED_COLUMNS = ("query", "answer", "artifacts")
_TEXT_COLUMNS = (*_FOLDED_COLUMNS, "response_payload")
# What a turn's pieces are made of.
_PIECES_FROM = (
    "position", "created_at", "query", "answer", "artifacts", "status", "waiting_for",
    "error_code", "tokens", "render_version",
)  # fmt: skip


# A change between lease and fill makes a rebuilt copy vain; more than this in a row is no chance.
_REBUILD_TRIES = 5


class Recalled(NamedTuple):
    """A thread's context and where it came from: `cache` or `database`."""

    context: ConversationContext
    source: str


class ThreadQuerySet(models.QuerySet["ConversationThread"]):
    """Chainable, never-writing questions about threads."""

    def alive(self) -> ThreadQuerySet:
        """Leave out tombstones."""
        return self.filter(deleted_at__isnull=True)

    def owned_by(self, owner: Person) -> ThreadQuerySet:
        """Keep the threads of one person."""
        return self.alive().filter(owner_id=owner.pk)

    def visible_to(self, principal: Principal, user_id: str | None = None) -> ThreadQuerySet:
        """Keep what `principal` may see: the only road from a request to a thread.

        An agent names the `user_id` of its tenant that it acts for; anybody else sees their own.
        Raises what `Principal.acting_for` raises.
        """
        return self.owned_by(principal.acting_for(user_id))

    def or_404(self, thread_id: uuid.UUID) -> ConversationThread:
        """Return one of these threads; raise `ThreadNotFound` where it is not among them."""
        thread = self.filter(pk=thread_id).first()
        if thread is None:
            raise ThreadNotFound
        return thread

    def archived(self, which: str) -> ThreadQuerySet:
        """Keep archived threads (`true`), the others (`false`) or both (`all`)."""
        return self if which == "all" else self.filter(archived_at__isnull=which == "false")

    def pinned(self, *, pinned: bool) -> ThreadQuerySet:
        """Keep pinned threads, or the others."""
        return self.filter(pinned_at__isnull=not pinned)

    def titled_like(self, words: str) -> ThreadQuerySet:
        """Keep threads whose title holds `words`, in any case."""
        return self.filter(title__icontains=words)

    def waiting(self) -> ThreadQuerySet:
        """Keep threads with a pending turn: they wait for somebody."""
        return self.filter(Exists(_pending_turns()))

    def newest_first(self, before: tuple[datetime, uuid.UUID] | None = None) -> ThreadQuerySet:
        """Order by activity, newest first; `before` is the last row of the page before."""
        ordered = self.order_by("-last_turn_at", "-id")
        if before is None:
            return ordered
        at, thread_id = before
        # Written so, PostgreSQL starts the index scan at the key; as an OR of both it does not.
        return ordered.filter(last_turn_at__lte=at).filter(
            Q(last_turn_at__lt=at) | Q(id__lt=thread_id)
        )

    def for_list(self) -> ThreadQuerySet:
        """Load what a list shows: no turn's body, no summary, and whether a turn is pending."""
        return self.defer("summary", "facts", "kept_lines", "amended_positions").annotate(
            has_pending=Exists(_pending_turns()),
            waiting_for=Subquery(_pending_turns().order_by("-position").values("waiting_for")[:1]),
        )


def _pending_turns() -> Any:
    from conversations.models import ThreadMessage

    # As a parameter, a prepared statement's general plan could not use the partial index and
    # would scan every turn there is.
    literal = RawSQL(f"'{Status.PENDING.value}'", ())  # noqa: S611
    return ThreadMessage.objects.filter(thread=OuterRef("pk"), status=literal)


def _octets(column: str) -> Any:
    """Return the bytes of a column's text, 0 for NULL."""
    text = Cast(column, models.TextField())
    return Coalesce(Func(text, function="octet_length", output_field=models.IntegerField()), 0)


class TurnQuerySet(models.QuerySet["ThreadMessage"]):
    """Chainable questions about turns."""

    def after(self, position: int) -> TurnQuerySet:
        """Keep the turns past `position`, in order."""
        return self.filter(position__gt=position).order_by("position")

    def fitting(self, limit_bytes: int, columns: Sequence[str] = _TEXT_COLUMNS) -> int:
        """Return how many of these turns, from the first on, have `limit_bytes` of text.

        At least one. Reads sizes only: what is stored out of line stays there.
        """
        sizes = self.annotate(size=sum((_octets(column) for column in columns), start=Value(0)))
        room = limit_bytes
        count = 0
        for count, size in enumerate(sizes.values_list("size", flat=True), start=1):
            room -= size
            if room < 0:
                return max(1, count - 1)
        return count

    def with_artifacts(self, kind: str | None = None) -> TurnQuerySet:
        """Keep turns that built something, or something of one kind."""
        light = self.only("thread", "position", "session_uuid", "created_at", "artifacts")
        turns = light.alias(json=Cast("artifacts", models.TextField()))
        # A quote inside a JSON string is escaped, so this finds keys and nothing else.
        return turns.filter(json__contains=f'"kind":"{kind}"' if kind else '"kind":"')

    def to_fold(self, positions: Sequence[int], turn_tokens: int) -> list[FoldTurn]:
        """Return the turns at `positions`, each in at most `turn_tokens` tokens.

        The first of them, where they have more text than one page of a transcript.
        """
        turns = self.filter(position__in=positions).order_by("position")
        at_once = turns.fitting(settings.MAX_PAGE_BYTES, _FOLDED_COLUMNS)
        rows = turns.values("thread_id", *_PIECES_FROM)[:at_once]
        return [_fold_turn(row, turn_tokens) for row in rows]

    def first_title(self) -> str:
        """Return the title that the first of these turns gives."""
        row = self.order_by("position").values_list("query", "artifacts").first()
        return turn_title(*row) if row else ""


class ThreadManager(models.Manager["ConversationThread"]):
    """The verbs that need more than one thread's row."""

    def finalize_turn(
        self,
        *,
        owner: Person,
        thread_id: uuid.UUID,
        turn_id: uuid.UUID,
        body: TurnBody,
        written_by: uuid.UUID | None = None,
        created_at: datetime | None = None,
        expected_position: int | None = None,
    ) -> finalize.FinalizedTurn:
        """Write a finished, or pending, turn; make its thread if it is the first.

        In the caller's transaction, under the thread's row lock: at most four statements. Once
        that has committed the working set is told. The same turn again returns what is stored.

        Raises `ThreadNotFound` (somebody else's or deleted), `TurnConflict`, `TurnElsewhere`,
        `StalePosition`, `AgentTypeRequired`, and `config.errors.Invalid` for a future time.
        """
        write = finalize.TurnWrite(
            owner=owner,
            thread_id=thread_id,
            turn_id=turn_id,
            body=body,
            written_by=written_by or owner.pk,
            created_at=finalize.turn_time(created_at),
            expected_position=expected_position,
        )
        return finalize.write_turn(write)

    def conversation_context(
        self,
        thread_id: uuid.UUID,
        owner: Person,
        raw: RawCopy | Exception | None = None,
        min_position: int = 0,
    ) -> Recalled:
        """Return what memory holds of a thread of `owner`'s.

        From the working set where that can be trusted (`raw`: its fields, where the caller has
        read them already), else from PostgreSQL in two queries, filling the working set again.
        Raises `ThreadNotFound`, and `PositionNotReached` for a thread shorter than
        `min_position`.
        """
        found = self._trusted(thread_id, _read(thread_id, raw), owner, min_position)
        _count_read(found)
        if isinstance(found, Copy):
            return Recalled(found.context, "cache")
        context = self._recall(thread_id, owner, found)
        if context.turn_count < min_position:
            raise PositionNotReached(
                f"The thread has {context.turn_count} turns, not {min_position} yet.",
                turn_count=context.turn_count,
            )
        return Recalled(context, "database")

    def _trusted(
        self, thread_id: uuid.UUID, found: Copy | Miss, owner: Person, min_position: int
    ) -> Copy | Miss:
        """Compare a copy with the table where it was not lately, or may have missed a change."""
        if isinstance(found, Miss):
            return found
        seen = b"%d" % found.context.version
        if found.context.owner != str(owner.pk):
            return Miss(_OTHER_OWNER, seen, may_fill=False)
        if found.context.turn_count < min_position:
            return Miss("behind", seen)
        if not _is_doubtful(found) or self._is_current(thread_id, found):
            return found
        return Miss("stale", seen)

    def _is_current(self, thread_id: uuid.UUID, copy: Copy) -> bool:
        """Look up whether the table shows the copy's version, and note it where it does."""
        looked_at = time.time()
        version = copy.context.version
        if self._version_and_epoch(thread_id) != (version, copy.epoch):
            return False
        _epoch.last_seen = copy.epoch
        with suppress(RedisUnavailable):  # then it is looked up again next time
            get_conversation_memory().mark_checked(thread_id, version, copy.epoch, looked_at)
        return True

    def _version_and_epoch(self, thread_id: uuid.UUID) -> tuple[int, str] | None:
        rows = self.filter(pk=thread_id, deleted_at__isnull=True, memory_enabled=True)
        found = rows.values_list("version", _epoch_column()).first()
        return found and (found[0], str(found[1]))

    def _recall(self, thread_id: uuid.UUID, owner: Person, miss: Miss) -> ConversationContext:
        """Read PostgreSQL, and fill the working set where this reader got the lease for it."""
        read_at = time.time()
        lease = self._lease(thread_id, miss)
        context, epoch = self._from_database(thread_id, owner)
        if lease and context.turns:
            self._fill(thread_id, lease, context, epoch, read_at)
        if miss.reason == _OTHER_OWNER:  # it is theirs, so the copy is wrong
            with suppress(RedisUnavailable):
                get_conversation_memory().drop(thread_id)
        return context

    def _lease(self, thread_id: uuid.UUID, miss: Miss) -> str | None:
        # What a transaction reads may never be committed, or be older than the lease.
        if transaction.get_connection().in_atomic_block:
            return None
        try:
            return get_conversation_memory().lease(thread_id, miss)
        except RedisUnavailable:
            return None

    def _fill(
        self,
        thread_id: uuid.UUID,
        lease: str,
        context: ConversationContext,
        epoch: str,
        read_at: float,
    ) -> bool:
        try:
            filled = get_conversation_memory().fill(thread_id, lease, context, epoch, read_at)
        except RedisUnavailable:
            filled = False
        metrics.REHYDRATIONS.labels("filled" if filled else "not_filled").inc()
        return filled

    def _from_database(
        self, thread_id: uuid.UUID, owner: Person | None
    ) -> tuple[ConversationContext, str]:
        """Build the context from the thread's row and its newest unfolded turns."""
        memory = get_conversation_memory()
        rows = self.filter(pk=thread_id, deleted_at__isnull=True)
        row = (rows.filter(owner_id=owner.pk) if owner else rows).values_list(
            "owner_id", "version", "turn_count", "folded_through", "memory_enabled",
            "summary", "facts", "kept_lines", _epoch_column(),
        ).first()  # fmt: skip
        if row is None:
            raise ThreadNotFound
        owner_pk, version, count, folded, enabled, summary, facts, kept_lines, epoch = row
        _epoch.last_seen = str(epoch)
        fence = memory.fence(thread_id)
        if not enabled:
            return ConversationContext(
                str(thread_id), str(owner_pk), fence, version, count, folded
            ), str(epoch)
        turns = self._newest_turns(thread_id, max(folded, count - memory.window_turns), count)
        return ConversationContext(
            str(thread_id), str(owner_pk), fence, version, count, folded,
            summary, facts, kept_lines, turns,
        ), str(epoch)  # fmt: skip

    def _newest_turns(self, thread_id: uuid.UUID, after: int, through: int) -> Sequence[TurnPieces]:
        from conversations.models import ThreadMessage

        memory = get_conversation_memory()
        fence = memory.fence(thread_id)
        turns_through = ThreadMessage.objects.filter(thread_id=thread_id, position__lte=through)
        rows = turns_through.after(after).values(*_PIECES_FROM)
        turns = [_pieces_of(row, fence, memory.render_version) for row in rows]
        if len(turns) != through - after:
            raise ThreadNotFound  # deleted between the two queries
        return turns

    def drop_copies_touched_since(self, since: datetime) -> int:
        """Drop the working sets of threads touched since; return how many.

        Raises `config.redis.RedisUnavailable`.
        """
        redis_gate.attempt(lambda client: client.ping())  # before the table is scanned for nothing
        touched = list(self.filter(touched_at__gte=since).values_list("pk", flat=True))
        get_conversation_memory().drop(*touched)
        return len(touched)

    def database_epoch(self) -> str:
        """Return the epoch of this database's history, which every copy names."""
        from conversations.models import DatabaseEpoch

        return str(DatabaseEpoch.objects.get().epoch)

    def queue_due_folds(self, limit: int) -> int:
        """Queue jobs for folds that are due, in the caller's transaction; return how many.

        The longest due first, and none that another sweep is queueing.
        """
        due = self.filter(fold_due_at__lte=Now(), deleted_at__isnull=True).order_by("fold_due_at")
        locked = due.select_for_update(skip_locked=True, no_key=True)
        threads = list(locked.values_list("pk", flat=True)[:limit])
        queued_for = timedelta(seconds=REQUEUE_SECONDS)
        self.filter(pk__in=threads).update(fold_due_at=Now() + queued_for)
        for thread_id in threads:
            queue_fold(thread_id)
        return len(threads)

    def rehydrate(self, thread_id: uuid.UUID) -> int:
        """Rebuild a thread's working set from PostgreSQL; return how many turns it holds.

        0 where its memory is switched off. Refuses to run inside a transaction, since what that
        reads may never be committed. Raises `ThreadNotFound`, and
        `config.redis.RedisUnavailable` where no copy could be put in place.
        """
        if transaction.get_connection().in_atomic_block:
            raise transaction.TransactionManagementError("rehydrate() outside of a transaction")
        memory = get_conversation_memory()
        for _ in range(_REBUILD_TRIES):
            memory.drop(thread_id)
            read_at = time.time()
            lease = memory.lease(thread_id, Miss("asked"))
            context, epoch = self._from_database(thread_id, None)
            if not context.turns:
                return 0
            if lease and self._fill(thread_id, lease, context, epoch, read_at):
                return len(context.turns)
        raise RedisUnavailable("the thread's working set changes too fast to be rebuilt")


Threads = ThreadManager.from_queryset(ThreadQuerySet)


class _Epoch:
    """The database epoch that this process saw last; copies of another are looked up."""

    last_seen = ""


_epoch = _Epoch()


def _read(thread_id: uuid.UUID, raw: RawCopy | Exception | None) -> Copy | Miss:
    memory = get_conversation_memory()
    if raw is not None:
        return memory.parse(thread_id, raw)
    try:
        return memory.read(thread_id)
    except RedisUnavailable:
        return Miss("unavailable", may_fill=False)


def _is_doubtful(copy: Copy) -> bool:
    """Whether a copy may lack a change: it was not compared lately, or this process lost touch.

    A time in the future is from a clock that is not to be relied on.
    """
    now = time.time()
    return (
        copy.checked_at <= now - settings.MEMORY_CHECK_SECONDS
        or copy.checked_at <= redis_gate.breaker.last_failure + redis_gate.CLOCK_SKEW_SECONDS
        or copy.checked_at > now + redis_gate.CLOCK_SKEW_SECONDS
        or copy.epoch != _epoch.last_seen
    )


_HITS = metrics.WORKING_SET_READS.labels("hit")


def _count_read(found: Copy | Miss) -> None:
    if isinstance(found, Copy):
        _HITS.inc()
    else:
        metrics.WORKING_SET_READS.labels(found.reason).inc()


def _epoch_column() -> Subquery:
    from conversations.models import DatabaseEpoch

    return Subquery(DatabaseEpoch.objects.values("epoch")[:1])


def _fold_turn(row: Mapping[str, Any], turn_tokens: int) -> FoldTurn:
    memory = get_conversation_memory()
    fields = dict(row)
    pieces = _pieces_of(fields, memory.fence(fields.pop("thread_id")), memory.render_version)
    text, tokens = turn_text(pieces, turn_tokens)
    return FoldTurn(
        position=pieces.position,
        query=fields["query"],
        answer=fields["answer"],
        artifacts=fields["artifacts"],
        status=fields["status"],
        text=text,
        tokens=tokens,
    )


def _pieces_of(row: Mapping[str, Any], fence: str, render_version: int) -> TurnPieces:
    fields = dict(row)
    tokens = fields.pop("tokens")
    if fields.pop("render_version") != render_version:
        tokens = None
    return turn_pieces(
        **fields,
        fence=fence,
        part_max_chars=settings.CONTEXT_PART_MAX_CHARS,
        count=count_tokens,
        tokens=tokens,
    )
