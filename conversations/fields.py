"""A JSON column that keeps what it is given."""

from __future__ import annotations

from typing import Any

from django.db import models
from psycopg.types.json import Json

from config.plain_json import dump_bytes


class VerbatimJSONField(models.JSONField):
    """PostgreSQL's `json`: unlike `jsonb` it keeps the order of keys and `1e2`, and is smaller.

    It can't be searched by its content, and need not be: it is read whole.
    """

    def db_type(self, connection: Any) -> str:
        """Return `json`."""
        return "json"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """Return the value for psycopg, which writes it as text."""
        return None if value is None else Json(value, dumps=dump_bytes)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Return the value as it is: psycopg has read it already."""
        return value
