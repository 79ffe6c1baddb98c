"""The working set: one Redis hash a thread, and the only module that knows its layout.

Redis is a cache and never an authority (W3). A reader may trust a copy, since:

- every change of a thread raises its `version`, and a change is applied only to the version
  before it; an append that overtakes another writes its turn and leaves a mark, and as long as a
  mark stands the copy is a miss;
- a copy is filled from PostgreSQL only under a lease that was taken before PostgreSQL was read,
  and any change other than an append breaks the lease;
- appends that arrive while a lease stands are kept and merged by the fill;
- a call that arrives late, after the copy was dropped, finds no copy, or one that knows the
  change already;
- a copy of another database, format or rendering is a miss, and so is whatever does not have
  the shape that is written here.

Fields: `f` format, `e` database epoch, `o` owner's primary key, `v` version, `n` turn count,
`k` folded through, `h` head as JSON, `c` a moment (ms) at which the table showed just this
version, `t:<position>` a turn's pieces as JSON, `x:<version>` an early append's mark, `lease` the
token of whoever is filling. Only a fill and a comparison with the table set `c`, each to when
it began: what changed after `c` may have been missed.
"""

from __future__ import annotations

import operator
import threading
import uuid
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from itertools import chain
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import redis
from django.conf import settings

from config import redis as redis_gate
from config.redis import RedisUnavailable
from conversations.context import ConversationContext
from conversations.pieces import (
    PART_MAX_CHARS,
    TurnPieces,
    TurnTokens,
    fence_of,
    render_version,
)

if TYPE_CHECKING:
    from redis import Redis
    from redis.commands.core import Script

T = TypeVar("T")

FORMAT = 2
RawCopy = Mapping[bytes, bytes]
CopyHead = tuple[str, Mapping[str, Any], Sequence[str]]

_SCRIPTS = files("conversations").joinpath("lua")
_DROP_AT_ONCE = 500

_fence_of = lru_cache(maxsize=8192)(fence_of)


@dataclass(frozen=True, slots=True)
class Copy:
    """A working set that was read whole; `checked_at` in seconds of the clock that `c` is from."""

    context: ConversationContext
    epoch: str
    checked_at: float


@dataclass(frozen=True, slots=True)
class Miss:
    """Why there is no copy to go by, and the version seen, which a lease has to name."""

    reason: str
    version: bytes = b""
    may_fill: bool = True


class _Parsed:
    """The copies that were parsed last: the nodes of an agent read one several times in a row.

    What Redis answers is compared byte for byte, so that nothing is believed which it does not
    hold now.
    """

    def __init__(self, most: int = 64, most_bytes: int = 128 * 1024) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: dict[uuid.UUID, tuple[RawCopy, Copy]] = {}
        self._lock = threading.Lock()

    def get(self, thread_id: uuid.UUID, raw: RawCopy) -> Copy | None:
        """Return what these very bytes were parsed to."""
        kept = self._kept.get(thread_id)
        return kept[1] if kept and kept[0] == raw else None

    def put(self, thread_id: uuid.UUID, raw: RawCopy, copy: Copy) -> None:
        """Keep a copy, unless it is large, in place of the oldest."""
        with self._lock:
            self._kept.pop(thread_id, None)
            if sum(map(len, raw.values())) > self._most_bytes:
                return
            if len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
            self._kept[thread_id] = (raw, copy)


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
        part_max_chars: int = PART_MAX_CHARS,
    ) -> None:
        self.ttl_seconds = ttl_hours * 3600
        self.max_recent_messages = max_recent_messages
        self.compression_threshold = compression_threshold
        self.key_prefix = key_prefix
        self.window_turns = window_turns
        self.lease_ms = int(lease_seconds * 1000)
        self.fence_key = fence_key
        self.render_version = render_version(fence_key, part_max_chars)
        self.format = f"{FORMAT}.{self.render_version}"
        self._parsed = _Parsed()

    def key(self, thread_id: uuid.UUID) -> str:
        """Return the thread's key, its id in braces: one slot of a cluster."""
        return f"{self.key_prefix}:{{{thread_id}}}"

    def fence(self, thread_id: uuid.UUID) -> str:
        """Return the word that fences the thread's memory in a view."""
        return _fence_of(thread_id, self.fence_key)

    # --- Reading --------------------------------------------------------------------------

    def queue_read(self, pipeline: Any, thread_id: uuid.UUID) -> None:
        """Queue the read of a copy on a pipeline; its answer goes to `parse`."""
        pipeline.hgetall(self.key(thread_id))

    def read(self, thread_id: uuid.UUID) -> Copy | Miss:
        """Read a copy in one round trip."""
        try:
            raw: Any = redis_gate.attempt(lambda client: client.hgetall(self.key(thread_id)))
        except redis.ResponseError as error:
            raw = error
        return self.parse(thread_id, raw)

    def parse(self, thread_id: uuid.UUID, raw: RawCopy | Exception) -> Copy | Miss:
        """Return what a read of the hash gave as a `Copy`, or the reason why it is none."""
        if isinstance(raw, Exception):
            return Miss("wrong_type")
        known = self._parsed.get(thread_id, raw)
        return known or self._parse(thread_id, raw)

    def _parse(self, thread_id: uuid.UUID, raw: RawCopy) -> Copy | Miss:
        version = raw.get(b"v")
        if version is None:
            return Miss("filling" if b"lease" in raw else "absent")
        if raw.get(b"f") != self.format.encode() and _is_format(raw.get(b"f", b"")):
            return Miss("other_format", may_fill=False)
        try:
            copy = self._copy(thread_id, raw)
            self._parsed.put(thread_id, raw, copy)
            return copy
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            overtaken = any(name.startswith(b"x:") for name in raw)
            return Miss("gap" if overtaken else "corrupt", version)

    def _copy(self, thread_id: uuid.UUID, raw: RawCopy) -> Copy:
        turns = dict(raw)
        version, count, folded, checked = (_number(turns.pop(name)) for name in _NUMBERS)
        first = max(folded, count - self.window_turns) + 1
        if turns.pop(b"f") != self.format.encode() or folded >= count:
            raise ValueError("not written here")
        owner, epoch, head = (turns.pop(name) for name in (b"o", b"e", b"h"))
        if len(turns) != count - first + 1:
            turns = _without_older(turns, first)
        context = ConversationContext(
            str(thread_id),
            owner.decode(),
            self.fence(thread_id),
            version,
            count,
            folded,
            *_head(head),
            turns=_turns(turns.values(), first, count),
        )
        return Copy(context, epoch.decode(), checked / 1000)

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
        self,
        thread_id: uuid.UUID,
        lease: str,
        context: ConversationContext,
        epoch: str,
        read_at: float,
    ) -> bool:
        """Put a copy in place under `lease`; False where the lease is gone.

        `read_at` is when the reading of PostgreSQL began, in seconds of `time.time()`.
        """
        fields: list[Any] = [
            *("f", self.format, "e", epoch, "o", context.owner),
            *("v", context.version, "n", context.turn_count, "k", context.folded_through),
            *("h", _encode_head(context.summary, context.facts, context.kept_lines)),
            *("c", int(read_at * 1000)),
        ]
        for turn in context.turns:
            fields += (f"t:{turn.position}", encode(turn))
        filled = self._eval("fill", thread_id, lease, self.ttl_seconds, self.window_turns, *fields)
        return filled == 1

    # --- Changes, told once they are committed ---------------------------------------------

    def append(self, thread_id: uuid.UUID, version: int, pieces: TurnPieces, epoch: str) -> None:
        """Add the turn that made the thread's version `version`."""
        self._eval(
            "append", thread_id, version, epoch, self.format, self.ttl_seconds,
            self.window_turns, pieces.position, encode(pieces),
        )  # fmt: skip

    def replace(self, thread_id: uuid.UUID, version: int, pieces: TurnPieces, epoch: str) -> None:
        """Replace a turn, by the change that made the thread's version `version`."""
        self._eval(
            "replace", thread_id, version, epoch, self.format, self.ttl_seconds,
            pieces.position, encode(pieces),
        )  # fmt: skip

    def fold(
        self, thread_id: uuid.UUID, version: int, folded_through: int, head: CopyHead, epoch: str
    ) -> None:
        """Put a fold in place that made the thread's version `version`: one call, no rebuilding.

        `head` is what then stands before the turns: summary, facts and kept lines.
        """
        self._eval(
            "fold", thread_id, version, epoch, self.format, self.ttl_seconds,
            self.window_turns, folded_through, _encode_head(*head),
        )  # fmt: skip

    def confirm(self, thread_id: uuid.UUID, version: int, epoch: str) -> None:
        """Drop the copy if it is behind `version`, which PostgreSQL holds."""
        self._eval("confirm", thread_id, version, epoch)

    def mark_checked(
        self, thread_id: uuid.UUID, version: int, epoch: str, looked_at: float
    ) -> None:
        """Note that the table showed the copy's version at `looked_at`, and let it live on."""
        self._eval("checked", thread_id, version, epoch, int(looked_at * 1000), self.ttl_seconds)

    def drop(self, *thread_ids: uuid.UUID) -> None:
        """Delete copies, and with them any lease."""
        keys = [self.key(thread_id) for thread_id in thread_ids]
        for start in range(0, len(keys), _DROP_AT_ONCE):
            _run(partial(_delete, keys[start : start + _DROP_AT_ONCE]))

    def drop_fresh(self, thread_id: uuid.UUID) -> None:
        """Delete the copy on a connection of its own: the last try after a failed change."""
        redis_gate.delete_fresh(self.key(thread_id))

    def _eval(self, script: str, thread_id: uuid.UUID, *args: Any) -> int:
        result = _run(lambda r: _script(script)(keys=[self.key(thread_id)], args=args, client=r))
        return int(result)


# --- A copy's fields --------------------------------------------------------------------------

_NUMBERS = (b"v", b"n", b"k", b"c")
_MAX_DIGITS = 15
_TOKEN_KINDS = len(TurnTokens._fields)
# Faster than their `_make`, which checks a length that is known here.
_as_tokens = partial(tuple.__new__, TurnTokens)
_as_pieces = partial(tuple.__new__, TurnPieces)


def _is_format(value: bytes) -> bool:
    number, _, rendering = value.partition(b".")
    return number.isdigit() and rendering.isdigit()


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > _MAX_DIGITS or (value[:1] == b"0" and value != b"0"):
        raise ValueError("not as numbers are written here")
    return int(value)


def _without_older(turns: dict[bytes, bytes], first: int) -> dict[bytes, bytes]:
    """Leave out what only a larger window than ours would show."""
    return {
        name: turn
        for name, turn in turns.items()
        if name[:2] != b"t:" or int(name[2:]) >= first
    }  # fmt: skip


def _head(stored: bytes) -> tuple[str, dict[str, Any], list[str]]:
    if not stored:
        return "", {}, []
    summary, facts, kept_lines = orjson.loads(stored)
    if not isinstance(kept_lines, list):
        raise TypeError("kept lines are no list")
    entries = facts.get("entries", [])
    "".join([summary, *kept_lines, *(entry["key"] for entry in entries)])
    for entry in entries:
        operator.index(entry.get("last", 0))
        for _value, _since, _until in entry.get("was", ()):
            pass
    return summary, facts, kept_lines


def _turns(stored: Iterable[bytes], first: int, last: int) -> Sequence[TurnPieces]:
    """Return turns `first` to `last`; raise ValueError or TypeError where they are not these.

    By columns, since this is most of what a hot read costs beside Redis itself.
    """
    turns = orjson.loads(b"[" + b",".join(stored) + b"]")
    if set(map(type, turns)) != {list}:
        raise ValueError("a turn is no list")
    turns.sort(key=operator.itemgetter(0))
    columns = zip(*turns, strict=True)
    position, tokens, question, said_at, answer, replied_at, sql, *others, clipped = columns
    if position != tuple(range(first, last + 1)):
        raise ValueError("positions are missing")
    brief_like, brief, charts_like, charts = others
    # These refuse all but texts, and all but whole numbers that are not below 0.
    "".join(chain(question, answer, sql, brief, charts))
    _check_tokens(tokens)
    array("I", chain(said_at, replied_at, brief_like, charts_like))
    for part, over in chain.from_iterable(clipped):
        part.title(), operator.index(over)
    return tuple(
        map(
            _as_pieces,
            zip(
                position, map(_as_tokens, tokens), question, said_at, answer, replied_at,
                map(_joined, sql, brief_like, brief), sql, map(_joined, sql, charts_like, charts),
                clipped, strict=True,
            ),
        )
    )  # fmt: skip


def _check_tokens(tokens: Sequence[list[Any]]) -> None:
    if set(map(len, tokens)) != {_TOKEN_KINDS}:
        raise ValueError("not as many counts as pieces")
    array("I", chain.from_iterable(tokens))


def _encode_head(summary: str, facts: Mapping[str, Any], kept_lines: Sequence[str]) -> bytes:
    if not (summary or facts or kept_lines):
        return b""
    return orjson.dumps((summary, facts, kept_lines))


def encode(pieces: TurnPieces) -> bytes:
    """Return a turn's pieces as the JSON array that a copy holds.

    The artifacts' lines in `sql` stand whole, of the other two focuses what differs from them:
    most begin the same, and a working set is to be little larger than its text.
    """
    position, tokens, *said, brief, sql, charts, clipped = pieces
    others = (*_unlike(sql, brief), *_unlike(sql, charts))
    return orjson.dumps([position, list(tokens), *said, sql, *others, clipped])


def _unlike(sql: str, lines: str) -> tuple[int, str]:
    """Return how many characters `lines` begins with as `sql` does, and the rest of it."""
    shared = len(commonprefix((sql, lines)))  # noqa: RUF071  characters are meant
    return shared, lines[shared:]


def _joined(sql: str, shared: int, rest: str) -> str:
    return sql[:shared] + rest


# --- Calls ------------------------------------------------------------------------------------


def _delete(keys: Sequence[str], client: Redis) -> None:
    """Delete keys one by one, in one round trip: they may stand in different slots."""
    if len(keys) == 1:
        client.delete(*keys)
        return
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.delete(key)
        pipeline.execute()


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
        part_max_chars=settings.CONTEXT_PART_MAX_CHARS,
    )
