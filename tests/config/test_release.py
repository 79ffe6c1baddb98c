"""`manage.py release`: one at a time, whoever starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from config.errors import Unavailable
from config.management.commands import release


def run(**options: Any) -> list[str]:
    out = StringIO()
    call_command("release", stdout=out, **options)
    return out.getvalue().splitlines()


@pytest.fixture
def other(transactional_db: None) -> Iterator[BaseDatabaseWrapper]:
    """The connection of a release that runs elsewhere and holds the lock."""
    holder = connection.copy()
    holder.set_autocommit(False)
    assert release._try_lock(holder)
    yield holder
    holder.close()


@pytest.fixture
def empty_database(db: None) -> Iterator[str]:
    """The address of a database that nobody has released to."""
    name = sql.Identifier(f"{connection.settings_dict['NAME']}_release")
    connect: dict[str, Any] = connection.get_connection_params()
    for unwanted in ("cursor_factory", "context", "prepare_threshold", "server_side_binding"):
        connect.pop(unwanted, None)
    with psycopg.connect(**connect | {"dbname": "postgres"}, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(name))
        admin.execute(sql.SQL("CREATE DATABASE {}").format(name))
        yield re.sub(r"/[^/?]*(\?|$)", rf"/{name._obj[0]}\1", os.environ["DATABASE_URL"], count=0)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def start(database_url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "release"],
        cwd=django_settings.BASE_DIR,
        env=os.environ | {"DATABASE_URL": database_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_at_once_both_succeed_and_one_does_the_work(empty_database: str) -> None:
    both = [start(empty_database) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]

    assert [process.returncode for process in both] == [0, 0], outputs
    idle, busy = sorted(outputs, key=lambda output: output.count("Applied"))
    assert "Applied contenttypes.0001_initial.\n" in busy
    assert "Applied" not in idle
    assert "No migration to apply.\n" in idle
    assert all(output.endswith("Released.\n") for output in outputs)


@pytest.mark.django_db(transaction=True)
def test_a_release_with_nothing_to_do_says_so() -> None:
    assert run() == ["No migration to apply.", "Released."]


def test_it_gives_up_when_another_does_not_end(other: BaseDatabaseWrapper) -> None:
    with pytest.raises(CommandError, match="Another release has not ended within 0 s"):
        run(wait=0)


def test_it_goes_on_when_the_other_has_ended(
    other: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release.time, "sleep", lambda _seconds: other.rollback())

    assert run() == [
        "Another release is running; waiting for it.",
        "No migration to apply.",
        "Released.",
    ]


def test_the_lock_ends_with_its_transaction(other: BaseDatabaseWrapper) -> None:
    """What PgBouncer in transaction mode keeps; a session's lock would outlive its client."""
    other.rollback()

    assert release._try_lock(other)


def test_the_lock_is_not_lost_to_a_time_out_for_idle_transactions(
    other: BaseDatabaseWrapper,
) -> None:
    with other.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("0",)


def test_an_index_can_be_built_concurrently_meanwhile(other: BaseDatabaseWrapper) -> None:
    """It waits for every older snapshot: neither holder nor waiter may keep one."""
    waiter = connection.copy()
    waiter.set_autocommit(False)
    assert not release._try_lock(waiter)
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '5s'")
        cursor.execute("CREATE INDEX CONCURRENTLY release_test ON django_session (expire_date)")
        cursor.execute("DROP INDEX release_test")
        cursor.execute("RESET statement_timeout")
    waiter.close()


@pytest.mark.django_db(transaction=True)
def test_migrations_may_take_longer_than_requests() -> None:
    run()

    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


def test_a_database_that_is_away_is_told_in_a_sentence(closed_port: int) -> None:
    process = start(f"postgres://rethread:hunter2@127.0.0.1:{closed_port}/rethread")
    output = process.communicate(timeout=60)[0]

    assert process.returncode == 1
    assert "CommandError: The database refused: " in output
    assert "Traceback" not in output
    assert "hunter2" not in output


@pytest.mark.django_db(transaction=True)
def test_a_store_that_is_away_is_told_and_does_not_stop_it(settings: Any) -> None:
    settings.RELEASE_STEPS = [f"{__name__}.away"]
    err = StringIO()

    call_command("release", stdout=(out := StringIO()), stderr=err)

    assert out.getvalue().splitlines()[-1] == "Released."
    assert "Tables can't be made. Run this again when it is back." in err.getvalue()


def away() -> None:
    """A step whose store does not answer."""
    raise Unavailable("Tables can't be made.")
