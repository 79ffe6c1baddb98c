"""A fact as a statement says it."""

from __future__ import annotations

from typing import NamedTuple


class Found(NamedTuple):
    """One exact thing that a statement says: its key is `kind|about`.

    `("filter", "orders.status", "= 'paid'")`, `("measure", "sum(orders.amount)", "as revenue")`,
    `("group", "orders.region", "")`, `("table", "orders", "")`.
    """

    kind: str
    about: str
    value: str
