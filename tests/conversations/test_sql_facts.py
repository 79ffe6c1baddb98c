"""What a statement says exactly: filters, measures, groupings and tables, literals as written."""

# ruff: noqa: S608  no statement here runs

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.facts import fold_facts
from conversations.sql_facts import facts_in_sql
from conversations.sql_facts.pattern import facts_by_pattern


def found(kind, sql, dialect=""):
    return [
        (about, value) if value else about
        for found_kind, about, value in facts_in_sql(sql, dialect)
        if found_kind == kind
    ]


def filters(sql, dialect=""):
    return found("filter", sql, dialect)


def where(condition, dialect=""):
    return filters(f"SELECT * FROM t WHERE {condition}", dialect)


# --- Names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM orders WHERE status = 'paid'", ("orders.status", "= 'paid'")),
        ("SELECT * FROM orders o WHERE o.status = 'paid'", ("orders.status", "= 'paid'")),
        ("SELECT * FROM Orders AS O WHERE o.Status = 'paid'", ("orders.status", "= 'paid'")),
        ("SELECT * FROM sales.orders o WHERE o.status = 'paid'", ("sales.orders.status", "= 'paid'")),
        ("SELECT * FROM a JOIN b USING (id) WHERE status = 'paid'", ("status", "= 'paid'")),
        ('SELECT * FROM "Orders" o WHERE o."Order date" = 1', ('Orders."Order date"', "= 1")),
        ("UPDATE orders SET a = 1 WHERE id = 7", ("orders.id", "= 7")),
        ("DELETE FROM orders WHERE id = 7", ("orders.id", "= 7")),
        ("SELECT * FROM a x JOIN b y ON x.id = y.id AND y.kind <> 'B'", ("b.kind", "<> 'B'")),
        ("SELECT * FROM a x, b y WHERE x.id = y.id AND y.kind = 'B'", ("b.kind", "= 'B'")),
        ("SELECT * FROM (SELECT * FROM orders o) d WHERE d.id = 7", ("orders.id", "= 7")),
        ("SELECT * FROM (SELECT o.id AS n FROM orders o) d WHERE d.n = 7", ("orders.id", "= 7")),
        ("WITH p AS (SELECT * FROM orders) SELECT * FROM p WHERE p.id = 7", ("orders.id", "= 7")),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders o WHERE o.id = 7",
         ("orders.id", "= 7")),
        ("WITH RECURSIVE r AS (SELECT * FROM r) SELECT * FROM r WHERE n = 7", ("r.n", "= 7")),
        ("SELECT * FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.c = c.id AND c.region = 'EU')",
         ("c.region", "= 'EU'")),
        ("SELECT 1 FROM a UNION SELECT 1 FROM b WHERE id = 7", ("b.id", "= 7")),
        ("SELECT k FROM t GROUP BY k HAVING COUNT( * ) >= 3", ("count(*)", ">= 3")),
        ("SELECT SUM(t.x) AS s FROM t HAVING s > 9", ("sum(t.x)", "> 9")),
        ("SELECT * FROM (SELECT sum(x) s FROM t) d WHERE d.s > 9", ("sum(t.x)", "> 9")),
        ("SELECT * FROM t o WHERE lower(o.name) = 'x'", ("lower(t.name)", "= 'x'")),
    ],
)  # fmt: skip
def test_a_column_is_named_by_its_table(sql, expected):
    assert filters(sql) == [expected]


def test_a_column_is_named_the_same_in_any_spelling():
    assert where("STATUS = 1") == where("t.status=1") == where("T . Status  =  1")


# --- Literals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "= 'paid'", "= 'it''s'", "= ''", "= 'Ünïcode 目標 👨‍👩‍👧'", "= '  a  b '", "= 'two\nlines'",
        "= '-- no comment'", "= '; DROP TABLE t'", "= 1e2", "= 1.50", "= -5", "= 00501",
        "= 9223372036854775808", "> 3000", "<= 5", "<> 'x'", "!= 'x'", "LIKE '%a_b%'",
        "NOT LIKE 'a'", "ILIKE 'A%'", "LIKE 'a!%' ESCAPE '!'", "IN ('paid','shipped')", "NOT IN (1,2)",
        "BETWEEN 1 AND 2", "NOT BETWEEN '2026-01-01' AND '2026-01-31'", "IS NULL", "IS NOT NULL",
        "IS true", ">= date '2026-01-31'", ">= DATE '2026-01-31'", "= '2026-01-31'::date",
        "> now()-interval '30 days'", ">= CURRENT_DATE", "= cast('1' as int)", "= ANY (array[1,2])",
        "IS DISTINCT FROM 'x'",
    ],
)  # fmt: skip
def test_what_is_compared_with_stands_as_written(said):
    assert where(f"a {said}", "postgres") == [("t.a", said)]


def test_blanks_between_words_and_the_case_of_operators_make_no_other_value():
    assert where("a in ( 'x' ,\n 'y' )") == where("a IN ('x','y')") == [("t.a", "IN ('x','y')")]
    assert where("a=1") == where("a = /* one */ 1 -- this\n") == [("t.a", "= 1")]


def test_a_literal_on_the_left_is_turned_round():
    assert where("5 < a AND 'x' = b") == [("t.a", "> 5"), ("t.b", "= 'x'")]


# --- Conditions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("w > 3000 AND w < 4000", [("t.w", "> 3000 AND < 4000")]),
        ("w = 1 OR w = 2 OR w = 3", [("t.w", "= 1 OR = 2 OR = 3")]),
        ("(w = 1 OR w = 2) AND w <> 3", [("t.w", "(= 1 OR = 2) AND <> 3")]),
        ("w = 1 AND x = 2 AND w = 1", [("t.w", "= 1"), ("t.x", "= 2")]),
        ("NOT w LIKE 'a'", [("t.w", "NOT LIKE 'a'")]),
        ("NOT (w = 1 OR w = 2)", [("t.w", "NOT (= 1 OR = 2)")]),
        ("NOT (w > 1 AND w < 9)", [("t.w", "NOT (> 1 AND < 9)")]),
        ("NOT NOT w = 1", [("t.w", "= 1")]),
        ("NOT (w = 1 OR x = 2)", [("t.w", "NOT = 1"), ("t.x", "NOT = 2")]),
        ("NOT ((w = 1 OR w = 2) OR x = 3)", [("t.w", "NOT (= 1 OR = 2)"), ("t.x", "NOT = 3")]),
        ("NOT (NOT (w = 1 AND x = 2))", [("t.w", "= 1"), ("t.x", "= 2")]),
        ("is_active AND NOT is_test", ["t.is_active", ("t.is_test", "NOT")]),
        ("starts_with(w, 'a')", [("t.w", "starts_with(t.w,'a')")]),
        ("price > cost * 1.2", [("t.price", "> t.cost*1.2")]),
        ("(a, b) IN ((1, 2), (3, 4))", [("(t.a,t.b)", "IN ((1,2),(3,4))")]),
    ],
)
def test_all_that_a_condition_says_of_a_column_is_one_value(condition, expected):
    assert where(condition) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("NOT (a = 'x' AND b = 'y')", []),
        ("NOT (a = 'x' AND b = 'y') AND c = 1", [("t.c", "= 1")]),
        ("NOT (a = 'x' AND (b = 'y' OR a = 'z'))", []),
        ("NOT (a = 1 OR a = 2 AND b = 3)", [("t.a", "NOT = 1")]),
        ("NOT (a = 'x' AND b = c)", []),
        ("NOT (a = 'x' AND EXISTS (SELECT 1 FROM u))", []),
    ],
)
def test_what_is_denied_of_columns_together_is_said_of_none(condition, expected):
    assert where(condition) == expected


@pytest.mark.parametrize(
    "condition",
    ["1 = 1", "a = b", "a IN (SELECT b FROM t)", "a > (SELECT avg(a) FROM t)", "a = :p", "a = ?",
     "lower(a) = lower(b)"],
)  # fmt: skip
def test_a_comparison_without_a_literal_is_no_filter(condition):
    assert where(condition) == []


def test_conditions_of_subqueries_are_filters_of_their_own():
    sql = "SELECT * FROM t WHERE a = 1 AND b IN (SELECT b FROM u WHERE c = 'x' GROUP BY b HAVING max(d) > 2)"
    assert filters(sql) == [("t.a", "= 1"), ("u.c", "= 'x'"), ("max(u.d)", "> 2")]


def test_each_of_several_statements_is_read():
    assert filters("SELECT 1 FROM a WHERE x = 1; ; DELETE FROM b WHERE y = 2") == [
        ("a.x", "= 1"),
        ("b.y", "= 2"),
    ]


# --- Dialects -----------------------------------------------------------------------------


def test_an_unknown_dialects_double_quoted_string_is_kept_as_a_literal_and_as_a_name():
    assert where('name = "usa"') == [("t.name", '= "usa"')]
    assert where('"Region" = \'x\' AND t."Q" = 2') == [("t.Region", "= 'x'"), ("t.Q", "= 2")]
    assert where('"Region" = "north"') == [("t.Region", '= "north"')]


def test_a_known_dialect_tells_which_it_is():
    assert where('name = "usa"', "mysql") == [("t.name", '= "usa"')]
    assert where('name = "usa"', "bigquery") == [("t.name", '= "usa"')]
    assert where('name = "usa"', "postgres") == []


def test_other_quotes_tell_an_unknown_dialect():
    assert filters('SELECT * FROM `my t` WHERE `a b` = "x"') == [('"my t"."a b"', '= "x"')]
    assert filters("SELECT * FROM [my t] WHERE [a b] = N'x'") == [('"my t"."a b"', "= N'x'")]


@pytest.mark.parametrize(
    "dialect", ["PostgreSQL", " mssql ", "mariadb", "SQLite3", "no such", "x" * 300]
)
def test_a_dialect_may_be_spelt_in_many_ways(dialect):
    assert where("a = 'x'", dialect) == [("t.a", "= 'x'")]


# --- Measures, groupings, tables ----------------------------------------------------------


def test_a_measure_is_an_aggregate_with_its_alias():
    sql = "SELECT region, SUM(o.amount) / COUNT(DISTINCT o.customer) AS basket FROM orders o GROUP BY 1"
    assert found("measure", sql) == [
        ("sum(orders.amount)/count(distinct orders.customer)", "as basket")
    ]


def test_a_grouping_is_what_its_number_stands_for():
    sql = "SELECT date_trunc('Month', o.at), o.region, count(*) FROM orders o GROUP BY 1, o.region"
    assert found("group", sql) == ["date_trunc('Month',orders.at)", "orders.region"]


def test_tables_are_those_of_the_database_not_of_the_statement():
    sql = (
        "WITH p AS (SELECT * FROM s.orders) SELECT * FROM p JOIN Customers c ON true, (SELECT 1) x"
    )
    assert found("table", sql) == ["s.orders", "customers"]


# --- By pattern ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('SELECT a FROM t WHERE k ! = "x"', [("t.k", '!= "x"')]),
        ("SELEKT a FROM orders o WHERE o.k in ( 'a' , 'b' ) AND o.n NOT BETWEEN 1 AND 2",
         [("orders.k", "IN ('a','b')"), ("orders.n", "NOT BETWEEN 1 AND 2")]),
        ("SELECT FROM t WHERE NOT n LIKE 'a%' AND m IS NOT NULL AND d >= DATE '2026-01-31' )",
         [("t.n", "NOT LIKE 'a%'"), ("t.m", "IS NOT NULL"), ("t.d", ">= DATE '2026-01-31'")]),
        ("SELECT k, FROM FROM t GROUP BY k HAVING count(*) > 3", [("count(*)", "> 3")]),
        ("SELECT CASE WHEN a = 1 THEN 2 END FROM t WHERE b = 3 ORDER BY c = 4 ]", [("t.b", "= 3")]),
        ("SELECT * FROM t WHERE a IN (SELECT x FROM u) AND b = 2 ]", [("b", "= 2")]),
        ("SELECT ! FROM t WHERE a = 1 -- AND b = 2\n AND c = '/*' /* AND d = 3 */",
         [("t.a", "= 1"), ("t.c", "= '/*'")]),
        ("SELECT ! FROM t WHERE NOT (a = 1 AND (b = 2)) AND c = 3", [("t.c", "= 3")]),
        ("EXPLAIN SELECT * FROM t WHERE a = 1", [("t.a", "= 1")]),
        ("SELECT * FROM t WHERE a = {{ a }} AND b = 2 %}", [("t.b", "= 2")]),
    ],
)  # fmt: skip
def test_what_does_not_parse_is_read_by_its_looks(sql, expected):
    assert filters(sql) == expected


def test_measures_groupings_and_tables_are_read_by_their_looks_too():
    sql = "WITH p AS (SELECT * FROM a) SELECT k, COUNT(DISTINCT o.v) FROM p, orders o GROUP BY o.k, l ]"
    facts = [tuple(fact) for fact in facts_by_pattern(sql, double_quoted_strings=False)]
    assert [fact[:2] for fact in facts] == [
        ("table", "a"), ("measure", "count(distinct orders.v)"), ("table", "orders"),
        ("group", "orders.k"), ("group", "l"),
    ]  # fmt: skip


@pytest.mark.parametrize("depth", [50, 499, 500, 30_000])
def test_nesting_that_no_parser_survives_is_read_all_the_same(depth):
    assert filters(f"SELECT * FROM t WHERE b = 2 AND {'(' * depth}a = 1{')' * depth}") == [
        ("t.b", "= 2"),
        ("t.a", "= 1"),
    ]


def test_a_huge_statement_is_read_by_its_looks():
    many = " AND ".join(f"c{n} = {n}" for n in range(5_000))
    assert where(many) == [(f"t.c{n}", f"= {n}") for n in range(5_000)]


# --- Whatever comes -----------------------------------------------------------------------

_SQL_WORDS = st.sampled_from(
    [*"(),;.*=<>'\"`[]?\\é\n", "<>", "--", "/*", "*/", "::", "->", "{{", "}}", "$$", "a", "b.c", "t",
     "'x'", '"y"', "1", "1e2", "-5", "count(", "select", "from", "where", "and", "or", "not", "in",
     "between", "like", "is", "null", "having", "group", "by", "join", "on", "as", "with", "case",
     "when", "then", "end", "union"]
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(
    st.lists(_SQL_WORDS, max_size=40),
    st.sampled_from(["", "mysql", "tsql", "bigquery", "postgres"]),
)
def test_no_text_whatever_makes_it_fail(words, dialect):
    sql = " ".join(words)
    assert all(all(isinstance(part, str) for part in fact) for fact in facts_in_sql(sql, dialect))
    facts_by_pattern(sql, double_quoted_strings=True)


@pytest.mark.parametrize("sql", ["", " ", ";", "-- nothing", "CREATE TABLE t (a int)", "DROP TABLE t",
                                 "SET x = 1", "\ufeff", "'", "/*", "GRANT SELECT ON t TO u"])  # fmt: skip
def test_statements_without_filters_say_none(sql):
    assert filters(sql) == []


def test_a_statement_that_sqlglot_does_not_know_is_not_written_to_the_log(caplog):
    assert where("a = 1") == filters("EXPLAIN ANALYZE SELECT * FROM t WHERE a = 1")
    assert caplog.records == []


def test_a_process_that_only_shows_facts_does_without_the_parser():
    script = "import sys, conversations.facts, conversations.head; print('sqlglot' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("text", ["SELECT a" + "[1]" * 3_400, "SELECT ARRAY" + "[b]" * 3_000])
@pytest.mark.parametrize("dialect", ["postgres", "clickhouse", ""])
def test_subscripts_on_subscripts_are_not_parsed_for_seconds(text, dialect):
    began = time.process_time()
    facts_in_sql(text, dialect)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("alias", ['"x\\0y"', "`x\\0y`", "E'\\x00'"])
@pytest.mark.parametrize("dialect", ["", "mysql", "postgres", "clickhouse", "databricks"])
def test_what_a_parser_makes_of_escapes_can_be_stored(alias, dialect):
    said = {"kind": "sql", "sql": f"SELECT COUNT(*) AS {alias} FROM `t`", "dialect": dialect}
    facts = fold_facts({}, [(1, [said])], dialect="", max_tokens=600, through=1)
    assert "\\u0000" not in json.dumps(facts)
