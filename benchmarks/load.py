"""The client of the benchmarks over HTTP: a process of its own, raw sockets, one thread.

`python -m benchmarks.load` reads a job a line on its input and answers a line on its output,
both JSON. It imports nothing of the product, and tells how much processor time it took itself,
which shows that it is not what is being measured.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from typing import Any, Self

_RECEIVE_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30.0
_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True)
class Job:
    """Requests to send: `count` of them over `connections` kept alive.

    Paths and bodies are taken in turn; `{turn}` in a path becomes a new UUID each time.
    """

    port: int
    paths: list[str]
    count: int
    method: str = "GET"
    bodies: list[str] = field(default_factory=lambda: [""])
    token: str = ""
    connections: int = 1


@dataclass(frozen=True)
class Answer:
    """What came of a job. Times in seconds; `client_share` of one processor went to the client."""

    seconds: float
    p50: float
    p95: float
    count: int
    client_share: float

    @property
    def a_request(self) -> float:
        """Seconds a request, all connections together."""
        return self.seconds / self.count


class Client:
    """The other process, as a context manager."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_exception: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, job: Job) -> Answer:
        """Send a job's requests; raises `RuntimeError` when one is not answered well."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"error": "gone"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return Answer(**answer)


class _Connection:
    """One connection and the request that is under way on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expected = 0
        self._received = b""
        self._sent_at = 0.0

    def send(self, request: bytes) -> None:
        self._received, self._expected = b"", 0
        self._sent_at = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> float | None:
        """Take what has come; return the seconds since `send` once the answer is whole."""
        chunk = self.socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise RuntimeError("the server closed the connection")
        self._received += chunk
        if not self._expected and _END_OF_HEAD in self._received:
            self._expected = _length(self._received)
        if not self._expected or len(self._received) < self._expected:
            return None
        return time.perf_counter() - self._sent_at

    def answer(self, request: bytes) -> float:
        """Send and wait; return the seconds it took."""
        self.send(request)
        while (taken := self.receive()) is None:
            pass
        return taken


def _length(received: bytes) -> int:
    head, _, _ = received.partition(_END_OF_HEAD)
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(received[:1_000].decode(errors="replace"))
    lower = head.lower()
    at = lower.index(b"content-length:") + len(b"content-length:")
    return len(head) + len(_END_OF_HEAD) + int(lower[at:].partition(b"\r\n")[0])


def _requests(job: Job) -> Iterator[bytes]:
    paths, bodies = cycle(job.paths), cycle(job.bodies)
    headers = (
        f"Host: 127.0.0.1:{job.port}\r\nAccept: application/json\r\n"
        f"Authorization: Token {job.token}\r\n"
    )
    for path in islice(paths, job.count):
        body = next(bodies)
        content = f"Content-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n"
        address = path.replace("{turn}", str(uuid.uuid4()))
        yield (
            f"{job.method} {address} HTTP/1.1\r\n{headers}{content if body else ''}\r\n{body}"
        ).encode()


def _at_once(prepared: list[bytes], connections: list[_Connection]) -> list[float]:
    requests = iter(prepared)
    taken: list[float] = []
    with selectors.DefaultSelector() as selector:
        for connection, request in zip(connections, requests, strict=False):
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(request)
        while len(taken) < len(prepared):
            for key, _ in selector.select(_TIMEOUT_SECONDS) or _nothing_came():
                seconds = key.data.receive()
                if seconds is not None:
                    taken.append(seconds)
                    if request := next(requests, b""):
                        key.data.send(request)
    return taken


def _nothing_came() -> list[Any]:
    raise RuntimeError(f"no answer within {_TIMEOUT_SECONDS} s")


def _run(job: Job, connections: list[_Connection]) -> Answer:
    requests = list(_requests(job))
    cpu, started = _processor_seconds(), time.perf_counter()
    if len(connections) > 1:
        taken = _at_once(requests, connections)
    else:
        taken = [connections[0].answer(request) for request in requests]
    seconds = time.perf_counter() - started
    taken.sort()
    return Answer(
        seconds,
        taken[len(taken) // 2],
        taken[int(len(taken) * 0.95)],
        len(taken),
        (_processor_seconds() - cpu) / seconds,
    )


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _answer_of(line: str) -> dict[str, Any]:
    job = Job(**json.loads(line))
    connections = [_Connection(job.port) for _ in range(job.connections)]
    try:
        return asdict(_run(job, connections))
    except (OSError, RuntimeError, ValueError) as error:
        return {"error": f"{job.method} {job.paths[0]}: {error}"}
    finally:
        for connection in connections:
            connection.socket.close()


def main() -> None:
    """Answer jobs until the input ends."""
    for line in sys.stdin:
        print(json.dumps(_answer_of(line)), flush=True)


if __name__ == "__main__":
    main()
