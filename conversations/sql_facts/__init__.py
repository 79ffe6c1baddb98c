"""What a SQL statement says exactly: its filters, measures, groupings and tables.

Found in the statement's tree and written as in its text: literals byte for byte, while aliases
become the tables that they stand for. Importing this package imports sqlglot, which takes 0.13 s:
`facts` does so only once there is a statement to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialects

from conversations.sql_facts.conditions import said_by_column
from conversations.sql_facts.found import Found
from conversations.sql_facts.names import name_of_table
from conversations.sql_facts.parsed import ParsedStatement, place_of, statements_in
from conversations.sql_facts.pattern import facts_by_pattern

__all__ = ["Found", "facts_in_sql"]

MAX_PARSED_CHARS: Final = 12_288  # about 0.2 s
# `a[1][1]…`: of some hundred subscripts on each other sqlglot makes seconds.
MAX_PARSED_BRACKETS: Final = 100

_SPELLINGS: Final = {
    "mariadb": "mysql", "mssql": "tsql", "pg": "postgres", "postgresql": "postgres",
    "sqlite3": "sqlite", "sqlserver": "tsql", "sql server": "tsql", "pyspark": "spark",
}  # fmt: skip
_KNOWN: Final = {dialect.value for dialect in Dialects}
_NAMES_ONLY: Final = {
    "postgres",
    "redshift",
    "snowflake",
    "oracle",
    "tsql",
    "duckdb",
    "trino",
    "presto",
}


def facts_in_sql(sql: str, dialect: str = "", *, parse: bool = True) -> list[Found]:
    """Return what `sql` says exactly, in its order; never raises.

    `dialect` is one of sqlglot's or a common spelling of it; "" is unknown. What does not parse
    is read by pattern, see `pattern`.

    >>> facts_in_sql("SELECT SUM(o.amount) FROM orders o WHERE o.status = 'paid'")
    [Found('measure', 'sum(orders.amount)', ''), Found('table', 'orders', ''),
     Found('filter', 'orders.status', "= 'paid'")]
    """
    known = _known(dialect)
    for candidate in _candidates(sql, known) if parse and _may_be_parsed(sql) else ():
        # Whatever a parser of sixty dialects trips over: the pattern remains.
        try:
            return _facts_in_trees(sql, candidate)
        except Exception:  # noqa: BLE001, S112
            continue
    return facts_by_pattern(sql, double_quoted_strings=known not in _NAMES_ONLY)


def _may_be_parsed(sql: str) -> bool:
    return len(sql) <= MAX_PARSED_CHARS and sql.count("[") <= MAX_PARSED_BRACKETS


def _known(dialect: str) -> str:
    name = dialect.strip().lower()
    name = _SPELLINGS.get(name, name)
    return name if name in _KNOWN else ""


def _candidates(sql: str, dialect: str) -> Iterator[str]:
    """Yield the dialects to try: an unknown one is told by quotes that others do not have."""
    if dialect or "`" not in sql:
        yield dialect
    if not dialect:
        yield from ("mysql", "bigquery") if "`" in sql else ()
        yield from ("tsql",) if "[" in sql else ()


def _facts_in_trees(sql: str, dialect: str) -> list[Found]:
    placed = [fact for statement in statements_in(sql, dialect) for fact in _facts(statement)]
    placed.sort(key=lambda fact: fact[0])
    return list(dict.fromkeys(found for _, found in placed))


# --- One statement ------------------------------------------------------------------------


def _facts(statement: ParsedStatement) -> Iterator[tuple[int, Found]]:
    """Yield each fact after the place where it stands."""
    for node in statement.tree.walk():
        if isinstance(node, exp.Table):
            yield from _table(node, statement)
        elif isinstance(node, exp.Select):
            yield from _measures(node, statement)
        elif isinstance(node, exp.Group):
            yield from _groups(node, statement)
        elif isinstance(node, exp.Where | exp.Having | exp.Qualify):
            yield from _filters(node.this, statement)
        elif isinstance(node, exp.Join) and (condition := node.args.get("on")):
            yield from _filters(condition, statement)


def _table(table: exp.Table, statement: ParsedStatement) -> Iterator[tuple[int, Found]]:
    if isinstance(table.this, exp.Identifier) and statement.names.query_of(table) is None:
        yield table.this.meta.get("start", 0), Found("table", name_of_table(table), "")


def _measures(select: exp.Select, statement: ParsedStatement) -> Iterator[tuple[int, Found]]:
    for projection in select.expressions:
        measured = projection.unalias()
        place = place_of(measured)
        if place and measured.find(exp.AggFunc) and not measured.find(exp.Query):
            said = f"as {projection.alias}" if projection.alias else ""
            yield place[0], Found("measure", statement.key(measured), said)


def _groups(group: exp.Group, statement: ParsedStatement) -> Iterator[tuple[int, Found]]:
    for grouped in group.expressions:
        meant = _meant(grouped, group.parent)
        if (place := place_of(meant)) and not isinstance(meant, exp.Literal):
            yield place[0], Found("group", statement.key(meant), "")


def _meant(grouped: exp.Expr, select: exp.Expr | None) -> exp.Expr:
    """Return what is meant by `GROUP BY 1`."""
    projections = select.expressions if select else []
    if isinstance(grouped, exp.Literal) and grouped.name.isdecimal():
        at = int(grouped.name) - 1
        return projections[at].unalias() if 0 <= at < len(projections) else grouped
    return grouped


def _filters(condition: exp.Expr, statement: ParsedStatement) -> Iterator[tuple[int, Found]]:
    for column, said in said_by_column(condition, statement).items():
        yield said.place, Found("filter", column, said.text)
