"""Which table's column a name in a statement means."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from sqlglot import exp

_MAX_TRACED: Final = 12  # queries one over the other, each of which selects *
_MAX_EXPRESSION_CHARS: Final = 80  # of an expression that stands for a query's column
_PLAIN: Final = re.compile(r"[^\W\d]\w*")
_SCOPES: Final = (exp.Select, exp.Update, exp.Delete)
_AFTER_PROJECTION: Final = (exp.Having, exp.Qualify, exp.Group)


class Names:
    """The names of one statement: aliases and columns of subqueries lead to what they stand for.

    `text_of` writes an expression that a column of a subquery stands for: `sum(orders.amount)`.
    """

    def __init__(self, tree: exp.Expr, text_of: Callable[[exp.Expr], str]) -> None:
        self._text_of = text_of
        self._ctes = {cte.alias.lower(): cte for cte in tree.find_all(exp.CTE)}
        self._sources: dict[int, dict[str, exp.Expr]] = {}
        self._written: dict[int, str] = {}

    def of_column(self, column: exp.Column) -> str:
        """Return a column as `orders.status`, or as it is written where its table isn't certain."""
        if id(column) not in self._written:
            # It stands as written while it is looked for, since a recursive query leads back to it.
            self._written[id(column)] = _dotted(column.parts)
            self._written[id(column)] = self._of_column(column)
        return self._written[id(column)]

    def _of_column(self, column: exp.Column) -> str:
        if not column.table and (projection := _projection_behind(column)):
            return self._text_of(projection) or column.name
        scope = column.find_ancestor(*_SCOPES)
        while scope:
            source = self._source(scope, column.table)
            if source is not None:
                return self._within(source, column)
            # A correlated subquery names its surroundings' tables.
            scope = scope.find_ancestor(*_SCOPES) if column.table else None
        return _dotted(column.parts)

    def query_of(self, table: exp.Table) -> exp.Expr | None:
        """Return the common table expression that a table's name means, or None."""
        cte = None if table.db else self._ctes.get(table.name.lower())
        if cte is None:
            return None
        # `WITH orders AS (SELECT * FROM orders)` reads the table, unless it's recursive.
        inside = table.find_ancestor(exp.CTE)
        while inside is not None and inside is not cte:
            inside = inside.find_ancestor(exp.CTE)
        return None if inside is cte and not _is_recursive(cte) else cte

    def _source(self, scope: exp.Expr, qualifier: str) -> exp.Expr | None:
        sources = self._sources.get(id(scope))
        if sources is None:
            sources = self._sources[id(scope)] = _sources(scope)
        if qualifier:
            return sources.get(qualifier.lower())
        return next(iter(sources.values())) if len(sources) == 1 else None

    def _within(self, source: exp.Expr, column: exp.Column) -> str:
        for _ in range(_MAX_TRACED):
            query = self.query_of(source) if isinstance(source, exp.Table) else source
            if query is None:
                return _dotted([*_parts(source), column.this])
            if _is_recursive(query):
                break
            select = _first_select(query)
            behind = _projection(select, column.name) if select else None
            if behind is not None and behind.find(exp.Column, exp.AggFunc):
                text = self._text_of(behind)
                if 0 < len(text) <= _MAX_EXPRESSION_CHARS:
                    return text
            inner = self._source(select, "") if select and not behind and select.is_star else None
            if inner is None:
                break
            source = inner
        return f"{source.alias_or_name.lower()}.{_dotted([column.this])}".lstrip(".")


def _is_recursive(query: exp.Expr) -> bool:
    return isinstance(query.parent, exp.With) and bool(query.parent.recursive)


def name_of_table(table: exp.Table) -> str:
    """Return a table's name as `sales.orders`."""
    return _dotted(_parts(table))


def _parts(table: exp.Expr) -> list[exp.Expr]:
    return [table.args[part] for part in ("catalog", "db", "this") if table.args.get(part)]


def _dotted(parts: list[exp.Expr]) -> str:
    return ".".join(_written(part) for part in parts)


def _written(name: exp.Expr) -> str:
    """Return a name in lower case, a quoted one as it is: only there does case mean something."""
    if not (isinstance(name, exp.Identifier) and name.quoted):
        return name.name.lower()
    return name.name if _PLAIN.fullmatch(name.name) else f'"{name.name}"'


def _sources(scope: exp.Expr) -> dict[str, exp.Expr]:
    """Return what a query reads from, by alias."""
    read = [scope.args[name] for name in ("this", "from_", "using") if scope.args.get(name)]
    read += [*(scope.args.get("joins") or ()), *(scope.args.get("laterals") or ())]
    sources: dict[str, exp.Expr] = {}
    for part in read:
        source = part.this if isinstance(part, exp.From | exp.Join) else part
        if not isinstance(source, exp.Expr):
            continue
        sources[source.alias_or_name.lower()] = source
        for join in source.args.get("joins") or ():
            sources[join.this.alias_or_name.lower()] = join.this
    return sources


def _first_select(query: exp.Expr) -> exp.Select | None:
    while isinstance(query, exp.CTE | exp.Subquery | exp.SetOperation):
        query = query.this
    return query if isinstance(query, exp.Select) else None


def _projection(select: exp.Select, name: str) -> exp.Expr | None:
    named = (p for p in select.expressions if p.alias_or_name.lower() == name.lower())
    projection: exp.Expr | None = next(named, None)
    return projection.unalias() if projection is not None else None


def _projection_behind(column: exp.Column) -> exp.Expr | None:
    """Return what a name in HAVING stands for, if it's an alias and no column."""
    select = column.find_ancestor(exp.Select)
    clause = column.find_ancestor(*_AFTER_PROJECTION, exp.Select)
    if select is None or clause is select:
        return None
    name = column.name.lower()
    behind: exp.Expr | None = next((p for p in select.expressions if p.alias.lower() == name), None)
    if behind is None or any(inner.name.lower() == name for inner in behind.find_all(exp.Column)):
        return None
    return behind.unalias()
