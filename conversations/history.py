"""Long-term history: one item a session in DynamoDB, for 90 days after its last message.

    save_session_summary(SessionSummary("acme", "ana", "s-81", digest, 12, 3, {"ingresos"}, …))
    get_user_history(Owner("acme", "ana"), limit=10)        newest first
    delete_user(Owner("acme", "ana"))

The item, as document B has it:

| attribute | | |
|---|---|---|
| `user_id`, `session_id` | S | the key; `ana` of the tenant `default`, `acme#ana` of another |
| `summary` | S | the digest; over 400 KB in all its beginning makes way, with a mark |
| `message_count`, `queries_executed` | N | |
| `topics` | SS | absent where there is none: DynamoDB has no empty sets |
| `first_message`, `last_message` | S | `2026-11-30T09:00:00.000000Z`: texts that sort by time |
| `ttl` | N | seconds, `last_message` and `DYNAMODB_TTL_DAYS` |

Whatever else stands on an item stays. PostgreSQL has all of it: this table can be made anew.
`history_async` has the same for `await`.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import structlog
from botocore.exceptions import ClientError
from django.conf import settings

from config import dynamodb
from config.plain_json import clean_text
from conversations.digest import SessionSummary
from conversations.history_problems import HistoryUnavailable, code_of, translated
from conversations.history_table import EXPIRES, INDEX
from conversations.session_keys import checked_id
from rbac import names

MAX_ITEM_BYTES: Final = 400 * 1024
MAX_TOPICS: Final = 100
TOPIC_CHARS: Final = 100

# Room for what others may have put on the item, and for how DynamoDB counts numbers.
_RESERVED_BYTES = 1024
_BATCH = 25  # what DynamoDB takes at a time
_BATCH_TRIES = 8
_BATCH_PAUSE_SECONDS = 0.05

Item = Mapping[str, Mapping[str, Any]]


class Owned(Protocol):
    """Whose history: a `Person`, a `SessionSummary`, an `Owner`."""

    @property
    def tenant(self) -> str: ...  # noqa: D102
    @property
    def user_id(self) -> str: ...  # noqa: D102


class Owner(NamedTuple):
    """Somebody of whom only the two names are known."""

    tenant: str
    user_id: str


def partition_key(owner: Owned) -> str:
    """Return the value of `user_id` in the table: `ana`, or `acme#ana`.

    Raises `rbac.names.BadName` for what can be no name: neither part may hold a `#`, so that no
    two people share a key, and `SYSTEM` is nobody's.
    """
    tenant, user_id = names.tenant(owner.tenant), names.user_id(owner.user_id)
    return user_id if tenant == names.DEFAULT_TENANT else f"{tenant}#{user_id}"


# --- Writing ------------------------------------------------------------------------------


def save_session_summary(summary: SessionSummary) -> bool:
    """Store a session's digest; False where a newer one of the session stands already.

    The same again writes the same. Of racing writers, in whatever order they come, the one with
    the latest `last_message` stays. One request.

    Raises `HistoryUnavailable`, `HistoryRefused`, `BadName` and `BadId`.
    """
    key, values = _key(summary, summary.session_id), _values(summary)
    try:
        with translated():
            _update(key, _fitting(key, values))
    except _Newer:
        return False
    return True


class _Newer(Exception):
    """A newer digest of the session stands in the table."""


def _update(key: Item, values: Item) -> None:
    # Under other names throughout: `ttl` is but one of hundreds of reserved words.
    sets = ", ".join(f"#{name} = :{name}" for name in values)
    removes = "" if "topics" in values else " REMOVE #topics"
    try:
        dynamodb.client().update_item(
            TableName=settings.HISTORY_TABLE,
            Key=key,
            UpdateExpression=f"SET {sets}{removes}",
            ConditionExpression="attribute_not_exists(#last_message) "
            "OR #last_message <= :last_message",
            ExpressionAttributeNames={f"#{name}": name for name in {*values, "topics"}},
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )
    except ClientError as error:
        if code_of(error) == "ConditionalCheckFailedException":
            raise _Newer from None
        raise


def _key(owner: Owned, session_id: str) -> dict[str, dict[str, str]]:
    return {
        "user_id": {"S": partition_key(owner)},
        "session_id": {"S": checked_id("session_id", session_id)},
    }


def _values(summary: SessionSummary) -> dict[str, dict[str, Any]]:
    """Return the attributes of the item beside its key."""
    values: dict[str, dict[str, Any]] = {
        "summary": {"S": clean_text(summary.summary)},
        "message_count": {"N": str(int(summary.message_count))},
        "queries_executed": {"N": str(int(summary.queries_executed))},
        "first_message": {"S": _written(summary.first_message)},
        "last_message": {"S": _written(summary.last_message)},
        EXPIRES: {"N": str(_expires_at(summary))},
    }
    topics = {clean_text(topic)[:TOPIC_CHARS].strip() for topic in summary.topics} - {""}
    if topics:
        values["topics"] = {"SS": sorted(topics)[:MAX_TOPICS]}
    return values


def _written(moment: dt.datetime) -> str:
    """Return a moment so that texts compare as moments do: always as many digits."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _expires_at(summary: SessionSummary) -> int:
    kept = dt.timedelta(days=settings.DYNAMODB_TTL_DAYS)
    return int((summary.last_message + kept).timestamp())


# --- Size ---------------------------------------------------------------------------------


def _fitting(key: Item, values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the values with a summary that the item has room for."""
    text = values["summary"]["S"]
    others = _bytes({**key, **values}) - len(text.encode())
    kept = _newest_bytes(text, MAX_ITEM_BYTES - _RESERVED_BYTES - others)
    if kept != text:
        structlog.get_logger(__name__).warning(
            "session_summary_cut", bytes=len(text.encode()), kept=len(kept.encode())
        )
    return {**values, "summary": {"S": kept}}


def _newest_bytes(text: str, max_bytes: int) -> str:
    """Return the end of a digest in `max_bytes` of UTF-8, under its heading and a mark.

    The mark says how much is missing: `(… 12,345 bytes left out)`. What is kept begins with a line
    where that costs little, and never inside a character.
    """
    raw = text.encode()
    if len(raw) <= max_bytes:
        return text
    first, _, rest = text.partition("\n")
    heading = f"{first}\n" if first.startswith("## ") and rest else ""
    room = max_bytes - len(heading.encode()) - len(_mark(len(raw)).encode())
    tail = raw[-room:].decode("utf-8", "ignore")
    begun, _, whole = tail.partition("\n")
    tail = whole if whole and len(begun) < len(tail) // 2 else tail
    return heading + _mark(len(raw) - len(heading.encode()) - len(tail.encode())) + tail


def _mark(cut_bytes: int) -> str:
    return f"(… {cut_bytes:,} bytes left out)\n"


def _bytes(item: Item) -> int:
    """Return what an item takes as DynamoDB counts it: names and values, in UTF-8."""
    total = 0
    for name, value in item.items():
        [held] = value.values()
        texts = held if isinstance(held, list) else [held]
        total += len(name.encode()) + sum(len(text.encode()) for text in texts)
    return total


# --- Reading ------------------------------------------------------------------------------


def get_user_history(owner: Owned, limit: int = 10) -> list[SessionSummary]:
    """Return the newest sessions of somebody, newest first, by the time of their last message.

    What has expired is left out, also while DynamoDB has not got to deleting it. One request,
    more where items are large. What was written less than a moment ago may be missing: the
    index follows the table.

    Raises `HistoryUnavailable`, `HistoryRefused` and `BadName`.
    """
    key = partition_key(owner)
    if limit < 1:
        return []
    with translated():
        try:
            found = list(islice(_newest(key, limit), limit))
        except ClientError as error:
            if code_of(error) != "ValidationException":
                raise
            found = _newest_without_index(key, limit)
    return sorted(found, key=_age, reverse=True)


def _age(summary: SessionSummary) -> tuple[dt.datetime, str]:
    return summary.last_message, summary.session_id


def _newest(key: str, limit: int) -> Iterator[SessionSummary]:
    yield from _read(key, IndexName=INDEX, ScanIndexForward=False, Limit=limit)


def _newest_without_index(key: str, limit: int) -> list[SessionSummary]:
    """Go through all that somebody has: the index is still being built, or was taken away."""
    structlog.get_logger(__name__).warning("history_without_index", index=INDEX)
    newest: list[SessionSummary] = []
    for summary in _read(key):
        newest = sorted([*newest, summary], key=_age, reverse=True)[:limit]
    return newest


def _read(key: str, **how: Any) -> Iterator[SessionSummary]:
    items = _query(
        key,
        FilterExpression="attribute_not_exists(#ttl) OR #ttl > :now",
        aliases={"#ttl": EXPIRES},
        values={":now": {"N": str(int(time.time()))}},
        **how,
    )
    return filter(None, map(_summary, items))


def _query(
    key: str, *, aliases: Mapping[str, str], values: Mapping[str, Any], **how: Any
) -> Iterator[Item]:
    """Yield the items of one key, page after page."""
    request = {
        "TableName": settings.HISTORY_TABLE,
        "KeyConditionExpression": "#user_id = :user_id",
        "ExpressionAttributeNames": {"#user_id": "user_id", **aliases},
        "ExpressionAttributeValues": {":user_id": {"S": key}, **values},
        **how,
    }
    while True:
        page = dynamodb.client().query(**request)
        yield from page["Items"]
        if not page.get("LastEvaluatedKey"):
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def _summary(item: Item) -> SessionSummary | None:
    """Return what an item holds; None for one that is no session's, whoever wrote it."""
    tenant, _, user_id = item["user_id"]["S"].rpartition("#")
    try:
        last_message = dt.datetime.fromisoformat(item["last_message"]["S"])
        first_message = item.get("first_message", item["last_message"])["S"]
        return SessionSummary(
            tenant=tenant or names.DEFAULT_TENANT,
            user_id=user_id,
            session_id=item["session_id"]["S"],
            summary=item.get("summary", {}).get("S", ""),
            message_count=_whole(item, "message_count"),
            queries_executed=_whole(item, "queries_executed"),
            topics=frozenset(item.get("topics", {}).get("SS", ())),
            first_message=dt.datetime.fromisoformat(first_message),
            last_message=last_message,
        )
    except (KeyError, ValueError):
        structlog.get_logger(__name__).warning("history_item_unreadable")
        return None


def _whole(item: Item, name: str) -> int:
    return int(Decimal(item.get(name, {}).get("N", "0")))


# --- Deleting -----------------------------------------------------------------------------


def delete_session(owner: Owned, session_id: str) -> None:
    """Delete a session's digest; nothing happens where there is none.

    A write that is under way may bring it back: whoever deletes sees to it first that nothing
    is still to be written. Raises as `save_session_summary`.
    """
    with translated():
        dynamodb.client().delete_item(TableName=settings.HISTORY_TABLE, Key=_key(owner, session_id))


def delete_user(owner: Owned) -> int:
    """Delete all that the table has of somebody, expired or not; return how many sessions.

    Goes on through pages and batches; where it is cut short by an error, the same again deletes
    the rest. As for writes under way: `delete_session`. Raises as `get_user_history`.
    """
    key, deleted = partition_key(owner), 0
    with translated():
        keys = _query(
            key,
            aliases={"#session_id": "session_id"},
            values={},
            ProjectionExpression="#user_id, #session_id",
            ConsistentRead=True,
        )
        while batch := list(islice(keys, _BATCH)):
            _delete([{"DeleteRequest": {"Key": dict(key)}} for key in batch])
            deleted += len(batch)
    return deleted


def _delete(requests: list[dict[str, Any]]) -> None:
    """Delete up to 25 items; what DynamoDB had no capacity for is asked for again."""
    for attempt in range(_BATCH_TRIES):
        answer = dynamodb.client().batch_write_item(RequestItems={settings.HISTORY_TABLE: requests})
        requests = answer.get("UnprocessedItems", {}).get(settings.HISTORY_TABLE, [])
        if not requests:
            return
        time.sleep(_BATCH_PAUSE_SECONDS * 2**attempt)
    raise HistoryUnavailable
