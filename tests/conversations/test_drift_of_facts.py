"""No filter is lost or made up while real conversations are folded, however long they get.

The 20 threads of SParC, one a database, of 6 to 134 turns, folded eleven turns at a time with the
default bound. What was really said is read from each statement in another way than `facts` does:
as MySQL, where a double-quoted string is a literal, comparison by comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
import sqlglot
from sqlglot import exp

from conversations.context import ConversationContext, render_conversation_context
from conversations.facts import fold_facts
from conversations.head import facts_tokens
from conversations.pieces import turn_pieces
from conversations.tokenizer import count_tokens
from tests import sparc

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(bool(sparc.ABSENT), reason=sparc.ABSENT or "the data are here"),
]

FENCE = "k7Qd2x"
A_FOLD = 11
MAX_TOKENS = 600
SUMMARY = "Goal: what sells where, and why it does [t1]. " * 30  # some 400 tokens
LITERAL = r"""'(?:[^']|'')*'|"[^"]*"|-?\b\d[\w.]*"""
OPERATORS = {
    exp.EQ: "=", exp.NEQ: "!=", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
    exp.Like: "LIKE", exp.In: "IN", exp.Between: "BETWEEN",
}  # fmt: skip
# What no parser takes: `! =`. Read by a person.
UNPARSED = {
    'SELECT DISTINCT CountryCode FROM countrylanguage WHERE LANGUAGE ! = "English"': {
        ("language", "!=", '"English"')
    },
    'SELECT Code FROM country WHERE GovernmentForm ! = "Republic"': {
        ("governmentform", "!=", '"Republic"')
    },
    'SELECT Code FROM country WHERE GovernmentForm ! = "Republic" EXCEPT SELECT CountryCode FROM'
    ' countrylanguage WHERE LANGUAGE = "English"': {
        ("governmentform", "!=", '"Republic"'),
        ("language", "=", '"English"'),
    },
}


class Triple(NamedTuple):
    """One comparison of a column or an aggregate with a literal."""

    column: str
    operator: str
    literal: str


class Folded(NamedTuple):
    """A thread whose turns are folded but for the newest."""

    thread: sparc.SparcThread
    facts: dict[str, Any]

    @property
    def said(self) -> set[Triple]:
        turns = self.thread.turns[:-1]
        return {triple for turn in turns for triple in triples_in(turn.sql)}

    @property
    def view(self) -> str:
        newest, position = self.thread.turns[-1], len(self.thread.turns)
        pieces = turn_pieces(
            position=position, created_at=datetime(2026, 11, 30, tzinfo=UTC), query=newest.query,
            answer=newest.answer, artifacts=newest.artifacts, status="complete", fence=FENCE,
            part_max_chars=20_000, count=count_tokens,
        )  # fmt: skip
        held = ConversationContext(
            "thread", "owner", FENCE, 1, position, position - 1, SUMMARY, self.facts, (), [pieces]
        )
        return render_conversation_context(held, "sql", 4_000).text


@pytest.fixture(scope="module")
def folded():
    return [Folded(thread, fold(thread)) for thread in sparc.threads("database")]


def fold(thread):
    facts: dict[str, Any] = {}
    turns = [(at, turn.artifacts) for at, turn in enumerate(thread.turns[:-1], 1)]
    for start in range(0, len(turns), A_FOLD):
        now = turns[start : start + A_FOLD]
        facts = fold_facts(facts, now, dialect="", max_tokens=MAX_TOKENS, through=now[-1][0])
    return facts


# --- What was said, and what is kept ------------------------------------------------------


def triples_in(sql: str) -> Iterator[Triple]:
    if sql in UNPARSED:
        yield from (Triple(*known) for known in UNPARSED[sql])
        return
    for statement in sqlglot.parse(sql, read="mysql"):
        for clause in statement.find_all(exp.Where, exp.Having, exp.Join):
            for compared in clause.find_all(*OPERATORS):
                yield from triples_of(compared, sql)


def triples_of(compared, sql: str) -> Iterator[Triple]:
    column = compared.this
    name = column.name if isinstance(column, exp.Column) else last_names(column.sql())
    denied = isinstance(compared.parent, exp.Not) or compared.args.get("negate")
    operator = f"NOT {OPERATORS[type(compared)]}" if denied else OPERATORS[type(compared)]
    sides = [compared.args.get(side) for side in ("expression", "low", "high")]
    for literal in [*sides, *compared.expressions]:
        if isinstance(literal, exp.Literal):
            said = sql[literal.meta["start"] : literal.meta["end"] + 1]
            yield Triple(name.lower(), operator, said)


def last_names(expression: str) -> str:
    return re.sub(r"\w+\.", "", expression).replace(", ", ",").lower()


def kept_in(key: str, value: str) -> Iterator[Triple]:
    """Yield the triples of one value of one entry, or of one of its lines in a view."""
    column = last_names(key)
    for operator, literal in re.findall(rf"((?:NOT )?LIKE|[<>=!]+) ({LITERAL})", value):
        yield Triple(column, operator.replace("<>", "!="), literal)
    for operator, low, high in re.findall(
        rf"((?:NOT )?BETWEEN) ({LITERAL}) AND ({LITERAL})", value
    ):
        yield from (Triple(column, operator, low), Triple(column, operator, high))
    for operator, listed in re.findall(r"((?:NOT )?IN) \(([^)]*)\)", value):
        yield from (Triple(column, operator, literal) for literal in re.findall(LITERAL, listed))


def kept(facts) -> set[Triple]:
    filters = [entry for entry in facts["entries"] if entry["key"].startswith("filter|")]
    return {
        triple
        for entry in filters
        for value in [entry["value"], *(was[0] for was in entry["was"])]
        for triple in kept_in(entry["key"].partition("|")[2], value)
    }


def shown(view: str) -> set[Triple]:
    """Read the lines of filters: a column's own conditions, in detail or a table's in short."""
    lines = re.findall(r"^- filter (.*)$", view, re.MULTILINE)
    return {triple for line in lines for triple in shown_in(line)}


def shown_in(line: str) -> Iterator[Triple]:
    of_a_table = re.match(r"\w[\w.]*: ", line)
    for said in parted(line[of_a_table.end() :], "; ") if of_a_table else [line]:
        column, conditions = parted(said, " ", 1)
        now, *was = parted(conditions, " was ", 1)
        now = re.sub(r" ?t\d+$", "", now)
        yield from kept_in(column, now)
        for before in was:
            in_detail = re.search(r" t\d+$", before)
            told = told_before if in_detail else shown_before
            yield from told(column, operator_of(now), before)


def told_before(column: str, _: str, was: str) -> Iterator[Triple]:
    """Read `= 'a' t3; > 1 t2`: each value whole, with its turn."""
    for value in parted(was, "; "):
        assert re.search(r" t\d+$", value)
        yield from kept_in(column, value)


def shown_before(column: str, operator: str, was: str) -> Iterator[Triple]:
    """Read `'a','b', > 1, > 2`: what has no operator has the newest value's, or its run's."""
    for run in parted(was, ", "):
        first, *others = parted(run, ",")
        first = operator + first if re.fullmatch(LITERAL, first) else first
        for value in [first, *(operator_of(first) + literal for literal in others)]:
            yield from kept_in(column, value)


def operator_of(value: str) -> str:
    return re.split(LITERAL, value, maxsplit=1)[0]


def parted(text: str, at: str, most: int = 0) -> list[str]:
    """Split where `at` stands outside literals and brackets."""
    blind = re.sub(rf"{LITERAL}|\([^()]*\)", lambda found: "_" * len(found[0]), text)
    parts, start = [], 0
    for part in blind.split(at, most or -1):
        parts.append(text[start : start + len(part)])
        start += len(part) + len(at)
    return parts


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a.x = 'p' t12 was > 3 t2", {("x", "=", "'p'"), ("x", ">", "3")}),
        ("a.x = 'p' t12 was > 3 AND < 9 t5; = 'q; was t2' t2; IN ('r','s') t1",
         {("x", "=", "'p'"), ("x", ">", "3"), ("x", "<", "9"), ("x", "=", "'q; was t2'"),
          ("x", "IN", "'r'"), ("x", "IN", "'s'")}),
        ("a.x = 'p' t12 was 'q',\"r\"", {("x", "=", "'p'"), ("x", "=", "'q'"), ("x", "=", '"r"')}),
        ("count(*) > 3 t2 was 2, = 1", {("count(*)", ">", "3"), ("count(*)", ">", "2"), ("count(*)", "=", "1")}),
        ("a: x = 'p' t2; y != 'q' t1", {("x", "=", "'p'"), ("y", "!=", "'q'")}),
        ("a: x = 'p; y = \"q\" was 2' t2; z NOT LIKE 'q' t2 was 'r', = 's', = 3",
         {("x", "=", "'p; y = \"q\" was 2'"), ("z", "NOT LIKE", "'q'"), ("z", "NOT LIKE", "'r'"),
          ("z", "=", "'s'"), ("z", "=", "3")}),
        ("a: x > 1 AND < 9 t3 was IN ('p', 'q'); y BETWEEN 1 AND 2 t2",
         {("x", ">", "1"), ("x", "<", "9"), ("x", "IN", "'p'"), ("x", "IN", "'q'"),
          ("y", "BETWEEN", "1"), ("y", "BETWEEN", "2")}),
    ],
)  # fmt: skip
def test_a_line_is_read_column_by_column(line, said):
    assert shown(f"<facts>\n- filter {line}\n</facts>") == said


# --- Nothing is lost, nothing is made up --------------------------------------------------


def test_the_threads_say_enough_to_tell(folded):
    assert len(folded) == 20
    assert sum(len(thread.said) for thread in folded) > 200


def test_each_comparison_of_each_folded_turn_stands_in_one_entry(folded):
    assert {thread.thread.name: thread.said - kept(thread.facts) for thread in folded} == {
        thread.thread.name: set() for thread in folded
    }


def test_each_stands_in_a_view_of_4000_tokens(folded):
    assert {thread.thread.name: thread.said - shown(thread.view) for thread in folded} == {
        thread.thread.name: set() for thread in folded
    }


def test_no_comparison_is_kept_that_was_never_said(folded):
    assert {thread.thread.name: kept(thread.facts) - thread.said for thread in folded} == {
        thread.thread.name: set() for thread in folded
    }


def test_none_is_shown_that_is_not_kept(folded):
    assert {thread.thread.name: shown(thread.view) - kept(thread.facts) for thread in folded} == {
        thread.thread.name: set() for thread in folded
    }


def test_no_thread_needs_half_of_its_bound_or_loses_a_filter_to_it(folded):
    assert max(facts_tokens(thread.facts) for thread in folded) <= MAX_TOKENS // 2
    for thread in folded:
        assert thread.facts["evicted"].keys() <= {"measure", "group", "table"}
