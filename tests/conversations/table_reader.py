"""Reads a table from bytes, in this process, as the child does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conversations.tables import ReadOptions, TableLimits, TableRefused, read_table

LIMITS = TableLimits()


class Read:
    """A table that was read whole."""

    def __init__(self, path: Path, name: str, options: dict[str, Any], limits: TableLimits) -> None:
        table = read_table(str(path), name, ReadOptions.of(options), limits)
        self.columns = table.columns
        self.rows = [list(row) for row in table.rows]
        self.about = table.about()
        self.notes = {note["code"]: note for note in self.about["notes"]}

    @property
    def types(self) -> list[str]:
        return list(self.about["types"].values())


class Reader:
    """`read(content, name="report.csv", delimiter=";")` gives what was `Read`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "upload"

    def __call__(
        self,
        content: bytes | str,
        name: str = "report.csv",
        limits: TableLimits = LIMITS,
        **options: Any,
    ) -> Read:
        self._path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Read(self._path, name, options, limits)

    def refusal(self, *given: Any, **options: Any) -> TableRefused:
        with pytest.raises(TableRefused) as refused:
            self(*given, **options)
        return refused.value
