"""What is written in the environment is understood, or refused in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from config.environment import Environment, one_of
from embedded.ports import free_port

GUNICORN = ("-m", "gunicorn", "-c", "config/gunicorn.py", "config.wsgi")


class Written(Environment):
    """Reads what a test has written instead of this process's environment."""

    ENVIRON: dict[str, str] = {}


def read(text: str, kind: Any, default: Any) -> Any:
    Written.ENVIRON = {"IT": text}
    return Written(IT=(kind, default))("IT")


LEVEL = one_of("INFO", "DEBUG", read=str.upper)


@pytest.mark.parametrize(
    ("text", "kind", "default", "value"),
    [
        ("12", int, 1, 12),
        (" -3 ", int, 1, -3),
        ("0.25", float, 1.0, 0.25),
        ("1e-3", float, 1.0, 0.001),
        *((word, bool, False, True) for word in ("1", "true", "True", "yes", "on", "t", " Y ")),
        *((word, bool, True, False) for word in ("0", "false", "FALSE", "no", "off", "f", "N")),
        ("debug", LEVEL, "INFO", "DEBUG"),
        ("a,b", list, [], ["a", "b"]),
        ("", int, 7, 7),
        ("", bool, True, True),
        ("", list, ["a"], ["a"]),
        ("", str, "default", "default"),
    ],
)
def test_a_setting_is_read(text: str, kind: Any, default: Any, value: Any) -> None:
    assert read(text, kind, default) == value


@pytest.mark.parametrize(
    ("text", "kind", "default", "must_be"),
    [
        ("abc", int, 1, "a whole number"),
        ("1.5", int, 1, "a whole number"),
        ("5s", float, 1.0, "a number"),
        ("nan", float, 1.0, "a number"),
        ("inf", float, 1.0, "a number"),
        ("ture", bool, False, "true or false"),
        ("2", bool, False, "true or false"),
        ("LOUD", LEVEL, "INFO", "one of INFO, DEBUG"),
    ],
)
def test_what_can_not_be_read_is_named(text: str, kind: Any, default: Any, must_be: str) -> None:
    with pytest.raises(SystemExit) as end:
        read(text, kind, default)

    assert end.value.code == (
        f"IT is {text!r}; it must be {must_be}. Correct it, or leave it out for its default, "
        f"{default} (.env.example)."
    )


def test_an_address_of_postgresql_is_taken_apart() -> None:
    found = Written().database("postgres://ana:a%23b@db.example:5433/memory?sslmode=require")

    assert {name: found[name] for name in ("USER", "PASSWORD", "HOST", "PORT", "NAME")} == {
        "USER": "ana",
        "PASSWORD": "a#b",
        "HOST": "db.example",
        "PORT": 5433,
        "NAME": "memory",
    }
    assert found["OPTIONS"] == {"sslmode": "require"}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://ana:hunter2@db/memory", "DATABASE_URL names no PostgreSQL"),
        ("ana:hunter2@db/memory", "DATABASE_URL names no PostgreSQL"),
        ("postgres://ana:hunter2@db:port/memory", "DATABASE_URL can't be read"),
        ("postgres://ana:hunter2/3@db:5432/memory", "percent-encoded"),
    ],
)
def test_another_address_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(SystemExit) as end:
        Written().database(url)

    assert says in str(end.value.code)
    assert "hunter2" not in str(end.value.code)


# --- As programs show it


def run(tmp_path: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {"RETHREAD_DATA_DIR": str(tmp_path), "RETHREAD_ENV_FILE": ""}
    return subprocess.run(
        [sys.executable, *command],
        cwd=django_settings.BASE_DIR,
        env=os.environ | own | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("name", "value"), [("LOG_FORMAT", "xml"), ("LOG_LEVEL", "LOUD"), ("WORKERS", "abc")]
)
def test_a_command_ends_in_one_sentence(tmp_path: Path, name: str, value: str) -> None:
    ended = run(tmp_path, "manage.py", "check", **{name: value})

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"{name} is {value!r}; it must be ")
    assert ended.stderr.count("\n") == 1


def test_a_web_process_asks_our_own_checks_and_ends_so_that_gunicorn_gives_up(
    tmp_path: Path,
) -> None:
    ended = run(tmp_path, "-c", "import config.wsgi", LOGIN_RATE="10", SECRET_KEY="")

    assert ended.returncode == 3
    assert "(rethread.E008) LOGIN_RATE is '10'" in ended.stderr
    assert "(rethread.E001) SECRET_KEY is not set." in ended.stderr
    assert "Traceback" not in ended.stderr


def test_gunicorn_gives_up_with_the_sentence(tmp_path: Path) -> None:
    ended = run(tmp_path, *GUNICORN, WORKERS="abc", PORT=str(free_port()), WEB_WORKERS="1")

    assert ended.returncode == 3
    assert "WORKERS is 'abc'; it must be a whole number" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("WEB_WORKERS", "two"), ("WEB_THREADS", "0"), ("WEB_TIMEOUT_SECONDS", "-1")]
)
def test_what_gunicorn_reads_is_refused_as_well(tmp_path: Path, name: str, value: str) -> None:
    ended = run(tmp_path, *GUNICORN, **{name: value})

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{name} is {value!r}; it must be a whole number")
    assert "Traceback" not in ended.stderr
