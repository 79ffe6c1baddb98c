import signal
from pathlib import Path

import pytest

from embedded.children import Surroundings, run_to_end
from embedded.logs import LogFile
from embedded.proc import start_time
from embedded.programs import Errand, Pauses, Program, Watch
from embedded.waiting import wait_until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def program(tmp_path: Path, script: str) -> Program:
    around = Surroundings(tmp_path, {"PATH": "/usr/bin:/bin"}, LogFile(tmp_path / "it.log"))
    stops = [(signal.SIGTERM, 0.3)]
    return Program("It", ["sh", "-c", script], around, stop_steps=stops)


def errand(tmp_path: Path, script: str, seconds: float = 10) -> Errand:
    around = Surroundings(tmp_path, {"PATH": "/usr/bin:/bin"}, LogFile(tmp_path / "it.log"))
    return Errand("It", ["sh", "-c", script], around, seconds=seconds)


def outcome(it: Errand) -> str | None:
    """Return what it says when it has ended; None when it never says anything."""
    said: list[str] = []

    def has_ended() -> bool:
        said.extend(filter(None, [it.look()]))
        return it._child is None

    assert wait_until(has_ended, seconds=5)
    assert it.look() is None
    return said[0] if said else None


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


def test_an_errand_that_goes_well_is_not_spoken_of(tmp_path: Path) -> None:
    it = errand(tmp_path, "echo done > done")
    assert it.look() is None
    it.begin()
    assert outcome(it) is None
    assert (tmp_path / "done").exists()


def test_an_errand_that_fails_says_so_once(tmp_path: Path) -> None:
    it = errand(tmp_path, "exit 3")
    it.begin()
    assert outcome(it) == "It failed"


def test_an_errand_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    it = errand(tmp_path, "sleep 600 & echo $! > pid; wait", seconds=1)
    it.begin()
    assert outcome(it) == "It took longer than 1 s and was ended"
    left = int((tmp_path / "pid").read_text())
    assert wait_until(lambda: start_time(left) is None, seconds=2)


def test_an_errand_that_begins_again_ends_the_one_before(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    it = errand(tmp_path, "echo $$ >> pids; exec sleep 600")
    it.begin()
    assert wait_until(lambda: pids.exists() and pids.read_text(), seconds=5)
    first = int(pids.read_text())
    it.begin()
    assert start_time(first) is None
    it.end()
    assert it.look() is None


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    around = Surroundings(tmp_path, {"PATH": "/usr/bin:/bin"}, None)
    with pytest.raises(TimeoutError, match=r"sh took longer than 1 s"):
        run_to_end(["sh", "-c", "sleep 600 & echo $! > pid; wait"], around, seconds=1)
    left = int((tmp_path / "pid").read_text())
    assert wait_until(lambda: start_time(left) is None, seconds=2)


@pytest.mark.parametrize("size", [10, 6_000_000])
def test_a_log_stays_in_bounds(tmp_path: Path, size: int) -> None:
    path = tmp_path / "it.log"
    path.write_bytes(b"x" * size)
    LogFile(path)
    assert path.stat().st_size == (10 if size == 10 else 0)
    assert path.with_name("it.log.1").exists() == (size > 10)
