"""Both tiers of memory behind one object, with the method names of document B.

    manager = get_memory_manager()
    await manager.save_turn("s-81", "user", "Revenue by region", user_id="ana")
    await manager.save_turn("s-81", "assistant", "North leads.", metadata={"sql": "SELECT …"})
    context = await manager.get_conversation_context("s-81", max_turns=5)
    previous = await manager.get_previous_results("s-81")

For agents in this process, which say themselves whose session it is: without a `user_id` it is
the owner that the session has, and a session that nobody has opened yet can't be written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings

from conversations import session_checkpoints, session_history
from conversations.message_input import message_of
from conversations.session_keys import SessionKey
from conversations.session_problems import CheckpointNotFound, SessionNotFound
from conversations.session_records import SessionRecord
from conversations.sessions import Added, SessionStore
from rbac.names import DEFAULT_TENANT
from rbac.principal import Person


class MemoryManager:
    """The memory of one tenant's sessions; any number of coroutines and threads may share it."""

    def __init__(self, tenant: str = DEFAULT_TENANT) -> None:
        self.tenant = tenant
        self.store = SessionStore(tenant)

    async def save_turn(
        self,
        session_id: str,
        role: str,
        content: str | None = "",
        metadata: Mapping[str, Any] | None = None,
        user_id: str | None = None,
        **more: Any,
    ) -> Added:
        """Add one message of a turn; a final answer finishes it.

        With `user_id` a session is opened where there is none. `more` are `message_id`,
        `tool_calls`, `tool_call_id`, `name` and `final`. Raises `SessionNotFound` (nobody's yet,
        or not this person's) and what `SessionStore.save` raises.
        """
        return await sync_to_async(self._save)(
            session_id, user_id, {"role": role, "content": content, "metadata": metadata, **more}
        )

    async def get_conversation_context(
        self, session_id: str, max_turns: int | None = None, user_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the newest messages as a model takes them, `MAX_HISTORY_MESSAGES` at most.

        None at all where the session is not open. `max_turns` counts messages, as in document B.
        """
        return await sync_to_async(self._context)(session_id, max_turns, user_id)

    async def get_previous_results(
        self, session_id: str, user_id: str | None = None
    ) -> dict[str, Any]:
        """Return rows, column names and KPIs of the last query that succeeded.

        Empty ones where none has, or the session is not open.
        """
        return await sync_to_async(self._previous)(session_id, user_id)

    async def get_session_digest(self, session_id: str, user_id: str) -> str:
        """Return what a prompt is told of the person's sessions before this one."""
        return await sync_to_async(self._digest)(session_id, user_id)

    async def save_checkpoint(
        self,
        session_id: str,
        state: Any,
        keep_minutes: float | None = None,
        user_id: str | None = None,
    ) -> None:
        """Keep the state of a clarification loop: any JSON, live Python values too.

        For `CHECKPOINT_TTL_MINUTES`, and never for less time than the session. Raises
        `SessionNotFound`, `TooLarge` and `CheckpointsUnavailable`.
        """
        await sync_to_async(self._save_checkpoint)(session_id, state, keep_minutes, user_id)

    async def load_checkpoint(self, session_id: str, user_id: str | None = None) -> Any:
        """Return what was saved; None where there is none, or no longer.

        Raises `CheckpointsUnavailable`.
        """
        return await sync_to_async(self._load_checkpoint)(session_id, user_id)

    async def clear_checkpoint(self, session_id: str, user_id: str | None = None) -> bool:
        """Delete the checkpoint, as after a turn that succeeded; return whether there was one.

        Raises `CheckpointsUnavailable`.
        """
        return await sync_to_async(self._clear_checkpoint)(session_id, user_id)

    # --- The same, blocking -------------------------------------------------------------------

    def _save(self, session_id: str, user_id: str | None, said: dict[str, Any]) -> Added:
        owner = self._owner(session_id, user_id)
        message = message_of(**{**said, "metadata": said["metadata"] or {}})
        try:
            return self.store.add(owner, session_id, [message])
        except SessionNotFound:
            if user_id is None:
                raise
        self.store.open(owner, session_id)
        return self.store.add(owner, session_id, [message])

    def _context(
        self, session_id: str, max_turns: int | None, user_id: str | None
    ) -> list[dict[str, Any]]:
        with suppress(SessionNotFound):
            return self.store.window(self._owner(session_id, user_id), session_id, max_turns)
        return []

    def _previous(self, session_id: str, user_id: str | None) -> dict[str, Any]:
        with suppress(SessionNotFound):
            session = self.store.read(self._owner(session_id, user_id), session_id)
            return session.previous_results()
        return {"previous_query_results": [], "previous_column_names": [], "previous_kpis": {}}

    def _digest(self, session_id: str, user_id: str) -> str:
        owner = Person.named(self.tenant, user_id)
        record = SessionRecord.objects.of(owner, session_id).first()
        thread_id = record.thread_id if record else None
        return session_history.session_digest(owner, session_id, thread_id).text

    def _save_checkpoint(
        self, session_id: str, state: Any, keep_minutes: float | None, user_id: str | None
    ) -> None:
        asked = settings.CHECKPOINT_TTL_MINUTES if keep_minutes is None else keep_minutes
        key = self._key(session_id, user_id)
        session_checkpoints.save(key, state, int(max(asked, settings.SESSION_TTL_MINUTES) * 60))

    def _load_checkpoint(self, session_id: str, user_id: str | None) -> Any:
        with suppress(SessionNotFound, CheckpointNotFound):
            return session_checkpoints.load(self._key(session_id, user_id))
        return None

    def _clear_checkpoint(self, session_id: str, user_id: str | None) -> bool:
        with suppress(SessionNotFound):
            return session_checkpoints.clear(self._key(session_id, user_id))
        return False

    def _key(self, session_id: str, user_id: str | None) -> SessionKey:
        return self.store.use(self._owner(session_id, user_id), session_id)

    def _owner(self, session_id: str, user_id: str | None) -> Person:
        if user_id is not None:
            return Person.named(self.tenant, user_id)
        rows = SessionRecord.objects.filter(tenant=self.tenant, session_id=session_id)
        record = rows.select_related("owner").first()
        if record is None:
            raise SessionNotFound
        return Person.of(record.owner)


@cache
def get_memory_manager(tenant: str = DEFAULT_TENANT) -> MemoryManager:
    """Return the manager of a tenant, one in a process."""
    return MemoryManager(tenant)
