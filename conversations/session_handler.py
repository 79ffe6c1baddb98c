"""The adapter between an agent's run and memory: a snapshot in, a stored turn out, never a raise.

An agent calls `save_session_to_thread_safe` when its session is finalized. Its answer has gone out
to the user by then, so nothing that goes wrong here may reach it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction

from config.errors import Problem, validate
from config.plain_json import TooDeep, to_plain
from conversations.events import SessionEvent
from conversations.models import ConversationThread
from conversations.turn_input import TurnIn
from rbac.principal import Person

log = structlog.get_logger(__name__)

EVENT = "turn_not_stored"
_ABOUT_THE_RUN = frozenset({"tenant", "user_id", "thread_id", "session_uuid"})


def save_session_to_thread_safe(snapshot: Mapping[str, Any]) -> bool:
    """Store the turn that an agent's run produced; return whether it is stored.

        save_session_to_thread_safe({
            "tenant": "acme", "user_id": "ana", "thread_id": thread_id, "session_uuid": run_id,
            "agent_type": "chat", "query": "Revenue by region", "answer": "North leads …",
            "response_payload": {"rows": frame.to_dict("records"), …}})

    Takes live Python values (dates, Decimals, UUIDs, NaN: `config.plain_json` has the forms) and
    the same fields as the HTTP API. The same run again is stored once. A failure is logged and
    becomes a `turn_not_stored` event of the thread, with its code and never the turn's text.
    """
    try:
        _save(snapshot)
    except Exception as error:  # noqa: BLE001  the agent must not fail for its memory
        _report(snapshot, error)
        return False
    return True


def _save(snapshot: Mapping[str, Any]) -> None:
    turn = validate(
        TurnIn,
        to_plain(
            {name: value for name, value in snapshot.items() if name not in _ABOUT_THE_RUN},
            settings.MAX_JSON_DEPTH,
        ),
    )
    owner = Person.named(str(snapshot["tenant"]), str(snapshot["user_id"]))
    with transaction.atomic():
        ConversationThread.objects.finalize_turn(
            owner=owner,
            thread_id=_uuid(snapshot["thread_id"]),
            turn_id=_uuid(snapshot["session_uuid"]),
            body=turn.to_body(),
            created_at=turn.created_at,
            expected_position=turn.expected_position,
        )


def _uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))


def _report(snapshot: Mapping[str, Any], error: Exception) -> None:
    """Log the failure and store its event; neither holds what was said."""
    code = _code(error)
    thread_id, run = snapshot.get("thread_id"), snapshot.get("session_uuid")
    # A refusal and a database's error quote the values they are about.
    trace = None if isinstance(error, Problem | DatabaseError | ValueError) else error
    log.error(
        EVENT, code=code, error=type(error).__name__, thread_id=str(thread_id),
        session_uuid=str(run), exc_info=trace,
    )  # fmt: skip
    try:
        _emit(snapshot, code)
    except Exception as second:  # noqa: BLE001  see above
        log.error("event_not_stored", kind=EVENT, code=code, error=type(second).__name__)


def _emit(snapshot: Mapping[str, Any], code: str) -> None:
    """Store the event, unless the thread is somebody else's or deleted."""
    thread_id, run = _uuid(snapshot["thread_id"]), _uuid(snapshot["session_uuid"])
    tenant, user_id = str(snapshot["tenant"]), str(snapshot["user_id"])
    with transaction.atomic():
        row = ConversationThread.objects.filter(pk=thread_id).select_related("owner").first()
        owner = row.owner if row else None
        if row is None or (owner and (owner.tenant, owner.user_id) == (tenant, user_id)):
            SessionEvent.emit(EVENT, thread_id, session_uuid=run, code=code)


def _code(error: Exception) -> str:
    if isinstance(error, Problem):
        return error.code
    if isinstance(error, DatabaseError):
        return "database"
    return "invalid" if isinstance(error, ValueError | KeyError | TooDeep) else "unexpected"
