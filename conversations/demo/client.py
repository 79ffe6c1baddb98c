"""The demo's HTTP: what any agent would do, with the standard library."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

_TIMEOUT_SECONDS = 20
_SCHEMES = {"http": HTTPConnection, "https": HTTPSConnection}


class BadAddress(ValueError):
    """The address is no http:// or https:// one."""


class NoAnswer(Exception):
    """Nothing that speaks HTTP is at the address."""


class Refused(Exception):
    """The server refused a call; `status` and `code` are the problem's."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code


class Client:
    """Calls below one address, on one connection, with one token."""

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise BadAddress(f"{url!r} is no address like http://127.0.0.1:8000")
        self.url = url.rstrip("/")
        self.token = token
        self._path = parts.path.rstrip("/")
        connect = _SCHEMES[parts.scheme]
        self._connection = connect(parts.hostname, parts.port, timeout=_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def is_up(self) -> bool:
        """Whether something answers that it lives; raises `NoAnswer`."""
        return self._send("GET", "/health/live", None)[0] == 200

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Return the JSON of an answer; raises `Refused` and `NoAnswer`."""
        asked = f"/api/v1/{path}{'?' if query else ''}{urlencode(query)}"
        status, content = self._send(method, asked, body)
        answer = _json_of(content)
        if status < 400:
            return answer
        problem = answer if isinstance(answer, dict) else {}
        raise Refused(status, problem.get("code", "?"), problem.get("detail", ""))

    def _send(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        headers = {"Authorization": f"Token {self.token}"} if self.token else {}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            self._connection.request(method, self._path + path, content, headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise NoAnswer(str(error)) from error


def _json_of(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
