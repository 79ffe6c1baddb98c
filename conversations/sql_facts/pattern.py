"""What a statement says, by its looks: for text that no parser takes.

Each word of the text becomes one letter, and patterns over those letters find what they stand for:
`WHERE o.status IN ('a')` reads `CWI(S)`. Conditions are looked at only after WHERE, HAVING and ON,
none in `NOT (…)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Final, NamedTuple, TypeAlias

from conversations.sql_facts.found import Found

_NAME: Final = r"""(?:[^\W\d][\w$]*+|"(?:[^"]|"")*+"|`[^`]*+`|\[[^\]\[\n]{1,128}+\])"""
# Quantifiers are possessive, so that nothing is tried twice: 64 KB take some 30 ms.
_PART: Final = re.compile(rf"{_NAME}|\*")
_PLAIN: Final = re.compile(r"[^\W\d]\w*")
_WORD: Final = re.compile(
    rf"""
      (?P<comment>--[^\n]*+|/\*(?:.*?\*/|.*+))
    | (?P<S>(?:\b[bBeEnNrRxX])?'(?:[^']|'')*+'?+)
    | (?P<N>[-+]?+(?:\d[\d_]*+(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?+\d++)?+)
    | (?P<W>{_NAME}(?:\s*+\.\s*+(?:{_NAME}|\*))*+)
    | (?P<O><=>|<\s*+>|[<>!=]\s*+=|!~~?\*?|~~?\*?|[=<>])
    | (?P<other>[^\s])
    """,
    re.VERBOSE | re.DOTALL,
)
_LETTERS: Final = {
    **dict.fromkeys(("where", "having", "on", "qualify"), "C"),
    **dict.fromkeys(("from", "join", "update", "into"), "F"),
    **dict.fromkeys(("select", "group", "order", "limit", "set", "values", "window"), "E"),
    **dict.fromkeys(("when", "then", "else", "case", "end"), "E"),
    **dict.fromkeys(("returning", "offset", "fetch"), "E"),
    **dict.fromkeys(("union", "intersect", "except", "minus"), ";"),
    **dict.fromkeys(("and", "or"), "A"),
    **dict.fromkeys(("like", "ilike", "rlike", "regexp", "glob"), "L"),
    **dict.fromkeys(("date", "timestamp", "time", "datetime", "timestamptz"), "D"),
    **dict.fromkeys(("null", "true", "false"), "U"),
    **dict.fromkeys(("sum", "avg", "count", "min", "max", "median"), "G"),
    "not": "X", "in": "I", "between": "B", "is": "Z", "as": "M", "by": "Y", "distinct": "Q",
}  # fmt: skip

# "V" is a name in double quotes, or a literal.
_LITERAL: Final = "(?:D?S|N|U|V)"
_COLUMN: Final = "[WVD]"
_FILTER: Final = re.compile(
    rf"(?P<denied>X)?(?P<about>G\(Q?(?:{_COLUMN}|\*)\)|W\({_COLUMN}\)|{_COLUMN})"
    rf"(?P<said>X?+(?:O|L){_LITERAL}|X?+I\({_LITERAL}(?:,{_LITERAL})*+\)"
    rf"|X?+B{_LITERAL}A{_LITERAL}|ZX?+U)"
)
_SOURCE: Final = re.compile(rf"[F,](?P<table>{_COLUMN})(?!\()(?:M?(?P<alias>{_COLUMN}))?")
_MEASURE: Final = re.compile(rf"G\(Q?(?:{_COLUMN}|\*)\)")
_GROUPED: Final = re.compile(rf"EY({_COLUMN}(?:,{_COLUMN})*+)")
_CTE: Final = re.compile(rf"({_COLUMN})M\(E")


def facts_by_pattern(sql: str, *, double_quoted_strings: bool) -> list[Found]:
    """Return what can be told without understanding `sql`, in its order; never raises.

    `double_quoted_strings`: whether `"x"` after an operator may be a literal.
    """
    words = list(_words(sql))
    letters = "".join(word.letter for word in words)
    if not double_quoted_strings:
        letters = letters.replace("V", "W")
    queries = {_name(words[match.start()].text) for match in _CTE.finditer(letters)}
    texts = [
        _Text(words[slice(*part.span())], part[0], queries)
        for part in re.finditer("[^;]+", letters)
    ]
    return list(dict.fromkeys(found for text in texts for found in text.facts()))


# --- Words --------------------------------------------------------------------------------


class _Word(NamedTuple):
    """A word of the text, the letter for it, and that of the clause in which it stands."""

    text: str
    letter: str
    clause: str


def _words(sql: str) -> Iterator[_Word]:
    clause = before = ""
    outer: list[str] = []
    for match in _WORD.finditer(sql):
        if match.lastgroup == "comment":
            continue
        letter = _letter(match.lastgroup or "", match[0])
        if letter == "(":
            outer.append(clause)
            clause = "X" if before == "X" and clause == "C" else clause
        elif letter == ")" and outer:
            clause = outer.pop()
        elif letter in "CEF":
            clause = letter
        yield _Word(match[0], letter, clause)
        before = letter


def _letter(group: str, text: str) -> str:
    if group == "other":
        return text if text in "(),*;" else "?"
    if group != "W":
        return group
    quoted_alone = text.startswith('"') and text.count('"') == 2 and text.endswith('"')
    return "V" if quoted_alone else _LETTERS.get(text.lower(), "W")


# --- Facts --------------------------------------------------------------------------------

_Placed: TypeAlias = tuple[int, Found]


class _Text:
    """The words of one SELECT with what is nested in it, and the names of the whole's queries."""

    def __init__(self, words: Sequence[_Word], letters: str, queries: Set[str]) -> None:
        self._words = words
        self._letters = letters
        self._queries = queries
        self._sources = dict(self._aliases())
        tables = set(self._sources.values())
        self._only = f"{tables.pop()}." if len(tables) == 1 else ""

    def facts(self) -> list[Found]:
        """Return what the text says, in its order."""
        found = [*self._tables(), *self._measures(), *self._groups(), *self._filters()]
        return [fact for _, fact in sorted(found)]

    def _tables(self) -> Iterator[_Placed]:
        for match in self._read():
            name = _name(self._words[match.start("table")].text)
            if name not in self._queries:
                yield match.start(), Found("table", name, "")

    def _read(self) -> Iterator[re.Match[str]]:
        for match in _SOURCE.finditer(self._letters):
            if self._words[match.start()].clause == "F":
                yield match

    def _measures(self) -> Iterator[_Placed]:
        for match in _MEASURE.finditer(self._letters):
            if self._words[match.start()].clause not in {"C", "X"}:
                yield match.start(), Found("measure", self._about(*match.span()), "")

    def _groups(self) -> Iterator[_Placed]:
        for match in _GROUPED.finditer(self._letters):
            for at in range(match.start(1), match.end(1), 2):
                yield at, Found("group", self._about(at, at + 1), "")

    def _filters(self) -> Iterator[_Placed]:
        for match in _FILTER.finditer(self._letters):
            if self._words[match.start()].clause == "C":
                denied = "NOT " if match["denied"] else ""
                said = self._said(*match.span("said"))
                about = self._about(*match.span("about"))
                yield match.start(), Found("filter", about, denied + said)

    def _aliases(self) -> Iterator[tuple[str, str]]:
        for match in self._read():
            table = _name(self._words[match.start("table")].text)
            yield table.rpartition(".")[2], table
            if match["alias"]:
                yield _name(self._words[match.start("alias")].text), table

    def _about(self, start: int, end: int) -> str:
        words = [
            self._column(at) if self._letters[at] in "WVD" and self._letters[at + 1 : at + 2] != "("
            else self._words[at].text.lower()
            for at in range(start, end)
        ]  # fmt: skip
        return "".join(f"{word} " if word == "distinct" else word for word in words)

    def _column(self, at: int) -> str:
        name = _name(self._words[at].text)
        table, _, column = name.rpartition(".")
        return f"{self._sources.get(table, table)}.{column}" if table else self._only + name

    def _said(self, start: int, end: int) -> str:
        text = ""
        for at in range(start, end):
            word = self._words[at].text
            if self._letters[at] not in "SNVUD":
                word = "".join(word.upper().split())
            blank = text and text[-1] not in "(," and word not in ",)"
            text += f" {word}" if blank else word
        return text


def _name(word: str) -> str:
    """Return `orders.order date` of `Orders."order date"`."""
    return ".".join(_unquoted(part[0]) for part in _PART.finditer(word))


def _unquoted(part: str) -> str:
    """Return a name in lower case, a quoted one as it is: only there does case mean something."""
    if part[0] not in '"`[':
        return part.lower()
    return part[1:-1] if _PLAIN.fullmatch(part[1:-1]) else f'"{part[1:-1]}"'
