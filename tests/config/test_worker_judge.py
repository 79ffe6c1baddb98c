"""When a cluster of workers counts as frozen, by what is seen of it; with a clock of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config.pulse import NEVER, Mark, Snapshot, Step
from config.worker import Judge

STARTED = 1000.0
PATIENCE = 20.0


class Watched:
    """A cluster that starts at `STARTED` and is looked at every second."""

    def __init__(self) -> None:
        self.now = STARTED
        self.judge = Judge(PATIENCE, STARTED)
        self.seen = Snapshot()
        self.loops_go_round = self.database_answers = True

    def for_seconds(self, seconds: float) -> str | None:
        """Let time pass; return the first verdict, if there is one."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            if self.loops_go_round:
                self.seen = replace(self.seen, guard_at=self.now, pusher_at=self.now)
            if found := self.look():
                return found
        return None

    def look(self) -> str | None:
        return self.judge.verdict(self.seen, self.now, database_answers=self.database_answers)

    def has(self, *jobs: Mark, begun: Step = NEVER, handled: Step = NEVER) -> None:
        named = {str(number): job for number, job in enumerate(jobs)}
        self.seen = replace(self.seen, jobs=named, begun=begun, handled=handled)


@pytest.fixture
def it() -> Watched:
    watched = Watched()
    assert watched.for_seconds(1) is None
    return watched


def taken(it: Watched) -> Mark:
    return Mark(1, 120, "taken", it.now)


def running(it: Watched, timeout: float = 120) -> Mark:
    return Mark(1, timeout, "running", it.now)


def ended(it: Watched) -> Mark:
    return Mark(1, 120, "ended", it.now)


# --- Frozen


def test_a_job_that_does_not_begin(it: Watched) -> None:
    it.has(taken(it))

    assert it.for_seconds(20) is None
    assert it.for_seconds(1) == "a job that was taken and does not begin"


def test_a_job_that_does_not_begin_although_another_runs(it: Watched) -> None:
    it.has(running(it), taken(it), begun=Step(it.now, queued_at=it.now - 1))

    assert it.for_seconds(21) == "a job that was taken and does not begin"


def test_a_result_that_is_not_stored(it: Watched) -> None:
    it.has(ended(it))

    assert it.for_seconds(21) == "a result that is not stored"


def test_a_job_that_goes_on_although_its_time_is_long_over(it: Watched) -> None:
    it.has(running(it, timeout=10))

    assert it.for_seconds(10 + 3 + PATIENCE) is None
    assert it.for_seconds(1) == "a job that outlives its time-out"


def test_loops_that_do_not_go_round(it: Watched) -> None:
    it.loops_go_round = False

    assert it.for_seconds(21) == "the sentinel"


def test_a_pusher_that_stands_still(it: Watched) -> None:
    it.loops_go_round = False
    it.seen = replace(it.seen, guard_at=it.now + 60)

    assert it.for_seconds(21) == "the pusher"


# --- Not frozen


def test_two_workers_busy_for_two_minutes(it: Watched) -> None:
    it.has(running(it), running(it))

    assert it.for_seconds(120) is None


def test_a_job_without_a_time_out(it: Watched) -> None:
    it.has(running(it, timeout=-1))

    assert it.for_seconds(100_000) is None


def test_a_backlog_of_which_job_after_job_begins(it: Watched) -> None:
    for _ in range(300):
        it.has(taken(it), running(it), ended(it), begun=Step(it.now), handled=Step(it.now))
        assert it.for_seconds(1) is None


def test_a_job_that_was_lost_on_its_way_while_later_ones_begin(it: Watched) -> None:
    """A worker process was killed between taking it from the queue and saying so."""
    it.has(taken(it), begun=Step(it.now + 5, queued_at=it.now + 4))

    assert it.for_seconds(60) is None


def test_a_result_that_was_lost_while_later_ones_are_stored(it: Watched) -> None:
    it.has(ended(it), handled=Step(it.now + 5, queued_at=it.now + 4))

    assert it.for_seconds(60) is None


def test_results_that_are_stored_slowly_one_after_the_other(it: Watched) -> None:
    old = ended(it)
    for _ in range(6):
        it.has(old, handled=Step(it.now, queued_at=old.at - 1))
        assert it.for_seconds(15) is None


def test_a_cluster_that_takes_long_to_start() -> None:
    watched = Watched()
    watched.loops_go_round = False

    assert watched.for_seconds(60) is None
    assert watched.for_seconds(1) == "the sentinel"


def test_a_cluster_whose_sentinel_goes_round_before_its_pusher_has_started() -> None:
    watched = Watched()
    watched.loops_go_round = False
    watched.seen = Snapshot(guard_at=STARTED + 60)

    assert watched.for_seconds(60) is None
    assert watched.for_seconds(1) == "the pusher"


# --- Not to be judged


def test_while_the_database_does_not_answer(it: Watched) -> None:
    it.has(taken(it))
    it.loops_go_round = it.database_answers = False

    assert it.for_seconds(300) is None


def test_the_database_is_back_and_everything_gets_its_time_again(it: Watched) -> None:
    it.has(taken(it))
    it.database_answers = False
    it.for_seconds(60)
    it.database_answers = True

    assert it.for_seconds(20) is None
    assert it.for_seconds(1) is not None


def test_after_a_sleep_of_the_whole_machine(it: Watched) -> None:
    it.has(taken(it))
    it.now += 3600

    assert it.look() is None
    assert it.for_seconds(20) is None


# --- Whether it works


def test_it_works_once_its_loops_have_gone_round(it: Watched) -> None:
    assert not it.judge.works(Snapshot(), it.now)
    assert not it.judge.works(Snapshot(guard_at=it.now), it.now)
    assert it.judge.works(it.seen, it.now)


def test_it_does_not_when_they_stand_still(it: Watched) -> None:
    assert not it.judge.works(it.seen, it.now + 21)
