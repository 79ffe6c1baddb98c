"""Where the processes of `make up` keep their metrics."""

from pathlib import Path

from embedded.launcher import metrics_folder


def test_it_is_in_memory_where_there_is_such_a_place(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()

    folder = metrics_folder(tmp_path / "data", memory)

    assert folder.parent == memory
    assert folder.stat().st_mode & 0o777 == 0o700


def test_two_data_folders_do_not_share_it(tmp_path: Path) -> None:
    one, two = (metrics_folder(tmp_path / name, tmp_path) for name in ("one", "two"))

    assert one != two


def test_it_is_empty_at_each_start(tmp_path: Path) -> None:
    (metrics_folder(tmp_path / "data", tmp_path) / "counter_1.db").touch()

    assert list(metrics_folder(tmp_path / "data", tmp_path).iterdir()) == []


def test_without_such_a_place_it_is_beside_the_data(tmp_path: Path) -> None:
    no_folder = tmp_path / "file"
    no_folder.touch()

    assert metrics_folder(tmp_path / "data", no_folder) == tmp_path / "data" / "metrics"
