"""What the processes of a cluster write of its jobs, and what is read from it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from config.pulse import NEVER, PROBE, VARIABLE, Mark, Pulse, Snapshot, Step

NOW = 1000.0
BEGIN_AND_DIE = """
import os, sys
from pathlib import Path
from config.pulse import Pulse
Pulse(Path(sys.argv[1])).began("a")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def pulse(tmp_path: Path) -> Pulse:
    return Pulse(tmp_path)


def taken(at: float = NOW) -> Mark:
    return Mark(1, 120, "taken", at)


def running() -> Mark:
    return Mark(1, 120, "running", NOW)


def ended() -> Mark:
    return Mark(1, 120, "ended", NOW)


def snapshot(*jobs: Mark, begun: Step = NEVER) -> Snapshot:
    return Snapshot(begun=begun, jobs={str(number): job for number, job in enumerate(jobs)})


def test_nothing_has_happened_in_a_new_folder(pulse: Pulse) -> None:
    assert pulse.read() == Snapshot()


def test_a_job_from_being_taken_to_its_result(pulse: Pulse) -> None:
    steps = []
    for step in (
        lambda: pulse.took("a", 17, 60),
        lambda: pulse.began("a"),
        lambda: pulse.ended("a"),
    ):
        step()
        [job] = pulse.read().jobs.values()
        steps.append((job.row, job.timeout, job.state))
    pulse.handled("a")

    assert steps == [(17, 60, "taken"), (17, 60, "running"), (17, 60, "ended")]
    assert pulse.read().jobs == {}


def test_times_are_of_the_clock_that_nobody_sets(pulse: Pulse) -> None:
    before = time.monotonic()
    for part in ("guard", "pusher"):
        pulse.beat(part)
    pulse.took("a", 1, 60)
    pulse.began("a")
    pulse.ended("a")
    pulse.handled("a")

    seen = pulse.read()
    times = [seen.guard_at, seen.pusher_at, *seen.begun, *seen.handled]
    assert before <= min(times)
    assert max(times) <= time.monotonic()


def test_a_step_tells_when_its_job_had_been_queued(pulse: Pulse) -> None:
    pulse.took("a", 1, 60)
    [taken] = pulse.read().jobs.values()
    pulse.began("a")
    pulse.ended("a")
    [ended] = pulse.read().jobs.values()
    pulse.handled("a")

    seen = pulse.read()
    assert (seen.begun.queued_at, seen.handled.queued_at) == (taken.at, ended.at)


def test_what_was_lost_long_ago_is_forgotten(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: NOW)
    pulse.took("lost", 1, 60)
    for later, jobs_seen in ((NOW + 59, {"lost"}), (NOW + 61, set())):
        monkeypatch.setattr(time, "monotonic", lambda now=later: now)
        pulse.took("next", 2, 60)
        pulse.began("next")
        pulse.ended("next")
        pulse.handled("next")
        assert pulse.read().jobs.keys() == jobs_seen


def test_a_job_whose_process_was_killed_is_gone(pulse: Pulse) -> None:
    pulse.took("a", 1, 60)
    subprocess.run(
        [sys.executable, "-c", BEGIN_AND_DIE, str(pulse.folder)], check=False, cwd=os.curdir
    )

    seen = pulse.read()

    assert seen.begun.at
    assert seen.jobs == {}


def test_a_folder_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    pulse = Pulse(tmp_path / "gone")
    pulse.beat("guard")
    pulse.took("a", 1, 60)
    pulse.began("a")
    pulse.ended("a")
    pulse.handled("a")

    assert pulse.read() == Snapshot()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"row": 1}'])
def test_a_file_that_can_not_be_read_is_passed_over(pulse: Pulse, text: str) -> None:
    (pulse.folder / "a.job").write_text(text)
    (pulse.folder / "guard").write_text(text)

    assert pulse.read() == Snapshot()


def test_it_is_closed_when_that_is_asked(pulse: Pulse) -> None:
    assert not pulse.is_closed
    pulse.close()
    assert pulse.is_closed


def test_a_process_has_one_only_under_a_supervisor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert Pulse.of_this_process() is None

    monkeypatch.setenv(VARIABLE, str(tmp_path))
    found = Pulse.of_this_process()
    assert found
    assert found.folder == tmp_path


# --- What follows from it


@pytest.mark.parametrize(
    ("jobs", "has_room"),
    [
        ([], True),
        ([running()], True),
        ([running(), running()], False),
        ([running(), taken(NOW - 1)], False),
        ([running(), taken(NOW - 6)], True),  # lost on its way, or the queue is frozen
        ([running(), ended()], True),
        ([ended()] * 3, True),
        ([ended()] * 4, False),
    ],
)
def test_whether_two_workers_can_take_another(jobs: list[Mark], has_room: bool) -> None:
    assert snapshot(*jobs).has_room(2, NOW) is has_room


def test_a_job_that_waits_longer_than_it_should_is_suspicious() -> None:
    assert not snapshot(taken(NOW - 4)).is_suspicious(NOW)
    assert snapshot(taken(NOW - 6)).is_suspicious(NOW)
    assert not snapshot(taken(NOW - 6), begun=Step(NOW - 1, NOW - 3)).is_suspicious(NOW)


def test_what_no_process_has_begun() -> None:
    probe = Mark(0, 120, "taken", NOW)
    lost = Mark(7, 120, "taken", NOW - 60)

    assert snapshot(taken(), running(), probe, lost, begun=Step(NOW, NOW - 1)).not_begun == [1, 7]


def test_a_probe_is_under_way_until_it_has_run_or_was_lost() -> None:
    def is_under_way(probe: Mark, begun: Step = NEVER) -> bool:
        return Snapshot(begun=begun, jobs={PROBE: probe}).probe_is_under_way

    assert not snapshot(taken()).probe_is_under_way
    assert is_under_way(taken())
    assert is_under_way(running())
    assert not is_under_way(taken(), Step(NOW + 2, NOW + 1))
