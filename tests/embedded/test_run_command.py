import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from embedded.waiting import wait_until
from tests.embedded.processes import descendants, living, python, read_until

PRINT_SETTINGS = "import os; print(dict(os.environ), flush=True); os._exit(7)"
# Ignores requests to stop, and has a child in the background that does the same.
STUBBORN = "trap '' TERM INT; sh -c 'trap \"\" TERM INT; sleep 600' & echo ready; wait"


# With one server instead of three: how it stops is the same.
BESIDE_VALKEY = """
import sys
from embedded.run import main
given = dict.fromkeys(["DATABASE_URL", "DYNAMODB_ENDPOINT_URL"], "elsewhere")
sys.exit(main(sys.argv[1:], given))
"""


def run(*command: str, **env: str) -> "subprocess.Popen[str]":
    return python("-c", BESIDE_VALKEY, "--", *command, **env)


@pytest.fixture(scope="module")
def printed() -> str:
    """The environment that a command was given, and its exit status after it."""
    mine = {"DATABASE_URL": "postgres://mine", "OPENAI_API_KEY": "sk-mine"}
    command = ["python3", "-c", PRINT_SETTINGS]
    process = python("-m", "embedded.run", "--", *command, **mine)
    output, _ = process.communicate(timeout=60)
    return f"{output}exit status {process.returncode}"


def test_the_command_finds_servers_of_its_own(printed: str) -> None:
    assert "'DATABASE_URL': 'postgres://rethread:" in printed
    assert "'REDIS_URL': 'redis://:" in printed
    assert "'DYNAMODB_ENDPOINT_URL': 'http://127.0.0.1:" in printed
    assert "'RETHREAD_ENV_FILE': ''" in printed


def test_keys_of_vendors_do_not_reach_the_command(printed: str) -> None:
    assert "sk-mine" not in printed


def test_its_exit_status_is_the_commands(printed: str) -> None:
    assert printed.endswith("exit status 7")


def test_its_data_is_gone_afterwards(printed: str) -> None:
    folder = re.search(r"'RETHREAD_DATA_DIR': '(.*?)'", printed)
    assert folder
    assert Path(folder[1]).name.startswith("rethread-")
    assert not Path(folder[1]).exists()


def test_without_a_command_it_says_how_to_give_one() -> None:
    output, _ = python("-m", "embedded.run").communicate()
    assert output == "Say what to run: python -m embedded.run -- COMMAND...\n"


def test_ctrl_c_stops_command_and_servers() -> None:
    process = run("sh", "-c", "echo ready; sleep 600")
    read_until(process, "ready")
    started = descendants(process.pid)
    assert any("valkey" in line for line in living(started))
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130
    assert living(started) == []


def test_after_a_kill_not_even_stubborn_grandchildren_go_on(tmp_path: Path) -> None:
    process = run("sh", "-c", STUBBORN, TMPDIR=str(tmp_path))
    read_until(process, "ready")
    started = descendants(process.pid)
    assert any("sleep 600" in line for line in living(started))
    process.kill()
    process.communicate()
    assert wait_until(lambda: not living(started), seconds=2), living(started)


def test_a_second_request_to_stop_is_obeyed_at_once(tmp_path: Path) -> None:
    process = run("sh", "-c", STUBBORN, TMPDIR=str(tmp_path))
    read_until(process, "ready")
    started = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    # requests within one second count as one
    asked = wait_until(lambda: process.poll() is not None, seconds=1.2)
    assert not asked
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=2)
    assert wait_until(lambda: not living(started), seconds=2), living(started)
