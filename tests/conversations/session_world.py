"""A session as its agent, an operator of Redis and the clock see it."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.db.models import F
from redis import Redis

from conversations.message_input import message_of
from conversations.messages import Message
from conversations.session_keys import SessionKey
from conversations.session_records import SessionRecord
from tests.conversations.conftest import Caller


def line(role: str, content: str = "", **more: Any) -> Message:
    return message_of(role=role, content=content, **more)


def question(n: int) -> list[Message]:
    return [
        line("user", f"Question {n}", message_id=f"u-{n}"),
        line("assistant", f"Answer {n}", message_id=f"a-{n}"),
    ]


def tool_turn(n: int) -> list[Message]:
    return [
        line("user", f"Question {n}", message_id=f"u-{n}"),
        line("assistant", message_id=f"c-{n}", tool_calls=[{"id": f"call-{n}"}]),
        line("tool", f"Result {n}", message_id=f"r-{n}", tool_call_id=f"call-{n}"),
        line("assistant", f"Answer {n}", message_id=f"a-{n}"),
    ]


def let_time_pass(minutes: float, redis: Redis | None = None) -> None:
    """Move the clock of all sessions; what has run out in Redis by then goes."""
    passed = timedelta(minutes=minutes)
    SessionRecord.objects.update(
        last_seen_at=F("last_seen_at") - passed, next_attempt_at=F("next_attempt_at") - passed
    )
    for key in redis.scan_iter() if redis else ():
        left = redis.pttl(key) - int(minutes * 60_000)
        redis.pexpire(key, left) if left > 0 else redis.delete(key)


class SessionCaller:
    """A session over HTTP: `talk.say("user", "Revenue?")`."""

    def __init__(self, caller: Caller, session_id: str = "s-81", tenant: str = "acme") -> None:
        self.caller = caller
        self.id = session_id
        self.key = SessionKey(tenant, session_id)
        self.path = f"sessions/{session_id}"

    def send(self, method: str, path: str = "", body: Any = None, **params: Any) -> Any:
        query = "&".join(
            f"{k}={v}"
            for k, v in {"user_id": self.caller.acts_for, **params}.items()
            if v is not None
        )
        call = getattr(self.caller.client, method)
        address = f"/api/v1/{self.path}{path}?{query}"
        return call(address, body, format="json") if method != "get" else call(address)

    def open(self, **body: Any) -> Any:
        return self.send("put", "", body)

    def say(self, role: str, content: str = "", **more: Any) -> Any:
        return self.send("post", "/messages", {"role": role, "content": content, **more})

    def say_all(self, *messages: dict[str, Any]) -> Any:
        return self.send("post", "/messages", list(messages))

    def ask(self, n: int, **metadata: Any) -> Any:
        """A turn of two messages."""
        return self.say_all(
            {"message_id": f"u-{n}", "role": "user", "content": f"Question {n}"},
            {"message_id": f"a-{n}", "role": "assistant", "content": f"Answer {n}", "metadata": metadata},
        )  # fmt: skip

    def read(self) -> Any:
        return self.send("get")

    def window(self, **params: Any) -> Any:
        return self.send("get", "/window", **params)

    def texts(self) -> list[str]:
        answer = self.read()
        assert answer.status_code == 200, answer.content
        return [one["content"] for one in answer.json()["messages"]]


def new_id() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"
