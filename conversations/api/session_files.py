"""Files that are uploaded to a session: Excel and CSV, read once and given back in pages."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from config.errors import Invalid
from config.plain_json import clean_text
from config.renderers import JSONNegotiation, UnsupportedMediaType
from conversations.api import session_schemas as shapes
from conversations.api.base import in_query
from conversations.api.schemas import OwnerQuery
from conversations.api.sessions import SessionsView
from conversations.upload_problems import FileNotFound, FileTooLarge
from conversations.uploads import get_upload_store

# What the form takes beside the file.
_FORM_BYTES = 64 * 1024
_ACTIVE = "active"


class UploadParser(MultiPartParser):
    """Reads a form whose file is past what a JSON body may have; large ones go to the disk."""

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the form; raise `FileTooLarge` before any of it is read."""
        length = int(stream.META.get("CONTENT_LENGTH") or 0)
        if length > settings.MAX_UPLOAD_BYTES + _FORM_BYTES:
            raise FileTooLarge(
                f"A file may have {settings.MAX_UPLOAD_BYTES} bytes (MAX_UPLOAD_BYTES).",
                setting="MAX_UPLOAD_BYTES",
            )
        return super().parse(stream, media_type, parser_context)


class UploadNegotiation(JSONNegotiation):
    """A form comes in, JSON goes out."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        """Return the parser; raise `UnsupportedMediaType` for a body that is no form."""
        sent = (request.content_type or "").partition(";")[0].strip().lower()
        if sent != "multipart/form-data":
            raise UnsupportedMediaType(f"This call takes multipart/form-data, not {sent}.")
        return next(iter(parsers))


class FilesView(SessionsView):
    """The files of a session."""

    parser_classes = [UploadParser]
    content_negotiation_class = UploadNegotiation

    @extend_schema(
        operation_id="upload_file",
        request={
            "multipart/form-data": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {"type": "string", "format": "binary"},
                    "file_id": {"type": "string"},
                    "user_id": {"type": "string"},
                    "delimiter": {"type": "string"},
                    "encoding": {"type": "string"},
                    "header": {"type": "string"},
                    "sheet": {"type": "string"},
                    "types": {"type": "string", "enum": ["auto", "text"]},
                },
            }
        },
        responses={201: OpenApiTypes.OBJECT},
        summary="Upload a CSV or Excel file",
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Read a file and keep its rows for as long as the session; it becomes the newest."""
        form = {name: clean_text(str(value)) for name, value in request.POST.items()}
        key = self.store.use(self.owner(form.pop("user_id", None)), session_id)
        file_id = form.pop("file_id", None) or uuid.uuid4().hex
        file = _file(request)
        if file_id == _ACTIVE:
            raise Invalid("file_id: active is taken.", errors={"file_id": ["active is taken."]})
        metadata = get_upload_store().store_file(key, file_id, file.name or "", file, form)
        return Response(metadata, status.HTTP_201_CREATED)


def _file(request: Request) -> Any:
    """Return the one file of the form, of Django's `UploadedFile`."""
    files = request.FILES.getlist("file")
    if len(files) != 1 or len(request.FILES) != 1:
        message = "Send one file, in the field `file`."
        raise Invalid(message, errors={"file": [message]})
    return files[0]


class FileView(SessionsView):
    """One file of a session."""

    @extend_schema(
        operation_id="read_file",
        parameters=in_query(shapes.FileQuery),
        responses={200: shapes.FilePage},
        summary="Read rows of a file",
    )
    def get(self, request: Request, session_id: str, file_id: str) -> Response:
        """Read rows from an offset on; fewer than asked for where they are very large."""
        query = self.query(shapes.FileQuery)
        key = self.store.use(self.principal.acting_for(query.user_id), session_id)
        page = get_upload_store().get_file_data(key, file_id, query.offset, query.limit)
        return Response(page)


class ActiveFileView(SessionsView):
    """The newest file of a session."""

    @extend_schema(
        operation_id="active_file",
        parameters=in_query(OwnerQuery),
        responses={200: shapes.ActiveFile},
        summary="Which file is the newest",
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Return the id of the newest upload; 404 where there is none, or no longer."""
        key = self.store.use(self.owner(None), session_id)
        file_id = get_upload_store().get_active_file_id(key)
        if file_id is None:
            raise FileNotFound
        return Response({"file_id": file_id})
