"""What is kept of a person's earlier sessions."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import session_history
from conversations.api import session_schemas as shapes
from conversations.api.base import MemoryView, in_query


class UserSessionsView(MemoryView):
    """A person's sessions in long-term history."""

    @extend_schema(
        operation_id="list_sessions",
        parameters=in_query(shapes.SessionsQuery),
        responses={200: shapes.EarlierSessions},
        summary="A person's newest sessions",
    )
    def get(self, request: Request, user_id: str) -> Response:
        """Newest first, those not archived yet among them; 403 for somebody else's."""
        query = self.query(shapes.SessionsQuery)
        owner = self.principal.acting_for(user_id)
        return Response(
            shapes.earlier_sessions(session_history.earlier_sessions(owner, query.limit))
        )


class UserDigestView(MemoryView):
    """What a new session of a person is told."""

    @extend_schema(
        operation_id="user_digest",
        responses={200: shapes.UserDigest},
        summary="The digest across a person's sessions",
    )
    def get(self, request: Request, user_id: str) -> Response:
        """Tell of the newest few in one text; empty where there is none."""
        digest = session_history.earlier_digest(self.principal.acting_for(user_id))
        return Response({"session_digest": digest.text, "history_available": digest.whole})
