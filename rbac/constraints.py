"""What the database itself refuses in names, whichever road they come by.

A second lock behind `rbac.names`, which gives the reasons. PostgreSQL refuses NUL and lone
surrogates by nature, and more than 128 characters by the column's type.
"""

from __future__ import annotations

from django.db import models
from django.db.models import CheckConstraint, F, Func, Q

_INVISIBLE = r"\u0001-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffd"
_SPACE = r"\s\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"


class IsNFC(Func):
    """Whether a text is in the normal form in which names are kept."""

    template = "%(expressions)s IS NFC NORMALIZED"
    output_field = models.BooleanField()


def _is_name(field: str, refused: str) -> Q:
    return (
        Q(**{f"{field}__regex": f"^[^{_INVISIBLE}{refused}]+$"})
        & ~Q(**{f"{field}__regex": f"^[{_SPACE}]|[{_SPACE}]$"})
        & ~Q(**{f"{field}__in": [".", ".."]})
        & ~Q(**{f"{field}__iexact": "SYSTEM"})
        & Q(IsNFC(F(field)))
    )


def names_are_safe() -> list[CheckConstraint]:
    """Return the constraints on the tenant and on the user id of a person."""
    return [
        CheckConstraint(
            name="rbac_user_tenant_is_name",
            condition=_is_name("tenant", r"#/{}*?\[\]\\:"),
            violation_error_message="This can't be the name of a tenant.",
        ),
        CheckConstraint(
            name="rbac_user_user_id_is_name",
            condition=_is_name("user_id", "#/"),
            violation_error_message="This can't be a user id.",
        ),
    ]
