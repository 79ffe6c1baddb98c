"""What every operation of the OpenAPI document has in common: how it refuses."""

from __future__ import annotations

from typing import Any

_CODES = (
    "`code` is stable: `invalid` (422, with `errors` by field), `malformed_json` (400),"
    " `not_authenticated` and `invalid_token` (401), `not_yours` (403), `not_found` (404: absent,"
    " deleted or somebody else's), `turn_conflict`, `turn_elsewhere`, `stale_position` and"
    " `position_not_reached` (409), `body_too_large` and `too_large` (413), `user_id_required`"
    " (422), `unavailable` (503)."
)
_PROBLEM = {
    "type": "object",
    "description": f"A refusal (RFC 9457). {_CODES}",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "code": {"type": "string"},
        "request_id": {"type": "string", "description": "Finds the request in the logs."},
        "errors": {
            "type": "object",
            "description": "By field, such as `artifacts.0.kind`.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
    },
}


def with_problems(
    result: dict[str, Any], generator: Any, request: Any, public: bool
) -> dict[str, Any]:
    """Add the problem to each operation, as drf-spectacular's post-processing hook."""
    result["components"].setdefault("schemas", {})["Problem"] = _PROBLEM
    answer = {
        "description": "A problem; see its `code`.",
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"].setdefault("default", answer)
    return result
