"""The adapter between an agent's run and memory: a snapshot in, a stored turn out, never a raise.

An agent calls `save_session_to_thread_safe` when its session is finalized. Its answer has gone out
to the user by then, so nothing that goes wrong here may reach it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import structlog
from django.db import DatabaseError, transaction

from config.errors import Problem, validate
from config.plain_json import TooDeep, to_plain
from conversations.events import SessionEvent
from conversations.models import ConversationThread
from conversations.turn_input import TurnIn
from rbac.models import User
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
        to_plain({name: value for name, value in snapshot.items() if name not in _ABOUT_THE_RUN}),
    )
    owner = _owner(str(snapshot["tenant"]), str(snapshot["user_id"]))
    with transaction.atomic():
        ConversationThread.objects.finalize_turn(
            owner=owner,
            thread_id=_uuid(snapshot["thread_id"]),
            turn_id=_uuid(snapshot["session_uuid"]),
            body=turn.to_body(),
            created_at=turn.created_at,
            expected_position=turn.expected_position,
        )


def _owner(tenant: str, user_id: str) -> Person:
    user = User.objects.get_or_create_person(tenant, user_id)
    return Person(user.pk, user.tenant, user.user_id)


def _uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))


def _report(snapshot: Mapping[str, Any], error: Exception) -> None:
    code = _code(error)
    thread_id, run = snapshot.get("thread_id"), snapshot.get("session_uuid")
    log.error(EVENT, code=code, thread_id=str(thread_id), session_uuid=str(run), exc_info=error)
    try:
        with transaction.atomic():
            SessionEvent.emit(EVENT, _uuid(thread_id), session_uuid=_uuid(run), code=code)
    except Exception:
        log.exception("event_not_stored", kind=EVENT, code=code)


def _code(error: Exception) -> str:
    if isinstance(error, Problem):
        return error.code
    if isinstance(error, DatabaseError):
        return "database"
    return "invalid" if isinstance(error, ValueError | KeyError | TooDeep) else "unexpected"
