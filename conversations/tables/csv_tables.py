"""CSV files: read twice, so that little memory is needed and a type holds for a whole column.

The first time each record is counted, checked and looked at; whatever has to be refused is
refused then, before a row has been given out. The second time gives the rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from conversations.tables import (
    Notes,
    ParsedTable,
    ReadOptions,
    Row,
    TableLimits,
    TableRefused,
    bad_option,
)
from conversations.tables.column_types import ColumnType, converted, is_number
from conversations.tables.encodings import Encoding, decide
from conversations.tables.headers import column_names, is_header, numbered_names

Record = tuple[int, list[str]]

_DELIMITERS = ",;\t|"
_SEP_LINES = {f"sep={delimiter}" for delimiter in _DELIMITERS}
_SAMPLE_CHARS = 64 * 1024
_SAMPLE_RECORDS = 50
_AT_ONCE = 500


@dataclass
class _Source:
    """The file, and how it is cut into records."""

    path: str
    encoding: Encoding
    limits: TableLimits
    delimiter: str = ""
    starts_at: int = 1  # the line of the first record; 2 after Excel's own `sep=;`

    def sample(self) -> str:
        """Return the beginning of the file."""
        with Path(self.path).open(encoding=self.encoding.name, newline="") as file:
            return file.read(_SAMPLE_CHARS)

    def records(self) -> Iterator[Record]:
        """Yield each record with the number of the line that it begins on."""
        with Path(self.path).open(encoding=self.encoding.name, newline="") as file:
            for _ in range(1, self.starts_at):
                file.readline()
            reader = csv.reader(file, delimiter=self.delimiter, strict=True)
            line = self.starts_at
            try:
                for record in reader:
                    yield line, record
                    line = reader.line_num + self.starts_at
            except csv.Error as error:
                raise self._refusal(str(error), line) from error

    def _refusal(self, fault: str, line: int) -> TableRefused:
        if "field limit" in fault:
            self.limits.check("cell_chars", self.limits.cell_chars + 1, f"A cell of line {line}")
        what = "a quote that is never closed" if "end of data" in fault else "a stray quote"
        return TableRefused(
            "file_quotes",
            f"The record that begins on line {line} has {what}: values with quotes, line breaks "
            'or delimiters stand between two ", and a " in them is written twice.',
        )


@dataclass
class _Layout:
    """Where the rows begin and which columns they have."""

    header_line: int  # 0 where no line names the columns
    columns: list[str]
    types: list[ColumnType] = field(default_factory=list)
    row_count: int = 0

    @property
    def width(self) -> int:
        return len(self.columns)


def read_csv(path: str, options: ReadOptions, limits: TableLimits, notes: Notes) -> ParsedTable:
    """Open a CSV file; raises `TableRefused` for whatever is wrong anywhere in it."""
    csv.field_size_limit(limits.cell_chars)
    source = _Source(path, decide(path, options.encoding), limits)
    _cut(source, options.delimiter)
    layout = _layout(source, options.header, notes)
    _look_at_all(source, layout, notes, as_text=options.types == "text")
    return ParsedTable(
        layout.columns, _rows(source, layout), partial(_about, source, layout, notes)
    )


def _about(source: _Source, layout: _Layout, notes: Notes) -> dict[str, Any]:
    if source.encoding.others:
        notes.add("encoding_guessed", f"or {', '.join(source.encoding.others)}")
    if not layout.row_count:
        notes.add("no_rows", f"line {layout.header_line}")
    return {
        "kind": "csv",
        "encoding": source.encoding.name.removesuffix("-sig"),
        "encoding_decided_by": source.encoding.decided_by,
        "delimiter": source.delimiter,
        "header": layout.header_line,
        "types": {n: t.name for n, t in zip(layout.columns, layout.types, strict=True)},
        "notes": notes.report(),
    }


# --- Delimiter --------------------------------------------------------------------------------


def _cut(source: _Source, wanted: str) -> None:
    """Decide the delimiter; Excel itself puts `sep=;` on a first line of its own."""
    sample = source.sample()
    first = sample.split("\n", 1)[0].strip('\r"')
    named = first[4:] if first.lower() in _SEP_LINES else ""
    if named:
        source.starts_at = 2
    source.delimiter = wanted or named or _likeliest_delimiter(sample)


def _likeliest_delimiter(sample: str) -> str:
    """Return the one that cuts the most records into the same number of fields."""
    best = max(_DELIMITERS, key=partial(_evenness, sample))
    return best if _evenness(sample, best)[0] else ","


def _evenness(sample: str, delimiter: str) -> tuple[float, int]:
    """Return which share of the records has the commonest number of fields, and that number."""
    reader = csv.reader(sample.splitlines(keepends=True), delimiter=delimiter)
    widths = []
    with suppress(csv.Error):
        widths = [len(record) for record in islice(reader, _SAMPLE_RECORDS) if record]
    if len(widths) > 1 and len(sample) >= _SAMPLE_CHARS:
        widths.pop()  # it may be cut off
    wide = [width for width in widths if width > 1]
    if not wide:
        return 0.0, 0
    commonest = max(wide, key=wide.count)
    return wide.count(commonest) / len(widths), commonest


# --- Header -----------------------------------------------------------------------------------


def _layout(source: _Source, header: int | None, notes: Notes) -> _Layout:
    filled = ((line, record) for line, record in source.records() if any(record))
    first, second = next(filled, None), next(filled, None)
    if first is None:
        raise TableRefused("file_empty", "The file has lines, but no value in any of them.")
    if header is None:
        header = _header_line(first, second, notes)
    if header == 0:
        return _Layout(0, numbered_names(len(first[1]), source.limits))
    names = first[1] if header == first[0] else _record_at(source, header, notes)
    return _Layout(header, column_names(names, notes, source.limits, f"line {header}"))


def _header_line(first: Record, second: Record | None, notes: Notes) -> int:
    line, record = first
    if is_header(record, second[1] if second else [], is_number):
        return line
    notes.add("no_header", f"line {line}")
    return 0


def _record_at(source: _Source, wanted: int, notes: Notes) -> list[str]:
    for line, record in source.records():
        if line == wanted and any(record):
            return record
        if line >= wanted:
            break
        notes.add("before_header", f"line {line}")
    raise bad_option("header", f"names line {wanted}, on which no record begins")


# --- Records ----------------------------------------------------------------------------------


def _body(source: _Source, layout: _Layout, notes: Notes) -> Iterator[list[str]]:
    """Yield the records below the header that hold anything, each with the columns' fields."""
    for line, record in source.records():
        if line <= layout.header_line:
            continue
        if any(record):
            yield _fitted(line, record, layout, notes)
        else:
            notes.add("blank_lines", f"line {line}")


def _look_at_all(source: _Source, layout: _Layout, notes: Notes, *, as_text: bool) -> None:
    """Check and count every record, and find out the columns' types."""
    layout.types = [ColumnType() for _ in layout.columns]
    body = _body(source, layout, notes)
    while rows := list(islice(body, _AT_ONCE)):
        layout.row_count += len(rows)
        source.limits.check_shape(layout.row_count, layout.width, "The file")
        for column, values in zip(layout.types, zip(*rows, strict=True), strict=True):
            column.look_at(values)
    for column, name in zip(layout.types, layout.columns, strict=True):
        notes.add("decimal_commas", name, count=column.has_decimal_commas)
        if as_text and column.name != "empty":
            column.name = "text"


def _fitted(line: int, record: list[str], layout: _Layout, notes: Notes) -> list[str]:
    """Return a record with just the columns' fields; raise `TableRefused` where it has more."""
    missing = layout.width - len(record)
    if missing > 0:
        notes.add("short_rows", f"line {line}")
        record = [*record, *[""] * missing]
    elif missing < 0:
        _refuse_more(line, record, layout)
        notes.add("empty_extra_fields", f"line {line}")
        record = record[: layout.width]
    if "\0" in "".join(record):
        notes.add("nul_characters", f"line {line}", sum("\0" in value for value in record))
        record = [value.replace("\0", "\ufffd") for value in record]
    return record


def _refuse_more(line: int, record: Sequence[str], layout: _Layout) -> None:
    if any(record[layout.width :]):
        above = f"line {layout.header_line}, the header" if layout.header_line else "the first row"
        raise TableRefused(
            "file_row_too_long",
            f"Line {line} has {len(record)} fields, but {above}, has {layout.width}: is a value "
            "with a delimiter in it not quoted, or is another line the header (option header)?",
        )


def _rows(source: _Source, layout: _Layout) -> Iterator[Row]:
    body = _body(source, layout, Notes())
    while rows := list(islice(body, _AT_ONCE)):
        yield from converted(rows, layout.types)
