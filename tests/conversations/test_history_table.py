"""The table of long-term history is made, completed and left alone, by whoever comes first."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from config import dynamodb
from conversations import history
from conversations.digest import SessionSummary
from conversations.history import Owner
from conversations.history_problems import HistoryRefused, HistoryUnavailable
from conversations.history_table import ensure_table_exists

ANA = Owner("default", "ana")
NOW = dt.datetime.now(dt.UTC)


@pytest.fixture(autouse=True)
def table(settings):
    """A name that no table has yet."""
    settings.HISTORY_TABLE = f"history-{uuid.uuid4()}"
    return settings.HISTORY_TABLE


def described(table):
    return dynamodb.client().describe_table(TableName=table)["Table"]


def expiry(table):
    answer = dynamodb.client().describe_time_to_live(TableName=table)
    return answer["TimeToLiveDescription"]


def make_table_of_document_b(table, range_key="session_id"):
    """What an installation has that ran without the index."""
    dynamodb.client().create_table(
        TableName=table,
        KeySchema=[
            {"AttributeName": "user_id", "KeyType": "HASH"},
            {"AttributeName": range_key, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("user_id", range_key)
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def save(count):
    for n in range(count):
        moment = NOW - dt.timedelta(minutes=n)
        history.save_session_summary(
            SessionSummary(*ANA, f"s-{n}", "digest", 1, 1, frozenset(), moment, moment)
        )


def test_it_is_made_as_document_b_lays_it_out(table):
    ensure_table_exists()

    made = described(table)
    assert made["KeySchema"] == [
        {"AttributeName": "user_id", "KeyType": "HASH"},
        {"AttributeName": "session_id", "KeyType": "RANGE"},
    ]
    assert {(a["AttributeName"], a["AttributeType"]) for a in made["AttributeDefinitions"]} == {
        ("user_id", "S"),
        ("session_id", "S"),
        ("last_message", "S"),
    }
    assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert expiry(table) == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}


def test_one_index_orders_a_persons_sessions_by_time(table):
    ensure_table_exists()

    [index] = described(table)["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "newest"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["user_id", "last_message"]
    assert index["Projection"] == {"ProjectionType": "ALL"}


def test_on_every_deploy_nothing_is_left_to_do(table):
    ensure_table_exists()
    before = described(table)
    ensure_table_exists()

    assert described(table) == before


def test_eight_at_once_make_one_table(table):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ensure_table_exists(), range(8)))

    assert len(described(table)["GlobalSecondaryIndexes"]) == 1
    assert expiry(table)["TimeToLiveStatus"] == "ENABLED"


def test_two_processes_at_once_both_succeed(table):
    program = (
        "import django; django.setup();"
        "from django.conf import settings;"
        f"settings.HISTORY_TABLE = {table!r};"
        "from conversations.history_table import ensure_table_exists as ensure; ensure()"
    )
    started = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]

    assert [process.wait(timeout=60) for process in started] == [0, 0]
    assert len(described(table)["GlobalSecondaryIndexes"]) == 1


def test_a_table_without_index_and_expiry_is_given_both(table):
    make_table_of_document_b(table)
    save(3)

    ensure_table_exists()

    assert described(table)["GlobalSecondaryIndexes"][0]["IndexName"] == "newest"
    assert expiry(table)["TimeToLiveStatus"] == "ENABLED"
    assert [one.session_id for one in history.get_user_history(ANA)] == ["s-0", "s-1", "s-2"]


def test_eight_at_once_give_a_table_one_index(table):
    make_table_of_document_b(table)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ensure_table_exists(), range(8)))

    assert len(described(table)["GlobalSecondaryIndexes"]) == 1


def test_without_the_index_the_newest_are_found_the_long_way(table, caplog):
    """An index over many items is built for hours, and can't be asked meanwhile."""
    make_table_of_document_b(table)
    save(12)

    found = history.get_user_history(ANA, limit=10)

    assert [one.session_id for one in found] == [f"s-{n}" for n in range(10)]
    assert "history_without_index" in caplog.text


def test_a_table_with_other_keys_is_not_taken_for_ours(table):
    make_table_of_document_b(table, range_key="created")
    with pytest.raises(HistoryRefused) as raised:
        ensure_table_exists()
    assert raised.value.reason == "WrongKeys"


@pytest.fixture
def never_ready(httpserver, settings):
    """An endpoint whose table is being made and made."""
    table = {"TableName": settings.HISTORY_TABLE, "TableStatus": "CREATING"}
    httpserver.expect_request("/").respond_with_json({"Table": table})
    settings.DYNAMODB_ENDPOINT_URL = httpserver.url_for("/")
    dynamodb.forget_client()
    yield
    dynamodb.forget_client()


def test_waiting_for_it_has_an_end(never_ready):
    started = time.monotonic()
    with pytest.raises(HistoryUnavailable, match="not ready"):
        ensure_table_exists(wait_seconds=0.3)
    assert time.monotonic() - started < 5
