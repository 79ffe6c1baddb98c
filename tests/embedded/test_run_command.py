import os
import signal
import subprocess
from pathlib import Path

from embedded.waiting import wait_until
from tests.embedded.processes import descendants, living, python, read_until

PRINT_SETTINGS = "import os; print({k: os.environ.get(k) for k in os.environ})"
# Ignores requests to stop, and has a child in the background that does the same.
STUBBORN = "trap '' TERM INT; sh -c 'trap \"\" TERM INT; sleep 600' & echo ready; wait"


def run(*command: str, **env: str) -> "subprocess.Popen[str]":
    return python("-m", "embedded.run", "--", *command, **env)


def test_the_command_finds_servers_of_its_own() -> None:
    output, _ = run("python3", "-c", PRINT_SETTINGS, DATABASE_URL="postgres://mine").communicate()
    assert "'DATABASE_URL': 'postgres://rethread:" in output
    assert "'REDIS_URL': 'redis://:" in output
    assert "'DYNAMODB_ENDPOINT_URL': 'http://127.0.0.1:" in output
    assert "'RETHREAD_ENV_FILE': ''" in output


def test_keys_of_vendors_do_not_reach_the_command() -> None:
    output, _ = run("python3", "-c", PRINT_SETTINGS, OPENAI_API_KEY="sk-mine").communicate()
    assert "sk-mine" not in output


def test_its_exit_status_is_the_commands() -> None:
    process = run("sh", "-c", "exit 7")
    process.communicate()
    assert process.returncode == 7


def test_its_data_is_gone_afterwards() -> None:
    output, _ = run("sh", "-c", 'echo "$RETHREAD_DATA_DIR"').communicate()
    folder = Path(output.splitlines()[-1])
    assert folder.name.startswith("rethread-")
    assert not folder.exists()


def test_without_a_command_it_says_how_to_give_one() -> None:
    output, _ = python("-m", "embedded.run").communicate()
    assert output == "Say what to run: python -m embedded.run -- COMMAND...\n"


def test_ctrl_c_stops_command_and_servers() -> None:
    process = run("sh", "-c", "echo ready; sleep 600")
    read_until(process, "ready")
    started = descendants(process.pid)
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
