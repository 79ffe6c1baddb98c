"""Tables out of files that people upload: CSV and Excel, as a JSON reader keeps them exactly.

Pure, and without Django or a store: it runs in a child process with little memory
(`child`), which `process` starts. `detection` decides by content which reader is asked.

    table = read_table(path, "report.csv", ReadOptions(), limits)
    table.columns                       ["zip", "amount"]
    list(table.rows)                    [["00501", 12.5], ["10001", None]]
    table.about()                       {"kind": "csv", "encoding": "utf-8", "types": …, …}

A file that can't be read, or only in part, is refused whole (`TableRefused`); what was read but
may surprise is told in `notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

Value = str | int | float | bool | None
Row = Sequence[Value]

HEADER_MAX = 1_048_576
_DELIMITERS = {",": ",", ";": ";", "|": "|", "\t": "\t", "tab": "\t", "comma": ",",
               "semicolon": ";", "pipe": "|"}  # fmt: skip


class TableRefused(Exception):
    """The file can't be taken: a stable `code`, and a sentence that says where and what to do.

    `setting` names the limit that it is over, if it is over one.
    """

    def __init__(self, code: str, sentence: str, setting: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.setting = setting


@dataclass(frozen=True)
class TableLimits:
    """How much is read of a file; each field stands for the setting that `SETTINGS` names."""

    bytes: int = 32 * 1024 * 1024
    unpacked_bytes: int = 160 * 1024 * 1024
    rows: int = 500_000
    columns: int = 1_000
    cells: int = 5_000_000
    cell_chars: int = 100_000

    def check(self, limit: str, found: int, where: str = "The file") -> None:
        """Raise `TableRefused` where `found` is more than `limit` (the name of a field) allows."""
        most = getattr(self, limit)
        if found > most:
            noun = limit.replace("_", " ").replace("cell chars", "characters")
            raise TableRefused(
                "file_too_large",
                f"{where} has more than {most} {noun} ({SETTINGS[limit]}); split the file, or "
                "leave out what is not needed.",
                SETTINGS[limit],
            )

    def check_shape(self, rows: int, columns: int, where: str) -> None:
        """Raise `TableRefused` where a table of this shape is too large."""
        self.check("rows", rows, where)
        self.check("cells", rows * columns, where)


SETTINGS = {
    "bytes": "MAX_UPLOAD_BYTES",
    "unpacked_bytes": "MAX_UPLOAD_UNPACKED_BYTES",
    "rows": "MAX_UPLOAD_ROWS",
    "columns": "MAX_UPLOAD_COLUMNS",
    "cells": "MAX_UPLOAD_CELLS",
    "cell_chars": "MAX_UPLOAD_CELL_CHARS",
}


@dataclass(frozen=True)
class ReadOptions:
    """What whoever uploads knows better; empty fields are decided from the content.

    `header` is the number of the line (CSV) or row (Excel) with the names of the columns,
    counted from 1, or 0 where there is none. `types` is `auto`, or `text`: nothing in a CSV is
    a number.
    """

    delimiter: str = ""
    encoding: str = ""
    header: int | None = None
    sheet: str = ""
    types: str = "auto"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ReadOptions:
        """Return the options of a form: `{"delimiter": "tab", "header": "3"}`.

        `header` may also be `none` or `auto`. Raises `TableRefused` (`file_bad_option`).
        """
        known = {item.name for item in fields(cls)}
        for name, value in given.items():
            if name not in known or not isinstance(value, str | int):
                raise bad_option(name, f"is none of {', '.join(sorted(known))}, or not a text")
        texts = {name: str(given.get(name, "")) for name in known}
        return cls(
            delimiter=_delimiter(texts["delimiter"]),
            encoding=texts["encoding"].strip(),
            header=_header(texts["header"].strip().lower()),
            sheet=texts["sheet"],
            types=_types(texts["types"].strip().lower()),
        )


def bad_option(name: str, fault: str) -> TableRefused:
    """Return the refusal of an option: `fault` goes on where `name` begins."""
    return TableRefused("file_bad_option", f"The option {name} {fault}.")


def _delimiter(text: str) -> str:
    if not text:
        return ""
    found = _DELIMITERS.get(text) or _DELIMITERS.get(text.strip().lower())
    if not found:
        raise bad_option("delimiter", "must be one of , ; | and tab")
    return found


def _header(text: str) -> int | None:
    if text in {"", "auto"}:
        return None
    if text == "none":
        return 0
    if text.isdecimal() and len(text) <= len(str(HEADER_MAX)) and int(text) <= HEADER_MAX:
        return int(text)
    raise bad_option("header", "must be auto, none or the number of a line, from 1")


def _types(text: str) -> str:
    if text not in {"", "auto", "text"}:
        raise bad_option("types", "must be auto or text")
    return text or "auto"


_NOTES = {
    "blank_lines": "Lines without any value, which are no rows.",
    "blank_names": "Columns without a name, which are called by their number.",
    "repeated_names": "Names of columns that stand twice, which were given a number.",
    "no_header": "The first line looks like data, so columns are called by their number; "
    "the option header says otherwise.",
    "short_rows": "Rows with fewer fields than the header; the missing ones are null.",
    "empty_extra_fields": "Rows that go on, without a value, after the last column.",
    "nul_characters": "Cells with a NUL character, which reads as U+FFFD.",
    "encoding_guessed": "The encoding is not certain; if letters look wrong, name it with the "
    "option encoding.",
    "name_says_otherwise": "The content is not what the end of the file's name says; it was read "
    "by its content.",
    "before_header": "Lines above the header, which are no rows.",
    "decimal_commas": "Columns of numbers with decimal commas, which stay text.",
    "formulas_without_value": "Cells with a formula and no stored value, which read as null; open "
    "the file in Excel or LibreOffice and save it to have the values.",
    "excel_errors": "Cells with an Excel error such as #N/A or #DIV/0!, which read as null.",
    "long_numbers": "Whole numbers of more digits than Excel calculates with, kept as text.",
    "merged_header": "Names that stand over several columns, which were repeated.",
    "merged_cells": "Merged cells below the header: only the first holds the value.",
    "other_sheets": "Sheets that were not read; the option sheet names one.",
    "no_rows": "There is a header and nothing below it.",
}


@dataclass
class Notes:
    """What was read but may surprise: how often, and where first."""

    _found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, code: str, where: str, count: int = 1) -> None:
        """Count an occurrence; `where` is kept of the first: `line 4`."""
        if count:
            before, first = self._found.get(code, (0, where))
            self._found[code] = (before + count, first)

    def report(self) -> list[dict[str, Any]]:
        """Return `[{"code": "short_rows", "count": 2, "first": "line 4", "detail": "…"}]`."""
        return [
            {"code": code, "count": count, "first": first, "detail": _NOTES[code]}
            for code, (count, first) in self._found.items()
        ]


@dataclass(frozen=True)
class ParsedTable:
    """A table as it is read: rows come one after the other, and are not kept.

    `about` gives what the metadata says of the reading, once the rows are through.
    """

    columns: list[str]
    rows: Iterator[Row]
    about: Callable[[], dict[str, Any]]


def read_table(path: str, name: str, options: ReadOptions, limits: TableLimits) -> ParsedTable:
    """Open the table in the file at `path`, which was called `name` by whoever uploaded it.

    Raises `TableRefused`, here or while the rows are read.
    """
    from conversations.tables.detection import open_table

    return open_table(path, name, options, limits)
