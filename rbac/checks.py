"""Checks of the settings of this app; see `config.checks`."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage

from config.checks import OURS
from rbac import login_attempts


@checks.register(OURS)
def login_rate(**_: Any) -> list[CheckMessage]:
    """E008 a rate that can't be read, which would fail every log-in."""
    try:
        login_attempts.rate(settings.LOGIN_RATE)
    except ValueError:
        return [
            checks.Error(
                f"LOGIN_RATE is {settings.LOGIN_RATE!r}; it must be a number, a slash and a unit.",
                hint="Write it as 10/min; the units are s, min, hour and day.",
                id="rethread.E008",
            )
        ]
    return []
