import os
import socket
from pathlib import Path

import pytest

from embedded.exceptions import CannotStart
from embedded.ports import free_port, is_free, refuse_unless_free
from tests.embedded.processes import python

# For documentation (RFC 5737): no machine has it.
NOBODYS = "192.0.2.1"
REFUSE = "import sys; from embedded.ports import refuse_unless_free as r; r('127.0.0.1', 80)"


def says(host: str, port: int) -> str:
    with pytest.raises(CannotStart) as refusal:
        refuse_unless_free(host, port)
    return str(refusal.value)


def test_a_free_port_is_free() -> None:
    port = free_port()
    assert is_free("127.0.0.1", port)
    refuse_unless_free("127.0.0.1", port)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 - an input
def test_a_port_that_somebody_listens_on_is_taken(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert not is_free(host, port)
        assert says(host, port).startswith(f"Port {port} on {host} is taken: stop what listens")
        assert f"`PORT={port + 1} make up`" in says(host, port)


def test_an_address_that_this_machine_lacks_is_not_called_taken() -> None:
    assert says(NOBODYS, 8000) == f"This machine has no address {NOBODYS}: change HOST."
    with pytest.raises(OSError, match="assign requested address"):
        is_free(NOBODYS, 8000)


def test_a_name_that_nobody_knows_is_not_called_taken() -> None:
    assert says("a name with spaces", 8000).startswith("This machine has no address a name with")


def test_port_80_is_not_for_ordinary_users() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if first <= 80:
        pytest.skip("everybody may listen on port 80 here")
    user = ["unshare", "--user", "--map-user=1000"] if os.geteuid() == 0 else []
    output, _ = python("-c", REFUSE, prefix=user).communicate(timeout=10)
    assert "CannotStart: Port 80 is not for ordinary users: choose another port" in output
    assert "`PORT=8000 make up`" in output
