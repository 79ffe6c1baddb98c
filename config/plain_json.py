"""JSON in one documented form, whatever Python handed over.

| from | to |
|---|---|
| `datetime` (naive ones are taken as UTC), `date`, `time` | ISO 8601, `2026-11-30T09:00:00Z` |
| `timedelta` | ISO 8601 duration, `P0DT00H01M30S` |
| `Decimal` | its digits as a string, `"1.10"` |
| `UUID` | its hyphenated string |
| `bytes` | base64 string |
| NaN, Infinity | null |
| integers of more than 4,000 digits | their hexadecimal digits as a string, `"0x1f"` |
| NUL and lone surrogates in strings | U+FFFD, visible as `�` |
| tuple, set, frozenset (sorted), mapping | list, list, object with string keys |
| enum | its value |
| arrays and series (`tolist()`) and numpy's single numbers | list, number |
| data frames (`to_dict("records")`) | list of objects |
| what is not equal to itself (pandas' NaT and NA) | null |
| anything else, and whatever raises when it is asked | `str(value)` |
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import json
import math
import re
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson
from django.utils.duration import duration_iso_string

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# How the objects of numpy and pandas, and those made like them, say what they hold.
_CONVERSIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("tolist", ()),
    ("to_dict", ("records",)),
    ("item", ()),
)

# Python refuses to write integers of more than 4,300 digits.
_MAX_INTEGER_BITS = 13_000


class TooDeep(ValueError):
    """A value is nested deeper than `max_depth`."""


def clean_text(text: str) -> str:
    """Replace what PostgreSQL and UTF-8 refuse (NUL, lone surrogates) by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text) if _UNSTORABLE.search(text) else text


def to_plain(value: Any, max_depth: int = 100) -> Any:
    """Return `value` as JSON can hold it, by the table above.

    Raises `TooDeep` when it is nested deeper than `max_depth`, or in itself; nothing else.
    """
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind is int or kind is float:
        return _number(value)
    if kind is bool or value is None:
        return value
    if max_depth <= 0:
        raise TooDeep("nested too deeply")
    try:
        return _nested(value, max_depth)
    except (TooDeep, RecursionError):
        raise TooDeep("nested too deeply") from None
    except Exception:  # noqa: BLE001  a turn is not lost for an object that can't be asked
        return _as_text(value)


def _number(value: float) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value.bit_length() < _MAX_INTEGER_BITS else hex(value)


def _nested(value: Any, max_depth: int) -> Any:
    if isinstance(value, Mapping):
        return {_key(k, max_depth): to_plain(v, max_depth - 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, max_depth - 1) for item in value]
    if isinstance(value, set | frozenset):
        return [to_plain(item, max_depth - 1) for item in sorted(value, key=repr)]
    return _scalar(value, max_depth)


def _key(key: Any, max_depth: int) -> str:
    plain = to_plain(key, max_depth)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _scalar(value: Any, max_depth: int) -> Any:  # noqa: C901  a table in code
    if _is_missing(value):
        return None
    if isinstance(value, enum.Enum):
        return to_plain(value.value, max_depth - 1)
    if isinstance(value, dt.datetime):
        return _instant(value if value.tzinfo else value.replace(tzinfo=dt.UTC))
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return duration_iso_string(value)
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, int):
        return to_plain(int(value))
    if isinstance(value, float):
        return to_plain(float(value))
    return _held_by(value, max_depth)


def _is_missing(value: Any) -> bool:
    """Whether it is of NaN's kind: not equal to itself, or not knowing whether it is."""
    if hasattr(value, "__len__"):  # an array compares each of its elements
        return False
    try:
        differs = value != value
        return differs is value or bool(differs)
    except Exception:  # noqa: BLE001  whatever it is, it is something
        return False


def _held_by(value: Any, max_depth: int) -> Any:
    """Return what an array, a series or a data frame holds; the text of anything else."""
    for name, arguments in _CONVERSIONS:
        convert = getattr(value, name, None)
        if callable(convert):
            held = convert(*arguments)
            # numpy's longdouble gives itself.
            is_final = type(held) is type(value)
            return _as_text(value) if is_final else to_plain(held, max_depth - 1)
    return _as_text(value)


def _as_text(value: Any) -> str:
    try:
        return clean_text(str(value))
    except Exception:  # noqa: BLE001  not even that can be asked
        return f"<{type(value).__name__}>"


def _instant(moment: dt.datetime) -> str:
    try:
        moment = moment.astimezone(dt.UTC)
    except OverflowError:  # within a day of the first or last year
        return moment.isoformat()
    return moment.isoformat().replace("+00:00", "Z")


def canonical_bytes(value: Any) -> bytes:
    """Return plain JSON with sorted keys and no spaces: equal values give equal bytes."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer past 64 bits
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def dump_bytes(value: Any) -> bytes:
    """Return plain JSON as UTF-8; also of integers that orjson refuses."""
    try:
        return orjson.dumps(value, option=orjson.OPT_UTC_Z)
    except TypeError:
        compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=to_plain)
        return compact.encode()
