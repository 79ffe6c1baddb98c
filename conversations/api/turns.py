"""Writing turns, and reading a thread's transcript."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from config import metrics
from config.errors import Invalid, validate
from conversations.api import representations
from conversations.api.base import MemoryView, as_uuid, in_query, next_page
from conversations.api.schemas import OwnerQuery, TurnsQuery
from conversations.exceptions import TurnNotFound
from conversations.models import ConversationThread
from conversations.turn_input import TurnIn


class TurnView(MemoryView):
    """One turn."""

    @extend_schema(
        operation_id="write_turn",
        request=TurnIn,
        responses={201: representations.TurnWritten, 200: representations.TurnWritten},
        summary="Write a turn",
    )
    def put(self, request: Request, thread_id: str, turn_id: str) -> Response:
        """Write a turn once: the same again is a 200, another body a 409."""
        return write_turn(self, as_uuid("thread_id", thread_id), as_uuid("turn_id", turn_id))

    @extend_schema(
        operation_id="read_turn",
        parameters=in_query(OwnerQuery),
        responses={200: representations.TurnOut},
        summary="Read a turn",
    )
    def get(self, request: Request, thread_id: str, turn_id: str) -> Response:
        """Read a turn, whole."""
        thread = self.thread(thread_id, self.query(OwnerQuery).user_id)
        turn = thread.turns.filter(session_uuid=as_uuid("turn_id", turn_id)).first()
        if turn is None:
            raise TurnNotFound
        return Response(representations.turn(turn))


class TurnsView(MemoryView):
    """The turns of a thread."""

    @extend_schema(
        operation_id="read_transcript",
        parameters=in_query(TurnsQuery),
        responses={200: representations.page_of(representations.TurnOut)},
        summary="Read a thread's transcript",
    )
    def get(self, request: Request, thread_id: str) -> Response:
        """Read turns in order, from after a position on."""
        query = self.query(TurnsQuery)
        thread = self.thread(thread_id, query.user_id)
        turns = thread.turns.after(query.after_position)
        rows = list(turns[: turns[: query.limit].fitting(settings.MAX_PAGE_BYTES)])
        more = bool(rows) and rows[-1].position < thread.turn_count
        following = {"after_position": str(rows[-1].position)} if more else None
        return Response(
            {
                "results": [representations.turn(row) for row in rows],
                "next": next_page(request, following),
            }
        )

    @extend_schema(
        operation_id="create_turn",
        request=TurnIn,
        parameters=[OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)],
        responses={201: representations.TurnWritten, 200: representations.TurnWritten},
        summary="Write a turn whose id is made here",
    )
    def post(self, request: Request, thread_id: str) -> Response:
        """Write a turn under a new id, or under one made of `Idempotency-Key`."""
        thread = as_uuid("thread_id", thread_id)
        return write_turn(self, thread, _turn_id(thread, request.headers.get("Idempotency-Key")))


def _turn_id(thread_id: uuid.UUID, key: str | None) -> uuid.UUID:
    """Return the key itself where it is a UUID, one that only it gives where it is not."""
    if key is None:
        return uuid.uuid4()
    if not key.strip() or len(key) > 200:
        message = "Idempotency-Key must have 1 to 200 characters."
        raise Invalid(message, errors={"Idempotency-Key": [message]})
    try:
        return uuid.UUID(key)
    except ValueError:
        return uuid.uuid5(thread_id, key)


def write_turn(view: MemoryView, thread_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
    """Validate the body, write the turn, answer 201 for a new one and 200 for one that stands."""
    with metrics.APPEND_SECONDS.time():
        sent = validate(TurnIn, view.request.data)
        body = sent.to_body()
        owner = view.owner(sent.user_id)
        with transaction.atomic():
            turn = ConversationThread.objects.finalize_turn(
                owner=owner,
                thread_id=thread_id,
                turn_id=turn_id,
                body=body,
                written_by=view.principal.pk,
                created_at=sent.created_at,
                expected_position=sent.expected_position,
            )
    code = status.HTTP_201_CREATED if turn.created else status.HTTP_200_OK
    return Response(representations.turn_written(turn), code)
