"""The one table: what was measured, goal and figure beside each other, met or missed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_HEADINGS = ("what", "against", "goal", "figure", "", "measured")
_STYLES = {"ok": "green", "missed": "red"}


@dataclass(frozen=True)
class Line:
    """One row of the table.

    `figure` is a multiple of what `against` names, and at most `goal` where there is one; a line
    without a figure is printed for its `measured` alone. `least` turns the comparison round: the
    figure should be `goal` at the least.
    """

    what: str
    measured: str
    against: str = ""
    figure: float | None = None
    goal: float | None = None
    least: bool = False

    @property
    def verdict(self) -> str:
        """`ok`, `missed`, or `""` where there is no goal."""
        if self.figure is None or self.goal is None:
            return ""
        met = self.figure >= self.goal if self.least else self.figure <= self.goal
        return "ok" if met else "missed"

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, in the order of the headings."""
        sign = "≥" if self.least else "≤"
        goal = "" if self.goal is None else f"{sign} {self.goal:.2f}"
        figure = "" if self.figure is None else f"{self.figure:.2f}"
        return self.what, self.against, goal, figure, self.verdict, self.measured


def show(lines: Sequence[Line]) -> None:
    """Print the table: drawn on a terminal, aligned plain text anywhere else."""
    if sys.stdout.isatty():
        Console().print(_drawn(lines))
    else:
        sys.stdout.write("\n".join(_plain(lines)) + "\n")
    sys.stdout.flush()


def save(lines: Sequence[Line], path: Path) -> None:
    """Write the lines, verdicts included, as JSON."""
    rows: list[dict[str, Any]] = [{**asdict(line), "verdict": line.verdict} for line in lines]
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=2) + "\n")


def missed(lines: Iterable[Line]) -> list[str]:
    """Return what missed its goal."""
    return [line.what for line in lines if line.verdict == "missed"]


def _drawn(lines: Sequence[Line]) -> Table:
    table = Table(*_HEADINGS)
    for line in lines:
        table.add_row(*line.cells(), style=_STYLES.get(line.verdict))
    return table


def _plain(lines: Sequence[Line]) -> list[str]:
    rows = [_HEADINGS, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def ms(seconds: float) -> str:
    """Return a time as it stands in the table.

    >>> ms(0.00123)
    '1.23 ms'
    """
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.001 else f"{seconds * 1e3:.2f} ms"
