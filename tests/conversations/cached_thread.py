"""A thread as its agent and an operator of Redis see it, and callers that start together."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from django.db import connections
from redis import Redis

from conversations.conversation_memory import get_conversation_memory
from tests.conversations.conftest import Caller


class Thread:
    """A thread of Ana's: what its agent does with it, and its copy in Redis."""

    def __init__(self, agent: Caller, redis: Redis) -> None:
        self.id = uuid.uuid4()
        self.key = get_conversation_memory().key(self.id)
        self.agent = agent
        self.redis = redis

    def append(self, **body: Any) -> Any:
        body.setdefault("query", f"Question {uuid.uuid4()}")
        answer = self.agent.put_turn(self.id, **body)
        assert answer.status_code in (200, 201), answer.content
        return answer

    def append_three(self) -> None:
        for n in range(1, 4):
            self.append(query=f"Question {n}", answer=f"Answer {n}")

    def view(self, **params: Any) -> dict[str, Any]:
        answer = self.agent.context(self.id, **params)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def cache(self) -> dict[str, Any]:
        """Read until the copy is there and trusted."""
        self.view()
        view = self.view()
        assert view["source"] == "cache"
        return view

    def cold_view(self, **params: Any) -> dict[str, Any]:
        """Read without the copy."""
        self.redis.delete(self.key)
        view = self.view(**params)
        assert view["source"] == "database"
        return view

    @property
    def copy(self) -> dict[bytes, bytes]:
        return self.redis.hgetall(self.key)

    def set(self, field: str, value: bytes | None) -> None:
        """Change a field of the copy, or take it away."""
        if value is None:
            self.redis.hdel(self.key, field)
        else:
            self.redis.hset(self.key, field, value)


def in_parallel(*works: Callable[[], Any]) -> list[Any]:
    """Run works in threads of their own, which start together; return what each returned."""
    together = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        together.wait(10)
        with closing(connections["default"]):
            return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return [future.result() for future in [threads.submit(run, work) for work in works]]
