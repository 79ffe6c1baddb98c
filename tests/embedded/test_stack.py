import os
from pathlib import Path

import pytest

from embedded.stack import CannotStart, Stack
from embedded.waiting import wait_until
from tests.embedded.processes import descendants, living, python, read_until

ALL = {"DATABASE_URL", "REDIS_URL", "DYNAMODB_ENDPOINT_URL"}
ONLY_VALKEY = ALL - {"REDIS_URL"}
KEEP_ONE = """
import signal, sys
from pathlib import Path
from embedded.stack import Stack
with Stack(Path(sys.argv[1]), skip=sys.argv[2:], durable=False) as environment:
    print("ready", *environment)
    signal.pause()
"""
WITH_A_BUSY_QUERY = """
    import psycopg
    connection = psycopg.connect(environment["DATABASE_URL"])
    connection.pgconn.send_query(b"DO $$ BEGIN LOOP END LOOP; END $$")
    print("ready")
"""


def test_a_server_that_the_environment_names_is_not_started(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ONLY_VALKEY:
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.delenv("REDIS_URL", raising=False)
    with Stack(data_dir) as environment:
        assert environment.keys() == {"REDIS_URL"}


def test_a_second_launcher_on_the_same_data_is_refused(data_dir: Path) -> None:
    with Stack(data_dir, skip=ALL), pytest.raises(CannotStart) as refusal:
        Stack(data_dir, skip=ALL).__enter__()
    assert f"already runs on {data_dir} (process {os.getpid()})" in str(refusal.value)


def test_the_data_is_free_again_after_a_stop(data_dir: Path) -> None:
    for _ in range(2):
        with Stack(data_dir, skip=ALL) as environment:
            assert environment == {}


def test_a_start_right_after_a_kill_waits_for_the_old_servers(data_with_cluster: Path) -> None:
    launcher = python("-c", KEEP_ONE, str(data_with_cluster), "DYNAMODB_ENDPOINT_URL")
    read_until(launcher, "ready")
    old = descendants(launcher.pid)
    launcher.kill()
    with Stack(data_with_cluster, skip={"DYNAMODB_ENDPOINT_URL"}, durable=False):
        assert living(old) == []
    launcher.communicate()


def test_one_that_cannot_start_stops_the_others(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETHREAD_DYNAMODB_PYTHON", "/bin/false")
    stack = Stack(data_dir, skip={"DATABASE_URL"}, durable=False)
    with pytest.raises(CannotStart, match="The DynamoDB endpoint ended with status 1"):
        stack.__enter__()
    assert [service.is_alive for service in stack.services] == [False, False]


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotStart, match="set RETHREAD_DATA_DIR to another folder"):
        Stack(tmp_path / "file" / "data", skip=ALL).__enter__()


@pytest.mark.parametrize("user", [(), ("unshare", "--user", "--map-user=1000", "--map-group=1000")])
def test_all_three_start_and_none_outlives_a_killed_launcher(
    data_with_cluster: Path, user: tuple[str, ...]
) -> None:
    launcher = python("-c", KEEP_ONE, str(data_with_cluster), prefix=user)
    assert set(read_until(launcher, "ready").split()) > ALL
    started = descendants(launcher.pid)
    assert len(started) > 3
    launcher.kill()
    launcher.communicate()
    assert wait_until(lambda: not living(started), seconds=2), living(started)


def test_a_killed_launcher_leaves_no_query_running(data_with_cluster: Path) -> None:
    script = KEEP_ONE.replace('    print("ready", *environment)\n', WITH_A_BUSY_QUERY)
    launcher = python("-c", script, str(data_with_cluster), "REDIS_URL", "DYNAMODB_ENDPOINT_URL")
    read_until(launcher, "ready")
    started = descendants(launcher.pid)
    launcher.kill()
    launcher.communicate()
    assert wait_until(lambda: not living(started), seconds=2), living(started)
