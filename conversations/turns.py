"""What a turn is, apart from where it is kept: its body, its identity and the title it gives."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import regex

from config.plain_json import canonical_bytes

TITLE_GRAPHEMES = 120
# A title is looked for in no more than this much of a query; a grapheme may be many characters.
_TITLE_LOOKS_AT_CHARS = 4_000
_TITLE_MAX_CHARS = 1_000
_GRAPHEME = regex.compile(r"\X")
_BLANK_OR_CONTROL = regex.compile(r"[\s\p{Cc}\p{Zl}\p{Zp}]+")


class AgentType(StrEnum):
    """The kind of agent a thread is with."""

    CHAT = "chat"
    COPILOT = "copilot"


class Status(StrEnum):
    """How a turn stands. All but `PENDING` are final."""

    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class TurnBody:
    """One user query and its answer, as plain JSON values.

    `artifacts` are those the caller sent (None: none were sent, `derived` holds what was found
    in `response_payload` instead); `revision` grows with each PUT of a pending turn. `digest` is
    what a line of its live session's digest is made of (`session_turns.digest_facts`); neither
    it nor `derived` is part of the identity.
    """

    query: str
    answer: str = ""
    artifacts: Sequence[Mapping[str, Any]] | None = None
    derived: Sequence[Mapping[str, Any]] = ()
    response_payload: Any = None
    status: Status = Status.COMPLETE
    agent_type: AgentType | None = None
    waiting_for: str | None = None
    error_code: str | None = None
    revision: int = 0
    session_id: str | None = None
    digest: Mapping[str, Any] | None = None

    @property
    def stored_artifacts(self) -> Sequence[Mapping[str, Any]]:
        """The artifacts that the turn keeps."""
        return self.derived if self.artifacts is None else self.artifacts

    def has_file(self) -> bool:
        """Whether the turn was about a file: then its query may be empty."""
        return any(artifact["kind"] == "file" for artifact in self.stored_artifacts)

    def sha256(self, user_id: str, agent_type: str) -> bytes:
        """Return the body's identity: 32 bytes that equal bodies share and no others.

        Times, revisions and expected positions are no part of it, the order of keys neither.
        """
        identity = {
            "query": self.query,
            "answer": self.answer,
            "artifacts": self.artifacts,
            "response_payload": self.response_payload,
            "status": self.status.value,
            "agent_type": agent_type,
            "user_id": user_id,
        }
        return hashlib.sha256(canonical_bytes(identity)).digest()

    def title(self) -> str:
        """Return the title this turn gives its thread: its query, else its file's name."""
        return turn_title(self.query, self.stored_artifacts)


def turn_title(query: str, artifacts: Sequence[Mapping[str, Any]]) -> str:
    """Return the title that a turn gives its thread: its query, else its file's name."""
    if title := clip_title(query):
        return title
    names = (artifact.get("name") for artifact in artifacts if artifact["kind"] == "file")
    return next((clip_title(str(name)) for name in names if name), "")


def clip_title(text: str) -> str:
    r"""Return one line of at most 120 graphemes, never cut inside one.

    >>> clip_title("  Revenue by\n region ")
    'Revenue by region'
    """
    line = _BLANK_OR_CONTROL.sub(" ", text.lstrip()[:_TITLE_LOOKS_AT_CHARS]).strip()
    clipped = ""
    for count, grapheme in enumerate(_GRAPHEME.finditer(line)):
        if count == TITLE_GRAPHEMES or len(clipped) + len(grapheme[0]) >= _TITLE_MAX_CHARS:
            return clipped.rstrip() + "…"
        clipped += grapheme[0]
    return clipped
