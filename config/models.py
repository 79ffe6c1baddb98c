"""What the site itself keeps: which workers are there."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Self

from django.db import models
from django.db.models.functions import Now

# A worker that has said nothing for so long is not counted on.
SILENT_AFTER_SECONDS = 60
_FORGOTTEN_AFTER = timedelta(days=1)


class HeartbeatQuerySet(models.QuerySet["WorkerHeartbeat"]):
    """Questions about workers."""

    def alive(self, within_seconds: float = SILENT_AFTER_SECONDS) -> Self:
        """Keep those whose cluster was seen to work within so many seconds."""
        return self.filter(beat_at__gt=Now() - timedelta(seconds=within_seconds))

    def of_host(self, host: str) -> Self:
        """Keep those on one host."""
        return self.filter(host=host)

    def forgotten(self) -> Self:
        """Keep those that nobody expects back."""
        return self.filter(beat_at__lt=Now() - _FORGOTTEN_AFTER)


class WorkerHeartbeat(models.Model):
    """One running `manage.py worker`; all times are the database's.

    `beat_at` is when its cluster was last seen to work: a worker whose cluster keeps ending goes
    on to write its `state`, but does not beat. `restarts` counts the clusters after its first.
    """

    WORKING, RESTARTING, STOPPING = "working", "restarting", "stopping"

    id = models.TextField(primary_key=True, help_text='Such as "host:812-9f3c1a2b".')
    host = models.TextField()
    started_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(db_default=Now())
    state = models.TextField()
    restarts = models.IntegerField(default=0)

    objects: ClassVar[models.Manager[Self]] = HeartbeatQuerySet.as_manager()

    class Meta:
        db_table = "worker_heartbeats"

    def __str__(self) -> str:
        """Return `host:812-9f3c1a2b, working`."""
        return f"{self.id}, {self.state}"

    def beat(self) -> None:
        """Write this row as it is now, and the time of it where the cluster works.

        Raises `django.db.Error`.
        """
        written = ["state", "restarts"]
        if self.state != self.RESTARTING:
            self.beat_at = Now()
            written.append("beat_at")
        type(self).objects.bulk_create(
            [self], update_conflicts=True, unique_fields=["id"], update_fields=written
        )
