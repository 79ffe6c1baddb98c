"""What happened to a thread besides its turns."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import representations
from conversations.api.base import MemoryView, in_query, page
from conversations.api.schemas import EventsQuery
from conversations.events import SessionEvent


class EventsView(MemoryView):
    """The events of a thread."""

    @extend_schema(
        operation_id="list_events",
        parameters=in_query(EventsQuery),
        responses={200: representations.page_of(representations.EventOut)},
        summary="List what happened to a thread",
    )
    def get(self, request: Request, thread_id: str) -> Response:
        """List session events, newest first."""
        query = self.query(EventsQuery)
        thread = self.thread(thread_id, query.user_id)
        events = SessionEvent.objects.filter(thread_id=thread.pk).newest_first(query.before)
        rows = list(events[: query.limit + 1])
        return Response(
            page(
                request,
                rows,
                query.limit,
                representations.event,
                lambda row: {"before": str(row.pk)},
            )
        )
