"""Errors as `application/problem+json` (RFC 9457), each with a stable `code`.

Domain exceptions subclass `Problem`; `problem_response` is the one handler that turns them, and
everything that Django REST framework or Django raises, into an answer:

    {"type": "about:blank", "title": "Not found", "status": 404, "detail": "No such thread.",
     "code": "not_found", "request_id": "…", "errors": {"artifacts.0.kind": ["…"]}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DataError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from pydantic import BaseModel, ValidationError
from rest_framework import exceptions as drf
from rest_framework.response import Response

from config.plain_json import dump_bytes

M = TypeVar("M", bound=BaseModel)

CONTENT_TYPE = "application/problem+json"


class Problem(Exception):
    """A refusal that the caller can understand and act on.

    Subclasses set `status`, `code` and `title`; `detail` says what to do next, `extra` becomes
    members of the answer (`{"stored": {"position": 3}}`).
    """

    status = 400
    code = "bad_request"
    title = "Bad request"

    def __init__(
        self,
        detail: str = "",
        *,
        errors: Mapping[str, Sequence[str]] | None = None,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.errors = errors
        self.headers = dict(headers or {})
        self.extra = extra


class Invalid(Problem):
    """The body or the query string does not hold what it must; `errors` says where."""

    status = 422
    code = "invalid"
    title = "Not valid"


class MalformedJSON(Problem):
    """The body is no JSON."""

    status = 400
    code = "malformed_json"
    title = "The body is not JSON"


class BodyTooLarge(Problem):
    """The body is larger than `MAX_BODY_BYTES`."""

    status = 413
    code = "body_too_large"
    title = "The body is too large"


class SilentClient(Problem):
    """The client stopped in the middle of its request."""

    status = 408
    code = "request_timeout"
    title = "The request did not arrive whole"


class NotFound(Problem):
    """Absent, deleted or somebody else's: the three are never told apart."""

    status = 404
    code = "not_found"
    title = "Not found"


class Unavailable(Problem):
    """A store that this call can't do without does not answer."""

    status = 503
    code = "unavailable"
    title = "Try again in a moment"


def validate(model: type[M], data: Any) -> M:
    """Return `data` as `model`; raise `Invalid` with a message for each field that is wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Invalid(
            "Some fields are not as they must be; see errors.", errors=_by_field(error)
        ) from error


def _by_field(error: ValidationError) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False)[:50]:
        field = ".".join(str(part) for part in item["loc"]) or "body"
        found.setdefault(field, []).append(item["msg"])
    return found


def problem_response(error: Exception, context: Mapping[str, Any] | None = None) -> Response | None:
    """Answer any exception of a view; None for a fault of our own, which becomes a 500."""
    problem = as_problem(error)
    if problem is None:
        return None
    response = Response(
        body(problem), status=problem.status, headers=problem.headers, content_type=CONTENT_TYPE
    )
    response["Cache-Control"] = "no-store"
    return response


def as_problem(error: Exception) -> Problem | None:
    """Translate what Django, DRF and the database raise into a `Problem`."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, drf.APIException):
        return _from_drf(error)
    if isinstance(error, OperationalError):
        structlog.get_logger(__name__).error("database_unavailable", error=str(error))
    return next((make() for kind, make in _TRANSLATIONS if isinstance(error, kind)), None)


# In this order: Django's RequestDataTooBig is a SuspiciousOperation as well.
_TRANSLATIONS: tuple[tuple[type[Exception], Callable[[], Problem]], ...] = (
    (RequestDataTooBig, lambda: BodyTooLarge("The body is larger than this site accepts.")),
    (UnreadablePostError, lambda: SilentClient("The rest of the body did not come in time.")),
    (Http404, NotFound),
    (PermissionDenied, lambda: _from_drf(drf.PermissionDenied())),
    (SuspiciousOperation, lambda: Problem("The request is not one that this site accepts.")),
    # A NUL, or a number past what its column can hold.
    (DataError, lambda: Problem("A value in the address or form is none that can be looked for.")),
    (
        OperationalError,
        lambda: Unavailable("The database does not answer in time.", headers={"Retry-After": "1"}),
    ),
)


def _from_drf(error: drf.APIException) -> Problem:
    codes = error.get_codes()
    problem = Problem(str(error.detail) if isinstance(error.detail, str) else "")
    problem.status = error.status_code
    problem.code = codes if isinstance(codes, str) else "invalid"
    problem.title = HTTPStatus(error.status_code).phrase
    wait = getattr(error, "wait", None)
    if wait:
        problem.headers["Retry-After"] = str(int(wait) + 1)
    if header := getattr(error, "auth_header", None):
        problem.headers["WWW-Authenticate"] = header
    return problem


def body(problem: Problem) -> dict[str, Any]:
    """Return the members of the answer."""
    members: dict[str, Any] = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
    }
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    if request_id:
        members["request_id"] = request_id
    if problem.errors:
        members["errors"] = problem.errors
    return {**members, **problem.extra}


def plain_problem(problem: Problem) -> HttpResponse:
    """Answer a problem outside of Django REST framework's views."""
    response = HttpResponse(
        dump_bytes(body(problem)), status=problem.status, content_type=CONTENT_TYPE
    )
    for name, value in problem.headers.items():
        response[name] = value
    return response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler400: also what a body that is read too early runs into."""
    return plain_problem(
        as_problem(exception) or Problem("The request is not one that this site accepts.")
    )


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler403."""
    return plain_problem(as_problem(exception) or _from_drf(drf.PermissionDenied()))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler404: no such address."""
    return plain_problem(NotFound("There is nothing at this address; see /api/docs/."))


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500: a fault of ours, logged with the request's id."""
    problem = Problem("A fault on our side; the request id finds it in the logs.")
    problem.status, problem.code, problem.title = 500, "server_error", "Server error"
    return plain_problem(problem)
