"""The working set: one Redis hash a thread, and the only module that knows its layout.

Redis is a cache and never an authority (W3). A reader may trust a copy, since:

- every change of a thread raises its `version`, and a change is applied only to the version
  before it; an append that overtakes another writes its turn and leaves a mark, and as long as a
  mark stands the copy is a miss;
- a copy is filled from PostgreSQL only under a lease that was taken before PostgreSQL was read,
  and any change other than an append breaks the lease;
- appends that arrive while a lease stands are kept and merged by the fill;
- a copy of another database, format or rendering is a miss.

Fields: `f` format, `e` database epoch, `o` owner's primary key, `v` version, `n` turn count,
`k` folded through, `h` head as JSON, `c` when it was last checked (ms), `t:<position>` a turn's
pieces as JSON, `x:<version>` an early append's mark, `lease` the token of whoever is filling.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import redis
from django.conf import settings

from config import redis as redis_gate
from config.redis import RedisUnavailable
from conversations.context import ConversationContext
from conversations.pieces import TurnPieces, TurnTokens, fence_of, render_version

if TYPE_CHECKING:
    from redis import Redis
    from redis.commands.core import Script

T = TypeVar("T")

FORMAT = 1
RawCopy = Mapping[bytes, bytes]

_SCRIPTS = files("conversations").joinpath("lua")


@dataclass(frozen=True, slots=True)
class Copy:
    """A working set that was read whole: what it holds and when it was last checked."""

    context: ConversationContext
    epoch: str
    checked_at: float


@dataclass(frozen=True, slots=True)
class Miss:
    """Why there is no copy to go by, and the version seen, which a lease has to name."""

    reason: str
    version: str = ""
    may_fill: bool = True


class RedisConversationMemory:
    """The working sets of all threads.

    The defaults are the reference's: `ttl_hours` a copy lives after its last change or check,
    `max_recent_messages` turns that stay verbatim after a fold, `compression_threshold` unfolded
    turns past which folding is due. `window_turns` is the most a copy holds. Every method raises
    `RedisUnavailable` where Redis can't be used, after 0.2 s at most.
    """

    def __init__(
        self,
        ttl_hours: int = 24,
        max_recent_messages: int = 10,
        compression_threshold: int = 20,
        key_prefix: str = "chat_conversation",
        window_turns: int = 40,
        lease_seconds: float = 2.0,
        fence_key: str = "",
    ) -> None:
        self.ttl_seconds = ttl_hours * 3600
        self.max_recent_messages = max_recent_messages
        self.compression_threshold = compression_threshold
        self.key_prefix = key_prefix
        self.window_turns = window_turns
        self.lease_ms = int(lease_seconds * 1000)
        self.fence_key = fence_key
        self.render_version = render_version(fence_key)
        self.format = f"{FORMAT}.{self.render_version}"

    def key(self, thread_id: uuid.UUID) -> str:
        """Return the thread's key, its id in braces: one slot of a cluster."""
        return f"{self.key_prefix}:{{{thread_id}}}"

    def fence(self, thread_id: uuid.UUID) -> str:
        """Return the word that fences the thread's memory in a view."""
        return fence_of(thread_id, self.fence_key)

    # --- Reading --------------------------------------------------------------------------

    def queue_read(self, pipeline: Any, thread_id: uuid.UUID) -> None:
        """Queue the read of a copy on a pipeline; its answer goes to `parse`."""
        pipeline.hgetall(self.key(thread_id))

    def read(self, thread_id: uuid.UUID) -> Copy | Miss:
        """Read a copy in one round trip."""
        return self.parse(thread_id, _run(lambda r: r.hgetall(self.key(thread_id))))

    def parse(self, thread_id: uuid.UUID, raw: RawCopy | Exception) -> Copy | Miss:
        """Return what a read of the hash gave as a `Copy`, or the reason why it is none."""
        if isinstance(raw, Exception):
            return Miss("wrong_type")
        version = raw.get(b"v")
        if version is None:
            return Miss("filling" if b"lease" in raw else "absent")
        if raw.get(b"f") != self.format.encode():
            return Miss("other_format", may_fill=False)
        try:
            return self._copy(thread_id, raw) or Miss("gap", version.decode())
        except (ValueError, KeyError, TypeError):
            return Miss("corrupt", version.decode(errors="replace"))

    def _copy(self, thread_id: uuid.UUID, raw: RawCopy) -> Copy | None:
        turns = orjson.loads(
            b"[" + b",".join([raw[name] for name in raw if name[:2] == b"t:"]) + b"]"
        )
        count, folded = int(raw[b"n"]), int(raw[b"k"])
        turns.sort()
        first = max(folded, count - self.window_turns) + 1
        if len(turns) != count - first + 1 or (turns and turns[0][0] != first):
            turns = [turn for turn in turns if turn[0] >= first]
            if [turn[0] for turn in turns] != list(range(first, count + 1)):
                return None
        if any(name[:2] == b"x:" for name in raw):
            return None
        head = orjson.loads(raw[b"h"]) if raw[b"h"] else ("", {}, ())
        context = ConversationContext(
            str(thread_id),
            raw[b"o"].decode(),
            self.fence(thread_id),
            int(raw[b"v"]),
            count,
            folded,
            *head,
            [decode(turn) for turn in turns],
        )
        return Copy(context, raw[b"e"].decode(), int(raw[b"c"]) / 1000)

    # --- Filling after a miss -------------------------------------------------------------

    def lease(self, thread_id: uuid.UUID, miss: Miss) -> str | None:
        """Take the right to fill; None where somebody else has it or the copy has changed.

        Take it before PostgreSQL is read: whatever is committed later then finds the lease.
        """
        if not miss.may_fill:
            return None
        token = uuid.uuid4().hex
        taken = self._eval("lease", thread_id, token, self.lease_ms, miss.version, self.format)
        return token if taken == 1 else None

    def fill(
        self, thread_id: uuid.UUID, lease: str, context: ConversationContext, epoch: str
    ) -> bool:
        """Put a copy in place under `lease`; False where the lease is gone."""
        fields: list[Any] = [
            *("f", self.format, "e", epoch, "o", context.owner),
            *("v", context.version, "n", context.turn_count, "k", context.folded_through),
            *("h", self._head(context), "c", _now_ms()),
        ]
        for turn in context.turns:
            fields += (f"t:{turn.position}", encode(turn))
        filled = self._eval("fill", thread_id, lease, self.ttl_seconds, self.window_turns, *fields)
        return filled == 1

    def _head(self, context: ConversationContext) -> bytes:
        if not (context.summary or context.facts or context.kept_lines):
            return b""
        return orjson.dumps((context.summary, context.facts, context.kept_lines))

    # --- Changes, told once they are committed ---------------------------------------------

    def append(self, thread_id: uuid.UUID, version: int, pieces: TurnPieces, epoch: str) -> None:
        """Add the turn that made the thread's version `version`."""
        self._eval(
            "append", thread_id, version, epoch, self.format, self.ttl_seconds, _now_ms(),
            self.window_turns, pieces.position, encode(pieces),
        )  # fmt: skip

    def replace(self, thread_id: uuid.UUID, version: int, pieces: TurnPieces, epoch: str) -> None:
        """Replace a turn, by the change that made the thread's version `version`."""
        self._eval(
            "replace", thread_id, version, epoch, self.format, self.ttl_seconds, _now_ms(),
            pieces.position, encode(pieces),
        )  # fmt: skip

    def confirm(self, thread_id: uuid.UUID, version: int, epoch: str) -> None:
        """Drop the copy if it is behind `version`, which PostgreSQL holds."""
        self._eval("confirm", thread_id, version, epoch)

    def mark_checked(self, thread_id: uuid.UUID, version: int, epoch: str) -> None:
        """Note that the copy at `version` was compared with PostgreSQL just now."""
        self._eval("checked", thread_id, version, epoch, _now_ms())

    def drop(self, thread_id: uuid.UUID) -> None:
        """Delete the copy, and with it any lease."""
        _run(lambda r: r.delete(self.key(thread_id)))

    def drop_fresh(self, thread_id: uuid.UUID) -> None:
        """Delete the copy on a connection of its own: the last try after a failed change."""
        redis_gate.delete_fresh(self.key(thread_id))

    def _eval(self, script: str, thread_id: uuid.UUID, *args: Any) -> int:
        result = _run(lambda r: _script(script)(keys=[self.key(thread_id)], args=args, client=r))
        return int(result)


def encode(pieces: TurnPieces) -> bytes:
    """Return a turn's pieces as the JSON array that a copy holds."""
    position, tokens, *rest = pieces
    return orjson.dumps([position, list(tokens), *rest])


def decode(turn: list[Any]) -> TurnPieces:
    """Return what `encode` wrote, once it is read as JSON."""
    turn[1] = TurnTokens._make(turn[1])
    return TurnPieces._make(turn)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _run(call: Callable[[Redis], T]) -> T:
    try:
        return redis_gate.attempt(call)
    except redis.RedisError as error:  # an answer, but not one to go by
        raise RedisUnavailable(str(error)) from error


@lru_cache(maxsize=16)
def _script(name: str) -> Script:
    source = "\n".join(
        _SCRIPTS.joinpath(part).read_text() for part in ("prelude.lua", f"{name}.lua")
    )
    return redis_gate.client().register_script(source)


@lru_cache(maxsize=1)
def get_conversation_memory() -> RedisConversationMemory:
    """Return this process's memory, tuned by the settings."""
    return RedisConversationMemory(
        ttl_hours=settings.MEMORY_TTL_HOURS,
        max_recent_messages=settings.MEMORY_MAX_RECENT_MESSAGES,
        compression_threshold=settings.MEMORY_COMPRESSION_THRESHOLD,
        key_prefix=settings.MEMORY_KEY_PREFIX,
        window_turns=settings.MEMORY_WINDOW_TURNS,
        lease_seconds=settings.MEMORY_LEASE_SECONDS,
        fence_key=settings.FENCE_KEY,
    )
