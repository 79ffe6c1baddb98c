"""What the settings of summaries may be, and what is said when they can't work."""

from __future__ import annotations

from typing import Any

import pytest

from config import checks
from config.environment import Environment, number_or_none


def ids(found: Any) -> list[str]:
    return [str(message.id) for message in found]


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0.0), ("0.7", 0.7), ("none", None), (" None ", None), ("", 0.2)]
)
def test_a_temperature_is_a_number_or_none(text: str, value: float | None) -> None:
    class Env(Environment):
        ENVIRON = {"SUMMARY_TEMPERATURE": text}

    assert Env(SUMMARY_TEMPERATURE=(number_or_none, 0.2))("SUMMARY_TEMPERATURE") == value


@pytest.mark.parametrize("text", ["warm", "-1", "nan", "inf", "0,2"])
def test_another_temperature_is_refused_in_a_sentence(text: str) -> None:
    class Env(Environment):
        ENVIRON = {"SUMMARY_TEMPERATURE": text}

    with pytest.raises(SystemExit, match="must be a number, 0 or more, or none"):
        Env(SUMMARY_TEMPERATURE=(number_or_none, 0.2))("SUMMARY_TEMPERATURE")


def test_the_defaults_are_well() -> None:
    assert ids(checks.summary_time()) == ids(checks.summary_servers()) == []


def test_two_calls_must_fit_in_what_waits_for_them(settings: Any) -> None:
    settings.SUMMARY_TIMEOUT_SECONDS = 42.5
    assert ids(checks.summary_time()) == []
    settings.SUMMARY_TIMEOUT_SECONDS = 43
    assert ids(checks.summary_time()) == ["rethread.E010"]
    settings.SUMMARY_TIMEOUT_SECONDS = 60
    assert ids(checks.summary_time()) == ["rethread.E010", "rethread.E010"]


@pytest.mark.parametrize("name", ["OPENAI_BASE_URL", "LANGFUSE_HOST"])
def test_an_address_without_its_scheme(settings: Any, name: str) -> None:
    setattr(settings, name, "localhost:11434/v1")

    assert ids(checks.summary_servers()) == ["rethread.E011"]


@pytest.mark.parametrize("name", ["LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"])
def test_half_of_langfuse(settings: Any, name: str) -> None:
    setattr(settings, name, "key")

    assert ids(checks.summary_servers()) == ["rethread.W006"]


@pytest.mark.parametrize(
    "name", ["SUMMARY_MAX_WORDS", "SUMMARY_MAX_OUTPUT_TOKENS", "SUMMARY_TIMEOUT_SECONDS"]
)
def test_a_limit_of_nothing(settings: Any, name: str) -> None:
    setattr(settings, name, 0)

    assert ids(checks.too_small_numbers()) == ["rethread.E003"]
