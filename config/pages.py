"""The site's own pages: the front page and the documentation of the API."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.views import SpectacularSwaggerSplitView


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Say what this is and where to go."""
    return render(request, "home.html")


# The split view keeps its script in an answer of its own, as a strict Content-Security-Policy
# wants it; the template takes the library from our own static files.
api_docs = SpectacularSwaggerSplitView.as_view(
    authentication_classes=[], permission_classes=[], template_name="api_docs.html"
)
