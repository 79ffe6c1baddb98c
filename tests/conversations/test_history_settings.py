"""What the settings of long-term history may be, and what is said of others."""

from __future__ import annotations

import pytest

from config import checks
from config.environment import Environment, word_lists


def read(text):
    class Env(Environment):
        ENVIRON = {"SESSION_TOPICS": text}

    return Env(SESSION_TOPICS=(word_lists, {}))("SESSION_TOPICS")


def test_topics_are_lists_of_words():
    text = " ingresos = ingreso, ingresos netos ;payroll=wages; "

    assert read(text) == {"ingresos": ("ingreso", "ingresos netos"), "payroll": ("wages",)}


def test_empty_they_are_the_built_in_ones():
    assert read("") == {}


@pytest.mark.parametrize("text", ["ingresos", "=a", "a=", "a=,;b=c"])
def test_other_texts_are_refused_in_a_sentence(text):
    with pytest.raises(SystemExit, match="must be lists of words, as in revenue=revenue,sales;"):
        read(text)


def test_the_table_has_a_name_that_dynamodb_takes():
    assert list(checks.history_table()) == []


@pytest.mark.parametrize("name", ["", "ab", "a b c", "naïve", "x" * 256, "abc\n"])
def test_another_name_of_the_table_is_an_error(settings, name):
    settings.HISTORY_TABLE = name

    [message] = checks.history_table()
    assert message.id == "rethread.E012"


def test_more_sessions_can_not_be_told_than_are_read(settings):
    settings.HISTORY_SESSIONS, settings.HISTORY_CONTEXT_SESSIONS = 3, 4

    [message] = checks.ascending_numbers()
    assert message.id == "rethread.E004"
