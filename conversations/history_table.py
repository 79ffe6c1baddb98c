"""The table of long-term history in DynamoDB, as document B lays it out, and its one index.

    erp-agent-conversations        user_id (S), session_id (S); expires by `ttl` (N); on demand
      newest                       user_id (S), last_message (S); whole items

The sort key is the session's id, which says nothing about time: without the index the newest ten
of 5,000 sessions would be found by reading all of them.
"""

from __future__ import annotations

import time
from typing import Any, Final

import structlog
from botocore.exceptions import ClientError
from django.conf import settings

from config import dynamodb
from conversations.history_problems import (
    HistoryRefused,
    HistoryUnavailable,
    code_of,
    translated,
)

INDEX: Final = "newest"
EXPIRES: Final = "ttl"

_LOOK_EVERY_SECONDS = 0.25
_KEY = [
    {"AttributeName": "user_id", "KeyType": "HASH"},
    {"AttributeName": "session_id", "KeyType": "RANGE"},
]
_INDEX = {
    "IndexName": INDEX,
    "KeySchema": [
        {"AttributeName": "user_id", "KeyType": "HASH"},
        {"AttributeName": "last_message", "KeyType": "RANGE"},
    ],
    "Projection": {"ProjectionType": "ALL"},
}
_ATTRIBUTES = [
    {"AttributeName": name, "AttributeType": "S"}
    for name in ("user_id", "session_id", "last_message")
]


def ensure_table_exists(wait_seconds: float = 60) -> None:
    """Make what is missing of table, expiry and index; safe on every deploy, several at a time.

    Waits at most `wait_seconds` until the table can be used. An index that is added to a table
    with items takes as long as it takes, and is not waited for: until then the newest sessions
    are found the long way (`history.get_user_history`).

    Raises `HistoryUnavailable`, and `HistoryRefused` where the table is there with other keys
    (`WrongKeys`), or something may not be made.
    """
    with translated():
        table = _usable_table(time.monotonic() + wait_seconds)
        if table["KeySchema"] != _KEY:
            raise HistoryRefused("WrongKeys")
        _ensure_expiry()
        _ensure_index(table)


def _usable_table(deadline: float) -> dict[str, Any]:
    """Return the table's description, once it can be read and written."""
    while True:
        table = _described()
        if table is None:
            _create()
        elif table["TableStatus"] in {"ACTIVE", "UPDATING"}:
            return table
        if time.monotonic() >= deadline:
            raise HistoryUnavailable("The table of earlier sessions is not ready yet.")
        time.sleep(_LOOK_EVERY_SECONDS)


def _described() -> dict[str, Any] | None:
    try:
        answer = dynamodb.client().describe_table(TableName=settings.HISTORY_TABLE)
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return None
        raise
    return dict(answer["Table"])


def _create() -> None:
    try:
        dynamodb.client().create_table(
            TableName=settings.HISTORY_TABLE,
            KeySchema=_KEY,
            AttributeDefinitions=_ATTRIBUTES,
            GlobalSecondaryIndexes=[_INDEX],
            BillingMode="PAY_PER_REQUEST",
        )
    except ClientError as error:
        if code_of(error) != "ResourceInUseException":  # another process was first
            raise
    else:
        structlog.get_logger(__name__).info("history_table_made", table=settings.HISTORY_TABLE)


def _ensure_expiry() -> None:
    if _expires():
        return
    try:
        dynamodb.client().update_time_to_live(
            TableName=settings.HISTORY_TABLE,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRES},
        )
    except ClientError:
        if not _expires():  # not because another process was first
            raise


def _expires() -> bool:
    answer = dynamodb.client().describe_time_to_live(TableName=settings.HISTORY_TABLE)
    stands = answer["TimeToLiveDescription"]
    return (
        stands["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}
        and stands.get("AttributeName") == EXPIRES
    )


def _ensure_index(table: dict[str, Any]) -> None:
    if _has_index(table):
        return
    try:
        dynamodb.client().update_table(
            TableName=settings.HISTORY_TABLE,
            AttributeDefinitions=_ATTRIBUTES,
            GlobalSecondaryIndexUpdates=[{"Create": _INDEX}],
        )
    except ClientError:
        if not _has_index(_described() or {}):  # not because another process was first
            raise


def _has_index(table: dict[str, Any]) -> bool:
    return any(index["IndexName"] == INDEX for index in table.get("GlobalSecondaryIndexes", []))
