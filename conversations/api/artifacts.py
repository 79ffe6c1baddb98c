"""What a thread built: the descriptors of its artifacts, and one whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import representations
from conversations.api.base import MemoryView, in_query, next_page
from conversations.api.schemas import ArtifactsQuery, OwnerQuery
from conversations.exceptions import ArtifactNotFound
from conversations.models import ThreadMessage

_NUMBER = re.compile(r"t([1-9]\d{0,9})\.([1-9]\d{0,4})")


class _Numbered(NamedTuple):
    turn: ThreadMessage
    number: int


class ArtifactsView(MemoryView):
    """The artifacts of a thread."""

    @extend_schema(
        operation_id="list_artifacts",
        parameters=in_query(ArtifactsQuery),
        responses={200: representations.page_of(representations.ArtifactOut)},
        summary="List what a thread built",
    )
    def get(self, request: Request, thread_id: str) -> Response:
        """List artifacts in order, a page of turns' worth; `latest` gives only the newest."""
        query = self.query(ArtifactsQuery)
        thread = self.thread(thread_id, query.user_id)
        if query.latest:
            newest = thread.turns.with_artifacts(query.kind).order_by("-position")[:1]
            latest = list(_numbered(newest, query.kind))[-1:]
            return Response(
                {"results": [representations.artifact(*one) for one in latest], "next": None}
            )
        turns = list(
            thread.turns.with_artifacts(query.kind).after(query.after_position)[: query.limit + 1]
        )
        found = _numbered(turns[: query.limit], query.kind)
        following = _after(turns[query.limit - 1]) if len(turns) > query.limit else None
        return Response(
            {
                "results": [representations.artifact(*one) for one in found],
                "next": next_page(request, following),
            }
        )


def _after(turn: ThreadMessage) -> dict[str, str]:
    return {"after_position": str(turn.position)}


def _numbered(turns: Iterable[ThreadMessage], kind: str | None) -> Iterator[_Numbered]:
    for turn in turns:
        for number, artifact in enumerate(turn.artifacts, start=1):
            if kind in (None, artifact["kind"]):
                yield _Numbered(turn, number)


class ArtifactView(MemoryView):
    """One artifact."""

    @extend_schema(
        operation_id="read_artifact",
        parameters=in_query(OwnerQuery),
        responses={200: representations.ArtifactOut},
        summary="Read one artifact whole, with its raw spec",
    )
    def get(self, request: Request, thread_id: str, number: str) -> Response:
        """Read artifact `t7.2`: its descriptor, its SQL, and the raw spec it was taken from."""
        thread = self.thread(thread_id, self.query(OwnerQuery).user_id)
        match = _NUMBER.fullmatch(number)
        turn = thread.turns.filter(position=int(match[1])).first() if match else None
        if match is None or turn is None:
            raise ArtifactNotFound
        return Response(representations.whole_artifact(turn, int(match[2])))
