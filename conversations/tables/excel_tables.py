"""Excel files: opened by calamine, once it is known what they unpack to.

Each cell keeps the type that it has in the workbook, so `00501` stored as text stays text and
a column may be `mixed`. Whole numbers are integers, dates and times are ISO 8601 texts:
`2026-11-30`, `2026-11-30T09:00:00`, `09:30:00`, durations `P0DT01H30M00S`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetMetadata,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from conversations.tables import (
    Notes,
    ParsedTable,
    ReadOptions,
    Row,
    TableLimits,
    TableRefused,
    Value,
    bad_option,
)
from conversations.tables.archives import unpacked
from conversations.tables.column_types import is_number
from conversations.tables.detection import damaged, protected
from conversations.tables.headers import column_names, is_header, numbered_names
from conversations.tables.workbook_parts import SheetParts, WorkbookParts

T = TypeVar("T")
NumberedRow = tuple[int, list[Any]]  # counted from 0, as the cells' places are

_EXACT = 2**53
_AT_ONCE = 500
_LOOKED_AT = 50


def read_excel(
    kind: str, path: str, options: ReadOptions, limits: TableLimits, notes: Notes
) -> ParsedTable:
    """Open one sheet of a workbook; `kind` is `xlsx`, `xlsb`, `ods` or `xls`.

    Raises `TableRefused`.
    """
    parts = WorkbookParts(unpacked(path, limits) if kind != "xls" else ())
    workbook = _asked(lambda: CalamineWorkbook.from_path(path))
    sheet = _chosen(workbook, parts, options.sheet)
    _note_others(workbook, sheet.name, notes)
    _note_what_the_xml_says(sheet, notes)
    if not any(True for _ in sheet.rows()):
        raise TableRefused("file_empty", f"Sheet {sheet.name} has no value in it.")
    limits.check("columns", sheet.width, f"Sheet {sheet.name}")
    layout = _layout(sheet, options.header, limits, notes)
    return ParsedTable(
        layout.columns,
        _rows(sheet, layout, limits, notes),
        partial(_about, kind, workbook, sheet, layout, notes),
    )


@dataclass
class _Layout:
    """Where the rows begin, and what the columns are called and turn out to hold."""

    header: int  # the row's number, counted from 1; 0 for none
    columns: list[str]
    held: list[set[tuple[type, type]]] = field(default_factory=list)
    row_count: int = 0


def _about(
    kind: str, workbook: CalamineWorkbook, sheet: _Sheet, layout: _Layout, notes: Notes
) -> dict[str, Any]:
    if not layout.row_count:
        notes.add("no_rows", f"sheet {sheet.name}, row {layout.header}")
    types = map(_type_name, layout.held or [set() for _ in layout.columns])
    return {
        "kind": kind,
        "sheet": sheet.name,
        "sheets": [
            {"name": each.name, "visible": _is_visible(each)} for each in workbook.sheets_metadata
        ],
        "header": layout.header,
        "types": dict(zip(layout.columns, types, strict=True)),
        "notes": notes.report(),
    }


# --- Workbooks and their sheets -----------------------------------------------------------------


class _Sheet:
    """One sheet, with the cells that calamine leaves out."""

    def __init__(self, sheet: CalamineSheet, parts: SheetParts) -> None:
        self.name = sheet.name
        self.parts = parts
        self._sheet = sheet
        first, last = parts.formula_columns
        if sheet.start and sheet.end:
            first, last = min(first, sheet.start[1]), max(last, sheet.end[1])
        self.left = first
        self.width = max(last - first + 1, 0)

    def rows(self) -> Iterator[NumberedRow]:
        """Yield each row that holds anything, with its number counted from 0."""
        expected = self.parts.formula_rows
        for number, row in self._all_rows():
            if number in expected or row.count("") < len(row):
                yield number, row

    def merged(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Return the first and last cell of each merged area."""
        return self._sheet.merged_cell_ranges or []

    def _all_rows(self) -> Iterator[NumberedRow]:
        before = [""] * (self._sheet.start[1] - self.left if self._sheet.start else 0)
        after = [""] * (self.width - len(before) - self._sheet.width)
        number = -1
        for number, row in enumerate(self._sheet.iter_rows()):
            yield number, self._with_long_numbers(number, [*before, *row, *after])
        for missed in sorted(row for row in self.parts.formula_rows if row > number):
            yield missed, [""] * self.width

    def _with_long_numbers(self, number: int, row: list[Any]) -> list[Any]:
        for column, text in self.parts.long_numbers.get(number, {}).items():
            if 0 <= column - self.left < len(row):
                row[column - self.left] = text
        return row


def _asked(question: Callable[[], T]) -> T:
    """Return calamine's answer; raise `TableRefused` where it can't read the file."""
    try:
        return question()
    except PasswordError as error:
        raise protected() from error
    except CalamineError as error:
        raise damaged("Excel") from error
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # Rust's, which can't be imported
            raise damaged("Excel") from error
        raise


def _chosen(workbook: CalamineWorkbook, parts: WorkbookParts, wanted: str) -> _Sheet:
    """Return the sheet that is wanted, or the first visible one with anything in it."""
    sheets = [s for s in workbook.sheets_metadata if s.typ == SheetTypeEnum.WorkSheet]
    if wanted:
        return _loaded(workbook, parts, _named(sheets, wanted))
    for each in filter(_is_visible, sheets):
        sheet = _loaded(workbook, parts, each.name)
        if any(True for _ in sheet.rows()):
            return sheet
    raise TableRefused(
        "file_empty",
        f"No visible sheet has a value in it; the workbook has: {_list_of(sheets)}. "
        "The option sheet names another.",
    )


def _loaded(workbook: CalamineWorkbook, parts: WorkbookParts, name: str) -> _Sheet:
    return _Sheet(_asked(lambda: workbook.get_sheet_by_name(name)), parts.sheet(name))


def _named(sheets: Sequence[SheetMetadata], wanted: str) -> str:
    for form in (str, str.casefold):
        for each in sheets:
            if form(each.name) == form(wanted):
                return each.name
    raise bad_option("sheet", f"names none of the workbook's sheets: {_list_of(sheets)}")


def _list_of(sheets: Sequence[SheetMetadata]) -> str:
    shown = [each.name if _is_visible(each) else f"{each.name} (hidden)" for each in sheets[:20]]
    return ", ".join([*shown, *(["…"] if len(sheets) > len(shown) else [])])


def _is_visible(sheet: SheetMetadata) -> bool:
    return sheet.visible == SheetVisibleEnum.Visible


def _note_others(workbook: CalamineWorkbook, chosen: str, notes: Notes) -> None:
    others = [sheet for sheet in workbook.sheets_metadata if sheet.name != chosen]
    notes.add("other_sheets", _list_of(others), len(others))


def _note_what_the_xml_says(sheet: _Sheet, notes: Notes) -> None:
    parts, where = sheet.parts, f"sheet {sheet.name}"
    notes.add("formulas_without_value", f"{where}, {parts.first_formula}", parts.formulas)
    notes.add("excel_errors", where, parts.errors)
    long_numbers = sum(map(len, parts.long_numbers.values()))
    notes.add(
        "long_numbers", f"{where}, row {min(parts.long_numbers, default=0) + 1}", long_numbers
    )


# --- Header -----------------------------------------------------------------------------------


def _layout(sheet: _Sheet, header: int | None, limits: TableLimits, notes: Notes) -> _Layout:
    if header is None:
        header = _header_row(sheet, notes)
    if header == 0:
        return _Layout(0, numbered_names(sheet.width, limits))
    where = f"sheet {sheet.name}, row {header}"
    cells = _with_merged(sheet, header - 1, _row_at(sheet, header, notes), notes)
    _note_merged_below(sheet, header, notes)
    return _Layout(header, column_names(cells, notes, limits, where))


def _header_row(sheet: _Sheet, notes: Notes) -> int:
    """Return the number of the first row that is no title, counted from 1; 0 where it is data."""
    rows = list(islice(sheet.rows(), _LOOKED_AT))
    while len(rows) > 1 and _is_title(rows[0][1], rows[1:]):
        notes.add("before_header", f"sheet {sheet.name}, row {rows.pop(0)[0] + 1}")
    number, first = rows[0]
    second = rows[1][1] if len(rows) > 1 else []
    if is_header([*map(_name, first)], [*map(_name, second)], is_number):
        return number + 1
    notes.add("no_header", f"sheet {sheet.name}, row {number + 1}")
    return 0


def _is_title(row: Sequence[Any], below: Sequence[NumberedRow]) -> bool:
    """Whether a row holds a single text over rows that hold more."""
    return _filled(row) == 1 and max(_filled(other) for _, other in below) > 1


def _filled(row: Sequence[Any]) -> int:
    return len(row) - row.count("")


def _row_at(sheet: _Sheet, header: int, notes: Notes) -> list[str]:
    for number, row in sheet.rows():
        if number == header - 1:
            return [*map(_name, row)]
        if number >= header:
            break
        notes.add("before_header", f"sheet {sheet.name}, row {number + 1}")
    raise bad_option("header", f"names row {header} of sheet {sheet.name}, which is empty")


def _with_merged(sheet: _Sheet, row: int, cells: list[str], notes: Notes) -> list[str]:
    """Return the names with those of merged cells over each of their columns."""
    for (top, first), (_, last) in sheet.merged():
        if top == row and last > first and 0 <= first - sheet.left < len(cells):
            notes.add("merged_header", f"sheet {sheet.name}, row {row + 1}")
            span = slice(first - sheet.left, min(last - sheet.left + 1, len(cells)))
            cells[span] = [cells[span.start]] * (span.stop - span.start)
    return cells


def _note_merged_below(sheet: _Sheet, header: int, notes: Notes) -> None:
    tops = [top for (top, _), _ in sheet.merged() if top >= header]
    notes.add("merged_cells", f"sheet {sheet.name}, row {min(tops, default=0) + 1}", len(tops))


def _name(value: Any) -> str:
    plain = _plain(value)
    return "" if plain is None else str(plain)


# --- Rows -------------------------------------------------------------------------------------


def _rows(sheet: _Sheet, layout: _Layout, limits: TableLimits, notes: Notes) -> Iterator[Row]:
    """Yield the rows below the header, and learn from them what the columns hold."""
    layout.held = [set() for _ in layout.columns]
    where = f"Sheet {sheet.name}"
    body = _body(sheet, layout.header, notes)
    while rows := list(islice(body, _AT_ONCE)):
        layout.row_count += len(rows)
        limits.check_shape(layout.row_count, len(layout.columns), where)
        columns = list(zip(*rows, strict=True))
        plain = [[*map(_plain, column)] for column in columns]
        for held, raw, values in zip(layout.held, columns, plain, strict=True):
            held |= {*zip(map(type, raw), map(type, values), strict=True)}
            longest = max((len(v) for v in values if isinstance(v, str)), default=0)
            limits.check("cell_chars", longest, f"A cell of sheet {sheet.name}")
        yield from zip(*plain, strict=True)


def _body(sheet: _Sheet, header: int, notes: Notes) -> Iterator[list[Any]]:
    next_one = header
    for number, row in sheet.rows():
        if number < header:
            continue
        notes.add("blank_lines", f"sheet {sheet.name}, row {next_one + 1}", number - next_one)
        next_one = number + 1
        yield row


def _plain(value: Any) -> Value:
    """Return a cell as JSON keeps it; an empty one is None."""
    return _PLAIN[type(value)](value)


def _text(value: str) -> Value:
    return value.replace("\0", "\ufffd") or None


def _number(value: float) -> Value:
    """Return a number; Excel's are all floats, of which whole ones are exact up to 2^53."""
    if value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value if abs(value) != float("inf") and value == value else None


def _duration(value: dt.timedelta) -> str:
    """Return `P1DT02H03M04S`, as `config.plain_json` writes it."""
    sign, value = ("-", -value) if value < dt.timedelta() else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = f".{value.microseconds:06d}" if value.microseconds else ""
    return f"{sign}P{value.days}DT{hours:02d}H{minutes:02d}M{seconds:02d}{parts}S"


_PLAIN: Mapping[type, Callable[[Any], Value]] = {
    str: _text,
    float: _number,
    int: lambda value: value if abs(value) <= _EXACT else str(value),
    bool: bool,
    dt.datetime: dt.datetime.isoformat,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
    dt.timedelta: _duration,
}
_TYPE_NAMES = {
    bool: "boolean",
    dt.datetime: "datetime",
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "duration",
}
_PLAIN_NAMES = {str: "text", int: "integer", float: "number"}
_TOGETHER = {
    frozenset({"integer", "number"}): "number",
    frozenset({"date", "datetime"}): "datetime",
}


def _type_name(held: set[tuple[type, type]]) -> str:
    """Return what a column holds, by the types of its cells before and after `_plain`."""
    names = {
        _TYPE_NAMES.get(raw) or _PLAIN_NAMES[plain]
        for raw, plain in held
        if plain is not type(None)
    }
    if len(names) > 1:
        return _TOGETHER.get(frozenset(names), "mixed")
    return names.pop() if names else "empty"
