"""Turns of about 1 kB that read like an analyst's: words of uneven frequency, figures, SQL."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import orjson

from conversations.turns import AgentType, TurnBody

_PROSE = (
    "revenue region quarter customer order margin north south west east growth decline share"
    " product line category churn cohort retention forecast target variance budget actual month"
    " week store channel online retail wholesale partner discount price volume unit return refund"
    " shipment delay supplier stock inventory turnover contract renewal segment enterprise small"
    " account manager pipeline conversion visit basket average median total highest lowest compared"
    " against previous year season holiday campaign email search paid organic cost profit loss net"
    " gross tax currency exchange rate adjusted outlier missing value duplicate filter excluded"
    " because where which mostly driven by after before during only also still while however the"
    " the the of of and and in in to for with on from is are was were this that it at as be has"
)
_WORDS = tuple(_PROSE.split())
_TABLES = ("orders", "customers", "shipments", "invoices", "visits", "stock_levels", "contracts")
_COLUMNS = (
    "region", "month", "revenue", "units", "margin_pct", "customer_name", "channel", "category",
    "order_date", "discount_pct", "store_id", "currency",
)  # fmt: skip

_QUERY_CHARS = 100
_ANSWER_CHARS = 500


def words(chance: random.Random, chars: int) -> str:
    """Return about `chars` characters of prose with a figure now and then."""
    said: list[str] = []
    length = 0
    while length < chars:
        word = chance.choice(_WORDS)
        if chance.random() < 0.08:
            word = f"{chance.uniform(1, 90_000):,.1f}"
        said.append(word)
        length += len(word) + 1
    return " ".join(said)[:chars].strip().capitalize() + "."


def statement(chance: random.Random) -> str:
    """Return a SELECT of about 200 characters."""
    table, joined = chance.sample(_TABLES, 2)
    group, measure, condition = chance.sample(_COLUMNS, 3)
    return (
        f"SELECT t.{group}, SUM(t.{measure}) AS total_{measure}\nFROM {table} t\n"
        f"JOIN {joined} j ON j.id = t.{joined}_id\n"
        f"WHERE t.{condition} >= {chance.randint(1, 9_999)} AND j.{group} <> "
        f"'{chance.choice(_WORDS)}'\nGROUP BY t.{group}\nORDER BY total_{measure} DESC LIMIT 20"
    )


def turn(number: int) -> dict[str, Any]:
    """Return turn `number` as the API takes it: always the same for the same number."""
    chance = random.Random(number)
    return {
        "query": words(chance, _QUERY_CHARS),
        "answer": words(chance, _ANSWER_CHARS),
        "artifacts": [
            {
                "kind": "sql",
                "sql": statement(chance),
                "title": words(chance, 30),
                "columns": chance.sample(_COLUMNS, 3),
                "row_count": chance.randint(1, 500),
            }
        ],
    }


@lru_cache(maxsize=1)
def turns(count: int = 256) -> tuple[dict[str, Any], ...]:
    """Return some turns, made once."""
    return tuple(turn(number) for number in range(count))


def body(number: int) -> TurnBody:
    """Return a turn as `finalize_turn` takes it."""
    made = turns()[number % len(turns())]
    return TurnBody(
        query=made["query"],
        answer=made["answer"],
        artifacts=made["artifacts"],
        agent_type=AgentType.CHAT,
    )


def text_bytes(made: dict[str, Any]) -> int:
    """Return how many bytes of text a turn is: query, answer, and artifacts as JSON."""
    return (
        len(made["query"].encode())
        + len(made["answer"].encode())
        + len(orjson.dumps(made["artifacts"]))
    )
