"""What a condition says of each column: `weight > 3000 AND weight < 4000 AND year = 1974`.

{"cars.weight": "> 3000 AND < 4000", "cars.year": "= 1974"}

Of what it only denies together, `NOT (year = 1974 AND weight > 3000)`, it says nothing of either.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlglot import exp

from conversations.sql_facts.parsed import ParsedStatement, place_of

_FLIPPED: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_NAMING: Final = (exp.AggFunc, exp.Window)
_PARAMETERS: Final = (exp.Placeholder, exp.Parameter)


class Said(NamedTuple):
    """What a condition says of one column, where that stands, and what joins its parts."""

    text: str
    place: int
    joiner: str = ""


class _Sides(NamedTuple):
    """What a condition says of each column, what its denial says, and the only column if it's one.

    Both are found in one go: conditions may be nested deep, with a NOT at each step.
    """

    said: dict[str, Said]
    denied: dict[str, Said]
    only: str


def said_by_column(condition: exp.Expr, statement: ParsedStatement) -> dict[str, Said]:
    """Return what a condition says of each column, without what its subqueries say."""
    return _sides(condition, statement).said


def _sides(condition: exp.Expr, statement: ParsedStatement) -> _Sides:
    if isinstance(condition, exp.Connector):
        return _connected(condition, statement)
    if isinstance(condition, exp.Paren):
        return _sides(condition.this, statement)
    if isinstance(condition, exp.Not) and _stands_before(condition):
        said, denied, only = _sides(condition.this, statement)
        return _Sides(denied, said, only)
    said = _predicate(condition, statement)
    return _Sides(said, _each_denied(said), next(iter(said), ""))


def _connected(condition: exp.Connector, statement: ParsedStatement) -> _Sides:
    parts = [_sides(part, statement) for part in _parts(condition)]
    said = _joined([part.said for part in parts], condition.key.upper())
    columns = {part.only for part in parts}
    if len(columns) == 1 and all(columns):
        return _Sides(said, _each_denied(said), columns.pop())
    is_either = isinstance(condition, exp.Or)
    return _Sides(said, _joined([part.denied for part in parts], "AND") if is_either else {}, "")


def _joined(parts: list[dict[str, Said]], joiner: str) -> dict[str, Said]:
    joined: dict[str, Said] = {}
    for part in parts:
        for column, said in part.items():
            before = joined.get(column)
            joined[column] = _both(before, said, joiner) if before else said
    return joined


def _each_denied(said: dict[str, Said]) -> dict[str, Said]:
    return {column: _denied(one) for column, one in said.items()}


def _parts(condition: exp.Connector) -> list[exp.Expr]:
    """Return what is joined; a chain of thousands leans to the left, so it's followed in a loop."""
    parts: list[exp.Expr] = []
    rest: exp.Expr = condition
    while type(rest) is type(condition):
        parts.append(rest.expression)
        rest = rest.this
    return [rest, *reversed(parts)]


def _both(first: Said, second: Said, joiner: str) -> Said:
    if first.text == second.text:
        return first
    texts = [
        said.text if said.joiner in {"", joiner} else f"({said.text})" for said in (first, second)
    ]
    return Said(f" {joiner} ".join(texts), first.place, joiner)


def _denied(said: Said) -> Said:
    text = f"NOT ({said.text})" if said.joiner else f"NOT {said.text}".rstrip()
    return Said(text, said.place)


# --- Predicates ---------------------------------------------------------------------------


def _core(predicate: exp.Expr) -> exp.Expr:
    """Return the comparison inside `a NOT IN (1)` and `a LIKE 'x' ESCAPE '!'`."""
    while isinstance(predicate, exp.Not | exp.Escape):
        predicate = predicate.this
    return predicate


def _stands_before(denial: exp.Not) -> bool:
    """Whether NOT stands before what it denies, not inside it as in `a NOT IN (1)`."""
    whole, left = place_of(denial), place_of(_core(denial).this)
    return whole is None or left is None or whole[0] < left[0]


def _predicate(predicate: exp.Expr, statement: ParsedStatement) -> dict[str, Said]:
    if predicate.find(exp.Query):
        return {}
    core = _core(predicate)
    whole, left = place_of(predicate), place_of(core.this)
    end = whole or place_of(core.args.get("expression"))
    if left is None or end is None or (whole and whole[0] != left[0]) or end[1] <= left[1]:
        return _call(predicate, statement)
    return _compared(core, left, end[1], statement)


def _compared(
    core: exp.Expr, left: tuple[int, int], end: int, statement: ParsedStatement
) -> dict[str, Said]:
    """Return what a comparison says whose left side stands at `left` and whose right at `end`."""
    columns = list(statement.columns(core))
    on_left = [uncertain for start, uncertain in columns if start < left[1]]
    on_right = [uncertain for start, uncertain in columns if start >= left[1]]
    right = core.args.get("expression")
    if not _is_about(core.this, on_left):
        if isinstance(right, exp.Expr) and _is_about(right, on_right):
            return _flipped(core.this, right, statement)
        if not on_left:
            return {}
    if not statement.has_literal(left[1], end) and (on_right or core.find(*_PARAMETERS)):
        return {}
    return {statement.key(core.this): Said(statement.text(left[1], end), left[0])}


def _is_about(operand: exp.Expr, uncertain: list[bool]) -> bool:
    """Whether an operand names something: a column that can be no literal, or an aggregate."""
    return not all(uncertain) or operand.find(*_NAMING) is not None


def _flipped(left: exp.Expr, right: exp.Expr, statement: ParsedStatement) -> dict[str, Said]:
    """Return what `5 < x` says of x."""
    literal, about = place_of(left), place_of(right)
    if literal is None or about is None or not statement.has_literal(*literal):
        return {}
    operator = statement.text(literal[1], about[0])
    text = f"{_FLIPPED.get(operator, operator)} {statement.text(*literal)}"
    return {statement.key(right): Said(text, literal[0])}


def _call(predicate: exp.Expr, statement: ParsedStatement) -> dict[str, Said]:
    """Return what `is_active` or `starts_with(name, 'A')` says of its first column."""
    column, place = predicate.find(exp.Column), place_of(predicate)
    if column is None or place is None or isinstance(column.this, exp.Star):
        return {}
    text = "" if predicate is column else statement.text(*place)
    return {statement.names.of_column(column): Said(text, place[0])}
