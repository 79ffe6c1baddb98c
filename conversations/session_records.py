"""Live sessions as PostgreSQL keeps them: one row a session, and what was said since its last turn.

Finished turns stand on the thread; here stands what leads to the next one, so that Redis may be
lost in the middle of it. A session's row is also the outbox of its digest: due while
`archived_seq < turn_seq` and `next_attempt_at` has come, which each use puts off to when the
session will have expired, and its end brings forward to now.

No method here commits; those that write want the row lock that `locked` takes.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone
from django_q.tasks import async_task

from config.errors import Problem
from config.redis import RedisUnavailable
from conversations.fields import VerbatimJSONField
from conversations.message_input import size_of
from conversations.messages import Head, Message
from conversations.session_keys import SessionKey
from conversations.session_memory import get_session_memory
from conversations.session_problems import SessionNotFound
from conversations.uploads import get_upload_store

if TYPE_CHECKING:
    from conversations.session_archive import ArchiveOutcome
    from rbac.models import User
    from rbac.principal import Person

# Final messages that are known for good, beside those that the session still shows.
_FINALS = 50
# What each use of a session writes.
_USE = ["last_seen_at", "ended_at", "next_attempt_at", "attempts"]


JOB = "conversations.tasks.archive_session"


def queue_archive(pk: uuid.UUID, reserved: datetime | None = None) -> None:
    """Queue the archiving of a session in the caller's transaction.

    With the claim that the job is to take over, where one was set aside for it.
    """
    async_task(JOB, str(pk), reserved.isoformat() if reserved else None)


def session_ttl() -> timedelta:
    """Return how long a session lives after its last use."""
    return timedelta(minutes=settings.SESSION_TTL_MINUTES)


class SessionQuerySet(models.QuerySet["SessionRecord"]):
    """Chainable questions about sessions."""

    def of(self, owner: Person, session_id: str) -> SessionQuerySet:
        """Keep the one session, if it is this person's."""
        return self.filter(tenant=owner.tenant, session_id=session_id, owner_id=owner.pk)

    def due(self) -> SessionQuerySet:
        """Keep sessions that are over and have turns that no digest holds, the longest due first.

        None that somebody is at work on.
        """
        free = Q(claimed_until__isnull=True) | Q(claimed_until__lte=Now())
        due = self.filter(free, archived_seq__lt=F("turn_seq"), next_attempt_at__lte=Now())
        return due.order_by("next_attempt_at")


class SessionManager(models.Manager["SessionRecord"]):
    """The verbs that need more than one session's row."""

    def locked(self, owner: Person, session_id: str) -> SessionRecord:
        """Return a person's session under its row lock; raise `SessionNotFound`."""
        rows = self.filter(tenant=owner.tenant, session_id=session_id)
        record = rows.select_for_update(no_key=True).first()
        if record is None or record.owner_id != owner.pk:
            raise SessionNotFound
        return record

    def locked_or_made(
        self, owner: Person, session_id: str, thread_id: uuid.UUID, agent_type: str
    ) -> tuple[SessionRecord, bool]:
        """Return a person's session under its row lock, made if there is none, and whether it was.

        Raises `SessionNotFound` where it is somebody else's.
        """
        new = SessionRecord(
            tenant=owner.tenant,
            session_id=session_id,
            owner_id=owner.pk,
            thread_id=thread_id,
            agent_type=agent_type,
        )
        self.bulk_create([new], ignore_conflicts=True)  # of several at once, one makes it
        record = self.locked(owner, session_id)
        return record, record.pk == new.pk

    def leave_thread(self, thread_id: uuid.UUID) -> None:
        """End the sessions on a thread that is being deleted.

        What they hold of it goes, from Redis once this is committed, and no digest is made of it;
        one that was made is due to be taken away: the job finds nothing to tell any more. One
        that is opened again gets a thread of its own. To be called before the thread's row is
        locked, since a message that is being taken locks session and thread in this order.
        """
        on_it = self.filter(thread_id=thread_id).select_for_update(no_key=True).order_by("pk")
        records = list(on_it)
        SessionMessage.objects.filter(session__in=records).delete()
        for record in records:
            record.left_by_thread()
        left = ["thread_id", "archived_seq", "finals", "topics", "ended_at", "attempts"]
        self.bulk_update(records, [*left, "next_attempt_at"])
        keys = [record.key for record in records]
        transaction.on_commit(lambda: _forget(keys), robust=True)


def _forget(keys: Sequence[SessionKey]) -> None:
    """Delete all that Redis holds of sessions; what it can't be told of ends by its TTL."""
    with suppress(RedisUnavailable):
        get_session_memory().forget(keys)
    for key in keys:
        with suppress(Problem):
            get_upload_store().delete_files(key)


Sessions = SessionManager.from_queryset(SessionQuerySet)


class SessionRecord(models.Model):
    """One live session of one person, for good: its id may be used again, its turn numbers never.

    `message_count` is the number of the newest message, `turn_seq` that of the newest turn,
    `archived_seq` that of the newest turn whose digest stands in the long-term history. `finals`
    holds `[message_id, turn_seq]` of the last final messages.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.TextField()
    session_id = models.TextField()
    owner: models.ForeignKey[User, User] = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="live_sessions", db_index=False
    )
    # No foreign key: the thread is made by its first turn.
    thread_id = models.UUIDField()
    agent_type = models.TextField()
    turn_seq = models.IntegerField(default=0, db_default=0)
    archived_seq = models.IntegerField(default=0, db_default=0)
    message_count = models.IntegerField(default=0, db_default=0)
    queries_executed = models.IntegerField(default=0, db_default=0)
    topics = ArrayField(models.TextField(), default=list, db_default=[], blank=True)
    finals = models.JSONField(default=list, db_default=[], blank=True)
    opened_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    # The outbox: how often the digest could not be written, when to try next, and until when
    # somebody is at it.
    attempts = models.IntegerField(default=0, db_default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    claimed_until = models.DateTimeField(null=True, blank=True)

    objects = Sessions()

    class Meta:
        app_label = "conversations"
        db_table = "sessions"
        indexes = [
            # What the sweep looks for: sessions with turns that no digest holds.
            models.Index(
                fields=["next_attempt_at"],
                name="session_digest_due",
                condition=Q(archived_seq__lt=F("turn_seq")),
            ),
            # A person's sessions, the last used first; and those on a thread.
            models.Index(F("owner"), F("last_seen_at").desc(), name="session_owner_newest"),
            models.Index(fields=["thread_id"], name="session_thread"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "session_id"], name="session_once_a_tenant"),
            models.CheckConstraint(
                condition=Q(archived_seq__gte=0, archived_seq__lte=F("turn_seq")),
                name="session_archived_within_turns",
            ),
        ]

    def __str__(self) -> str:
        return self.session_id

    @property
    def key(self) -> SessionKey:
        """What its keys in Redis and its turns' ids are made of."""
        return SessionKey(self.tenant, self.session_id)

    def is_live(self, now: datetime | None = None) -> bool:
        """Whether it has neither ended nor expired."""
        return self.ended_at is None and self.last_seen_at + session_ttl() > (now or timezone.now())

    def seen(self) -> None:
        """Note that it is in use, which also takes back an end, and puts its digest off."""
        self._touch()
        self.save(update_fields=_USE)

    def _touch(self) -> None:
        now = timezone.now()
        self.last_seen_at, self.ended_at = now, None
        self.next_attempt_at, self.attempts = now + session_ttl(), 0

    def still_used(self) -> None:
        """Note a use of it as it was read, without its lock: an end meanwhile stands."""
        now = timezone.now()
        open_still = SessionRecord.objects.filter(pk=self.pk, ended_at__isnull=True)
        open_still.update(last_seen_at=now, next_attempt_at=now + session_ttl(), attempts=0)

    def speaks_as(self, agent_type: str | None) -> bool:
        """Have another kind of agent go on with it; return whether it is another one."""
        if agent_type in (None, self.agent_type):
            return False
        self.agent_type = str(agent_type)
        self.save(update_fields=["agent_type"])
        return True

    def end(self) -> None:
        """End it, which makes its digest due and queues it; once more changes nothing."""
        if self.ended_at is None:
            self.ended_at = self.next_attempt_at = timezone.now()
            self.attempts = 0
            self.save(update_fields=["ended_at", "next_attempt_at", "attempts"])
            if self.archived_seq < self.turn_seq:
                queue_archive(self.pk)

    def left_by_thread(self) -> None:
        """Forget a thread that is being deleted; the caller saves the row."""
        was_archived = self.archived_seq > 0
        self.thread_id, self.archived_seq = uuid.uuid4(), 0 if was_archived else self.turn_seq
        self.finals, self.topics = [], []
        self.ended_at = self.next_attempt_at = timezone.now()
        self.attempts = 0
        if was_archived:
            queue_archive(self.pk)

    def archive(self, reserved: datetime | None = None) -> ArchiveOutcome:
        """Write its digest to long-term history where that is due; return what came of it.

        `reserved` is the claim that the sweep has set aside for this call. Never raises for what
        DynamoDB does: a failure is noted with when to try again, 60 s and doubling to 1 h. Refuses
        to run inside a transaction, and owns those that it opens.
        """
        from conversations.session_archive import archive

        return archive(self.pk, reserved)

    def next_seq(self, message_id: str) -> int:
        """Return the number of the turn that a final message finishes; for the same, the same.

        Stands on the row once `took` or `seen` has saved it.
        """
        known = self.known_finals().get(message_id)
        if known is not None:
            return known
        self.turn_seq += 1
        self.finals = [*self.finals, [message_id, self.turn_seq]][-_FINALS:]
        return self.turn_seq

    def known_finals(self) -> dict[str, int]:
        """Return which turn each of the last final messages finished."""
        return dict(self.finals)

    # --- What was said since the last turn ------------------------------------------------

    def open_heads(self) -> list[Head]:
        """Return as much of the messages of the unfinished turn as decides what may follow."""
        columns = ("number", "message_id", "digest", "role", "calls", "at", "size")
        rows = self.said.order_by("number").values_list(*columns)
        return [Head(*row) for row in rows]

    def open_messages(self) -> list[Message]:
        """Return the messages of the unfinished turn."""
        rows = self.said.order_by("number").values_list("message", flat=True)
        return [Message.from_dict(stored) for stored in rows]

    def took(self, still_open: Sequence[Message], finished_through: int, queries: int) -> None:
        """Keep messages that were taken, those through a number with a turn; note the use."""
        if finished_through:
            self.said.filter(number__lte=finished_through).delete()
        SessionMessage.objects.bulk_create(SessionMessage.of(self, one) for one in still_open)
        self.queries_executed += queries
        self._touch()
        counts = ["turn_seq", "finals", "message_count", "queries_executed"]
        self.save(update_fields=[*counts, *_USE])


class SessionMessage(models.Model):
    """A message of a turn that is not finished yet; it goes when the turn is stored."""

    pk = models.CompositePrimaryKey("session_id", "number")
    session = models.ForeignKey(SessionRecord, models.CASCADE, related_name="said", db_index=False)
    number = models.IntegerField()
    message_id = models.TextField()
    digest = models.TextField()
    role = models.TextField()
    calls = ArrayField(models.TextField(), default=list)
    size = models.IntegerField()
    message = VerbatimJSONField()
    at = models.DateTimeField()

    class Meta:
        app_label = "conversations"
        db_table = "session_messages"
        constraints = [
            models.UniqueConstraint(fields=["session", "message_id"], name="message_once_a_session")
        ]

    def __str__(self) -> str:
        return self.message_id

    @classmethod
    def of(cls, record: SessionRecord, message: Message) -> SessionMessage:
        """Return a message as a row."""
        return cls(
            session=record,
            number=message.number,
            message_id=message.message_id,
            digest=message.digest(),
            role=message.role,
            calls=message.calls,
            size=size_of(message),
            message=message.to_dict(),
            at=datetime.fromisoformat(message.at),
        )
