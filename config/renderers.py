"""One representation, JSON, and no time spent on negotiating it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from config.errors import Problem
from config.plain_json import dump_bytes


class UnsupportedMediaType(Problem):
    """A body that is not sent as JSON."""

    status = 415
    code = "unsupported_media_type"
    title = "Send JSON"


class JSONRenderer(BaseRenderer):
    """Writes plain values as UTF-8 JSON."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the body; nothing for an answer without content."""
        return b"" if data is None else dump_bytes(data)


class JSONNegotiation(BaseContentNegotiation):
    """The API speaks JSON: the first parser and renderer, whatever Accept says."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        """Return the parser; raise `UnsupportedMediaType` for a body that says it is not JSON."""
        sent = (request.content_type or "").partition(";")[0].strip().lower()
        if sent and sent != "application/json" and not sent.endswith("+json"):
            raise UnsupportedMediaType(f"This call takes application/json, not {sent}.")
        return next(iter(parsers))

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the renderer."""
        renderer = next(iter(renderers))
        return renderer, renderer.media_type
