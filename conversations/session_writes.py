"""Taking messages into a session, under the lock of its row: what is new, and which turns it ends.

PostgreSQL says what is known and what may follow, so that two clients of a session wait for each
other here, whether Redis is there or not. In the caller's transaction; raises `OutOfTurn`,
`MessageConflict`, `TooLarge` and what `finalize_turn` raises, and then nothing is taken.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from django.conf import settings

from conversations.artifacts import ArtifactLimits
from conversations.finalize import FinalizedTurn
from conversations.message_input import size_of
from conversations.messages import Dialogue, Message, opened, trimmed
from conversations.models import ConversationThread, ThreadMessage
from conversations.session_memory import Known, known_of
from conversations.session_problems import MessageConflict
from conversations.session_records import SessionRecord
from conversations.session_turns import (
    messages_of,
    queries_executed,
    turn_body,
    turn_id_of,
)
from conversations.turn_input import within
from conversations.turns import AgentType, Status
from rbac.principal import Person

_TURNS_AT_ONCE = 10


class Taken(NamedTuple):
    """A message as it stands now; `created` tells whether this call took it first."""

    message_id: str
    number: int
    created: bool


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """A turn that a final message finished, now or the first time that it was sent."""

    thread_id: uuid.UUID
    turn_id: uuid.UUID
    position: int
    status: str


class SessionWrite:
    """Messages on their way into one session.

    `seen` is through which number, and of which messages, a copy of the session has told already;
    what it could not know of is looked up.
    """

    def __init__(
        self,
        record: SessionRecord,
        owner: Person,
        written_by: uuid.UUID | None = None,
        seen: tuple[int, Mapping[str, Known]] = (0, {}),
    ) -> None:
        self.new: list[Message] = []
        self.taken: list[Taken] = []
        self.turns: list[FinishedTurn] = []
        self._record = record
        self._owner = owner
        self._written_by = written_by
        self._heads = record.open_heads()
        self._open_count = len(self._heads)
        self._open_bytes = sum(head.size for head in self._heads)
        patience = timedelta(seconds=settings.SESSION_TOOL_WAIT_SECONDS)
        self._dialogue = Dialogue(self._heads, patience)
        self._known = self._known_before(*seen)
        self._finished_through = 0
        self._queries = 0

    def take(self, messages: Sequence[Message]) -> None:
        """Take messages in their order, those that are known already once more without effect."""
        for message in messages:
            known = self._known.get(message.message_id)
            if known is None:
                self._add(message)
            elif known.digest not in ("", message.digest()):
                raise MessageConflict(message.message_id)
            else:
                self._repeat(message.message_id, known)
        self._store()

    def break_off(self) -> None:
        """Store what has been asked and not been answered as a turn that was stopped."""
        if self._dialogue.asked:
            said = self._record.open_messages()
            seq = self._record.next_seq(said[-1].message_id)
            self._finish(said, seq, Status.STOPPED)
            self._store()

    # --- What is known ------------------------------------------------------------------------

    def _known_before(self, count: int, ids: Mapping[str, Known]) -> dict[str, Known]:
        record = self._record
        known = {id_: Known(0, "", seq) for id_, seq in record.known_finals().items()}
        if count > record.message_count:  # a copy from before a backup was restored
            count, ids = 0, {}
        if count < record.message_count - len(self._heads):
            known |= known_of(stored_messages(record, after=count))
        known |= ids
        return known | {one.message_id: Known(one.number, one.digest, None) for one in self._heads}

    def _repeat(self, message_id: str, known: Known) -> None:
        self.taken.append(Taken(message_id, known.number, created=False))
        if known.seq is not None:
            self.turns += _stored_turn(self._record, known.seq)

    # --- What is new --------------------------------------------------------------------------

    def _add(self, message: Message) -> None:
        finishes = self._dialogue.take(message, datetime.fromisoformat(message.at))
        if not finishes:
            self._check_room(message)
        self._record.message_count += 1
        message = replace(message, number=self._record.message_count)
        if finishes:
            message = replace(message, seq=self._record.next_seq(message.message_id))
        self.new.append(message)
        self.taken.append(Taken(message.message_id, message.number, created=True))
        self._known[message.message_id] = Known.of(message)
        if finishes:
            said = [] if self._finished_through else self._record.open_messages()
            since = [one for one in self.new if one.number > self._finished_through]
            self._finish([*said, *since], message.seq or 0)

    def _check_room(self, message: Message) -> None:
        """Keep a turn that goes on and on within what may be stored of it.

        A final message is always taken, or the session could never get out of it.
        """
        self._open_count += 1
        self._open_bytes += size_of(message)
        within("A turn", self._open_count, "SESSION_MAX_TURN_MESSAGES", "messages")
        within("A turn's messages", self._open_bytes, "MAX_PAYLOAD_BYTES", "bytes")

    def _finish(self, said: Sequence[Message], seq: int, status: Status | None = None) -> None:
        turn = self._finalized(said, seq, status)
        self.turns.append(FinishedTurn(turn.thread_id, turn.turn_id, turn.position, turn.status))
        self._queries += queries_executed(said)
        self._finished_through = said[-1].number
        self._open_count = self._open_bytes = 0

    def _finalized(self, said: Sequence[Message], seq: int, status: Status | None) -> FinalizedTurn:
        record = self._record
        limits = ArtifactLimits(count=settings.MAX_ARTIFACTS, bytes=settings.MAX_ARTIFACT_BYTES)
        return ConversationThread.objects.finalize_turn(
            owner=self._owner,
            thread_id=record.thread_id,
            turn_id=turn_id_of(record.key, seq),
            body=turn_body(said, record.session_id, AgentType(record.agent_type), limits, status),
            written_by=self._written_by,
        )

    def _store(self) -> None:
        still_open = [one for one in self.new if one.number > self._finished_through]
        self._record.took(still_open, self._finished_through, self._queries)


# --- What turns have kept ---------------------------------------------------------------------


def session_messages(record: SessionRecord) -> list[Message]:
    """Return the messages that a session still shows, from its turns and what came since."""
    most = settings.SESSION_MAX_MESSAGES
    said = record.open_messages()
    stored = stored_messages(record) if len(said) < most else []
    return trimmed([*stored, *said], most)


def stored_messages(record: SessionRecord, after: int = 0) -> list[Message]:
    """Return the messages past a number that stand in the session's turns.

    The newest, as many as a session shows; with those that opened it.
    """
    found: list[Message] = []
    most, newest = settings.SESSION_MAX_MESSAGES, record.turn_seq
    seqs = iter(range(newest, max(0, newest - most), -1))
    while some := list(islice(seqs, _TURNS_AT_ONCE)):
        turns = _messages_by_turn(record, some)
        found = [one for seq in reversed(some) for one in turns.get(seq, [])] + found
        if len(found) >= most or (found and found[0].number <= after + 1):
            break
    if found and found[0].number > 1 and not after:
        found = _opening(record) + found
    return [one for one in found if one.number > after]


def _opening(record: SessionRecord) -> list[Message]:
    opening, _ = opened(_messages_by_turn(record, [1]).get(1, []))
    return opening


def _messages_by_turn(record: SessionRecord, seqs: Sequence[int]) -> dict[int, list[Message]]:
    ids = {turn_id_of(record.key, seq): seq for seq in seqs}
    turns = ThreadMessage.objects.filter(thread_id=record.thread_id, session_uuid__in=ids)
    rows = turns.values_list("session_uuid", "query", "answer", "response_payload")
    return {ids[one]: messages_of(query, answer, payload) for one, query, answer, payload in rows}


def _stored_turn(record: SessionRecord, seq: int) -> Iterator[FinishedTurn]:
    turn_id = turn_id_of(record.key, seq)
    rows = ThreadMessage.objects.filter(thread_id=record.thread_id, session_uuid=turn_id)
    for position, status in rows.values_list("position", "status"):
        yield FinishedTurn(record.thread_id, turn_id, position, status)
