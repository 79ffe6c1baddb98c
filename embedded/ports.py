"""Ports on this machine."""

import socket
from contextlib import suppress

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a loopback port that nobody listens on at this moment.

    Somebody may take it before it is used, so whoever uses it has to be ready to ask again.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen on `host` and `port` now.

    Raises:
        OSError: this machine has no such host.

    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(PermissionError, OSError):
            probe.bind(address)
            return True
    return False


def exchange(port: int, request: bytes, answer: bytes) -> bool:
    """Send `request` to a loopback port; return whether the reply starts with `answer`.

    Waits half a second at most for each step.
    """
    try:
        with socket.create_connection((LOOPBACK, port), timeout=0.5) as connection:
            connection.sendall(request)
            return connection.recv(len(answer), socket.MSG_WAITALL) == answer
    except OSError:
        return False
