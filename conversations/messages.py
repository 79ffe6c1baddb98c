"""The messages of a live session: what one is, what may follow what, and what a model is shown.

A message is one line of dialogue (a *turn* is a question with its answer: several messages).
Pure: nothing here knows where messages are kept.

    user → assistant with tool_calls → tool, once for each call → … → assistant (final)

A turn ends with its final assistant message. A call of a tool and its results are never parted,
and what a model is shown begins with what a user said, after the system messages that opened the
session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from itertools import chain, compress
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from config.plain_json import canonical_bytes
from conversations.session_problems import OutOfTurn

# System messages that open a session stay for as long as it does; as many as this.
OPENING_MAX = 5

_DIGEST_CHARS = 32
# What makes a message the same again; when it came, and where it stands, do not.
_SAID = ("role", "content", "metadata", "tool_calls", "tool_call_id", "name", "final")


@dataclass(frozen=True, slots=True)
class Message:
    """One line of dialogue, as plain JSON values.

    `final` is what the sender said of it, None for nothing. `number` counts from 1 through the
    whole session, 0 until it is taken. `seq` stands on a message that finished a turn: which one.
    """

    role: str
    message_id: str
    content: str = ""
    at: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tool_calls: Sequence[Mapping[str, Any]] = field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    final: bool | None = None
    number: int = 0
    seq: int | None = None

    @property
    def calls(self) -> list[str]:
        """The ids of the calls that it makes, or of the one that it answers."""
        if self.tool_call_id is not None:
            return [self.tool_call_id]
        return [call["id"] for call in self.tool_calls]

    def digest(self) -> str:
        """Return what equal messages share and no others, as 32 hexadecimal digits."""
        said = {name: getattr(self, name) for name in _SAID}
        return hashlib.sha256(canonical_bytes(said)).hexdigest()[:_DIGEST_CHARS]

    def as_chat(self) -> dict[str, Any]:
        """Return it as a model takes it: `{"role": "user", "content": "…"}`.

        With `tool_calls`, `tool_call_id` and `name` where it has them.
        """
        chat: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            chat["tool_calls"] = list(self.tool_calls)
        for name in ("tool_call_id", "name"):
            if (value := getattr(self, name)) is not None:
                chat[name] = value
        return chat

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON without what is empty; `content` always stands there."""
        return {
            name: value
            for name in _NAMES
            if (value := getattr(self, name)) not in _EMPTY or name == "content"
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Message:
        """Return what `to_dict` wrote; raise ValueError or TypeError for what it did not."""
        message = cls(**{name: stored[name] for name in _NAMES if name in stored})
        if not all(isinstance(getattr(message, name), kind) for name, kind in _KINDS.items()):
            raise TypeError("a field of another type")
        message.calls  # noqa: B018  raises where a call has no id
        return message


_EMPTY: Sequence[Any] = (None, (), {}, [], "")
_NAMES = tuple(one.name for one in fields(Message))
_KINDS: Mapping[str, Any] = {
    "message_id": str, "role": str, "content": str, "at": str, "metadata": dict,
    "tool_calls": list, "number": int, "seq": int | None,
}  # fmt: skip


_values_of = attrgetter(*_NAMES)


def pack(message: Message) -> bytes:
    """Return a message as JSON that begins with its role and id, which scripts of Redis read."""
    return orjson.dumps(_values_of(message))


def unpack(stored: Sequence[bytes], numbers: Sequence[int]) -> list[Message]:
    """Return messages that `pack` wrote, which must have these numbers.

    Raises ValueError, TypeError or LookupError for anything else. By columns, since it is most of
    what reading a session costs beside Redis itself.
    """
    values = orjson.loads(b"[" + b",".join(stored) + b"]")
    if not values:
        return []
    columns = list(zip(*values, strict=True))
    roles, ids, contents, ats, metadata, calls, *_, found, _seqs = columns
    "".join(chain(roles, ids, contents, ats))
    if list(found) != list(numbers) or {*map(type, metadata)} != {dict}:
        raise ValueError("not these messages")
    messages = list(map(Message, *columns))
    for message in compress(messages, calls):
        "".join(message.calls)
    return messages


# --- What may follow what ---------------------------------------------------------------------


class Head(NamedTuple):
    """As much of a message as decides what may follow it."""

    number: int
    message_id: str
    digest: str
    role: str
    calls: Sequence[str]
    at: datetime
    size: int


class Dialogue:
    """How far the turn has got that is not finished yet.

    After an assistant message with tool calls only their results may follow, until all are there.
    A user who comes back `patience` after the call is let through: whoever made it has died, and
    nobody else can answer it.
    """

    def __init__(self, said: Iterable[Head], patience: timedelta) -> None:
        self.waiting: list[str] = []
        self.asked = False
        self._patience = patience
        self._called_at: datetime | None = None
        for head in said:
            self._follow(head.role, head.calls, head.at)

    def take(self, message: Message, at: datetime) -> bool:
        """Let a message follow; return whether it finishes the turn. Raises `OutOfTurn`."""
        self._check(message, at)
        self._follow(message.role, message.calls, at)
        finished = message.role == "assistant" and not message.calls and self._ends(message)
        if finished:
            self.asked = False
        return finished

    def _ends(self, message: Message) -> bool:
        if message.final and not self.asked:
            raise OutOfTurn("A final message answers a user's, and there is none to be answered.")
        return self.asked if message.final is None else message.final

    def _check(self, message: Message, at: datetime) -> None:
        if message.role == "tool":
            if message.tool_call_id not in self.waiting:
                raise OutOfTurn(f"No call {message.tool_call_id} waits for a result.", self.waiting)
        elif self.waiting and not (message.role == "user" and self._has_waited_long(at)):
            raise OutOfTurn(
                "Calls of tools wait for their results, and nothing else may come before.",
                self.waiting,
            )

    def _has_waited_long(self, at: datetime) -> bool:
        return self._called_at is None or at - self._called_at > self._patience

    def _follow(self, role: str, calls: Sequence[str], at: datetime) -> None:
        if role == "tool":
            self.waiting = [call for call in self.waiting if call not in calls]
            return
        self.waiting, self._called_at = list(calls), at
        self.asked = self.asked or role == "user"


# --- What is shown ----------------------------------------------------------------------------


def window(messages: Sequence[Message], most: int) -> list[Message]:
    """Return the newest messages that a model can be given, at most `most`.

    First the system messages that opened the session, then whole turns, newest first chosen. Of
    the turn that does not fit whole: its question and the newest that follows, calls only
    together with their results. Calls without a result are left out.
    """
    opening, dialogue = opened(messages)
    opening = opening[: max(0, most - 1)]
    room, chosen = max(0, most - len(opening)), list[Message]()
    for turn in reversed(_turns(dialogue)):
        units = [unit for unit in _units(turn) if _is_whole(unit)]
        whole = _flat(units)
        if turn[0].role != "user" or len(chosen) == room:
            break
        if len(whole) > room - len(chosen):
            short = _shortened(units, room - len(chosen))
            # A question without its answer says nothing, unless it is the one to be answered.
            chosen = short + chosen if len(short) > 1 or not chosen else chosen
            break
        chosen = whole + chosen
    return opening + chosen


def is_window_of_all(shown: Sequence[Message], newest: Sequence[Message], most: int) -> bool:
    """Whether `shown`, the window of only the newest messages, is that of all of them too.

    It is where it is full, or where a turn that is there whole was not let in.
    """
    questions = [one.number for one in newest if one.role == "user"]
    _, dialogue = opened(shown)
    return len(shown) == most or bool(dialogue and dialogue[0].number > questions[0])


def trimmed(messages: Sequence[Message], most: int) -> list[Message]:
    """Return a session's messages without the oldest turns past `most` messages.

    The system messages that opened it stay. Where a single turn has more, its question and the
    newest that follows it stay, no call parted from its results.
    """
    opening, dialogue = opened(messages)
    turns = _turns(dialogue)
    room = most - len(opening)
    kept = len(dialogue)
    while kept > room and len(turns) > 1:
        kept -= len(turns.pop(0))
    rest = _flat(turns)
    return opening + (_shortened(_units(rest), room) if kept > room else rest)


def opened(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Part the system messages that opened a session from its dialogue."""
    count = 0
    while count < min(len(messages), OPENING_MAX) and messages[count].role == "system":
        count += 1
    return list(messages[:count]), list(messages[count:])


def _turns(dialogue: Sequence[Message]) -> list[list[Message]]:
    """Part messages before each of a user's."""
    turns: list[list[Message]] = []
    for message in dialogue:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _units(turn: Sequence[Message]) -> list[list[Message]]:
    """Part messages so that calls stand together with their results."""
    units: list[list[Message]] = []
    for message in turn:
        if message.role == "tool" and units and units[-1][0].tool_calls:
            units[-1].append(message)
        else:
            units.append([message])
    return units


def _is_whole(unit: Sequence[Message]) -> bool:
    first, *results = unit
    if first.role == "tool":
        return False
    return sorted(first.calls) == sorted(call for result in results for call in result.calls)


def _shortened(units: Sequence[Sequence[Message]], room: int) -> list[Message]:
    question, *others = units
    kept: list[Message] = []
    for unit in reversed(others):
        if 1 + len(kept) + len(unit) > room:
            break
        kept = [*unit, *kept]
    return [*question, *kept][: max(0, room)]


def _flat(units: Iterable[Iterable[Message]]) -> list[Message]:
    return [message for unit in units for message in unit]
