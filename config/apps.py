"""The Django app of the site itself: system checks, `release`, and the workers of its jobs."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """Registers the site's system checks."""

    name = "config"
    verbose_name = "Site"

    def ready(self) -> None:
        """Register the checks; in a worker's own processes, have jobs reported to it."""
        from config import checks  # noqa: F401
        from config.pulse import Pulse

        if pulse := Pulse.of_this_process():
            from config.broker import report_jobs

            report_jobs(pulse)
