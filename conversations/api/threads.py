"""The list of threads, and one thread: read, change, delete, rebuild its working set."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from config.errors import Unavailable, validate
from config.redis import RedisUnavailable
from conversations import invalidation
from conversations.api import representations
from conversations.api.base import MemoryView, as_uuid, decode_cursor, encode_cursor, in_query, page
from conversations.api.schemas import OwnerQuery, ThreadPatch, ThreadsQuery
from conversations.exceptions import ThreadNotFound
from conversations.models import ConversationThread
from conversations.querysets import ThreadQuerySet
from rbac.principal import Person


class ThreadsView(MemoryView):
    """A person's threads."""

    @extend_schema(
        operation_id="list_threads",
        parameters=in_query(ThreadsQuery),
        responses={200: representations.page_of(representations.ThreadOut)},
        summary="List threads",
    )
    def get(self, request: Request) -> Response:
        """List threads, newest activity first; filters go into the address, one page a call."""
        query = self.query(ThreadsQuery)
        owner = self.principal.acting_for(query.user_id)
        before = decode_cursor(query.cursor) if query.cursor else None
        threads = _filtered(self.threads(owner), query)
        rows = list(threads.newest_first(before).for_list()[: query.limit + 1])
        return Response(
            page(
                request, rows, query.limit,
                lambda row: representations.thread(row, owner.user_id),
                lambda row: {"cursor": encode_cursor(row.last_turn_at, row.pk)},
            )
        )  # fmt: skip


def _filtered(threads: ThreadQuerySet, query: ThreadsQuery) -> ThreadQuerySet:
    threads = threads.archived(query.archived)
    if query.agent_type:
        threads = threads.filter(agent_type=query.agent_type)
    if query.pinned is not None:
        threads = threads.pinned(pinned=query.pinned)
    if query.status == "pending":
        threads = threads.waiting()
    if query.metadata:
        threads = threads.filter(metadata__contains=query.metadata)
    if query.q:
        threads = threads.titled_like(query.q)
    return threads


class ThreadView(MemoryView):
    """One thread."""

    @extend_schema(
        operation_id="read_thread",
        parameters=in_query(OwnerQuery),
        responses={200: representations.ThreadOut},
        summary="Read a thread",
    )
    def get(self, request: Request, thread_id: str) -> Response:
        """Read a thread, without its turns."""
        owner = self.owner(None)
        return Response(_represented(self.threads(owner), owner, thread_id))

    @extend_schema(
        operation_id="change_thread",
        request=ThreadPatch,
        responses={200: representations.ThreadOut},
        summary="Rename, pin, archive or describe a thread, or switch its memory",
    )
    def patch(self, request: Request, thread_id: str) -> Response:
        """Change what is given and nothing else."""
        changes = validate(ThreadPatch, request.data)
        owner = self.owner(changes.user_id)
        with transaction.atomic():
            _change(_locked(self.threads(owner), thread_id), changes)
        return Response(_represented(self.threads(owner), owner, thread_id))

    @extend_schema(
        operation_id="delete_thread",
        parameters=in_query(OwnerQuery),
        responses={204: None},
        summary="Delete a thread",
    )
    def delete(self, request: Request, thread_id: str) -> Response:
        """Delete a thread with its turns, for good."""
        owner = self.owner(None)
        try:
            with transaction.atomic():
                # Which takes its locks itself, in the one order in which all take them.
                self.threads(owner).or_404(as_uuid("thread_id", thread_id)).forget()
        except ThreadNotFound:
            # A first try may have died between its commit and the working set.
            invalidation.dropped(as_uuid("thread_id", thread_id))
            raise
        return Response(status=status.HTTP_204_NO_CONTENT)


def _locked(threads: ThreadQuerySet, thread_id: str) -> ConversationThread:
    return threads.select_for_update(no_key=True).or_404(as_uuid("thread_id", thread_id))


def _represented(threads: ThreadQuerySet, owner: Person, thread_id: str) -> dict[str, Any]:
    thread = threads.for_list().or_404(as_uuid("thread_id", thread_id))
    return representations.thread(thread, owner.user_id)


def _change(thread: ConversationThread, changes: ThreadPatch) -> None:
    given = changes.model_fields_set
    if "title" in given:
        thread.rename(changes.title)
    if "archived" in given:
        thread.archive(archived=changes.archived)
    if "pinned" in given:
        thread.pin(pinned=changes.pinned)
    if "metadata" in given:
        thread.describe(changes.metadata)
    if "memory" in given:
        thread.remember(enabled=changes.memory in (True, "on"))


class RehydrateView(MemoryView):
    """The working set of a thread."""

    @extend_schema(
        operation_id="rehydrate_thread",
        request=None,
        parameters=in_query(OwnerQuery),
        responses={200: representations.RehydratedOut},
        summary="Rebuild a thread's working set now",
    )
    def post(self, request: Request, thread_id: str) -> Response:
        """Rebuild the working set from PostgreSQL."""
        named = validate(OwnerQuery, request.data or {}).user_id
        thread = self.thread(thread_id, self.owner(named).user_id)
        try:
            turns = thread.rehydrate()
        except RedisUnavailable:
            raise Unavailable(
                "Redis does not answer; context views come from the database meanwhile."
            ) from None
        return Response({"thread_id": thread.pk, "turns": turns})
