"""An OpenAI-compatible server that answers what a test tells it to, on a real port.

    with LLMServer() as server:
        server.reply_with("Goals:\\n- Revenue by region [t1]")
        …  # OPENAI_BASE_URL = server.base_url
        assert server.requests[0]["model"] == "…"

`RawServer` is for what no HTTP server does on purpose: resets, silence, a byte at a time.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

GENEROUS_SECONDS = 30


@dataclass(frozen=True)
class Reply:
    """An HTTP answer: a dict or list is sent as JSON."""

    body: Any = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Answer: TypeAlias = "str | Reply | dict[str, Any]"


def completion(text: Any, **differs: Any) -> dict[str, Any]:
    """A chat completion that says `text`; `finish_reason`, `refusal`, `usage` and others differ."""
    usage = {
        "prompt_tokens": 1200,
        "completion_tokens": 150,
        "total_tokens": 1350,
        "prompt_tokens_details": {"cached_tokens": 1000},
    }
    message = {"role": "assistant", "content": text, "refusal": differs.pop("refusal", None)}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": differs.pop("finish_reason", "stop"),
        "logprobs": None,
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "stub",
        "choices": [choice],
        "usage": usage,
        **differs,
    }


def api_error(status: int, **error: Any) -> Reply:
    """An error as OpenAI words it."""
    return Reply({"error": {"message": "No.", "type": "error", **error}}, status)


class LLMServer:
    """Answers POST /v1/chat/completions; keeps what it was asked. Threads may call at once."""

    def __init__(self) -> None:
        self._http = HTTPServer(host="127.0.0.1", port=0, threaded=True)
        self._http.expect_request("/v1/chat/completions", method="POST").respond_with_handler(
            self._respond
        )
        self._lock = threading.Lock()
        self._answers: list[Answer | Callable[[dict[str, Any]], Answer]] = [""]
        self._asked: list[dict[str, Any]] = []
        self._headers: list[dict[str, str]] = []
        self._arrived = threading.Semaphore(0)
        self._go_on = threading.Event()
        self._go_on.set()

    def __enter__(self) -> LLMServer:
        self._http.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._http.stop()

    @property
    def base_url(self) -> str:
        """What OPENAI_BASE_URL is set to."""
        return f"http://127.0.0.1:{self._http.port}/v1"

    @property
    def requests(self) -> Sequence[dict[str, Any]]:
        """The JSON of each request so far, in the order of their arrival."""
        with self._lock:
            return list(self._asked)

    @property
    def headers(self) -> Sequence[dict[str, str]]:
        """The headers of each request so far, their names in lower case."""
        with self._lock:
            return list(self._headers)

    def reply_with(self, *answers: Answer | Callable[[dict[str, Any]], Answer]) -> None:
        """Answer like this from now on, the last one again and again.

        A text is what the model says; a dict a whole completion; a function is given a request's
        JSON and returns one of these.
        """
        with self._lock:
            self._answers = list(answers)

    def reset(self) -> None:
        """Forget all requests and answers: stopping it takes half a second, this does not."""
        with self._lock:
            self._answers, self._asked, self._headers = [""], [], []
            self._arrived = threading.Semaphore(0)
        self.release()

    def hang(self) -> None:
        """Let requests wait, from now on, until `release`; `wait_for_request` tells of each."""
        self._go_on.clear()

    def release(self) -> None:
        """Let all requests go on."""
        self._go_on.set()

    def wait_for_request(self) -> None:
        """Wait until another request has arrived than those waited for before."""
        assert self._arrived.acquire(timeout=GENEROUS_SECONDS), "no request arrived"

    def _respond(self, request: Request) -> Response:
        asked = json.loads(request.get_data())
        with self._lock:
            self._asked.append(asked)
            self._headers.append({name.lower(): value for name, value in request.headers.items()})
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self._arrived.release()
        self._go_on.wait(GENEROUS_SECONDS)
        return _response(answer(asked) if callable(answer) else answer)


def _response(answer: Answer) -> Response:
    if isinstance(answer, str):
        answer = completion(answer)
    if not isinstance(answer, Reply):
        answer = Reply(answer)
    body, headers = answer.body, dict(answer.headers)
    if isinstance(body, dict | list):
        body = json.dumps(body)
        headers.setdefault("Content-Type", "application/json")
    return Response(body, answer.status, headers)


# --- Bytes --------------------------------------------------------------------------------


class RawServer:
    """Reads a request's head and lets `behave` do with the connection what it likes.

    `behave(connection, stopped)` runs once for each connection; `stopped` is set when the test is
    over, and waiting for it is how to be slow.
    """

    def __init__(self, behave: Callable[[socket.socket, threading.Event], None]) -> None:
        self._behave = behave
        self._stopped = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> RawServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(GENEROUS_SECONDS)
        for connection in self._connections:
            connection.close()

    @property
    def host(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    @property
    def base_url(self) -> str:
        return f"{self.host}/v1"

    @property
    def connections(self) -> int:
        """How many there were."""
        return len(self._connections)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and (chunk := connection.recv(65536)):
                head += chunk
            self._behave(connection, self._stopped)


def silent(connection: socket.socket, stopped: threading.Event) -> None:
    """Takes the request and says nothing."""
    stopped.wait(GENEROUS_SECONDS)


def resets_in_the_body(connection: socket.socket, stopped: threading.Event) -> None:
    """Sends the beginning of an answer, then resets the connection."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
    connection.sendall(head + b'{"id": "chatcmpl-1", "choices": [')
    # Closing with a linger of zero seconds sends RST instead of FIN.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def dribbles_its_body(connection: socket.socket, stopped: threading.Event) -> None:
    """Sends a good answer a byte at a time: each read ends soon, the whole never."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
    while not stopped.wait(0.02):
        connection.sendall(b" ")


def dribbles_its_head(connection: socket.socket, stopped: threading.Event) -> None:
    """Sends the head of an answer a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not stopped.wait(0.02):
        connection.sendall(b"s")


@contextmanager
def refused_address():
    """An address on which nobody listens: the port stays ours, bound, so that none else does."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
