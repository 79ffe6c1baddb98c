from pathlib import Path

import pytest

from embedded.children import Surroundings
from embedded.logs import LogFile
from embedded.proc import start_time
from embedded.programs import Pauses, Program, Watch
from embedded.waiting import wait_until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def program(tmp_path: Path, script: str) -> Program:
    around = Surroundings(tmp_path, {"PATH": "/usr/bin:/bin"}, LogFile(tmp_path / "it.log"))
    return Program("It", ["sh", "-c", script], around, stop_seconds=1)


def test_pauses_double_up_to_a_quarter_of_a_minute() -> None:
    pauses = Pauses(Clock())
    assert [pauses.begin() for _ in range(8)] == [0.5, 1, 2, 4, 8, 15, 15, 15]


def test_after_a_quiet_minute_the_pause_is_short_again() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    for _ in range(5):
        pauses.begin()
    clock.now = 61
    assert pauses.begin() == 0.5


def test_one_that_keeps_dying_is_started_at_most_nine_times_a_minute() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    starts = 0
    while clock.now < 60:
        clock.now += pauses.begin()
        starts += 1
    assert starts <= 9


def test_one_that_dies_is_started_again_and_it_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    with program(tmp_path, "echo run >> runs") as it:
        watch = Watch(it, said.append)
        assert wait_until(watch.look, seconds=5)
        assert wait_until(lambda: (tmp_path / "runs").read_text() == "run\nrun\n", seconds=5)
    assert said == ["It ended, starting again in 0.5 s"]


def test_one_that_lives_is_left_alone(tmp_path: Path) -> None:
    said: list[str] = []
    with program(tmp_path, "exec sleep 600") as it:
        assert not Watch(it, said.append).look()
    assert said == []


def test_a_restart_ends_what_the_last_run_left(tmp_path: Path) -> None:
    with program(tmp_path, "sleep 600 & echo $! >> pids") as it:
        assert wait_until(lambda: not it.is_alive, seconds=5)
        left = int((tmp_path / "pids").read_text())
        it.revive()
        assert wait_until(lambda: start_time(left) is None, seconds=2)


def test_one_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    with program(tmp_path, "trap '' TERM; echo ready > ready; sleep 600; sleep 600") as it:
        assert wait_until((tmp_path / "ready").exists, seconds=5)
    assert not it.is_alive


@pytest.mark.parametrize("size", [10, 6_000_000])
def test_a_log_stays_in_bounds(tmp_path: Path, size: int) -> None:
    path = tmp_path / "it.log"
    path.write_bytes(b"x" * size)
    LogFile(path)
    assert path.stat().st_size == (10 if size == 10 else 0)
    assert path.with_name("it.log.1").exists() == (size > 10)
