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

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

    `turns` are positions and stored artifacts, in any order; an amended turn may be older than
    what was folded before. `dialect` is how SQL is read whose artifact names none, "" if unknown.
    `max_tokens` bounds the lines of the record as a view shows them; what a person set stays,
    whatever it takes. `through` is the last folded position.

    The same turns again change nothing: a turn between an entry's first and last use is not
    counted again. Never raises, whatever the artifacts hold.
    """
    record = _Record(facts)
    for position, artifacts in sorted(turns, key=lambda turn: turn[0]):
        record.note(position, _said_in(artifacts, dialect))
    return {"v": VERSION, "through": through, **record.bounded(max_tokens)}


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
        self._evicted = Counter(facts.get("evicted", {}))

    def note(self, position: int, said: Iterable[_Noted]) -> None:
        """Take up what a turn said."""
        for number, (key, value, by) in enumerate(said):
            if number >= _MAX_FACTS_A_TURN or by == _UNREAD:
                self._evicted[kind_of(key)] += 1
            elif key in self._facts:
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
            (_GOES.get(fact.kind, _GOES_LAST), said.last, key, said)
            for key, fact in self._facts.items()
            if fact.by != "person"
            for said in fact.said
        ]
        values.sort(key=lambda value: value[:2])
        return [(key, said) for _, _, key, said in values]

    def _without(self, going: Sequence[tuple[str, _Said]]) -> dict[str, Any]:
        gone: dict[str, list[_Said]] = {}
        for key, said in going:
            gone.setdefault(key, []).append(said)
        evicted = self._evicted + Counter(kind_of(key) for key, _ in going)
        entries = [
            fact.as_entry(gone.get(key, ()))
            for key, fact in self._facts.items()
            if len(gone.get(key, ())) < len(fact.said)
        ]
        return {"entries": entries, "evicted": dict(evicted)}


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
    kept = first_tokens(text, max_tokens)
    if len(kept) == len(text):
        return text
    kept = beginning_of(text, len(kept))
    begun, comma, _ = kept.rpartition(",")
    if len(begun) > len(kept) // 2:
        kept = begun + comma  # no literal of a list is cut in two
    return f"{kept}… +{len(text) - len(kept):,} characters"
