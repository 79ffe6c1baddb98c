"""Ended sessions and the raw items that they become."""

from __future__ import annotations

import datetime as dt

from config import dynamodb
from conversations import history
from conversations.digest import SessionSummary

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)


def ended(owner, session_id="s-1", summary="## Queries\nQuestion", **fields):
    values = {
        "message_count": 12,
        "queries_executed": 3,
        "topics": frozenset({"ingresos", "costos"}),
        "first_message": NOW - dt.timedelta(hours=1),
        "last_message": NOW,
    }
    return SessionSummary(*owner, session_id, summary, **{**values, **fields})


def raw(owner, session_id="s-1"):
    key = {"user_id": {"S": history.partition_key(owner)}, "session_id": {"S": session_id}}
    return dynamodb.client().get_item(TableName="erp-agent-conversations", Key=key).get("Item")


def put(owner, session_id="s-1", **attributes):
    """Write an item as somebody else would."""
    key = {"user_id": {"S": history.partition_key(owner)}, "session_id": {"S": session_id}}
    dynamodb.client().put_item(TableName="erp-agent-conversations", Item={**key, **attributes})


def at(seconds):
    return NOW + dt.timedelta(seconds=seconds)
