"""`manage.py worker`: runs jobs until it is asked to stop."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError
from django.db import connection

from config.worker import Supervisor
from embedded.exceptions import CannotStart

# Of what was sent and never acknowledged: a network that swallows everything.
_TCP_PATIENCE_MILLISECONDS = 10_000


class Command(BaseCommand):
    """Runs django-q2's cluster, and another in its place when it dies or stands still."""

    help = (
        "Run jobs, with WORKERS processes, until SIGTERM or Ctrl-C; what runs then is let finish, "
        "for JOB_TIMEOUT_SECONDS at most. A second signal ends it at once."
    )

    def handle(self, *_: Any, **__: Any) -> None:
        """Supervise until the end; exit 1 when running jobs had to be cut off."""
        connection.settings_dict["OPTIONS"]["tcp_user_timeout"] = _TCP_PATIENCE_MILLISECONDS
        connection.close()
        try:
            status = Supervisor(settings.WORKER_FROZEN_AFTER_SECONDS).run()
        except CannotStart as error:
            raise CommandError(str(error)) from error
        sys.exit(status)
