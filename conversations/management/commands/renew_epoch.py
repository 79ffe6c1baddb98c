"""Make every working set a miss, after a restore of the database."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from conversations.models import DatabaseEpoch


class Command(BaseCommand):
    """`renew_epoch`, once PostgreSQL has been restored from a backup."""

    help = (
        "Run this once PostgreSQL has been restored from a backup: copies in Redis may be newer "
        "than the restored threads, and are no longer believed. Safe at any time."
    )

    def handle(self, *_: Any, **__: Any) -> None:
        """Start a new epoch and say what that does."""
        with transaction.atomic():
            epoch = DatabaseEpoch.renew()
        self.stdout.write(f"This database's history is now {epoch}.", self.style.SUCCESS)
        self.stdout.write(
            "A restore takes threads back in time, but not their working sets in Redis, which "
            "would then show turns that PostgreSQL no longer has. From now on a copy made under "
            "the old name counts as absent: the first view of each thread comes from PostgreSQL "
            "and rebuilds it. Processes that served during the restore notice within the time "
            "of MEMORY_CHECK_SECONDS; restart them to have it at once. No thread was changed."
        )
