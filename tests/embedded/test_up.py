import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from config.management.commands import release
from embedded.ports import free_port
from embedded.running import running_environment
from embedded.stack import SERVICES
from embedded.waiting import wait_until
from tests.embedded.processes import descendants, living, python, read_until

Launcher = subprocess.Popen[str]
OF_THIS_TEST_RUN = [*(service.variable for service in SERVICES), "SECRET_KEY"]


def up(data_dir: Path, port: int) -> Launcher:
    settings = {
        "RETHREAD_DATA_DIR": str(data_dir),
        "PORT": str(port),
        "WEB_WORKERS": "1",
        "WORKERS": "1",
    }
    return python("-m", "embedded.up", without=OF_THIS_TEST_RUN, **settings)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture(scope="module")
def launcher(folder: Path, port: int) -> Iterator[Launcher]:
    process = up(folder, port)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def printed(launcher: Launcher) -> str:
    return read_until(launcher, "Ctrl-C stops everything")


def test_the_printed_command_gets_a_token(printed: str) -> None:
    command = re.search(r"^  curl .*\\\n.*$", printed, re.MULTILINE)
    assert command
    answer = subprocess.run(["sh", "-c", command[0]], capture_output=True, check=True)
    assert json.loads(answer.stdout)["token"]


def test_the_printed_addresses_answer(printed: str) -> None:
    for address in set(re.findall(r"http://\S+?/(?:api/docs/|health/)?(?=\s)", printed)):
        assert urllib.request.urlopen(address, timeout=5).status == 200


def test_commands_beside_it_find_its_servers(folder: Path, printed: str) -> None:
    assert printed
    command = ["manage.py", "create_agent", "--tenant", "demo", "--name", "bi"]
    settings = {"RETHREAD_DATA_DIR": str(folder)}
    process = python(*command, without=OF_THIS_TEST_RUN, **settings)
    output, _ = process.communicate(timeout=30)
    assert output.splitlines()[-1].startswith("rt_")


def test_a_taken_port_is_refused_with_the_way_out(tmp_path: Path, port: int, printed: str) -> None:
    assert printed
    output, _ = up(tmp_path, port).communicate(timeout=10)
    assert f"Port {port} on 127.0.0.1 is taken" in output
    assert f"`PORT={port + 1} make up`" in output


def command_lines(launcher: Launcher) -> str:
    return "\n".join(living(descendants(launcher.pid)))


def kill_one_of(launcher: Launcher, word: str) -> None:
    each = next(each for each in descendants(launcher.pid) if word in "".join(living({each})))
    os.kill(each[0], signal.SIGKILL)


def answers(redis_url: str) -> bool:
    try:
        return bool(redis.Redis.from_url(redis_url, socket_timeout=0.2).ping())
    except redis.RedisError:
        return False


def test_a_release_that_hangs_beside_it_holds_nothing_up(
    folder: Path, launcher: Launcher, printed: str
) -> None:
    """A lost DynamoDB is filled again by a release, which waits while another has the lock."""
    assert printed
    settings = running_environment(folder)
    with psycopg.connect(settings["DATABASE_URL"]) as other_release:
        other_release.execute("SELECT pg_advisory_xact_lock(%s)", [release.LOCK])
        kill_one_of(launcher, "ministack")
        read_until(launcher, "The DynamoDB endpoint ended, starting again")
        assert wait_until(lambda: "manage.py release" in command_lines(launcher), seconds=30)

        kill_one_of(launcher, "valkey")
        assert wait_until(lambda: answers(settings["REDIS_URL"]), seconds=30)
        assert "manage.py release" in command_lines(launcher)
    assert wait_until(lambda: "manage.py release" not in command_lines(launcher), seconds=30)


def test_a_killed_launcher_leaves_nothing_and_ctrl_c_ends_well_after_the_next_start(
    folder: Path, port: int, launcher: Launcher, printed: str
) -> None:
    assert printed
    started = descendants(launcher.pid)
    assert len(started) > 10
    launcher.kill()
    launcher.wait()
    assert wait_until(lambda: not living(started), seconds=2), living(started)
    assert running_environment(folder) == {}

    again = up(folder, port)
    assert read_until(again, "Ctrl-C stops everything") == printed
    started = descendants(again.pid)
    os.killpg(again.pid, signal.SIGINT)
    output, _ = again.communicate(timeout=60)
    assert output.splitlines()[-1] == "Stopped."
    assert again.returncode == 0
    assert living(started) == []
    assert not (folder / "running.env").exists()
