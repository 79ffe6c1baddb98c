"""Threads as JSON Lines: what `export_threads` writes and `import_threads` reads.

A line for each thread, and below it one for each of its turns, in order:

    {"type": "thread", "tenant": "acme", "user_id": "ana", "key": "ticket-81", "title": "Sales"}
    {"type": "turn", "query": "Revenue by region", "answer": "North leads with 4.1 M."}

What has its default is left out. The whole format: docs/import-format.md.
"""

from __future__ import annotations

import codecs
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, BinaryIO, Literal, Self, TypeAlias

from django.conf import settings
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from config.errors import Invalid, Problem, validate
from config.plain_json import TooDeep, dump_bytes, to_plain
from conversations.turn_input import Body, Metadata, Time, Title, TurnContent
from conversations.turns import AgentType, TurnBody
from rbac import names

# Ids of threads that come without one are made below this name; it never changes.
NAMESPACE = uuid.UUID("8e4ca06d-9f8e-4d17-a77c-f8bc792ce02d")

Key = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class LineRefused(Exception):
    """A line that can't be taken: why, and where in it as far as that is known."""

    def __init__(
        self, code: str, message: str, field: str | None = None, column: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.column = column

    @classmethod
    def of_problem(cls, problem: Problem) -> Self:
        """Return what a refusal of a rule or of the model says about the line."""
        wrong = {
            name: found[0].removeprefix("Value error, ")
            for name, found in (problem.errors or {}).items()
        }
        message = "; ".join(f"{name}: {text}" for name, text in wrong.items())
        if len(wrong) <= 1:
            message = next(iter(wrong.values()), problem.detail)
        return cls(problem.code, message, next((name for name in wrong if name != "body"), None))


class ThreadLine(Body):
    """A thread: whose, which, and what a person or an agent may have set of it."""

    type: Literal["thread"]
    format: Literal[1] = 1
    tenant: Annotated[str, AfterValidator(names.tenant)] = names.DEFAULT_TENANT
    user_id: Annotated[str, AfterValidator(names.user_id)]
    thread_id: uuid.UUID | None = None
    key: Key | None = None
    agent_type: AgentType | None = None
    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)
    memory: bool = True
    archived_at: Time | None = None
    pinned_at: Time | None = None

    @model_validator(mode="after")
    def _has_identity(self) -> Self:
        if self.thread_id is None and self.key is None:
            raise ValueError("needs thread_id, or a key to make one of")
        return self

    @property
    def id(self) -> uuid.UUID:
        """The thread's id: the line's own, else one that only this owner and key give."""
        owner = uuid.uuid5(NAMESPACE, f"{self.tenant}#{self.user_id}")
        return self.thread_id or uuid.uuid5(owner, self.key or "")


class TurnLine(TurnContent):
    """A turn of the thread above it: the fields of the HTTP API, its id and its place.

    `derived` says that the artifacts are those that were once found in the payload, and none
    were sent: they stay as they are, and the agent's own repeat of the turn is still a repeat.
    """

    type: Literal["turn"]
    turn_id: uuid.UUID | None = None
    key: Key | None = None
    position: int | None = Field(default=None, ge=1, le=2**31 - 1)
    derived: bool = False

    def id_in(self, thread_id: uuid.UUID, place: int) -> uuid.UUID:
        """Return the turn's id: its own, else one made of its key, or of its place from 1."""
        if self.turn_id is not None:
            return self.turn_id
        return uuid.uuid5(thread_id, f"key:{self.key}" if self.key else f"place:{place}")

    def to_body(self) -> TurnBody:
        """Return the turn; raises what `TurnContent.to_body` raises."""
        body = super().to_body()
        if self.derived and body.artifacts is not None:
            return replace(body, artifacts=None, derived=body.artifacts)
        return body


AnyLine: TypeAlias = ThreadLine | TurnLine


class Line(Body):
    """What a line must say before it is read as one or the other."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["thread", "turn"]


_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    kind: {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    for kind, fields in (("thread", ThreadLine.model_fields), ("turn", TurnLine.model_fields))
}


def parse_line(raw: bytes) -> AnyLine:
    """Return a line as what it says it is; raise `LineRefused`."""
    fields = _json_of(raw)
    try:
        if validate(Line, fields).type == "thread":
            return validate(ThreadLine, fields)
        return validate(TurnLine, fields)
    except Invalid as problem:
        raise LineRefused.of_problem(problem) from problem


def _json_of(raw: bytes) -> Any:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise LineRefused("not_utf8", "The file is in UTF-16; save it in UTF-8.", column=1)
    try:
        text = raw.removeprefix(codecs.BOM_UTF8).rstrip().decode()
        return to_plain(json.loads(text), settings.MAX_JSON_DEPTH)
    except UnicodeDecodeError as error:
        message = f"Byte {error.start + 1} is not UTF-8."
        raise LineRefused("not_utf8", message, column=error.start + 1) from None
    except json.JSONDecodeError as error:
        raise LineRefused("malformed_json", error.msg, column=error.colno) from None
    except (TooDeep, RecursionError):
        message = f"Nested deeper than {settings.MAX_JSON_DEPTH} levels (MAX_JSON_DEPTH)."
        raise LineRefused("too_deep", message) from None
    except ValueError:
        raise LineRefused("malformed_json", "A number has too many digits.") from None


def dump_line(fields: Mapping[str, Any]) -> bytes:
    """Return a thread or a turn as a line, what has its default left out."""
    defaults = _DEFAULTS[fields["type"]]
    return dump_bytes({k: v for k, v in fields.items() if not _same(v, defaults[k])}) + b"\n"


def _same(value: Any, default: Any) -> bool:
    return value == default and type(value) in (type(default), str)


def max_line_bytes() -> int:
    """Return how long a line may be: whatever the HTTP API took fits, rewritten as well."""
    return 2 * int(settings.MAX_BODY_BYTES)


def numbered_lines(stream: BinaryIO, limit_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines that are not blank, with their numbers; None for one over the limit.

    Never holds more than `limit_bytes` of a line.
    """
    number = 0
    while raw := stream.readline(limit_bytes + 1):
        number += 1
        if len(raw) > limit_bytes:
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(1 << 20)
            yield number, None
        elif not raw.isspace():
            yield number, raw
