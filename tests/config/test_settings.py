"""What the settings promise beyond their values."""

from __future__ import annotations

import io
import logging
import logging.config
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client


@pytest.fixture
def https(settings: Any) -> Client:
    """A caller by plain HTTP of a site with `HTTPS=1`."""
    settings.SECURE_SSL_REDIRECT = True
    return Client()


@pytest.mark.parametrize("path", ["/health/live", "/metrics"])
def test_who_asks_the_process_itself_is_not_sent_to_https(https: Client, path: str) -> None:
    assert https.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/v1/me", "/metrics/", "/metricsx", "/x/metrics"])
def test_everybody_else_is(https: Client, path: str) -> None:
    answer = https.get(path)

    assert (answer.status_code, answer["Location"]) == (301, f"https://testserver{path}")


def logged(formatter: str) -> str:
    """Return what an exception looks like that passed a frame with a secret in it."""
    written = io.StringIO()
    configurator = logging.config.DictConfigurator(django_settings.LOGGING)
    handler = logging.StreamHandler(written)
    handler.setFormatter(
        configurator.configure_formatter(django_settings.LOGGING["formatters"][formatter])
    )
    log = logging.getLogger("tests.faults")
    log.addHandler(handler)
    try:
        fail(password="".join(["hunter", "2"]))
    except RuntimeError:
        log.exception("it_failed")
    finally:
        log.removeHandler(handler)
    return written.getvalue()


def fail(password: str) -> None:
    raise RuntimeError("no reason")


@pytest.mark.parametrize("formatter", ["json", "console"])
def test_a_logged_exception_shows_where_but_no_local_variable(formatter: str) -> None:
    text = logged(formatter)

    assert "RuntimeError: no reason" in text
    assert "in fail" in text
    assert "hunter2" not in text
