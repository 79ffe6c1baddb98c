"""Threads and turns: what PostgreSQL keeps for good, and the verbs on it.

Which rows: `querysets.py`. How a turn is written: `finalize.py`. No method here commits; whoever
calls owns the transaction, and the working set is told once that has committed. Only a fold
(`folds.py`) opens its own, since an LLM is asked in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from conversations import checkpoints, invalidation
from conversations.conversation_memory import get_conversation_memory
from conversations.conversation_summarizer import get_summarizer
from conversations.events import SessionEvent
from conversations.fields import VerbatimJSONField
from conversations.fold_claim import FoldClaim
from conversations.fold_draft import FoldDraft
from conversations.fold_schedule import fold_rules
from conversations.folds import FoldOutcome, ThreadFold
from conversations.querysets import Threads, TurnQuerySet
from conversations.session_records import SessionMessage, SessionRecord
from conversations.turns import AgentType, Status, clip_title

if TYPE_CHECKING:
    from conversations.conversation_summarizer import Summarizer
    from rbac.models import User

__all__ = [
    "ConversationThread",
    "DatabaseEpoch",
    "SessionMessage",
    "SessionRecord",
    "ThreadFold",
    "ThreadMessage",
]


class DatabaseEpoch(models.Model):
    """One row that names this database's history.

    A restore from a backup turns versions back, so that a working set could look newer than the
    truth: `manage.py renew_epoch` after a restore makes every copy in Redis a miss. It also
    keeps two deployments on one Redis apart.
    """

    id = models.SmallIntegerField(primary_key=True, default=1, editable=False)
    epoch = models.UUIDField(default=uuid.uuid4)

    class Meta:
        db_table = "database_epoch"
        constraints = [models.CheckConstraint(condition=Q(id=1), name="database_epoch_one_row")]

    def __str__(self) -> str:
        return str(self.epoch)

    @classmethod
    def renew(cls) -> uuid.UUID:
        """Start a new epoch and return it."""
        row, _ = cls.objects.update_or_create(id=1, defaults={"epoch": uuid.uuid4()})
        return row.epoch


class ConversationThread(models.Model):
    """One permanent conversation of one person.

    `version` grows with whatever changes what a context view shows; `folded_through` is the
    position up to which the running `summary` stands for the turns. A deleted thread's row stays
    for a while, emptied (`deleted_at`), so that nothing late can bring it back.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.TextField()
    owner: models.ForeignKey[User | None, User | None] = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="threads", db_index=False
    )
    agent_type = models.TextField(choices=[(kind.value, kind.value) for kind in AgentType])
    title = models.TextField(blank=True, default="", db_default="")
    title_is_custom = models.BooleanField(default=False, db_default=False)
    metadata = models.JSONField(default=dict, db_default={}, blank=True)
    memory_enabled = models.BooleanField(default=True, db_default=True)

    turn_count = models.IntegerField(default=0, db_default=0)
    version = models.BigIntegerField(default=0, db_default=0)
    folded_through = models.IntegerField(default=0, db_default=0)
    fold_epoch = models.IntegerField(default=0, db_default=0)
    amended_positions = ArrayField(models.IntegerField(), default=list, db_default=[], blank=True)
    summary = models.TextField(blank=True, default="", db_default="")
    facts = models.JSONField(default=dict, db_default={}, blank=True)
    kept_lines = models.JSONField(default=list, db_default=[], blank=True)

    # When a fold is to be tried next; null while none is due. Who folds now, and until when nobody
    # else may: because of them, or because of failures, of which there were so many in a row.
    fold_due_at = models.DateTimeField(null=True, blank=True)
    fold_claim = models.UUIDField(null=True, blank=True)
    fold_blocked_until = models.DateTimeField(null=True, blank=True)
    fold_attempts = models.IntegerField(default=0, db_default=0)

    pinned_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    last_turn_at = models.DateTimeField(default=timezone.now)
    touched_at = models.DateTimeField(default=timezone.now)

    objects = Threads()

    class Meta:
        db_table = "conversation_threads"
        indexes = [
            # The list of a person's threads, newest activity first, by keyset.
            models.Index(
                F("owner"),
                F("last_turn_at").desc(),
                F("id").desc(),
                name="thread_owner_activity",
                condition=Q(deleted_at__isnull=True),
            ),
            # What the sweep looks for: folds that are due.
            models.Index(
                fields=["fold_due_at"],
                name="thread_fold_due",
                condition=Q(fold_due_at__isnull=False),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(agent_type__in=[kind.value for kind in AgentType]),
                name="thread_agent_type_known",
            ),
            models.CheckConstraint(
                condition=Q(folded_through__gte=0, folded_through__lte=F("turn_count")),
                name="thread_folded_within_turns",
            ),
            models.CheckConstraint(
                condition=Q(owner__isnull=False) | Q(deleted_at__isnull=False),
                name="thread_has_owner_or_is_deleted",
            ),
        ]

    def __str__(self) -> str:
        return self.title or str(self.id)

    def rename(self, title: str) -> None:
        """Give the thread a title of a person's choice; "" brings back its first query's."""
        chosen = clip_title(title)
        self.title_is_custom = bool(chosen)
        self.title = chosen or self.turns.first_title()
        self.save(update_fields=["title", "title_is_custom"])

    def archive(self, *, archived: bool) -> None:
        """Put the thread away, or take it out again. A new turn takes it out by itself."""
        self.archived_at = timezone.now() if archived else None
        self.save(update_fields=["archived_at"])

    def pin(self, *, pinned: bool) -> None:
        """Pin the thread, or unpin it."""
        self.pinned_at = timezone.now() if pinned else None
        self.save(update_fields=["pinned_at"])

    def describe(self, metadata: dict[str, str]) -> None:
        """Replace the thread's metadata."""
        self.metadata = metadata
        self.save(update_fields=["metadata"])

    def remember(self, *, enabled: bool) -> None:
        """Switch on or off whether context views show this thread; its turns are kept anyway.

        Off, nothing of it goes to a summariser either.
        """
        changed = (
            type(self)
            .objects.filter(pk=self.pk, memory_enabled=not enabled, deleted_at=None)
            .update(
                memory_enabled=enabled,
                version=F("version") + 1,
                fold_epoch=F("fold_epoch") + 1,
                # Off, nothing is folded; on again, the sweep looks whether something is due.
                fold_due_at=Now() if enabled else None,
                fold_claim=None,
                fold_blocked_until=None,
                touched_at=Now(),
            )
        )
        self.memory_enabled = enabled
        if changed:
            invalidation.once_committed(self.pk, lambda memory: memory.drop(self.pk))

    def forget(self) -> None:
        """Delete the thread: its turns and checkpoints go, its row stays emptied as a tombstone.

        Takes the row lock first, so that a turn being written ends before or after, never
        within. Once committed, the working set goes as well, and what Redis holds of its sessions.
        """
        # First: a message that is being taken locks its session, then the thread.
        SessionRecord.objects.leave_thread(self.pk)
        type(self).objects.select_for_update().get(pk=self.pk)
        self.turns.all().delete()
        self.folds.all().delete()
        checkpoints.delete_checkpoints_of(self.pk)
        SessionEvent.objects.filter(thread_id=self.pk).delete()
        type(self).objects.filter(pk=self.pk).update(
            owner=None,
            title="",
            metadata={},
            summary="",
            facts={},
            kept_lines=[],
            amended_positions=[],
            folded_through=0,
            turn_count=0,
            version=F("version") + 1,
            fold_epoch=F("fold_epoch") + 1,
            fold_due_at=None,
            fold_claim=None,
            fold_blocked_until=None,
            fold_attempts=0,
            deleted_at=Now(),
            touched_at=Now(),
        )
        invalidation.once_committed(self.pk, lambda memory: memory.drop(self.pk))

    # --- Folding ------------------------------------------------------------------------------

    @property
    def fence(self) -> str:
        """The word that fences this thread's text wherever it is quoted."""
        return get_conversation_memory().fence(self.pk)

    def is_fold_due(self) -> bool:
        """Whether turns are to be folded, or folded ones were finished since."""
        return bool(self.amended_positions) or fold_rules().is_due(
            self.folded_through, self.turn_count
        )

    def is_fold_blocked(self, now: datetime, *, ignore_failure: bool = False) -> bool:
        """Whether somebody folds this thread now, or a failure is waited for."""
        if ignore_failure and self.fold_claim is None:
            return False
        return self.fold_blocked_until is not None and self.fold_blocked_until > now

    def fold(
        self, summarizer: Summarizer | None = None, *, even_after_failure: bool = False
    ) -> FoldOutcome:
        """Fold the oldest unfolded turns into the running summary: one window, one LLM call.

        Claims the thread, asks the summariser outside of any transaction, and applies what it
        says only if the thread stands as it did, so that no turn is passed over or folded twice.
        Where more is due, a job is queued for the next window. A failure changes nothing but
        when the next try is; `even_after_failure` does not wait for that.

        Refuses to run inside a transaction, and owns those that it opens.
        """
        _refuse_inside_transaction("fold()")
        claim = FoldClaim.take(type(self).objects, self.pk, even_after_failure=even_after_failure)
        if claim is None:
            return FoldOutcome.NOT_DUE
        thread = claim.thread
        draft = FoldDraft.of(thread)
        span = fold_rules().span(thread.folded_through, thread.turn_count)
        with claim.noting_failure(draft) as failed:
            draft.add(thread, span, thread.amended_positions, summarizer or get_summarizer())
        return failed.outcome or claim.apply(draft)

    def refold(
        self,
        summarizer: Summarizer | None = None,
        told: Callable[[int, int], None] = lambda _done, _of: None,
        pauses: Sequence[float] = (),
    ) -> FoldOutcome:
        """Make summary and facts anew from turn 1, window by window; the old ones serve meanwhile.

        `told` hears how far it is after each window: turns done, and of how many. A window that
        fails for what may pass is tried again after each of `pauses`, in seconds. What is folded
        stays so; only the notes change, at once, at the end. Otherwise as `fold`.
        """
        _refuse_inside_transaction("refold()")
        claim = FoldClaim.take(
            type(self).objects, self.pk, from_start=True, even_after_failure=True
        )
        if claim is None:
            return FoldOutcome.NOT_DUE
        thread, draft, rules = claim.thread, FoldDraft.from_start(claim.thread), fold_rules()
        while draft.folded_through < thread.folded_through:
            end = min(draft.folded_through + rules.window, thread.folded_through)
            span = range(draft.folded_through + 1, end + 1)
            with claim.noting_failure(draft) as failed:
                if not claim.keep_trying(draft, span, summarizer or get_summarizer(), pauses):
                    return claim.lose(None, draft)
            if failed.outcome:
                return failed.outcome
            told(draft.folded_through, thread.folded_through)
        return claim.apply(draft, from_start=True)

    def rehydrate(self) -> int:
        """Rebuild the working set from PostgreSQL now; return how many turns it holds.

        Raises `config.redis.RedisUnavailable`.
        """
        return type(self).objects.rehydrate(self.pk)


def _refuse_inside_transaction(verb: str) -> None:
    if transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError(f"{verb} outside of a transaction")


class ThreadMessage(models.Model):
    """One user query and its answer: a turn of a thread, at position 1, 2, 3 and so on.

    `artifacts` serve memory, `response_payload` the transcript, `digest` the digest of the live
    session that it was said in. `tokens` are the counts of the turn's pieces in a context view
    (`pieces.TurnPieces.tokens`), true for `render_version`.
    """

    pk = models.CompositePrimaryKey("thread_id", "position")
    thread = models.ForeignKey(
        ConversationThread, models.CASCADE, related_name="turns", db_index=False
    )
    position = models.IntegerField()
    session_uuid = models.UUIDField()
    agent_type = models.TextField(choices=[(kind.value, kind.value) for kind in AgentType])
    status = models.TextField(choices=[(status.value, status.value) for status in Status])
    query = models.TextField()
    answer = models.TextField(blank=True)
    artifacts = VerbatimJSONField(default=list)
    response_payload = VerbatimJSONField(null=True)
    waiting_for = models.TextField(null=True)  # noqa: DJ001  absent and empty differ
    error_code = models.TextField(null=True)  # noqa: DJ001
    revision = models.IntegerField(default=0)
    session_id = models.TextField(null=True)  # noqa: DJ001
    digest = VerbatimJSONField(null=True)
    written_by = models.UUIDField()
    body_sha256 = models.BinaryField()
    pending_sha256 = models.BinaryField(null=True)
    tokens = ArrayField(models.IntegerField())
    render_version = models.IntegerField()
    created_at = models.DateTimeField()
    stored_at = models.DateTimeField(default=timezone.now, db_default=Now())

    objects = TurnQuerySet.as_manager()

    class Meta:
        db_table = "thread_messages"
        indexes = [
            # `status=pending` in the list of threads: what waits for somebody.
            models.Index(
                fields=["thread"], name="turn_pending", condition=Q(status=Status.PENDING.value)
            ),
        ]
        constraints = [
            # The repeat of a turn, and (by its first column) a turn that stands elsewhere.
            models.UniqueConstraint(fields=["session_uuid", "thread"], name="turn_once_a_thread"),
            models.CheckConstraint(condition=Q(position__gt=0), name="turn_position_positive"),
            models.CheckConstraint(
                condition=Q(status__in=[status.value for status in Status]),
                name="turn_status_known",
            ),
        ]

    def __str__(self) -> str:
        return f"t{self.position} {clip_title(self.query)}"
