"""A message as it comes in, by HTTP or from an agent's own process: fields, rules, limits."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

import orjson
from django.conf import settings
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from config.errors import validate
from config.plain_json import dump_bytes, to_plain
from conversations.messages import Message
from conversations.turn_input import Body, Short, within

# What scripts of Redis could not read in a message's head, or nobody sees.
_ID = '^[^"\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ufffd]+$'
_SHORT = range(-(2**63), 2**64)

_Id = Annotated[str, StringConstraints(min_length=1, max_length=200)]
MessageId = Annotated[_Id, StringConstraints(pattern=_ID)]


def _have_ids(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ids = [call.get("id") for call in calls]
    if not all(isinstance(one, str) and 0 < len(one) <= 200 for one in ids):
        raise ValueError("each call needs an id of 1 to 200 characters")
    if len(set(ids)) < len(ids):
        raise ValueError("each call needs an id of its own")
    return calls


class MessageIn(Body):
    """One message of a live session."""

    message_id: MessageId | None = Field(
        None, description="Of the sender's making, so that it can be sent again; else made here."
    )
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = Field(None, description="What is said, as text or Markdown.")
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="Any JSON: sql, query_results, columns, row_count, kpis, intent, file, charts.",
    )
    tool_calls: Annotated[list[dict[str, Any]], AfterValidator(_have_ids)] | None = Field(
        None, description="Of an assistant message: the calls it makes, each with its id."
    )
    tool_call_id: _Id | None = Field(None, description="Of a tool message: the call it answers.")
    name: Short | None = None
    final: bool | None = Field(
        None,
        description="Of an assistant message: whether it finishes the turn; left out, it does "
        "when it calls no tools and something was asked.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls go with role assistant")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("tool_call_id goes with role tool, which needs it")
        if self.final is not None and self.role != "assistant":
            raise ValueError("final goes with role assistant")
        if self.final and self.tool_calls:
            raise ValueError("a final message calls no tools")
        return self

    def to_message(self) -> Message:
        """Return the message, its query results cut; raise `TooLarge`."""
        message = Message(
            message_id=self.message_id or uuid.uuid4().hex,
            role=self.role,
            content=self.content or "",
            at=datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            metadata=_readable(with_fewer_rows(self.metadata, settings.SESSION_RESULT_ROWS)),
            tool_calls=_readable(self.tool_calls or []),
            tool_call_id=self.tool_call_id,
            name=self.name,
            final=self.final,
        )
        within("message", size_of(message), "SESSION_MAX_MESSAGE_BYTES", "bytes")
        return message


def message_of(**said: Any) -> Message:
    """Return a message of live Python values (`config.plain_json` has the forms).

    Raises `Invalid` and `TooLarge`.
    """
    return validate(MessageIn, to_plain(said, settings.MAX_JSON_DEPTH)).to_message()


def size_of(message: Message) -> int:
    """Return what a message takes, in bytes of JSON."""
    return len(dump_bytes(message.to_dict()))


def with_fewer_rows(metadata: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Cut `query_results` to `most` rows, and say how many were cut.

    `{"query_results": [60 rows]}` → `{"query_results": [50 rows], "query_results_cut": 10,
    "row_count": 60}`; the same for `{"query_results": {"columns": […], "rows": [60 rows]}}`.
    """
    results = metadata.get("query_results")
    rows = results.get("rows") if isinstance(results, dict) else results
    if not isinstance(rows, list) or len(rows) <= most:
        return dict(metadata)
    fewer = {**results, "rows": rows[:most]} if isinstance(results, dict) else rows[:most]
    cut = {"query_results": fewer, "query_results_cut": len(rows) - most}
    return {"row_count": len(rows), **metadata, **cut}


def _readable(value: Any) -> Any:
    """Return a value with integers past 64 bits as texts: readers would make floats of them."""
    try:
        orjson.dumps(value)
    except TypeError:
        return _with_short_integers(value)
    return value


def _with_short_integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_short_integers(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_with_short_integers(held) for held in value]
    return str(value) if type(value) is int and value not in _SHORT else value
