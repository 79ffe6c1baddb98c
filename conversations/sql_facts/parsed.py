"""A statement's tree together with its text: what is found is said as it was written."""

from __future__ import annotations

import logging
import re
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from conversations.sql_facts.names import Names

# sqlglot warns of what it doesn't know by quoting the statement, which no log should hold.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

# An operand is parsed once, in a hostile statement again and again. The time is for what takes
# ever longer with each: a thousand times what an ordinary statement needs.
_MAX_OPERANDS: Final = 5_000
_MAX_SECONDS: Final = 1.0
# In these a double-quoted string may be a name or a literal.
_AMBIGUOUS: Final = {"", "sqlite"}

_LITERALS: Final = {
    TokenType.STRING, TokenType.NUMBER, TokenType.NATIONAL_STRING, TokenType.RAW_STRING,
    TokenType.HEREDOC_STRING, TokenType.UNICODE_STRING, TokenType.BYTE_STRING,
    TokenType.BIT_STRING, TokenType.HEX_STRING, TokenType.TRUE, TokenType.FALSE,
}  # fmt: skip
# Words of an operator, which are written one way whatever the statement's.
_OPERATORS: Final = {
    "ALL", "AND", "ANY", "BETWEEN", "DISTINCT", "ESCAPE", "GLOB", "ILIKE", "IN", "IS", "LIKE",
    "NOT", "NULL", "OR", "REGEXP", "RLIKE", "SIMILAR",
}  # fmt: skip
# Words that a parenthesis or a sign does not follow as if they were a function's name.
_APART: Final = _OPERATORS | {"AS", "BY", "CASE", "ELSE", "OVER", "THEN", "WHEN"}
_OPEN, _CLOSE, _COMMA = "(", ")", ","
_OPERATOR: Final = re.compile(r"^[<>=!~*]+(?=[^\s<>=!~*])")


class NotUnderstoodError(Exception):
    """A statement that sqlglot takes without reading it, or that it reads without end.

    No `ParseError`, which its parser would catch to try another way.
    """


# --- Places -------------------------------------------------------------------------------


def place_of(node: Any) -> tuple[int, int] | None:
    """Return from where to where in the text an operand or a predicate stands, if it is known."""
    return node.meta.get("place") if isinstance(node, exp.Expr) else None


class _Placing:
    """Notes where each operand and predicate stands.

    sqlglot's tree gives places of names and literals, none of `DATE '2026-01-31'` or `IN (1, 2)`.
    """

    _operands = 0
    _until = 0.0

    def _parse_bitwise(self: Any) -> Any:
        self._operands += 1
        self._until = self._until or time.monotonic() + _MAX_SECONDS
        if self._operands > _MAX_OPERANDS or time.monotonic() > self._until:
            raise NotUnderstoodError
        start = self._curr.start
        return self._placed(super()._parse_bitwise(), start)  # type: ignore[misc]

    def _parse_range(self: Any, this: Any = None, parse_is: bool = False) -> Any:
        place = place_of(this)
        start = place[0] if place else self._curr.start
        return self._placed(super()._parse_range(this, parse_is), start)  # type: ignore[misc]

    def _placed(self: Any, node: Any, start: int) -> Any:
        if node is not None and place_of(node) is None:
            node.meta["place"] = (start, self._prev.end + 1)
        return node


@lru_cache(maxsize=64)
def _placing(parser: type[Parser]) -> type[Parser]:
    return type(f"Placing{parser.__name__}", (_Placing, parser), {})


def statements_in(sql: str, dialect: str) -> Iterator[ParsedStatement]:
    """Yield the statements in `sql`, read as one of sqlglot's dialects, "" for none.

    Raises sqlglot's errors, `NotUnderstoodError`, or `RecursionError`.
    """
    read = Dialect.get_or_raise(dialect)
    tokens = read.tokenize(sql)
    for tree in _placing(read.parser_class)(dialect=read).parse(tokens, sql):
        if isinstance(tree, exp.Command):
            raise NotUnderstoodError
        if tree is not None:
            yield ParsedStatement(tree, sql, tokens, dialect in _AMBIGUOUS)


# --- Text ---------------------------------------------------------------------------------


class ParsedStatement:
    """One statement: its `tree`, its `names`, and its text between two places."""

    def __init__(self, tree: exp.Expr, sql: str, tokens: Sequence[Token], ambiguous: bool) -> None:
        self.tree = tree
        self.names = Names(tree, self.key)
        self._sql = sql
        self._tokens = tokens
        self._ambiguous = ambiguous

    def key(self, node: exp.Expr) -> str:
        """Return an expression as a key holds it: `date_trunc('month',orders.created_at)`."""
        start, end = place_of(node) or (0, 0)
        return _spaced(self._words(start, end, as_key=True))

    def text(self, start: int, end: int) -> str:
        """Return what stands between two places: `IN ('paid','shipped')`."""
        text = _spaced(self._words(start, end, as_key=False))
        return _OPERATOR.sub(r"\g<0> ", text)

    def has_literal(self, start: int, end: int) -> bool:
        """Whether a literal stands there, or what may be one."""
        return any(
            token.token_type in _LITERALS
            or token.token_type == TokenType.NULL
            or self._is_quoted_alone(token)
            for token in self._between(start, end)
        )

    def columns(self, node: exp.Expr) -> Iterator[tuple[int, bool]]:
        """Yield for each column in `node` where it stands and whether it may be a literal."""
        for column in node.find_all(exp.Column):
            start = column.parts[0].meta.get("start")
            if start is not None:
                yield start, self._may_be_literal(column)

    def _may_be_literal(self, column: exp.Column) -> bool:
        start = column.this.meta.get("start")
        return (
            self._ambiguous and not column.table and start is not None and self._sql[start] == '"'
        )

    def _is_quoted_alone(self, token: Token) -> bool:
        found = self._columns_by_start.get(token.start)
        return found is not None and self._may_be_literal(found[1])

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self._tokens]

    @cached_property
    def _columns_by_start(self) -> dict[int, tuple[int, exp.Column]]:
        return {
            column.parts[0].meta["start"]: (column.parts[-1].meta["end"], column)
            for column in self.tree.find_all(exp.Column)
            if "start" in column.parts[0].meta and "end" in column.parts[-1].meta
        }

    def _between(self, start: int, end: int) -> Iterator[Token]:
        for at in range(bisect_left(self._starts, start), len(self._tokens)):
            if self._tokens[at].start >= end:
                return
            yield self._tokens[at]

    def _words(self, start: int, end: int, as_key: bool) -> Iterator[tuple[str, bool]]:
        """Yield each word and whether a blank stands before it, a column's name as one word."""
        skip_to = gap_from = start
        for token in self._between(start, end):
            if token.start < skip_to:
                continue
            last, column = self._columns_by_start.get(token.start, (token.end, None))
            skip_to = last + 1
            word = self._sql[token.start : token.end + 1]
            if column is not None and (as_key or not self._may_be_literal(column)):
                word = self.names.of_column(column)
            elif column is None and token.token_type not in _LITERALS:
                word = word.lower() if as_key else _operator(word)
            yield word, token.start > gap_from
            gap_from = skip_to


def _operator(word: str) -> str:
    return upper if (upper := word.upper()) in _OPERATORS else word


def _spaced(words: Iterator[tuple[str, bool]]) -> str:
    """Write words with one blank where two would run together, and nowhere else."""
    said: list[str] = []
    before = _OPEN
    for word, gap in words:
        if said and _needs_blank(before, word, gap):
            said.append(" ")
        said.append(word)
        before = word
    return "".join(said)


def _needs_blank(before: str, word: str, gap: bool) -> bool:
    if word in {_CLOSE, _COMMA, "[", "]"} or before in {_OPEN, _COMMA, "["}:
        return False
    if before.upper() in _APART:
        return True
    if word == _OPEN:
        return False
    wordy = _is_wordy(word[0]), _is_wordy(before[-1]) or before in {_CLOSE, "]"}
    return all(wordy) or (not any(wordy) and gap)


def _is_wordy(character: str) -> bool:
    return character.isalnum() or character in "_'\"`$@"
