"""Why memory says what it says: the folds of a thread, each with the summary it produced."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import representations
from conversations.api.base import MemoryView, in_query, page
from conversations.api.schemas import FoldsQuery


class FoldsView(MemoryView):
    """The folds of a thread."""

    @extend_schema(
        operation_id="list_folds",
        parameters=in_query(FoldsQuery),
        responses={200: representations.page_of(representations.FoldOut)},
        summary="List a thread's folds, with what each made of the turns",
    )
    def get(self, request: Request, thread_id: str) -> Response:
        """List folds, newest first: the newest one's summary is the thread's."""
        query = self.query(FoldsQuery)
        thread = self.thread(thread_id, query.user_id)
        rows = list(thread.folds.newest_first(query.before)[: query.limit + 1])
        return Response(
            page(
                request, rows, query.limit, representations.fold,
                lambda row: {"before": str(row.pk)},
            )
        )  # fmt: skip
