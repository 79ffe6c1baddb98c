"""The app that knows people, agents and their keys."""

from django.apps import AppConfig


class RbacConfig(AppConfig):
    """People, agents, tokens."""

    name = "rbac"
    verbose_name = "People and keys"

    def ready(self) -> None:
        """Register the checks, and tell drf-spectacular how callers authenticate."""
        from rbac import checks, schema  # noqa: F401
