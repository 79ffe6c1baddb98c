"""Long-term history for `await`, by the names and arguments of document B.

    history = await get_user_history(user_id, limit=10)
    digest = build_cross_session_context(history, language)

`conversations.history` does the work, in a thread of its own: no call holds up the event loop.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from asgiref.sync import sync_to_async

from conversations import history
from conversations.digest import SessionSummary
from conversations.earlier_sessions import build_cross_session_context
from rbac.names import DEFAULT_TENANT

__all__ = [
    "build_cross_session_context",
    "delete_user",
    "get_user_history",
    "save_session_summary",
]


async def save_session_summary(
    *,
    user_id: str,
    session_id: str,
    summary: str,
    message_count: int,
    queries_executed: int,
    topics: Iterable[str],
    first_message: dt.datetime | str,
    last_message: dt.datetime | str,
    tenant: str = DEFAULT_TENANT,
) -> bool:
    """Store a session's digest; False where a newer one stands. Moments may be ISO texts.

    Raises `ValueError` for a text that is no moment, and as `history.save_session_summary`.
    """
    session = SessionSummary(
        tenant, user_id, session_id, summary, message_count, queries_executed,
        frozenset(topics), _moment(first_message), _moment(last_message),
    )  # fmt: skip
    return await sync_to_async(history.save_session_summary, thread_sensitive=False)(session)


async def get_user_history(
    user_id: str, limit: int = 10, *, tenant: str = DEFAULT_TENANT
) -> list[SessionSummary]:
    """Return the newest sessions of somebody: see `history.get_user_history`."""
    owner = history.Owner(tenant, user_id)
    return await sync_to_async(history.get_user_history, thread_sensitive=False)(owner, limit)


async def delete_user(user_id: str, *, tenant: str = DEFAULT_TENANT) -> int:
    """Delete all that the table has of somebody: see `history.delete_user`."""
    owner = history.Owner(tenant, user_id)
    return await sync_to_async(history.delete_user, thread_sensitive=False)(owner)


def _moment(given: dt.datetime | str) -> dt.datetime:
    return dt.datetime.fromisoformat(given) if isinstance(given, str) else given
