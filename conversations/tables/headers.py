"""Which row names the columns, and names that are unique."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from conversations.tables import Notes, TableLimits

_SPACE = re.compile(r"\s+")
_YEAR = re.compile(r"(?:19|20)\d\d")


def is_header(
    first: Sequence[str], second: Sequence[str], is_number: Callable[[str], bool]
) -> bool:
    """Whether the first row names the columns that the second one begins to fill.

    It does unless it holds numbers only, or a number over a number that is no year:
    `country,2020` over `France,3` is a header, `a,1` over `b,2` is not.
    """
    filled = [cell for cell in first if cell]
    if all(map(is_number, filled)):
        return False
    return not any(
        is_number(above) and is_number(below) and not _YEAR.fullmatch(above)
        for above, below in zip(first, second, strict=False)
    )


def column_names(cells: Sequence[str], notes: Notes, limits: TableLimits, where: str) -> list[str]:
    """Return a name for each column: `["id", "", "id"]` → `["id", "column_2", "id (2)"]`."""
    limits.check("columns", len(cells))
    given = [_SPACE.sub(" ", cell.replace("\0", "\ufffd")).strip() for cell in cells]
    used: set[str] = set(given)
    seen: set[str] = set()
    names = []
    for number, name in enumerate(given, 1):
        unique = name
        if not name:
            notes.add("blank_names", f"{where}, column {number}")
            unique = _unused(f"column_{number}", used)
        elif name in seen:
            notes.add("repeated_names", f"{where}, column {number}")
            unique = _unused(name, used)
        seen.add(unique)
        used.add(unique)
        names.append(unique)
    return names


def _unused(name: str, used: set[str]) -> str:
    unique, number = name, 2
    while unique in used:
        unique, number = f"{name} ({number})", number + 1
    return unique


def numbered_names(count: int, limits: TableLimits) -> list[str]:
    """Return names for columns that have none: `["column_1", "column_2"]`."""
    limits.check("columns", count)
    return [f"column_{number}" for number in range(1, count + 1)]
