"""The context view: what an agent's node is shown of a thread."""

from __future__ import annotations

import uuid
from time import perf_counter

from drf_spectacular.utils import extend_schema
from redis.client import Pipeline
from rest_framework.request import Request
from rest_framework.response import Response

from config import metrics
from conversations.api import representations
from conversations.api.base import MemoryView, as_uuid, in_query
from conversations.api.schemas import ContextQuery
from conversations.context import ConversationContext, render_conversation_context
from conversations.conversation_memory import get_conversation_memory
from conversations.exceptions import ThreadNotFound
from conversations.models import ConversationThread
from conversations.querysets import Recalled
from rbac.authentication import ridden_of


class ContextView(MemoryView):
    """A thread as one kind of node is to see it."""

    def ride_along(self, request: Request, pipeline: Pipeline) -> None:
        """Read the working set in the round trip that looks up the token."""
        try:
            thread_id = uuid.UUID(self.kwargs["thread_id"])
        except ValueError:
            return
        get_conversation_memory().queue_read(pipeline, thread_id)

    @extend_schema(
        operation_id="context_view",
        parameters=in_query(ContextQuery),
        responses={200: representations.ContextOut},
        summary="Render a context view",
    )
    def get(self, request: Request, thread_id: str) -> Response:
        """Render what memory holds of a thread for a focus, under a token budget."""
        query = self.query(ContextQuery)
        key = as_uuid("thread_id", thread_id)
        owner = self.principal.acting_for(query.user_id)
        started = perf_counter()
        ridden = ridden_of(request)
        try:
            recalled = ConversationThread.objects.conversation_context(
                key, owner, ridden[0] if ridden else None, query.min_position
            )
        except ThreadNotFound:
            if query.missing == "error":
                raise
            recalled = Recalled(ConversationContext(str(key), "", "", 0, 0, 0), "database")
        view = render_conversation_context(
            recalled.context, query.focus, query.token_budget, query.format
        )
        metrics.CONTEXT_SECONDS.labels(recalled.source).observe(perf_counter() - started)
        return Response(representations.context(key, view, recalled))
