"""Ports on this machine."""

import errno
import socket

from embedded.exceptions import CannotStart

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
    """Return whether nobody listens on `host` and `port` now.

    Raises:
        PermissionError: this process may not listen there.
        OSError: this machine has no such host, or can't listen for another reason.

    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def refuse_unless_free(host: str, port: int) -> None:
    """Return where a server can listen on `host` and `port`.

    Raises:
        CannotStart: it can't; the text says why, and what to set instead.

    """
    other = port + 1 if 1024 <= port < 65_535 else 8000
    choose = f"choose another port, for example `PORT={other} make up`."
    try:
        if is_free(host, port):
            return
    except PermissionError as error:
        raise CannotStart(f"Port {port} is not for ordinary users: {choose}") from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise CannotStart(f"This machine has no address {host}: change HOST.") from error
        says = f"Nothing can listen on port {port} of {host}: {error.strerror}."
        raise CannotStart(says) from error
    raise CannotStart(f"Port {port} on {host} is taken: stop what listens there, or {choose}")


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
