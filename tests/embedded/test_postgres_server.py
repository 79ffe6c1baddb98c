import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from embedded import services, unprivileged
from embedded.services import CannotStart, Postgres
from embedded.unprivileged import identity_for
from embedded.waiting import wait_until
from tests.embedded.processes import python, read_until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about root")
START_ONE = """
import sys
from pathlib import Path
from embedded.services import Postgres
print("begin")
with Postgres(Path(sys.argv[1]), durable=False) as server:
    print("ready", server.url)
"""


def ask(server: Postgres, query: str) -> object:
    with psycopg.connect(server.url) as connection:
        row = connection.execute(query).fetchone()
        assert row
        return row[0]


@pytest.fixture(scope="module")
def postgres(made_cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One for all tests that leave it running."""
    folder = tmp_path_factory.mktemp("postgres")
    shutil.copytree(made_cluster, folder / "postgres")
    with Postgres(folder) as server:
        yield server


def test_it_is_durable_utf8_and_utc(postgres: Postgres) -> None:
    names = ("server_encoding", "TimeZone", "fsync", "synchronous_commit", "listen_addresses")
    assert [ask(postgres, f"SELECT current_setting('{name}')") for name in names] == [
        "UTF8",
        "UTC",
        "on",
        "on",
        "127.0.0.1",
    ]


def test_it_wants_the_right_password(postgres: Postgres) -> None:
    host, port = "127.0.0.1", postgres.port
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(host=host, port=port, user="rethread", dbname="rethread", password="wrong")


def test_it_keeps_committed_rows_when_it_is_killed(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url) as connection:
        connection.execute("CREATE TABLE turns AS SELECT 'kept' AS query")
    postgres.kill()
    postgres.revive()
    assert ask(postgres, "SELECT query FROM turns") == "kept"


def test_a_pid_file_whose_number_has_gone_to_another_program_is_no_obstacle(
    data_with_cluster: Path,
) -> None:
    with Postgres(data_with_cluster, durable=False) as server:
        pid_file = data_with_cluster / "postgres" / "cluster" / "postmaster.pid"
        left_behind = pid_file.read_text().replace(str(server.pid), str(os.getppid()), 1)
    pid_file.write_text(left_behind)
    with Postgres(data_with_cluster, durable=False) as server:
        assert ask(server, "SELECT 1") == 1


def test_a_first_start_that_was_killed_half_way_is_done_again(data_dir: Path) -> None:
    half_done = data_dir / "postgres.new" / "cluster"
    starting = python("-c", START_ONE, str(data_dir))
    assert wait_until(lambda: (half_done / "PG_VERSION").exists(), seconds=10)
    starting.kill()
    starting.communicate()
    assert not (data_dir / "postgres").exists()
    with Postgres(data_dir, durable=False) as server:
        assert ask(server, "SELECT 1") == 1


def test_files_of_another_version_are_refused_with_its_last_words(data_with_cluster: Path) -> None:
    (data_with_cluster / "postgres" / "cluster" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(CannotStart) as refusal:
        Postgres(data_with_cluster, durable=False).__enter__()
    assert "PostgreSQL ended with status 1." in str(refusal.value)
    assert "database files are incompatible with server" in str(refusal.value)
    assert "or set DATABASE_URL" in str(refusal.value)


def test_making_its_files_may_not_take_for_ever(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_INITDB_SECONDS", 0.05)
    with pytest.raises(CannotStart) as refusal:
        Postgres(data_dir, durable=False).start()
    assert "PostgreSQL took longer than 0.05 s to make its files (initdb)." in str(refusal.value)
    assert "or set DATABASE_URL" in str(refusal.value)


@as_root
def test_an_ordinary_user_starts_it_as_well(data_dir: Path) -> None:
    if not unprivileged.namespaces_work():
        pytest.skip("needs user namespaces")
    user = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    starting = python("-c", START_ONE, str(data_dir), prefix=user)
    assert "ready postgres://" in read_until(starting, "ready")
    assert starting.wait(timeout=10) == 0


@as_root
def test_root_without_user_namespaces_becomes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged, "namespaces_work", lambda: False)
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to nobody
    folder.chmod(0o711)
    try:
        with Postgres(folder, durable=False) as server:
            assert Path(f"/proc/{server.pid}").stat().st_uid == unprivileged.NOBODY
            assert ask(server, "SELECT 1") == 1
        with Postgres(folder, durable=False) as server:
            assert ask(server, "SELECT 1") == 1
    finally:
        shutil.rmtree(folder)


@as_root
def test_root_without_user_namespaces_is_told_which_folder_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprivileged, "namespaces_work", lambda: False)
    tmp_path.chmod(0o700)
    with pytest.raises(CannotStart, match=f"open {tmp_path} to other users"):
        identity_for(tmp_path / "data", Path("/bin"))
