"""`manage.py release`: what a deploy runs once before the new version serves."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, call_command
from django.db import DatabaseError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.utils.module_loading import import_string

from config.errors import Problem
from config.jobs import ensure_periodic_jobs

# Any number will do, as long as every release uses it: "rethread" in ASCII.
LOCK = int.from_bytes(b"rethread")
_LOOK_EVERY_SECONDS = 0.5


class Command(BaseCommand):
    """Brings the stores to this version, one release at a time."""

    help = (
        "Bring the stores to this version: apply migrations. Safe to run on every deploy and from "
        "several hosts at once: one works, the others wait for it and find nothing left to do."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take `--wait`."""
        parser.add_argument(
            "--wait",
            type=float,
            default=600,
            metavar="SECONDS",
            help="how long to wait for a release that runs elsewhere (default: 600)",
        )

    def handle(self, *_: Any, wait: float, **__: Any) -> None:
        """Do each step under the lock; exit 1 with one sentence when that fails."""
        try:
            with self.only_one(wait):
                self.migrate()
                self.prepare()
                ensure_periodic_jobs()
        except DatabaseError as error:
            raise CommandError(f"The database refused: {str(error).strip()}") from error
        self.stdout.write("Released.")

    def migrate(self) -> None:
        """Apply what is missing, without the time-out that is meant for requests."""
        options = connection.settings_dict["OPTIONS"]
        options["options"] = f"{options.get('options', '')} -c statement_timeout=0"
        connection.close()
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        call_command("migrate", interactive=False, verbosity=0)
        for migration, _backwards in plan:
            self.stdout.write(f"Applied {migration.app_label}.{migration.name}.")
        if not plan:
            self.stdout.write("No migration to apply.")

    def prepare(self) -> None:
        """Have the apps make what they keep elsewhere; what is away meanwhile must not stop it."""
        for step in settings.RELEASE_STEPS:
            try:
                import_string(step)()
            except Problem as error:
                self.stderr.write(f"{step}: {error.detail} Run this again when it is back.")

    @contextmanager
    def only_one(self, wait: float) -> Iterator[None]:
        """Hold the lock meanwhile.

        It is a lock of a transaction that stays open on a connection of its own, since behind
        PgBouncer a session's lock outlives its holder. Who waits asks again and again rather
        than in one long statement: CREATE INDEX CONCURRENTLY would wait for that statement.
        """
        keeper = connection.copy()
        try:
            self._take(keeper, wait)
            yield
            keeper.rollback()
        finally:
            keeper.close()

    def _take(self, keeper: BaseDatabaseWrapper, wait: float) -> None:
        keeper.set_autocommit(False)
        deadline = time.monotonic() + wait
        waiting = False
        while not _try_lock(keeper):
            if time.monotonic() >= deadline:
                raise CommandError(
                    f"Another release has not ended within {wait:g} s; see what holds it up (a "
                    "long query on a table that it changes?), then run this again."
                )
            if not waiting:
                self.stdout.write("Another release is running; waiting for it.")
            waiting = True
            time.sleep(_LOOK_EVERY_SECONDS)


def _try_lock(keeper: BaseDatabaseWrapper) -> bool:
    with keeper.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        [taken] = cursor.fetchone()
        if taken:
            # The transaction is idle while migrations run: nothing may end it for that.
            cursor.execute(
                "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN "
                "('idle_in_transaction_session_timeout', 'transaction_timeout')"
            )
        else:
            keeper.rollback()
    return bool(taken)
