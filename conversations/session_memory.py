"""Live sessions in Redis: one hash a session, and the only module that knows its layout.

A copy of what PostgreSQL holds, never an authority. Messages are taken under the lock of the
session's row and told here once that has committed; a reader may trust a copy, since:

- each message is a field of its own and each change one script, so that writers lose nothing of
  each other's; one that overtakes another writes its message, and as long as one before it is
  missing the copy is a miss;
- a copy is filled from PostgreSQL only under a lease that was taken before PostgreSQL was read,
  and a message that comes meanwhile breaks the lease;
- a copy of another format is a miss, and so is whatever does not have the shape written here.

Fields: `f` format, `o` owner's primary key, `meta` JSON, `n` number of the newest message, `s`
how many messages that opened the session are kept, `b` number of the first message after them,
`c` a moment (ms) at which the table showed just this, `m:<number>` a message, `i:<message id>`
its number, digest and turn as `number.digest.seq`, `lease` the token of whoever is filling.

The TTLs of all keys of a session roll together, by its owner's use and by nobody else's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import orjson
import redis
from django.conf import settings

from config import redis as redis_gate
from config.redis import RedisUnavailable
from conversations.messages import OPENING_MAX, Message, opened, pack, unpack
from conversations.session_keys import SessionKey

if TYPE_CHECKING:
    from redis import Redis
    from redis.commands.core import Script

T = TypeVar("T")

FORMAT = "1"
_SCRIPTS = files("conversations").joinpath("lua")
_HEAD = ("f", "o", "meta", "n", "s", "b", "c")
_SHAPE = (ValueError, LookupError, TypeError, AttributeError)


class Known(NamedTuple):
    """A message that was taken before; `seq` is the turn that it finished."""

    number: int
    digest: str
    seq: int | None

    @classmethod
    def of(cls, message: Message) -> Known:
        """Return what is to be known of a message."""
        return cls(message.number, message.digest(), message.seq)


class SessionMeta(NamedTuple):
    """What a session is besides its owner and its messages."""

    thread_id: uuid.UUID
    agent_type: str
    opened_at: datetime

    def to_json(self) -> dict[str, str]:
        """Return it as plain JSON: `{"thread_id": "…", "agent_type": "chat", "opened_at": "…"}`."""
        opened_at = self.opened_at.isoformat().replace("+00:00", "Z")
        return {
            "thread_id": str(self.thread_id), "agent_type": self.agent_type, "opened_at": opened_at,
        }  # fmt: skip

    @classmethod
    def from_json(cls, stored: Mapping[str, str]) -> SessionMeta:
        """Return what `to_json` wrote; raise ValueError, LookupError or TypeError else."""
        opened_at = datetime.fromisoformat(stored["opened_at"])
        return cls(uuid.UUID(stored["thread_id"]), "" + stored["agent_type"], opened_at)


@dataclass(frozen=True, slots=True)
class SessionCopy:
    """A copy that was read, whole or the newest of it; `checked_at` is as `time.time()` is."""

    owner: str
    meta: SessionMeta
    count: int
    checked_at: float
    messages: list[Message]
    has_files: bool
    whole: bool


@dataclass(frozen=True, slots=True)
class SessionMiss:
    """Why there is no copy to go by, and the count seen, which a lease has to name."""

    reason: str
    count: bytes = b""
    may_fill: bool = True


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """The copies of all sessions; every method raises `RedisUnavailable`."""

    ttl_seconds: int
    max_messages: int
    lease_ms: int

    def read(self, key: SessionKey, owner: uuid.UUID, newest: int = 0) -> SessionCopy | SessionMiss:
        """Read a copy in one round trip, or only the `newest` messages of it and what opened it.

        For its owner it lives on.
        """
        has_files, size, head, messages = self._eval(
            "read", key, str(owner), self.ttl_seconds, newest
        )
        form, _, _, count, *_ = head
        if count is None:
            return SessionMiss("absent")
        if form != FORMAT.encode() and form and form.isdigit():
            return SessionMiss("other_format", may_fill=False)
        try:
            return _copy(head, size, messages, bool(has_files), newest)
        except _SHAPE:
            return SessionMiss("corrupt", count)

    def known(
        self, key: SessionKey, owner: uuid.UUID, message_ids: Sequence[str]
    ) -> tuple[int, dict[str, Known]] | None:
        """Return which of some messages a copy holds, and through which number it is whole.

        None where there is no copy to go by.
        """
        fields = ["f", "o", "n", *(f"i:{one}" for one in message_ids)]
        try:
            found: list[Any] = _run(lambda client: client.hmget(key.session, fields))
            form, whose, count, *entries = found
            if (form, whose) != (FORMAT.encode(), str(owner).encode()):
                return None
            pairs = zip(message_ids, entries, strict=True)
            return int(count), {one: _known(entry) for one, entry in pairs if entry}
        except (redis.ResponseError, *_SHAPE):
            return None

    def lease(self, key: SessionKey, miss: SessionMiss) -> str | None:
        """Take the right to fill; None where somebody else has it or the copy has changed.

        Take it before PostgreSQL is read: whatever is committed later then finds the lease.
        """
        if not miss.may_fill:
            return None
        token = uuid.uuid4().hex
        return token if self._eval("lease", key, token, self.lease_ms, miss.count) == 1 else None

    def fill(
        self,
        key: SessionKey,
        lease: str,
        owner: uuid.UUID,
        meta: SessionMeta,
        count: int,
        messages: Sequence[Message],
        read_at: float,
    ) -> bool:
        """Put a copy in place under `lease`; False where the lease is gone.

        `count` is the number of the newest message, `messages` those that the session still
        shows. `read_at` is when the reading of PostgreSQL began, in seconds of `time.time()`.
        """
        opening, dialogue = opened(messages)
        first = dialogue[0].number if dialogue else count + 1
        fields: list[Any] = [
            *("f", FORMAT, "o", str(owner), "meta", orjson.dumps(meta.to_json()), "n", count),
            *("s", len(opening), "b", first, "c", int(read_at * 1000)),
        ]
        for message in messages:
            fields += (f"m:{message.number}", pack(message))
            fields += (f"i:{message.message_id}", _entry(message))
        return bool(self._eval("fill", key, lease, self.ttl_seconds, *fields))

    def append(self, key: SessionKey, messages: Sequence[Message], known_at: float) -> bool:
        """Add messages that have been committed, or let the session live on; tell of its files.

        `known_at` is when they were known to be the newest, in seconds of `time.time()`.
        """
        fours = [
            part
            for one in messages
            for part in (one.number, one.message_id, _entry(one), pack(one))
        ]
        told = self._eval(
            "append", key, FORMAT, self.ttl_seconds, self.max_messages, OPENING_MAX,
            int(known_at * 1000), *fours,
        )  # fmt: skip
        return int(told) > 1

    def mark_checked(self, key: SessionKey, count: int, looked_at: float) -> None:
        """Note that the table showed the copy's count at `looked_at`."""
        self._eval("checked", key, count, int(looked_at * 1000))

    def drop(self, key: SessionKey) -> None:
        """Delete a copy, and with it any lease; its checkpoint and files stay."""
        _run(lambda client: client.delete(key.session))

    def drop_fresh(self, key: SessionKey) -> None:
        """Delete a copy on a connection of its own: the last try after a failed change."""
        redis_gate.delete_fresh(key.session)

    def forget(self, keys: Iterable[SessionKey]) -> None:
        """Delete copies whose thread is gone, with their checkpoints.

        On a connection of its own: nothing else would take back what a copy still shows.
        """
        doomed = [name for key in keys for name in (key.session, key.checkpoint)]
        if doomed:
            redis_gate.delete_fresh(*doomed)

    def _eval(self, script: str, key: SessionKey, *args: Any) -> Any:
        keys = [key.session, key.checkpoint, key.file_index]
        try:
            return _run(lambda client: _script(script)(keys=keys, args=args, client=client))
        except redis.RedisError as error:  # an answer, but not one to go by
            raise RedisUnavailable(str(error)) from error


def get_session_memory() -> SessionMemory:
    """Return the copies of sessions, tuned by the settings."""
    return SessionMemory(
        ttl_seconds=settings.SESSION_TTL_MINUTES * 60,
        max_messages=settings.SESSION_MAX_MESSAGES,
        lease_ms=int(settings.MEMORY_LEASE_SECONDS * 1000),
    )


def _copy(
    head: Sequence[bytes], size: int, stored: Sequence[bytes], has_files: bool, newest: int
) -> SessionCopy:
    """Return a copy of its first fields, as `_HEAD` names them, and its messages."""
    _, owner, meta, *numbers = head
    count, opening, first, checked = map(int, numbers)
    # Each message has two fields; one that has come early makes more of them.
    if size != len(_HEAD) + 2 * (opening + count - first + 1):
        raise ValueError("messages are missing, or have come early")
    start = max(first, count - newest + 1) if newest else first
    messages = unpack(stored, [*range(1, opening + 1), *range(start, count + 1)])
    about = SessionMeta.from_json(orjson.loads(meta))
    whole = start == first
    return SessionCopy(owner.decode(), about, count, checked / 1000, messages, has_files, whole)


def _entry(message: Message) -> str:
    number, digest, seq = Known.of(message)
    return f"{number}.{digest}.{seq or ''}"


def _known(entry: bytes) -> Known:
    number, digest, seq = entry.decode().split(".")
    return Known(int(number), digest, int(seq) if seq else None)


def known_of(messages: Iterable[Message]) -> dict[str, Known]:
    """Return what `SessionMemory.known` would of these messages."""
    return {one.message_id: Known.of(one) for one in messages}


def _run(call: Callable[[Redis], T]) -> T:
    return redis_gate.attempt(call)


@lru_cache
def _script(name: str) -> Script:
    source = "\n".join(
        _SCRIPTS.joinpath(part).read_text()
        for part in ("session_prelude.lua", f"session_{name}.lua")
    )
    return redis_gate.client().register_script(source)
