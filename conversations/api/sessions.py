"""Live sessions: opening, reading, adding messages, what a model is shown, ending."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from config.errors import validate
from conversations import session_archive, session_history
from conversations.api import session_schemas as shapes
from conversations.api.base import MemoryView, in_query
from conversations.api.schemas import OwnerQuery
from conversations.live_session import Session
from conversations.sessions import SessionStore
from rbac.principal import Person


class SessionsView(MemoryView):
    """What the views on live sessions share."""

    @property
    def store(self) -> SessionStore:
        """The sessions of the caller's tenant."""
        return SessionStore(self.principal.tenant)

    def read(self, owner: Person, session_id: str) -> Session:
        """Return an open session of a person that `owner()` has given."""
        return self.store.read(owner, session_id)


class SessionView(SessionsView):
    """One live session."""

    @extend_schema(
        operation_id="open_session",
        request=shapes.SessionIn,
        responses={201: shapes.SessionOpened, 200: shapes.SessionOpened},
        summary="Get, create or reopen a session",
    )
    def put(self, request: Request, session_id: str) -> Response:
        """Open a session, or find it open; the same again is the same."""
        sent = validate(shapes.SessionIn, request.data or {})
        owner = self.owner(sent.user_id)
        opened = self.store.open(
            owner,
            session_id,
            thread_id=sent.thread_id,
            agent_type=sent.agent_type,
            written_by=self.principal.pk,
        )
        code = status.HTTP_201_CREATED if opened.created else status.HTTP_200_OK
        earlier = session_history.session_digest(owner, session_id, opened.session.thread_id)
        digest = session_archive.context_digest(owner, session_id)
        return Response(shapes.session_opened(opened, earlier, digest), code)

    @extend_schema(
        operation_id="read_session",
        parameters=in_query(OwnerQuery),
        responses={200: shapes.SessionRead},
        summary="Read a session with its messages",
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Read an open session; 404 once it has expired or ended."""
        return Response(shapes.session_read(self.read(self.owner(None), session_id)))


class MessagesView(SessionsView):
    """The messages of a session."""

    @extend_schema(
        operation_id="add_messages",
        request=shapes.MessagesIn,
        responses={201: shapes.MessagesTaken, 200: shapes.MessagesTaken},
        summary="Add one message or several",
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Add messages, whole or not at all; a final answer stores its turn. Again: 200."""
        user_id, messages = shapes.sent_messages(request.data)
        owner = self.owner(user_id)
        added = self.store.add(owner, session_id, messages, written_by=self.principal.pk)
        code = status.HTTP_201_CREATED if added.created else status.HTTP_200_OK
        return Response(shapes.messages_taken(added), code)


class WindowView(SessionsView):
    """What a model is shown of a session."""

    @extend_schema(
        operation_id="session_window",
        parameters=in_query(shapes.WindowQuery),
        responses={200: shapes.Window},
        summary="The newest messages as a model takes them",
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Never begins with an answer, and never has a call without its result."""
        query = self.query(shapes.WindowQuery)
        owner = self.principal.acting_for(query.user_id)
        return Response(self.store.window(owner, session_id, query.max_messages))


class PreviousResultsView(SessionsView):
    """What the last query gave."""

    @extend_schema(
        operation_id="previous_results",
        parameters=in_query(OwnerQuery),
        responses={200: shapes.PreviousResults},
        summary="Rows, columns and KPIs of the last query that succeeded",
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Empty where no query has succeeded yet."""
        return Response(self.read(self.owner(None), session_id).previous_results())


class DigestView(SessionsView):
    """What was asked and found in a session."""

    @extend_schema(
        operation_id="session_digest",
        parameters=in_query(OwnerQuery),
        responses={200: shapes.SessionDigest},
        summary="The digest of a session so far",
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Tell each turn in a line, whatever the window has let go of."""
        owner = self.owner(None)
        self.read(owner, session_id)  # 404 where it is not open
        digest = session_archive.context_digest(owner, session_id)
        return Response({"session_id": session_id, "digest": digest})


class EndView(SessionsView):
    """The end of a session."""

    @extend_schema(
        operation_id="end_session",
        request=OwnerQuery,
        responses={200: shapes.SessionEnded},
        summary="End a session now",
    )
    def post(self, request: Request, session_id: str) -> Response:
        """End a session, which makes its digest due; once more changes nothing."""
        owner = self.owner(validate(OwnerQuery, request.data or {}).user_id)
        ended_at = self.store.end(owner, session_id, written_by=self.principal.pk)
        return Response({"session_id": session_id, "ended_at": ended_at})
