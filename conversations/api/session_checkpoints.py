"""The checkpoint of a session: the state of its clarification loop, any JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from config.errors import MalformedJSON
from config.plain_json import dump_bytes
from conversations import session_checkpoints
from conversations.api import session_schemas as shapes
from conversations.api.base import in_query
from conversations.api.schemas import OwnerQuery
from conversations.api.sessions import SessionsView


class CheckpointView(SessionsView):
    """A session's checkpoint; it outlives the session where it is asked to."""

    @extend_schema(
        operation_id="save_checkpoint",
        request=OpenApiTypes.ANY,
        parameters=in_query(shapes.CheckpointQuery),
        responses={200: shapes.CheckpointKept},
        summary="Save a session's checkpoint",
    )
    def put(self, request: Request, session_id: str) -> Response:
        """Save any JSON in place of the checkpoint before; 503 while Redis is away."""
        if not int(request.META.get("CONTENT_LENGTH") or 0):
            raise MalformedJSON("A checkpoint is any JSON; this body is empty.")
        query = self.query(shapes.CheckpointQuery)
        key = self.store.use(self.principal.acting_for(query.user_id), session_id)
        session_checkpoints.save(key, request.data, query.seconds)
        expires_at = datetime.now(UTC) + timedelta(seconds=query.seconds)
        return Response({"session_id": session_id, "expires_at": expires_at})

    @extend_schema(
        operation_id="load_checkpoint",
        parameters=in_query(OwnerQuery),
        responses={200: OpenApiTypes.ANY},
        summary="Load a session's checkpoint",
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Load what was saved, as it was; 404 where there is none, or no longer."""
        key = self.store.use(self.owner(None), session_id)
        # A `null` is an answer too, and a `Response` of None has no body.
        state = dump_bytes(session_checkpoints.load(key))
        return HttpResponse(state, content_type="application/json")

    @extend_schema(
        operation_id="clear_checkpoint",
        parameters=in_query(OwnerQuery),
        responses={204: None},
        summary="Clear a session's checkpoint",
    )
    def delete(self, request: Request, session_id: str) -> Response:
        """Clear the checkpoint, as after a turn that succeeded; none is as well."""
        session_checkpoints.clear(self.store.use(self.owner(None), session_id))
        return Response(status=status.HTTP_204_NO_CONTENT)
