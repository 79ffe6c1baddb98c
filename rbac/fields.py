"""Columns for the names of people."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Case, F, Value, When
from django.db.models.functions import Concat
from django.db.models.query_utils import DeferredAttribute

from rbac import names


class NameField(models.CharField):  # type: ignore[type-arg]
    """A text in NFC: what is written, and what it is compared with, is brought to that form."""

    def to_python(self, value: Any) -> Any:
        """Return what a form or a fixture holds, in NFC."""
        text = super().to_python(value)
        return names.normal(text) if isinstance(text, str) else text

    def get_prep_value(self, value: Any) -> Any:
        """Return what goes to the database, in a row or in a condition, in NFC."""
        prepared = super().get_prep_value(value)
        return names.normal(prepared) if isinstance(prepared, str) else prepared


class _JoinedHere(DeferredAttribute):
    """Answers before the row is written, too: password validators ask new people for it."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        if instance is None:
            return self
        return names.joined(instance.tenant, instance.user_id)


class UsernameField(models.GeneratedField):
    """The column `username` that the database makes of `tenant` and `user_id`."""

    descriptor_class = _JoinedHere

    def __init__(self, **options: Any) -> None:
        made = Case(
            When(tenant=Value(names.DEFAULT_TENANT), then=F("user_id")),
            default=Concat(F("tenant"), Value("/"), F("user_id"), output_field=models.CharField()),
            output_field=models.CharField(),
        )
        kept = models.CharField(max_length=2 * names.MAX_CHARS + 1)
        super().__init__(
            **{"expression": made, "output_field": kept, "db_persist": True, **options}
        )
