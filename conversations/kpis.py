"""Key figures as people write them: `$12.3M`, `8.2M`, `4.1 %`, `12,345`.

What a figure is in comes from whoever stored it, never from a guess: from `{"value": 8200000,
"unit": "USD"}`, or from its name, as in `Revenue USD` and `margin_pct`. A plain number stays one.

| | English | Spanish |
|---|---|---|
| 8200000 | `8.2M` | `8.2M` |
| 1234000000 | `1.2B` | `1,234M`: a Spanish billion has twelve zeros |
| 12345.678 | `12,345.68` | `12,345.68` |
| 2024 | `2024` | `2024`: a year, as likely as not |

Of Spanish, the countries that write a comma for decimals get one, named by their region (`es-ES`,
`es-AR`); `es` alone writes points, as Mexico does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from django.utils.translation import gettext

from conversations.quoting import one_line

MISSING = "–"
_VALUE_CHARS = 60

_COMMA_REGIONS = frozenset({"ar", "bo", "cl", "co", "cr", "ec", "es", "py", "uy", "ve"})
_POINT: dict[int, int] = {}
_COMMA = str.maketrans(",.", ".,")

# A Decimal comes back from JSON as a text. Leading zeros are no number's: `00501` is a zip code.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,6})?")
_NO_NUMBER = re.compile(r"[+-]?(?:s?nan|inf(?:inity)?)|", re.IGNORECASE)
_SCALES = {
    "en": ((Decimal(10) ** 12, "T"), (Decimal(10) ** 9, "B"), (Decimal(10) ** 6, "M")),
    "es": ((Decimal(10) ** 6, "M"),),
}
_LARGEST, _SMALLEST = Decimal(10) ** 15, Decimal(10) ** -6
_NO_YEAR = 10_000  # smaller numbers are written without a sign for thousands

_PERCENT = frozenset({"%", "pct", "percent", "percentage", "porcentaje"})
_SYMBOLS = {"$": "$", "usd": "$", "currency": "$", "money": "$", "€": "€", "eur": "€",
            "£": "£", "gbp": "£", "¥": "¥", "jpy": "¥", "brl": "R$", "mxn": "MX$"}  # fmt: skip
_UNIT_KEYS = ("unit", "currency", "format")
_NAME_KEYS = ("name", "label", "title", "key")
_WORD = re.compile(r"[^\W_]+|[%$€£¥]")
# Words of a name that can mean nothing else.
_TELLING = frozenset({"%", "$", "€", "£", "¥", "pct", "percent", "percentage", "porcentaje", "usd",
                      "eur", "gbp", "mxn", "brl", "jpy"})  # fmt: skip


def by_name(kpis: object) -> dict[str, Any]:
    """Return key figures as a mapping, also of `[{"name": "Total", "value": 12, …}]`."""
    if isinstance(kpis, Mapping):
        return {str(name): value for name, value in kpis.items()}
    if not isinstance(kpis, Sequence) or isinstance(kpis, str | bytes):
        return {}
    named = ((_name_of(entry), entry) for entry in kpis if isinstance(entry, Mapping))
    return {name: entry for name, entry in named if name}


def for_people(name: str, value: object, language: str) -> str:
    """Return the figure called `name` as text, in `en`, `es` or a region's (`es-AR`).

    Takes numbers, texts that are numbers, and mappings with `value` and `unit` (`currency`,
    `format`); other texts are shown as they are, and what is missing (None, NaN) as a dash.
    """
    unit = _telling_word(name)
    if isinstance(value, Mapping) and "value" in value:
        unit = _unit_of(value) or unit
        value = value["value"]
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    text = _text(value)
    number = _number(text)
    return text if number is None else _with_unit(number, unit, language)


def count(number: int, language: str) -> str:
    """Return a number of things: `120`, `100,000`."""
    return _written(Decimal(number), language)


def _name_of(entry: Mapping[Any, Any]) -> str:
    return next((str(entry[key]) for key in _NAME_KEYS if entry.get(key)), "")


def _unit_of(entry: Mapping[Any, Any]) -> str:
    return next((str(entry[key]).strip() for key in _UNIT_KEYS if entry.get(key)), "")


def _telling_word(name: str) -> str:
    words = (word.casefold() for word in _WORD.findall(name))
    return next((word for word in words if word in _TELLING), "")


def _text(value: object) -> str:
    try:
        text = str(value)
    except ValueError:  # an integer of thousands of digits
        return MISSING
    if value is None or _NO_NUMBER.fullmatch(text.strip()):
        return MISSING
    return one_line(text[: 4 * _VALUE_CHARS], _VALUE_CHARS)


def _number(text: str) -> Decimal | None:
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _with_unit(number: Decimal, unit: str, language: str) -> str:
    key = unit.casefold()
    sign = "-" if number < 0 else ""
    figure = _compact(number.copy_abs(), language)
    if key in _PERCENT:
        return f"{sign}{figure} %"
    if key in _SYMBOLS:
        return f"{sign}{_SYMBOLS[key]}{figure}"
    return f"{sign}{figure} {one_line(unit, 12)}".rstrip()


def _compact(number: Decimal, language: str) -> str:
    """Return a number that is not negative, in as few digits as say what it is."""
    if number >= _LARGEST or 0 < number < _SMALLEST:
        return f"{number:.2e}".translate(_signs(language))
    for size, letter in _SCALES[language[:2]]:
        if number >= size:
            return _written(_rounded(number / size, 1), language, group_from=1_000) + letter
    # Below one, what counts are the first three digits that are not zero.
    places = 2 if number >= 1 or not number else 2 - number.adjusted()
    return _written(_rounded(number, places), language)


def _rounded(number: Decimal, places: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def _written(number: Decimal, language: str, group_from: int = _NO_YEAR) -> str:
    text = f"{number:f}" if number < group_from else f"{number:,f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.translate(_signs(language))


def _signs(language: str) -> dict[int, int]:
    region = language[3:].casefold() if language.startswith("es") else ""
    return _COMMA if region in _COMMA_REGIONS else _POINT
