"""Settings that can't work are refused with a sentence before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Info
from django.core.management import ManagementUtility

from config import checks
from config.settings import env

Q = django_settings.Q_CLUSTER


def ids(found: Any) -> list[str]:
    messages: list[CheckMessage] = list(found)
    assert all(message.msg for message in messages)
    return [str(message.id) for message in messages]


def all_checks() -> list[str]:
    return ids(
        message
        for check in (
            checks.secret_key,
            checks.database_url,
            checks.too_small_numbers,
            checks.ascending_numbers,
            checks.jobs,
            checks.redis_url,
            checks.redis_waits,
            checks.key_prefix,
        )
        for message in check()
    )


def test_the_defaults_are_well() -> None:
    assert all_checks() == []


def test_no_secret_key(settings: Any) -> None:
    settings.SECRET_KEY = ""

    assert ids(checks.secret_key()) == ["rethread.E001"]


def test_a_short_secret_key(settings: Any) -> None:
    settings.SECRET_KEY = "s" * 49

    assert ids(checks.secret_key()) == ["rethread.W001"]


def test_the_key_itself_is_never_shown(settings: Any) -> None:
    settings.SECRET_KEY = "hunter2"

    assert "hunter2" not in str(checks.secret_key())


def test_no_database_is_a_remark_where_none_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL")

    [remark] = checks.database_url()
    assert (type(remark), remark.id) == (Info, "rethread.E002")


def test_no_database_is_an_error_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL")

    [refusal] = checks.database_url(databases=["default"])
    assert (type(refusal), refusal.id) == (Error, "rethread.E002")


@pytest.mark.parametrize("name", checks._POSITIVE)
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_below_one(settings: Any, name: str, value: int) -> None:
    setattr(settings, name, value)

    [message] = checks.too_small_numbers()
    assert (message.id, message.msg) == (
        "rethread.E003",
        f"{name} is {value}; it must be more than 0.",
    )


@pytest.mark.parametrize("name", checks._NOT_NEGATIVE)
def test_a_number_below_zero(settings: Any, name: str) -> None:
    setattr(settings, name, -1)

    [message] = checks.too_small_numbers()
    assert (message.id, message.msg) == (
        "rethread.E003",
        f"{name} is -1; it must be 0 or more.",
    )


@pytest.mark.parametrize("name", checks._NOT_NEGATIVE)
def test_zero_where_it_means_something(settings: Any, name: str) -> None:
    setattr(settings, name, 0)

    assert ids(checks.too_small_numbers()) == []


def test_every_number_among_the_settings_is_checked() -> None:
    numbers = {name for name, (kind, _) in env.scheme.items() if kind in {int, float}}
    of_jobs = {"WORKERS", "JOB_TIMEOUT_SECONDS", "JOB_RETRY_SECONDS"}

    assert numbers == {*checks._POSITIVE, *checks._NOT_NEGATIVE} | of_jobs


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("MEMORY_MAX_RECENT_MESSAGES", "MEMORY_COMPRESSION_THRESHOLD"),
        ("MEMORY_COMPRESSION_THRESHOLD", "MEMORY_WINDOW_TURNS"),
        ("CONTEXT_TOKEN_BUDGET", "CONTEXT_MAX_TOKEN_BUDGET"),
        ("MAX_PAYLOAD_BYTES", "MAX_BODY_BYTES"),
        ("MAX_ARTIFACT_BYTES", "MAX_BODY_BYTES"),
    ],
)
def test_a_number_larger_than_the_one_that_bounds_it(
    settings: Any, smaller: str, larger: str
) -> None:
    setattr(settings, smaller, getattr(settings, larger) + 1)

    [message] = checks.ascending_numbers()
    assert message.id == "rethread.E004"
    assert smaller in message.msg
    assert larger in message.msg


def test_equal_numbers_are_well(settings: Any) -> None:
    settings.MAX_PAYLOAD_BYTES = settings.MAX_BODY_BYTES

    assert ids(checks.ascending_numbers()) == []


@pytest.mark.parametrize("retry", [119, 120])
def test_jobs_that_would_be_given_out_while_they_run(settings: Any, retry: int) -> None:
    settings.Q_CLUSTER = {**Q, "timeout": 120, "retry": retry}

    assert ids(checks.jobs()) == ["rethread.E005"]


def test_nobody_to_run_jobs(settings: Any) -> None:
    settings.Q_CLUSTER = {**Q, "workers": 0}

    assert ids(checks.jobs()) == ["rethread.E006"]


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "redis://localhost:port"])
def test_an_address_that_is_none_of_redis(settings: Any, url: str) -> None:
    settings.REDIS_URL = url

    assert ids(checks.redis_url()) == ["rethread.E009"]


def test_a_long_wait_for_redis(settings: Any) -> None:
    settings.REDIS_TIMEOUT_SECONDS = 5.0

    assert ids(checks.redis_waits()) == ["rethread.W002"]


@pytest.mark.parametrize("prefix", ["", "a{b}", "{"])
def test_a_prefix_that_would_choose_the_cluster_slot(settings: Any, prefix: str) -> None:
    settings.MEMORY_KEY_PREFIX = prefix

    assert ids(checks.key_prefix()) == ["rethread.E007"]


def test_a_deployment_without_https(settings: Any) -> None:
    settings.HTTPS = False

    assert ids(checks.https()) == ["rethread.W003"]


def test_a_plain_origin_beside_https(settings: Any) -> None:
    settings.HTTPS, settings.CSRF_TRUSTED_ORIGINS = True, ["http://example.org"]

    assert ids(checks.https()) == ["rethread.W004"]


def test_a_deployment_that_believes_any_host(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]

    assert ids(checks.any_host()) == ["rethread.W005"]


# --- As commands show them


def manage(tmp_path: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing set but `environment` and without any running `make up`."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    own = {"RETHREAD_DATA_DIR": str(tmp_path), "RETHREAD_ENV_FILE": ""}
    return subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=django_settings.BASE_DIR,
        env=kept | own | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["check", "migrate", "release", "createsuperuser", "qcluster"])
def test_every_command_asks_for_the_secret_key(
    settings: Any, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.SECRET_KEY = ""

    with pytest.raises(SystemExit) as end:
        ManagementUtility(["manage.py", command]).execute()
    assert end.value.code == 1
    assert "(rethread.E001) SECRET_KEY is not set." in capsys.readouterr().err


def test_a_command_without_a_secret_key_ends_in_a_sentence(tmp_path: Path) -> None:
    ended = manage(tmp_path, "qcluster")

    assert ended.returncode == 1
    assert "(rethread.E001) SECRET_KEY is not set." in ended.stderr
    assert "Traceback" not in ended.stderr


def test_migrate_without_a_database_ends_in_a_sentence(tmp_path: Path) -> None:
    ended = manage(tmp_path, "migrate", SECRET_KEY=os.environ["SECRET_KEY"])

    assert ended.returncode == 1
    assert "(rethread.E002) DATABASE_URL is not set" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_static_files_can_be_collected_without_secrets(tmp_path: Path) -> None:
    assert manage(tmp_path, "collectstatic", "--dry-run", "--noinput").returncode == 0


def test_a_deployment_with_https_and_a_long_key_comes_out_clean(tmp_path: Path) -> None:
    given = {"HTTPS": "1", "SECRET_KEY": os.environ["SECRET_KEY"]}

    ended = manage(tmp_path, "check", "--deploy", "--fail-level", "WARNING", **given)

    assert ended.returncode == 0, ended.stderr
