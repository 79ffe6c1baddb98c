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

import structlog
from django.http import HttpRequest, HttpResponseBase
from structlog.contextvars import bind_contextvars, clear_contextvars

from config.errors import Problem, plain_problem

_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,128}")

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


class SizedBodyMiddleware:
    """Refuses a body that is sent in chunks: Django would silently read it as empty."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer 411 where the length of a body is not said."""
        if "HTTP_TRANSFER_ENCODING" in request.META and not request.META.get("CONTENT_LENGTH"):
            return plain_problem(LengthRequired("Send Content-Length, not chunks."))
        return self.get_response(request)


def acceptable_id(sent: str | None) -> str:
    """Return the id that the caller sent, or a new one where it can't be used."""
    return sent if sent and _ACCEPTABLE.fullmatch(sent) else str(uuid.uuid4())
