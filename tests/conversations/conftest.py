"""A tenant with Ana and Bob, an agent that acts for them, and an outsider's tenant."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from rest_framework.test import APIClient

from conversations import querysets
from conversations.models import ConversationThread
from rbac.models import AuthToken, User
from rbac.principal import Person


@pytest.fixture(autouse=True)
def _no_epoch_seen() -> None:
    querysets._epoch.last_seen = ""


@pytest.fixture
def ana(transactional_db: None) -> Person:
    return Person.of(User.objects.create_user("acme", "ana"))


@pytest.fixture
def bob(transactional_db: None) -> Person:
    return Person.of(User.objects.create_user("acme", "bob"))


@pytest.fixture
def outsider(transactional_db: None) -> Person:
    return Person.of(User.objects.create_user("other", "ana"))


class Caller:
    """An HTTP client with a token: `agent.put_turn(thread, turn, query="…")`."""

    def __init__(self, user: User, acts_for: str | None = None) -> None:
        self.user = user
        self.acts_for = acts_for
        _, self.token = AuthToken.objects.issue(user, name="test", ttl=None)
        self.client = APIClient(raise_request_exception=False)
        self.client.credentials(HTTP_AUTHORIZATION=f"Token {self.token}")

    def _params(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"user_id": self.acts_for, **params} if self.acts_for else params

    def get(self, path: str, **params: Any) -> Any:
        return self.client.get(f"/api/v1/{path}", self._params(params))

    def put_turn(self, thread: Any, turn: Any = None, **body: Any) -> Any:
        sent = {"query": "Revenue by region", "agent_type": "chat", **self._params(body)}
        return self.client.put(
            f"/api/v1/threads/{thread}/turns/{turn or uuid.uuid4()}", sent, format="json"
        )

    def context(self, thread: Any, **params: Any) -> Any:
        return self.get(f"threads/{thread}/context", **params)

    def patch(self, path: str, **body: Any) -> Any:
        return self.client.patch(f"/api/v1/{path}", self._params(body), format="json")

    def delete(self, path: str) -> Any:
        query = f"?user_id={self.acts_for}" if self.acts_for else ""
        return self.client.delete(f"/api/v1/{path}{query}")


@pytest.fixture
def agent(transactional_db: None, ana: Person) -> Caller:
    """The agent of Ana's tenant, acting for her."""
    return Caller(User.objects.create_user("acme", "bi", role="agent"), acts_for="ana")


@pytest.fixture
def thread_id() -> uuid.UUID:
    return uuid.uuid4()


def stored_positions(thread_id: uuid.UUID) -> list[int]:
    thread = ConversationThread.objects.get(pk=thread_id)
    return list(thread.turns.order_by("position").values_list("position", flat=True))
