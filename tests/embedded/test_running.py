from pathlib import Path

import pytest

from embedded.running import REPOSITORY, announce, data_folder, running_environment, withdraw
from tests.embedded.processes import python

SETTINGS = {"DATABASE_URL": "postgres://ana:a=b@127.0.0.1:1/rethread", "SECRET_KEY": "k"}
ANNOUNCE = "import sys; from pathlib import Path; from embedded.running import announce; "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_the_settings_of_a_living_launcher_are_found(folder: Path) -> None:
    announce(folder, SETTINGS)
    assert running_environment(folder) == SETTINGS


def test_what_a_dead_launcher_left_is_not_believed(folder: Path) -> None:
    launcher = python("-c", ANNOUNCE + "announce(Path(sys.argv[1]), {'A': 'b'})", str(folder))
    assert launcher.wait(timeout=10) == 0
    assert (folder / "running.env").exists()
    assert running_environment(folder) == {}


def test_a_process_that_got_the_number_of_a_dead_launcher_is_not_believed(folder: Path) -> None:
    announce(folder, SETTINGS)
    file = folder / "running.env"
    file.write_text(file.read_text().replace("LAUNCHER_STARTED=", "LAUNCHER_STARTED=1"))
    assert running_environment(folder) == {}


def test_nothing_is_found_where_none_runs(folder: Path) -> None:
    assert running_environment(folder / "absent") == {}


def test_a_clean_stop_takes_the_settings_away(folder: Path) -> None:
    announce(folder, SETTINGS)
    withdraw(folder)
    assert running_environment(folder) == {}


def test_only_the_owner_may_read_them(folder: Path) -> None:
    announce(folder, SETTINGS)
    assert (folder / "running.env").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({}, REPOSITORY / ".data"),
        ({"RETHREAD_DATA_DIR": ""}, REPOSITORY / ".data"),
        ({"RETHREAD_DATA_DIR": "other"}, REPOSITORY / "other"),
        ({"RETHREAD_DATA_DIR": "/srv/rethread"}, Path("/srv/rethread")),
    ],
)
def test_the_data_folder_counts_from_the_repository(
    environment: dict[str, str], folder: Path
) -> None:
    assert data_folder(environment) == folder
