"""One live session as it was read: its messages, and what an agent adds to it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings

from conversations.message_input import message_of
from conversations.messages import Message, trimmed, window
from conversations.session_turns import previous_results
from rbac.principal import Person


@dataclass(slots=True)
class Session:
    """A live session as it was read, and what has been added to it since.

    `source` is where it came from: `cache` or `database`. Not `whole`, it has only the newest of
    its messages, and those that opened it.
    """

    owner: Person
    session_id: str
    thread_id: uuid.UUID
    agent_type: str
    opened_at: datetime
    message_count: int
    source: str
    _stored: list[Message]
    whole: bool = True
    _added: list[Message] = field(default_factory=list)

    @property
    def user_id(self) -> str:
        """Whose it is."""
        return self.owner.user_id

    @property
    def messages(self) -> list[Message]:
        """Its messages, the newest `SESSION_MAX_MESSAGES`; no call is parted from its results."""
        return trimmed([*self._stored, *self._added], settings.SESSION_MAX_MESSAGES)

    @property
    def unsaved(self) -> Sequence[Message]:
        """What has been added and not been saved yet."""
        return tuple(self._added)

    @property
    def metadata(self) -> dict[str, Any]:
        """What a session is besides its messages, as plain JSON."""
        return {
            "thread_id": str(self.thread_id),
            "agent_type": self.agent_type,
            "opened_at": self.opened_at.isoformat().replace("+00:00", "Z"),
        }

    def add_message(
        self, role: str, content: str | None = "", metadata: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Message:  # fmt: skip
        """Add a message, to be stored by `SessionStore.save`; return it.

        `more` are `message_id`, `tool_calls`, `tool_call_id`, `name` and `final`, as in the HTTP
        API. Metadata takes live Python values; `query_results` are cut to `SESSION_RESULT_ROWS`.
        Raises `Invalid` and `TooLarge`.
        """
        message = message_of(role=role, content=content, metadata=metadata or {}, **more)
        self._added.append(message)
        return message

    def get_context(self, max_messages: int | None = None) -> list[dict[str, Any]]:
        """Return the newest messages as a model takes them, `MAX_HISTORY_MESSAGES` at most.

        Never begins with an answer, and never has a call without its result.
        """
        most = settings.MAX_HISTORY_MESSAGES if max_messages is None else max_messages
        return [message.as_chat() for message in window(self.messages, most)]

    def previous_results(self) -> dict[str, Any]:
        """Return what the last query that succeeded gave: see `session_turns`."""
        return previous_results(self.messages)

    def saved(self) -> None:
        """Take what was added for stored."""
        self._stored, self._added = [*self._stored, *self._added], []
