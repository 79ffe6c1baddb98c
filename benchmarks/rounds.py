"""Alternated rounds: both sides meet the same disturbances, so that their ratio is to be trusted.

A figure of one side is the median over the rounds. A ratio is the median of the rounds' own
ratios, which a machine that slows down half way does not shift.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.report import Line, ms

Round = Callable[[], float]


@dataclass(frozen=True)
class Sides:
    """What the rounds gave: for each side its figures, round by round."""

    figures: Mapping[str, list[float]]

    def median(self, side: str) -> float:
        """Return a side's median over the rounds."""
        return median(self.figures[side])

    def ratio(self, side: str, against: str) -> float:
        """Return the median of the rounds' ratios."""
        pairs = zip(self.figures[side], self.figures[against], strict=True)
        return median(ours / theirs for ours, theirs in pairs)

    def line(self, what: str, side: str, against: str, goal: float | None, note: str = "") -> Line:
        """Return the table's row for the times of `side` as a multiple of `against`'s."""
        ours, theirs = self.median(side), self.median(against)
        measured = f"{ms(ours)} : {ms(theirs)}{note and f'; {note}'}"
        return Line(what, measured, against, self.ratio(side, against), goal)


def alternate(sides: Mapping[str, Round], rounds: int) -> Sides:
    """Run each side once unmeasured, then in turn for `rounds` rounds, forwards and backwards."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for run in sides.values():
        run()
    for number in range(rounds):
        for name in sides if number % 2 == 0 else reversed(list(sides)):
            figures[name].append(sides[name]())
    return Sides(figures)


def timed(call: Callable[[], object], times: int) -> float:
    """Return the median time of a call, in seconds."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return median(taken)
