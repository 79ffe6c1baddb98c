"""How the environment is read: what can't be understood ends the process in one sentence.

Settings are read before Django can report anything, so a typing error in them would otherwise
be a traceback of a library, or worse: `HTTPS=ture` would quietly mean no.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import environ

_YES = frozenset({"true", "on", "ok", "y", "yes", "1", "t"})
_NO = frozenset({"false", "off", "n", "no", "0", "f"})
_MUST_BE = {int: "a whole number", float: "a number", bool: "true or false"}
_POSTGRES = ("postgres", "postgresql", "psql", "pgsql")


class Environment(environ.Env):  # type: ignore[misc]
    """Reads what `.env.example` describes: empty is not set, and nothing is guessed."""

    def __call__(self, var: str, *args: Any, **kwargs: Any) -> Any:
        """Return the value of `var`, its default where it is empty or absent.

        Raises `SystemExit` with a sentence when it can't be read.
        """
        if self.ENVIRON.get(var) == "":
            return self.scheme[var][1]
        try:
            return super().__call__(var, *args, **kwargs)
        except ValueError as error:
            cast, default = self.scheme[var]
            must_be = _MUST_BE.get(cast, str(error))
            raise SystemExit(
                f"{var} is {self.ENVIRON[var]!r}; it must be {must_be}. Correct it, or leave it "
                f"out for its default, {default} (.env.example)."
            ) from error

    @classmethod
    def parse_value(cls, value: Any, cast: Any) -> Any:
        """Return the text `value` as `cast` says; raises `ValueError` when it is nothing such."""
        if cast is bool:
            return _flag(value)
        if cast is float:
            return _number(value)
        return super().parse_value(value, cast)

    def database(self, url: str) -> dict[str, Any]:
        """Return Django's entry for the PostgreSQL at `url`; the sentences don't quote it."""
        way_out = "Write it as postgres://user:password@host:5432/name"
        if url.partition("://")[0] not in _POSTGRES:
            raise SystemExit(f"DATABASE_URL names no PostgreSQL. {way_out}.")
        try:
            return dict(self.db_url_config(url))
        except ValueError as error:
            raise SystemExit(
                f"DATABASE_URL can't be read. {way_out}, with characters other than letters and "
                "digits in user and password percent-encoded (`#` as `%23`)."
            ) from error


def one_of(*choices: str, read: Callable[[str], str] = str) -> Callable[[str], str]:
    """Return a cast that takes these values only, after `read` (`str.upper`)."""

    def cast(text: str) -> str:
        value = read(text)
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value

    return cast


def number_or_none(text: str) -> float | None:
    """Return a number of 0 or more, or None for the word `none`."""
    if text.strip().lower() == "none":
        return None
    try:
        number = _number(text)
    except ValueError:
        number = -1.0
    if number < 0:
        raise ValueError("a number, 0 or more, or none")
    return number


def word_lists(text: str) -> dict[str, tuple[str, ...]]:
    """Return `{"revenue": ("revenue", "sales")}` of `revenue=revenue,sales;…`."""
    found = {}
    for entry in filter(str.strip, text.split(";")):
        name, _, listed = entry.partition("=")
        words = tuple(word.strip() for word in listed.split(",") if word.strip())
        if not (name.strip() and words):
            raise ValueError("lists of words, as in revenue=revenue,sales;payroll=payroll,wages")
        found[name.strip()] = words
    return found


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise ValueError(text)
    return word in _YES


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
