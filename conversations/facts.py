"""The exact things of folded turns, taken from their artifacts by code and never paraphrased.

Summaries of summaries lose a filter's literal within a few folds. So a thread's record keeps them
beside its summary, bounded in tokens:

    {"v": 1, "through": 12, "evicted": {"table": 2}, "entries": [
        {"key": "filter|orders.status", "value": "IN ('paid','shipped')", "since": 3,
         "was": [["= 'paid'", 1, 2]], "first": 1, "last": 12, "uses": 9, "by": "sql"}]}

Keys are `filter|column`, `measure|expression`, `group|column`, `table|name`, `definition|term` and
`built|kind|title`; `by` is `sql`, `artifact`, `agent` or `person`. `value` was said from turn
`since` to turn `last` (not in each of them), those in `was` before it, the latest last; `uses`
counts the turns from `first` to `last` that named the key.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from conversations.head import facts_tokens
from conversations.quoting import beginning_of
from conversations.tokenizer import first_tokens

VERSION: Final = 1

# Values that a key keeps beside its newest. A question goes back to any that a column was ever
# compared with; of other kinds the newest is what holds.
_MAX_WAS: Final[Mapping[str, int | None]] = {"filter": None, "definition": 2}
# What goes first when there is no room, the least recently said of each. A literal can't be
# guessed; what is named first stands in every statement that is still shown, and has an eighth of
# the room at most: measures alone would double what a long thread's facts take.
_LESSER: Final = frozenset({"table", "group", "measure"})
_LESSER_SHARE: Final = 8
_GOES: Final = {**dict.fromkeys(_LESSER, 0), "built": 1}
_GOES_LAST: Final = 2

# Who says what a turn that is folded again may take back.
_BY_CODE: Final = frozenset({"sql", "artifact"})

_UNSTORABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff]")
_MAX_ABOUT_TOKENS: Final = 60
_MAX_VALUE_TOKENS: Final = 120
_MAX_FACTS_A_TURN: Final = 500
# Of a turn's statements the first are parsed, about half a second's worth, the next are read by
# pattern, as long again, and what is left of a flood is not read, but counted.
_MAX_PARSED_CHARS_A_TURN: Final = 32_768
_MAX_READ_CHARS_A_TURN: Final = 131_072


def fold_facts(
    facts: Mapping[str, Any],
    turns: Sequence[tuple[int, Sequence[Mapping[str, Any]]]],
    *,
    dialect: str,
    max_tokens: int,
    through: int,
) -> dict[str, Any]:
    """Return the record `facts` (`{}` at first) with what `turns` said added to it.

    `turns` are positions and stored artifacts, in any order. One that was folded before, up to the
    record's `through`, has been amended: what it alone had said and no longer says goes, but
    nothing that an agent or a person said. `dialect` is how SQL is read whose artifact names none,
    "" if unknown. `max_tokens` bounds the lines of the record as a view shows them; what a person
    set stays, whatever it takes. `through` is the last folded position.

    The same turns again change nothing: a turn between an entry's first and last use is not
    counted again. Where there is no room for all, they may bring back what fits by now, but what
    was left out is not counted again. Never raises, whatever the artifacts hold.
    """
    record = _Record(facts)
    for position, artifacts in sorted(turns, key=lambda turn: turn[0]):
        record.note(position, _said_in(artifacts, dialect))
    return {"v": VERSION, "through": through, **record.bounded(max_tokens)}


def set_by_persons(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with nothing in it but what people have set."""
    entries = [entry for entry in facts.get("entries", ()) if entry.get("by") == "person"]
    return {**facts, "through": 0, "entries": entries, "evicted": {}} if entries else {}


# --- The record ---------------------------------------------------------------------------


class _Said(NamedTuple):
    """A value of a key, and the first and the last turn that said it."""

    value: str
    since: int
    last: int


@dataclass(slots=True)
class _Fact:
    """An entry, open to change; its newest value stands last in `said`."""

    entry: Mapping[str, Any]
    by: str
    first: int
    last: int
    uses: int
    said: list[_Said]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> _Fact:
        """Return what an entry of a record holds."""
        last = entry.get("last", 0)
        first = entry.get("first", last)
        was = [_Said(*said) for said in entry.get("was", ())]
        now = _Said(entry.get("value", ""), entry.get("since", first), last)
        return cls(entry, entry.get("by", ""), first, last, entry.get("uses", 1), [*was, now])

    @property
    def kind(self) -> str:
        """`filter` of `filter|orders.status`."""
        return kind_of(self.entry["key"])

    def says(self, value: str) -> bool:
        """Whether `value` is among those that were said."""
        return any(said.value == value for said in self.said)

    def say(self, value: str, by: str, position: int) -> None:
        """Take up that a turn says `value`; a person's value stays, whatever it is."""
        if self.by == "person" and value != self.said[-1].value:
            return
        if not self.first <= position <= self.last:
            self.uses += 1
        if position >= self.last and self.by != "person":
            self.by = by
        self.first, self.last = min(self.first, position), max(self.last, position)
        if self.kind == "measure" and not value:
            value = self.said[-1].value  # an alias is worth more than none
        self._put(value, position)

    def _put(self, value: str, position: int) -> None:
        before = next((said for said in self.said if said.value == value), None)
        if before and before.since <= position <= before.last:
            return
        since, last = (before.since, before.last) if before else (position, position)
        said = [one for one in self.said if one is not before]
        said.append(_Said(value, min(since, position), max(last, position)))
        said.sort(key=lambda one: one.last)
        kept = _MAX_WAS.get(self.kind, 0)
        self.said = said if kept is None else said[-kept - 1 :]

    def unsay(self, position: int, values: Container[str]) -> None:
        """Forget what turn `position` alone had said but for `values`, which it says now.

        `said` may be empty after that.
        """
        kept = [
            said
            for said in self.said
            if not (said.since == said.last == position) or said.value in values
        ]
        has_alias = self.kind == "measure" and "" in values
        if len(kept) == len(self.said) or has_alias or self.by not in _BY_CODE:
            return
        self.said = kept
        if kept and not values:
            self._leave(position)

    def _leave(self, position: int) -> None:
        """Take in that turn `position` does not name the key any more, as others do."""
        self.uses = max(1, self.uses - 1)
        self.last = self.said[-1].last
        if self.first == position:
            self.first = min(said.since for said in self.said)

    def as_entry(self, going: Sequence[_Said] = ()) -> dict[str, Any]:
        """Return the entry as a record holds it, without the values that are `going`."""
        *was, now = [said for said in self.said if said not in going]
        return {
            **self.entry,
            "value": now.value,
            "since": now.since,
            "was": [list(said) for said in was],
            "first": self.first,
            "last": self.last,
            "uses": self.uses,
            "by": self.by,
        }  # fmt: skip


class _Record:
    """A thread's facts by key, and how many of a kind were left out."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = {entry["key"]: _Fact.of(entry) for entry in facts.get("entries", ())}
        self._evicted: Counter[str] = Counter(facts.get("evicted", {}))
        self._through = facts.get("through", 0)
        # What amended turns say that the record has not, or no longer, and what is not read of it.
        self._back: set[tuple[str, str]] = set()
        self._unread_again: Counter[str] = Counter()

    def note(self, position: int, said: Sequence[_Noted]) -> None:
        """Take up what a turn said; of one folded before, what it alone had said goes."""
        if position <= self._through:
            self._note_again(position, said)
        else:
            self._take_up(position, said)
            self._evicted += _unread(said)

    def _note_again(self, position: int, said: Sequence[_Noted]) -> None:
        self._unread_again += _unread(said)
        values: dict[str, set[str]] = {}
        for key, value, _ in _readable(said):
            values.setdefault(key, set()).add(value)
            if key not in self._facts or not self._facts[key].says(value):
                self._back.add((key, value))
        self._take_up(position, said)
        for key, fact in list(self._facts.items()):
            fact.unsay(position, values.get(key, ()))
            if not fact.said:
                del self._facts[key]

    def _take_up(self, position: int, said: Sequence[_Noted]) -> None:
        for key, value, by in _readable(said):
            if key in self._facts:
                self._facts[key].say(value, by, position)
            else:
                self._facts[key] = _Fact.of(
                    {"key": key, "value": value, "by": by, "last": position}
                )

    def bounded(self, max_tokens: int) -> dict[str, Any]:
        """Return entries and evictions in `max_tokens`, no more values gone than must be."""
        going = self._in_order_of_going()

        def without(count: int) -> dict[str, Any]:
            return self._without(going[:count])

        def lesser_fit(count: int) -> bool:
            return facts_tokens(_lesser_of(without(count))) <= max_tokens // _LESSER_SHARE

        def all_fit(count: int) -> bool:
            return facts_tokens(without(count)) <= max_tokens

        lesser = sum(kind_of(key) in _LESSER for key, _ in going)
        return without(_fewest(_fewest(0, lesser, lesser_fit), len(going), all_fit))

    def _in_order_of_going(self) -> list[tuple[str, _Said]]:
        """Return each value that may go after its key, the least recently said first."""
        values = [
            (_GOES.get(fact.kind, _GOES_LAST), said.last, not self._came_back(key, said), key, said)
            for key, fact in self._facts.items()
            if fact.by != "person"
            for said in fact.said
        ]
        values.sort(key=lambda value: value[:3])
        return [(key, said) for *_, key, said in values]

    def _came_back(self, key: str, said: _Said) -> bool:
        return (key, said.value) in self._back and said.last <= self._through

    def _without(self, going: Sequence[tuple[str, _Said]]) -> dict[str, Any]:
        gone: dict[str, list[_Said]] = {}
        for key, said in going:
            gone.setdefault(key, []).append(said)
        entries = [
            fact.as_entry(gone.get(key, ()))
            for key, fact in self._facts.items()
            if len(gone.get(key, ())) < len(fact.said)
        ]
        return {"entries": entries, "evicted": dict(self._evicted_with(going))}

    def _evicted_with(self, going: Sequence[tuple[str, _Said]]) -> Counter[str]:
        """Count what is left out. What came back and goes again is told, but not counted again."""
        again, anew = self._unread_again.copy(), Counter[str]()
        for key, said in going:
            (again if self._came_back(key, said) else anew)[kind_of(key)] += 1
        return (self._evicted | again) + anew


def _fewest(least: int, most: int, fit: Callable[[int], bool]) -> int:
    """Return how many must go at least for the others to fit: `most` if they never do."""
    if fit(least):
        return least
    return bisect_left(range(most), True, lo=least, key=fit)


def _lesser_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a record may take a share of its bound only."""
    return {
        "entries": [
            entry
            for entry in record["entries"]
            if kind_of(entry["key"]) in _LESSER and entry["by"] != "person"
        ],
        "evicted": {kind: n for kind, n in record["evicted"].items() if kind in _LESSER},
    }


def kind_of(key: str) -> str:
    """Return `filter` of `filter|orders.status`."""
    return key.partition("|")[0]


# --- What a turn says ---------------------------------------------------------------------


class _Noted(NamedTuple):
    """What a turn says under a key, and what says so."""

    key: str
    value: str
    by: str


_UNREAD: Final = "unread"


def _readable(said: Sequence[_Noted]) -> list[_Noted]:
    return [noted for noted in said[:_MAX_FACTS_A_TURN] if noted.by != _UNREAD]


def _unread(said: Sequence[_Noted]) -> Counter[str]:
    """Count by kind what a turn says that is left out."""
    return Counter(
        kind_of(noted.key)
        for number, noted in enumerate(said)
        if number >= _MAX_FACTS_A_TURN or noted.by == _UNREAD
    )


def _said_in(artifacts: Sequence[Mapping[str, Any]], dialect: str) -> list[_Noted]:
    """Return what a turn's artifacts say, once and in their order."""
    noted: list[_Noted] = []
    chars = 0
    for artifact in artifacts:
        if artifact.get("kind") == "sql":
            chars += len(artifact["sql"])
            noted += _in_sql(artifact["sql"], artifact.get("dialect") or dialect, chars)
        else:
            noted += _in_descriptor(artifact)
    return list(dict.fromkeys(noted))


def _in_sql(sql: str, dialect: str, chars: int) -> Iterator[_Noted]:
    """Yield what a statement says that ends `chars` characters into its turn's statements."""
    if chars > _MAX_READ_CHARS_A_TURN:
        yield _Noted(f"statement|{chars}", "", _UNREAD)
        return
    # sqlglot takes 0.13 s and 15 MB to import: a web process, which only shows facts, goes without.
    from conversations.sql_facts import facts_in_sql

    for found in facts_in_sql(sql, dialect, parse=chars <= _MAX_PARSED_CHARS_A_TURN):
        about = _bounded(found.about, _MAX_ABOUT_TOKENS)
        yield _Noted(f"{found.kind}|{about}", _bounded(found.value, _MAX_VALUE_TOKENS), "sql")


def _in_descriptor(artifact: Mapping[str, Any]) -> Iterator[_Noted]:
    kind = artifact.get("kind", "")
    if kind == "definition":
        sql = f" (sql: {artifact['sql']})" if artifact.get("sql") else ""
        yield _described("definition", artifact["term"], artifact["meaning"] + sql)
    elif kind == "chart":
        axes = [*filter(None, [artifact.get("x")]), *artifact.get("y", ())]
        shown = " × ".join(axes)
        title = artifact.get("title") or shown or artifact["chart_type"]
        value = f"{artifact['chart_type']}: {shown}".removesuffix(": ")
        yield _described(f"built|{kind}", title, value)
    elif kind in {"visualization", "dashboard"}:
        title = artifact.get("title") or artifact["id"]
        yield _described(f"built|{kind}", title, f"id {artifact['id']}")
    elif kind == "file":
        yield _described(f"built|{kind}", artifact["name"], "")


def _described(kind: str, about: str, value: str) -> _Noted:
    about = _bounded(about, _MAX_ABOUT_TOKENS)
    return _Noted(f"{kind}|{about}", _bounded(value, _MAX_VALUE_TOKENS), "artifact")


def _bounded(text: str, max_tokens: int) -> str:
    """Return `text`, or its beginning in about `max_tokens` and how many characters it lacks."""
    # A parser resolves escapes: what jsonb refuses, and nobody sees, may come out of `AS "x\\0"`.
    text = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    kept = first_tokens(text, max_tokens)
    if len(kept) == len(text):
        return text
    kept = beginning_of(text, len(kept))
    begun, comma, _ = kept.rpartition(",")
    if len(begun) > len(kept) // 2:
        kept = begun + comma  # no literal of a list is cut in two
    return f"{kept}… +{len(text) - len(kept):,} characters"
