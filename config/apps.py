"""The Django app of the site itself: system checks and the `release` command."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """Registers the site's system checks."""

    name = "config"
    verbose_name = "Site"

    def ready(self) -> None:
        """Import the checks, which register themselves."""
        from config import checks  # noqa: F401
