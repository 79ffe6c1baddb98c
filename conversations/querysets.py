"""Which threads and turns: visibility, lists, and the two queries of a cold context read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q, Subquery
from django.db.models.functions import Cast

from config import metrics
from config import redis as redis_gate
from config.redis import RedisUnavailable
from conversations import finalize
from conversations.context import ConversationContext
from conversations.conversation_memory import Copy, Miss, RawCopy, get_conversation_memory
from conversations.exceptions import PositionNotReached, ThreadNotFound
from conversations.pieces import TurnPieces, turn_pieces
from conversations.tokenizer import count_tokens
from conversations.turns import Status, TurnBody, turn_title
from rbac.principal import Person, Principal

if TYPE_CHECKING:
    from conversations.models import ConversationThread, ThreadMessage

# Enough for clocks of hosts that differ a little.
_SKEW_SECONDS = 1.0


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

    def visible_or_404(
        self, principal: Principal, user_id: str | None, thread_id: uuid.UUID
    ) -> ConversationThread:
        """Return one thread; raise `ThreadNotFound` for an absent and a foreign one alike."""
        thread = self.visible_to(principal, user_id).filter(pk=thread_id).first()
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

    return ThreadMessage.objects.filter(thread=OuterRef("pk"), status=Status.PENDING.value)


class TurnQuerySet(models.QuerySet["ThreadMessage"]):
    """Chainable questions about turns."""

    def without_payload(self) -> TurnQuerySet:
        """Leave the raw payload in the database."""
        return self.defer("response_payload")

    def after(self, position: int) -> TurnQuerySet:
        """Keep the turns past `position`, in order."""
        return self.filter(position__gt=position).order_by("position")

    def with_artifacts(self, kind: str | None = None) -> TurnQuerySet:
        """Keep turns that built something, or something of one kind."""
        turns = self.without_payload().alias(json=Cast("artifacts", models.TextField()))
        # A quote inside a JSON string is escaped, so this finds keys and nothing else.
        return turns.filter(json__contains=f'"kind":"{kind}"' if kind else '"kind":"')

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
        memory = get_conversation_memory()
        try:
            found = memory.parse(thread_id, raw) if raw is not None else memory.read(thread_id)
        except RedisUnavailable:
            found = Miss("unavailable", may_fill=False)
        if isinstance(found, Copy):
            if found.context.owner != str(owner.pk):
                raise ThreadNotFound
            found = self._trusted(thread_id, found, min_position)
        if isinstance(found, Copy):
            metrics.WORKING_SET_READS.labels("hit").inc()
            return Recalled(found.context, "cache")
        metrics.WORKING_SET_READS.labels(found.reason).inc()
        context = self._recall(thread_id, owner, found)
        if context.turn_count < min_position:
            raise PositionNotReached(
                f"The thread has {context.turn_count} turns, not {min_position} yet.",
                turn_count=context.turn_count,
            )
        return Recalled(context, "database")

    def _trusted(self, thread_id: uuid.UUID, copy: Copy, min_position: int) -> Copy | Miss:
        """Compare a copy with the table where it was not lately, or may have missed a change."""
        seen = str(copy.context.version)
        if copy.context.turn_count < min_position:
            return Miss("behind", seen)
        doubtful_until = max(
            time.time() - settings.MEMORY_CHECK_SECONDS,
            redis_gate.breaker.last_failure + _SKEW_SECONDS,
        )
        if copy.checked_at > doubtful_until and copy.epoch == _epoch.last_seen:
            return copy
        row = self.filter(pk=thread_id, deleted_at__isnull=True, memory_enabled=True)
        found = row.values_list("version", _epoch_column()).first()
        if found is None or found[0] != copy.context.version or str(found[1]) != copy.epoch:
            return Miss("stale", seen)
        _epoch.last_seen = copy.epoch
        with suppress(RedisUnavailable):  # then it is checked again next time
            get_conversation_memory().mark_checked(thread_id, copy.context.version, copy.epoch)
        return copy

    def _recall(
        self, thread_id: uuid.UUID, owner: Person | None, miss: Miss
    ) -> ConversationContext:
        memory = get_conversation_memory()
        lease = None
        with suppress(RedisUnavailable):  # then nothing is filled
            lease = memory.lease(thread_id, miss)
        context, epoch = self._from_database(thread_id, owner)
        if lease and context.turns:
            self._fill(thread_id, lease, context, epoch)
        return context

    def _fill(
        self, thread_id: uuid.UUID, lease: str, context: ConversationContext, epoch: str
    ) -> bool:
        try:
            filled = get_conversation_memory().fill(thread_id, lease, context, epoch)
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
        rows = (
            ThreadMessage.objects.filter(thread_id=thread_id, position__lte=through)
            .after(after)
            .values(
                "position",
                "created_at",
                "query",
                "answer",
                "artifacts",
                "status",
                "waiting_for",
                "error_code",
                "tokens",
                "render_version",
            )  # fmt: skip
        )
        turns = [_pieces_of(row, fence, memory.render_version) for row in rows]
        if len(turns) != through - after:
            raise ThreadNotFound  # deleted between the two queries
        return turns

    def drop_copies_touched_since(self, since: datetime) -> int:
        """Drop the working sets of threads touched since; return how many.

        Raises `config.redis.RedisUnavailable`.
        """
        memory = get_conversation_memory()
        dropped = 0
        for thread_id in self.filter(touched_at__gte=since).values_list("pk", flat=True):
            memory.drop(thread_id)
            dropped += 1
        return dropped

    def rehydrate(self, thread_id: uuid.UUID) -> int:
        """Rebuild a thread's working set from PostgreSQL; return how many turns it holds.

        Raises `ThreadNotFound`, and `config.redis.RedisUnavailable`.
        """
        memory = get_conversation_memory()
        memory.drop(thread_id)
        lease = memory.lease(thread_id, Miss("asked"))
        context, epoch = self._from_database(thread_id, None)
        if lease and context.turns:
            self._fill(thread_id, lease, context, epoch)
        return len(context.turns)


Threads = ThreadManager.from_queryset(ThreadQuerySet)


class _Epoch:
    """The database epoch that this process saw last; copies of another are looked up."""

    last_seen = ""


_epoch = _Epoch()


def _epoch_column() -> Subquery:
    from conversations.models import DatabaseEpoch

    return Subquery(DatabaseEpoch.objects.values("epoch")[:1])


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
