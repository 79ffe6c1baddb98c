"""Checkpoints of sessions: how far a clarification loop has got, kept in Redis and nowhere else.

Lost with Redis one is a 404, while Redis is away a 503. Any JSON, one a session, for a time of
its own that is never shorter than its session's. Whose it is, the session's row says.
(The checkpoints of LangGraph's graphs are others: `checkpoints.py`.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import redis
import structlog
from django.conf import settings

from config import redis as redis_gate
from config.plain_json import dump_bytes, to_plain
from config.redis import RedisUnavailable
from conversations.session_keys import SessionKey
from conversations.session_problems import CheckpointNotFound, CheckpointsUnavailable
from conversations.turn_input import within

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")


def save(key: SessionKey, state: Any, seconds: int) -> None:
    """Keep any JSON as the session's checkpoint, in place of the one before.

    Takes live Python values too (`config.plain_json` has the forms). Raises `TooLarge` and
    `CheckpointsUnavailable`.
    """
    stored = dump_bytes(to_plain(state, settings.MAX_JSON_DEPTH))
    within("checkpoint", len(stored), "MAX_CHECKPOINT_BYTES", "bytes")
    _run(lambda client: client.set(key.checkpoint, stored, ex=seconds))


def load(key: SessionKey) -> Any:
    """Return the session's checkpoint; raise `CheckpointNotFound`, `CheckpointsUnavailable`."""
    stored: Any = _found(lambda client: client.get(key.checkpoint))
    try:
        return json.loads(stored)
    except (TypeError, ValueError) as error:
        raise CheckpointNotFound from error


def clear(key: SessionKey) -> bool:
    """Delete the session's checkpoint; return whether there was one."""
    return bool(_run(lambda client: client.delete(key.checkpoint)))


def _found(call: Callable[[Redis], T]) -> T | None:
    try:
        return _run(call)
    except redis.ResponseError:  # a key of another type
        return None


def _run(call: Callable[[Redis], T]) -> T:
    try:
        return redis_gate.attempt(call)
    except RedisUnavailable as error:
        structlog.get_logger(__name__).warning("checkpoints_unavailable", error=str(error))
        raise CheckpointsUnavailable from error
