"""`.env.example` is complete and tells the truth."""

from __future__ import annotations

import re
from itertools import pairwise

import environ
import pytest
from django.conf import settings

from config.settings import env

FILE = settings.BASE_DIR / ".env.example"
ENTRY = re.compile(r"^#?([A-Z][A-Z0-9_]*)=(.*)$")
# Read by gunicorn, the launcher and libraries.
FROM_OTHERS = {
    "HOST",
    "PORT",
    "WEB_WORKERS",
    "WEB_THREADS",
    "WEB_TIMEOUT_SECONDS",
    "WEB_READ_SECONDS",
    "FORWARDED_ALLOW_IPS",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "PROMETHEUS_MULTIPROC_DIR",
}
PATHS = {"RETHREAD_DATA_DIR", "RETHREAD_ENV_FILE"}
LINES = FILE.read_text().splitlines()
ENTRIES = {entry[1]: entry[2] for line in LINES if (entry := ENTRY.match(line))}


class Example(environ.Env):
    """Reads the file as if every line were set."""

    ENVIRON = {name: value for name, value in ENTRIES.items() if value}


def test_it_names_every_setting() -> None:
    assert env.scheme.keys() - ENTRIES.keys() == set()


def test_it_names_nothing_that_nobody_reads() -> None:
    assert ENTRIES.keys() - env.scheme.keys() == FROM_OTHERS


@pytest.mark.parametrize("name", sorted(env.scheme.keys() - PATHS))
def test_its_default_is_that_of_the_settings(name: str) -> None:
    assert Example(**env.scheme)(name) == env.scheme[name][1]


@pytest.mark.parametrize("name", sorted(PATHS))
def test_its_paths_are_counted_from_the_repository(name: str) -> None:
    assert str(settings.BASE_DIR / ENTRIES[name]) == env.scheme[name][1]


def test_every_entry_stands_under_a_line_that_says_what_it_is() -> None:
    for before, line in pairwise(LINES):
        if ENTRY.match(line):
            assert before.startswith("# ") or ENTRY.match(before)


def test_a_copy_of_it_sets_nothing() -> None:
    """An empty DATABASE_URL in `.env` would hide the one of a running `make up`."""
    assert all(line.startswith("#") for line in LINES if line)
