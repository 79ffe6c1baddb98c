"""What the XML of an .xlsx says and calamine does not: noticed while the archive is unpacked.

Calamine gives no value for a formula that nobody has calculated, and leaves out a row that ends
the sheet with one; it makes a float of a whole number with more digits than a float keeps, and
an empty text of an error. Each sheet is looked at in pieces, by expressions that see one cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import join, normpath
from xml.etree import ElementTree as ET

_NO_COLUMNS = (1 << 20, -1)
_PART_MAX_BYTES = 4 * 1024 * 1024
# No cell is longer whose text the limits allow; what is has no end.
_CARRIED_BYTES = 1 << 20
_CELL = rb'<(?:\w+:)?c\b[^<>]*?\br="([A-Z]{1,3})(\d{1,7})"[^<>]*>\s*'
_V = rb"(?:\w+:)?v"
_FORMULA = re.compile(
    _CELL + rb"<(?:\w+:)?f\b(?:[^<>]*/>|[^<>]*>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<" + _V + rb"\s*/>|<" + _V + rb">\s*</" + _V + rb">)?\s*</(?:\w+:)?c>"
)
_LONG_NUMBER = re.compile(
    _CELL + rb"(?:<(?:\w+:)?f\b[^<>]*>[^<]*</(?:\w+:)?f>\s*)?<" + _V + rb">(-?[1-9]\d{15,})</"
)
_LONG = re.compile(rb">-?[1-9]\d{15,}<")
_ERROR = re.compile(rb"<(?:\w+:)?c\b[^<>]*\bt=\"e\"")
_RELATIONS = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"


@dataclass
class SheetParts:
    """One sheet: formulas without a value, errors, and whole numbers past 15 digits as text.

    Rows and columns are counted from 0.
    """

    formulas: int = 0
    errors: int = 0
    first_formula: str = ""
    formula_rows: set[int] = field(default_factory=set)
    formula_columns: tuple[int, int] = _NO_COLUMNS  # the first and the last
    long_numbers: dict[int, dict[int, str]] = field(default_factory=dict)  # by row and column
    _carried: bytes = b""

    def feed(self, chunk: bytes) -> None:
        """Look at the next piece of the sheet's XML."""
        text = self._carried + chunk
        end = max(text.rfind(b"</c>"), text.rfind(b":c>"))
        cut = end + 4 if end >= 0 else 0
        self._look_at(text[:cut])
        self._carried = text[cut:][-_CARRIED_BYTES:]

    def _look_at(self, text: bytes) -> None:
        if b"<f" in text or b":f" in text:
            for found in _FORMULA.finditer(text):
                self._add_formula(*found.groups())
        if _LONG.search(text):
            for found in _LONG_NUMBER.finditer(text):
                self._add_long_number(*found.groups())
        if b't="e"' in text:
            self.errors += len(_ERROR.findall(text))

    def _add_long_number(self, letters: bytes, digits: bytes, number: bytes) -> None:
        row, column = _place(letters, digits)
        self.long_numbers.setdefault(row, {})[column] = number.decode()

    def _add_formula(self, letters: bytes, digits: bytes) -> None:
        row, column = _place(letters, digits)
        self.formulas += 1
        self.first_formula = self.first_formula or (letters + digits).decode()
        self.formula_rows.add(row)
        self.formula_columns = (
            min(self.formula_columns[0], column), max(self.formula_columns[1], column),
        )  # fmt: skip


class WorkbookParts:
    """The sheets of a workbook by their names, from the entries of its archive."""

    def __init__(self, entries: Iterable[tuple[str, bytes]]) -> None:
        self._sheets: dict[str, SheetParts] = {}
        self._small: dict[str, bytes] = {}
        for name, chunk in entries:
            if name.startswith("xl/worksheets/"):
                self._sheets.setdefault(name, SheetParts()).feed(chunk)
            elif name in {"xl/workbook.xml", "xl/_rels/workbook.xml.rels"}:
                self._small[name] = (self._small.get(name, b"") + chunk)[:_PART_MAX_BYTES]
        self._entry_of = self._names()

    def sheet(self, name: str) -> SheetParts:
        """Return what was noticed of the sheet with this name."""
        return self._sheets.get(self._entry_of.get(name, "")) or SheetParts()

    def _names(self) -> dict[str, str]:
        try:
            targets = {
                relation.get("Id", ""): relation.get("Target", "")
                for relation in self._parsed("xl/_rels/workbook.xml.rels")
            }
            return {
                element.get("name", ""): _entry(targets.get(element.get(f"{_RELATIONS}id", ""), ""))
                for element in self._parsed("xl/workbook.xml").iter()
                if element.tag.endswith("}sheet")
            }
        except ET.ParseError:
            return {}  # calamine says what is wrong with it

    def _parsed(self, name: str) -> ET.Element:
        # Small by now, and expat refuses entities that blow up.
        return ET.fromstring(self._small.get(name, b"<none/>"))  # noqa: S314


def _entry(target: str) -> str:
    return normpath(join("/xl", target)).lstrip("/")


def _place(letters: bytes, digits: bytes) -> tuple[int, int]:
    column = 0
    for letter in letters:
        column = column * 26 + letter - 64
    return int(digits) - 1, column - 1
