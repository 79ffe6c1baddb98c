import socket
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from embedded import services
from embedded.services import CannotStart, Valkey


def client(server: Valkey) -> redis.Redis:
    return redis.Redis.from_url(server.url, socket_timeout=0.2, retry=Retry(NoBackoff(), 0))


def test_it_keeps_what_it_acknowledged_when_it_is_killed(valkey: Valkey) -> None:
    client(valkey).set("turn", "kept")
    valkey.kill()
    valkey.revive()
    assert client(valkey).get("turn") == b"kept"


def test_it_comes_back_on_the_same_address(valkey: Valkey) -> None:
    before = valkey.url
    valkey.kill()
    valkey.revive()
    assert valkey.url == before


def test_it_wants_a_password(valkey: Valkey) -> None:
    stranger = redis.Redis(port=valkey.port, retry=Retry(NoBackoff(), 0))
    with pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_its_password_is_on_no_command_line(valkey: Valkey) -> None:
    password = valkey.url.split(":")[2].split("@")[0]
    assert password not in Path(f"/proc/{valkey.pid}/cmdline").read_text()


def test_it_listens_on_loopback_only(valkey: Valkey) -> None:
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    addresses = [
        line.split()[1] for line in listening.splitlines() if f":{valkey.port:04X} " in line
    ]
    assert "0100007F:" + f"{valkey.port:04X}" in addresses
    assert not any(address.startswith("00000000") for address in addresses)


def test_it_has_64_databases(valkey: Valkey) -> None:
    assert redis.Redis.from_url(valkey.url.removesuffix("/0") + "/63").ping()


def test_a_paused_server_takes_connections_and_stays_silent(valkey: Valkey) -> None:
    valkey.pause()
    with pytest.raises(redis.TimeoutError):
        client(valkey).ping()
    valkey.resume()
    assert client(valkey).ping()


def test_a_paused_server_can_be_stopped(data_dir: Path) -> None:
    with Valkey(data_dir) as server:
        server.pause()
        server.stop()
        assert not server.is_alive


def test_a_port_that_got_taken_is_left_for_another(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        offered = iter([taken])
        free_port = services.free_port
        monkeypatch.setattr(services, "free_port", lambda: next(offered, None) or free_port())
        with Valkey(data_dir) as server:
            assert server.port != taken
            assert client(server).ping()


def test_one_that_cannot_start_says_so_with_its_last_words(data_dir: Path) -> None:
    (data_dir / "valkey" / "appendonlydir").mkdir(parents=True)
    (data_dir / "valkey" / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(CannotStart) as refusal:
        Valkey(data_dir).__enter__()
    assert "Valkey ended with status 1." in str(refusal.value)
    assert "or set REDIS_URL to a server of your own" in str(refusal.value)
    assert "Invalid AOF manifest file format" in str(refusal.value)
