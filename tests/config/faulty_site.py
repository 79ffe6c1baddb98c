"""A site whose views raise whatever a test wants, with the handlers of the real one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.decorators import api_view, authentication_classes, permission_classes
from rest_framework.request import Request
from rest_framework.response import Response

from config import health

handler400 = "config.errors.bad_request"
handler403 = "config.errors.permission_denied"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"

# Set by the test that asks.
to_raise: list[Exception] = []


@api_view(["GET", "POST"])
@authentication_classes([])
@permission_classes([])
def api(request: Request) -> Response:
    """Raise from a view of the API."""
    raise to_raise.pop()


def page(request: HttpRequest) -> HttpResponse:
    """Raise from a view of Django's own kind."""
    raise to_raise.pop()


@api_view(["POST"])
@authentication_classes([])
@permission_classes([])
def echo(request: Request) -> Response:
    """Answer with what was understood."""
    data: Any = request.data
    return Response(data)


urlpatterns = [
    path("api", api),
    path("page", page),
    path("echo", echo),
    path("health/live", health.live),
]
