"""What a column of a CSV holds: numbers only where nobody can mean anything else.

A column is

- `integer` where each value is a whole number of at most 15 digits, written without a plus sign
  or leading zeros;
- `number` where each is also a decimal number with a point that keeps its digits as a float and
  is written as one (`0.5`, `12.0`, `1e-05`), or all have equally many decimals (`1.10`, `2.35`);
  `1.9` and `1.10` in one column are versions, and stay text;
- `empty` where there is no value;
- `text` otherwise: `00501`, `9223372036854775808`, `NA`, `nan`, `inf`, `true`, `1,5`, dates.

No value is changed: a column with one `NA` is text as a whole. Missing values are null in each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from conversations.tables import Row, Value

_INTEGER = re.compile(r"-?[1-9][0-9]{0,14}|0").fullmatch
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)").fullmatch
_EXPONENT = re.compile(r"-?[1-9](?:\.[0-9]+)?e[-+][0-9]{2,3}").fullmatch
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9][0-9. ]*,[0-9]+ ?%?").fullmatch
# A double keeps this many digits, whichever they are, of a number that is not written longer.
_SAFE_DIGITS = 15
_SAFE_CHARS = 40


def is_number(text: str) -> bool:
    """Whether a single cell would pass for a number: what a header is told apart by."""
    return bool(_INTEGER(text) or _DECIMAL(text) or _EXPONENT(text))


class ColumnType:
    """The type of one column, found out by looking at all its values, some at a time."""

    def __init__(self) -> None:
        self.name = "empty"
        self.has_decimal_commas = False
        self._as_floats_are = True
        self._decimals: set[int] = set()

    def look_at(self, values: Iterable[str]) -> None:
        """Take more of the column's values into account; empty ones say nothing."""
        if self.name == "text":
            return
        present = list(filter(None, values))
        if not present:
            return
        if all(map(_INTEGER, present)):
            self._take_integers()
        else:
            self._take_numbers(present)

    def _take_integers(self) -> None:
        if self.name == "empty":
            self.name = "integer"
        self._decimals.add(0)
        self._settle()

    def _take_numbers(self, present: list[str]) -> None:
        self.name = "number"
        for text in present:
            decimals = _decimals(text)
            if decimals is None:
                self.name = "text"
                self.has_decimal_commas = bool(_DECIMAL_COMMA(text))
                return
            self._decimals.add(decimals)
            self._as_floats_are = self._as_floats_are and _is_as_floats_are(text)
        self._settle()

    def _settle(self) -> None:
        if not self._as_floats_are and len(self._decimals) > 1:
            self.name = "text"

    def convert(self, values: Sequence[str]) -> Sequence[Value]:
        """Return some values as what the whole column holds; missing ones are None."""
        as_type: Callable[[str], Value] = _CONVERT[self.name]
        return [as_type(text) if text else None for text in values]


_CONVERT: dict[str, Callable[[str], Value]] = {
    "integer": int,
    "number": lambda text: int(text) if _INTEGER(text) else float(text),
    "text": str,
    "empty": str,
}


def _decimals(text: str) -> int | None:
    """Return how many decimals a number has; None where it is none that a float keeps."""
    if _INTEGER(text):
        return 0
    found = _DECIMAL(text)
    if found and len(text) <= _SAFE_CHARS and _digits(text) <= _SAFE_DIGITS:
        return len(found[1])
    is_kept = (found or _EXPONENT(text)) and _is_as_floats_are(text)
    return 0 if is_kept else None


def _digits(text: str) -> int:
    return len(text.strip("-0.").replace(".", ""))


def _is_as_floats_are(text: str) -> bool:
    return bool(_INTEGER(text)) or repr(float(text)) == text


def converted(rows: Sequence[Sequence[str]], types: Sequence[ColumnType]) -> Iterable[Row]:
    """Return rows with their values as the columns' types say."""
    columns = zip(*rows, strict=True)
    return zip(*(t.convert(c) for t, c in zip(types, columns, strict=True)), strict=True)
