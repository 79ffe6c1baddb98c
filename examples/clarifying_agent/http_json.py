"""JSON over HTTP by the standard library, so that the example needs nothing but LangGraph."""

from __future__ import annotations

import json
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

TIMEOUT_SECONDS = 20


class NoAnswer(Exception):
    """Nothing at `url` answers with JSON: what to start depends on who should be there."""

    def __init__(self, url: str, why: object) -> None:
        super().__init__(f"No answer from {url} ({why})")
        self.url = url


def call(method: str, url: str, body: Any = None, *, token: str = "") -> Any:
    """Send `body` as JSON and return the answer.

    Raises `urllib.error.HTTPError` for a refusal, and `NoAnswer`.
    """
    try:
        return _answer(method, url, body, token)
    except HTTPError:
        raise
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswer(url, getattr(error, "reason", error)) from error


def _answer(method: str, url: str, body: Any, token: str) -> Any:
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Token {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
        return json.load(answer)


class Rethread:
    """The two calls that an agent needs: what was said before, and what was said now."""

    def __init__(self, url: str, token: str, user_id: str) -> None:
        self._api, self._token, self._user_id = f"{url}/api/v1", token, user_id

    def recall(self, thread_id: str) -> str:
        """Return what the thread's next step needs to know; "" for a thread that is none yet."""
        query = urlencode({"user_id": self._user_id, "focus": "brief", "missing": "empty"})
        url = f"{self._api}/threads/{thread_id}/context?{query}"
        return str(call("GET", url, token=self._token)["text"])

    def remember(self, thread_id: str, turn_id: str, **turn: Any) -> None:
        """Write a turn, or a further revision of a pending one; the same again does no harm."""
        url = f"{self._api}/threads/{thread_id}/turns/{turn_id}"
        turn |= {"user_id": self._user_id, "agent_type": "chat"}
        call("PUT", url, turn, token=self._token)
