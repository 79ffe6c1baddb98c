"""The outermost layer: an id for each request and one line in the log about it.

    {"event": "request", "method": "GET", "path": "/api/v1/threads", "status": 200,
     "duration_ms": 3.1, "request_id": "…", "level": "info", …}

Never the query string, a header or a body: they hold what people said, and tokens.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

import structlog
from django.conf import settings
from django.db import DataError
from django.http import HttpRequest, HttpResponseBase
from structlog.contextvars import bind_contextvars, clear_contextvars

from config.errors import Problem, bad_request, plain_problem

_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,128}")

_DRAINED_AT_ONCE_BYTES = 64 * 1024

_log = structlog.get_logger("rethread.request")


class LengthRequired(Problem):
    """A body whose length nobody says."""

    status = 411
    code = "length_required"
    title = "Say how long the body is"


class RequestIDMiddleware:
    """Takes over `X-Request-ID` or makes one; it is on every answer, log line and problem.

    An id of more than 128 characters, or of others than `[A-Za-z0-9._-]`, is replaced by a new
    UUID, so that nobody can write into the log through it.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer the request with its id bound to every line that is logged meanwhile."""
        started = time.perf_counter()
        request_id = acceptable_id(request.META.get("HTTP_X_REQUEST_ID"))
        # Not cleared at the end: what is logged while the body is streamed, or by Django about
        # the answer, carries the id, too.
        clear_contextvars()
        bind_contextvars(request_id=request_id)
        response = self.get_response(request)
        response["X-Request-ID"] = request_id
        _log.info(
            "request",
            method=request.method,
            path=request.path,
            status=response.status_code,
            duration_ms=round((time.perf_counter() - started) * 1000, 2),
        )
        return response


class HonestRequestMiddleware:
    """Refuses what Django would misread, and reads to its end what it refuses.

    A body in chunks would silently be taken for an empty one: 411. `/api/v1/me/` is `/api/v1/me`.
    What is left of a body after a refusal is read and thrown away, up to twice `MAX_BODY_BYTES`:
    a client that is still sending would see a broken pipe instead of the problem. A value that
    PostgreSQL can't look for (a NUL in a page's filter) is a 400, on pages as in the API.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer, or refuse."""
        if "HTTP_TRANSFER_ENCODING" in request.META and not request.META.get("CONTENT_LENGTH"):
            return plain_problem(LengthRequired("Send Content-Length, not chunks."))
        if request.path_info.startswith("/api/v1/") and request.path_info.endswith("/"):
            request.path_info = request.path_info.rstrip("/")
        response = self.get_response(request)
        if response.status_code >= HTTPStatus.BAD_REQUEST and request.META.get("CONTENT_LENGTH"):
            drain(request, 2 * settings.MAX_BODY_BYTES)
        return response

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        """Answer what a page's view raises for a value of the caller's."""
        if isinstance(exception, DataError):
            return bad_request(request, exception)
        return None


def drain(request: HttpRequest, limit_bytes: int) -> None:
    """Read and throw away what is left of the body."""
    with suppress(OSError):
        while limit_bytes > 0 and (part := request.read(_DRAINED_AT_ONCE_BYTES)):
            limit_bytes -= len(part)


def acceptable_id(sent: str | None) -> str:
    """Return the id that the caller sent, or a new one where it can't be used."""
    return sent if sent and _ACCEPTABLE.fullmatch(sent) else str(uuid.uuid4())
