"""The JSON parser of the API: a limit that answers 413, and errors that say where."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from rest_framework.parsers import BaseParser

from config.errors import BodyTooLarge, Invalid, MalformedJSON
from config.plain_json import TooDeep, to_plain


class JSONParser(BaseParser):
    """Reads a JSON body of at most `MAX_BODY_BYTES` and `MAX_JSON_DEPTH`.

    Python's own reader, since orjson turns integers past 64 bits into floats. NaN and Infinity,
    which Python clients send, become null; NUL and lone surrogates become U+FFFD: the turn is
    not lost for them (see `config.plain_json`).
    """

    media_type = "application/json"

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the body as plain JSON values."""
        return parse_json(read_bounded(stream, settings.MAX_BODY_BYTES))


def read_bounded(stream: Any, limit_bytes: int) -> bytes:
    """Read the whole body; raise `BodyTooLarge` past `limit_bytes`, however it is sent."""
    body: bytes = stream.read(limit_bytes + 1)
    if len(body) > limit_bytes:
        raise BodyTooLarge(f"The body may have {limit_bytes} bytes (MAX_BODY_BYTES).")
    return body


def parse_json(body: bytes) -> Any:
    """Return `body` as plain JSON values; raise `MalformedJSON` or `Invalid`."""
    limit = settings.MAX_JSON_CONTAINERS
    try:
        if _holds_more_containers(body, limit):
            raise Invalid(f"The body may hold {limit} objects and lists (MAX_JSON_CONTAINERS).")
        return to_plain(json.loads(body), settings.MAX_JSON_DEPTH)
    except (TooDeep, RecursionError):
        raise Invalid(
            f"The body may be nested {settings.MAX_JSON_DEPTH} levels deep (MAX_JSON_DEPTH)."
        ) from None
    except ValueError as error:
        raise MalformedJSON(f"The body can't be read as JSON: {error}.") from None


# One that is not closed goes on to the end; possessive, so that nothing is read twice.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def _holds_more_containers(body: bytes, limit: int) -> bool:
    """Whether there are more objects and lists than `limit`, each of which costs memory.

    Brackets in strings are none; they are told apart only where all brackets together exceed it.
    """
    if body.count(b"{") + body.count(b"[") <= limit:
        return False
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    outside = _STRING.sub("", text)
    return outside.count("{") + outside.count("[") > limit
