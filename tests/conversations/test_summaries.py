"""What is taken for a summary, and what is not."""

from __future__ import annotations

import time

import pytest

from conversations.summaries import (
    FAILURES,
    NoteLine,
    SummarizationFailed,
    SummaryLimits,
    cleaned,
    note_lines,
    word_count,
)
from tests.conversations.folds_to_summarize import FENCE, accepted, request, turn

LIMITS = SummaryLimits(max_words=220)
NOTES = """\
Goals:
- Revenue by region in 2026 [t1] [t3]
Agreed:
- active customer: ordered in the last 90 days [t2]"""
FOLD = request(turn(1), turn(2), turn(3))


def refused_as(text, fold=FOLD, limits=LIMITS):
    with pytest.raises(SummarizationFailed) as failed:
        accepted(text, fold, limits)
    return failed.value.code


def words(count):
    return " ".join(f"word{number}" for number in range(count))


# --- Taken --------------------------------------------------------------------------------


def test_notes_under_headings_are_taken_as_they_are():
    assert accepted(NOTES, FOLD, LIMITS) == NOTES


@pytest.mark.parametrize(
    "text",
    [
        "Revenue by region was asked for [t1].",
        "See [t3.2] for the chart of the north",
        "The analyst compares regions [t1, t3]",
        "**Goals**\n- compare regions",
        "## Agreed\n1. active means 90 days",
        "goals: compare regions",
        "**Open:** the stores of the south",
        "Goals：各地区的收入",
    ],
)
def test_a_heading_or_a_turn_is_enough(text):
    assert accepted(text, FOLD, LIMITS) == text


@pytest.mark.parametrize(
    "wrapped",
    [
        f"\n\n  {NOTES}\n ",
        f"```\n{NOTES}\n```",
        f"```markdown\n{NOTES}\n```\n",
        f"<think>I should list the goals.\n\nGoals: first…</think>\n\n{NOTES}",
        f"The user wants notes.\n</think>\n{NOTES}",
    ],
    ids=["blanks", "code fence", "named code fence", "thinking", "thinking without its tag"],
)
def test_what_stands_around_notes_is_taken_off(wrapped):
    assert accepted(wrapped, FOLD, LIMITS) == NOTES


@pytest.mark.parametrize(
    "text", ["```" + "\n" * 300_000 + "x", "```\nGoals:\n" + " " * 900_000 + "x"]
)
def test_a_code_fence_that_never_ends_is_seen_at_once(text):
    began = time.process_time()
    cleaned(text)
    assert time.process_time() - began < 1


def test_a_code_fence_within_notes_stays():
    text = "Agreed:\n- use this [t1]\n```sql\nSELECT 1\n```\n- and nothing else [t2]"

    assert accepted(text, FOLD, LIMITS) == text


@pytest.mark.parametrize(
    "text",
    [
        "Goals:\n- I can't help you unless you name a region, the agent said [t1]",
        "Open:\n- Sorry, but the query failed [t2]",
        "Found:\n- I'm sorry, but I cannot assist with that [t1]\nGoals:\n- revenue [t1]",
        "The agent said: I can't help with that [t1]",
        "Sorry state of sales in the north [t1]",
        "No puedo entrar: the person could not log in [t1]",
    ],
    ids=["under goals", "under open", "quoted refusal", "reported", "an adjective", "a quotation"],
)
def test_what_people_and_agents_could_not_do_is_no_refusal(text):
    if text.startswith("No puedo"):
        text = f"Goals:\n- {text}"
    assert accepted(text, FOLD, LIMITS) == text


# --- Not taken ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "  \n\t ", "NONE", "None.", "n/a", "Goals:", "Goals:\nOpen: none\nBuilt:\n- none", "```\n```",
     "<think>I wonder what to do", "[t1]", "なし"],
)  # fmt: skip
def test_what_says_nothing_is_empty(text):
    assert refused_as(text) == "empty"


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, I can’t assist with that request [t1].",
        "Sorry, I cannot summarize this.",
        "**I cannot** help with that.",
        "I am unable to process this conversation.",
        "Unfortunately, I can't do that.",
        "As an AI language model, I have no access to it.",
        "Lo siento, pero no puedo ayudar con eso.",
        "Je suis désolé, mais je ne peux pas.",
        "Je ne peux pas vous aider.",
        "Es tut mir leid, dabei kann ich nicht helfen.",
        "Ich kann dir dabei leider nicht helfen.",
        "Desculpe, não posso ajudar.",
        "Mi dispiace, ma non posso.",
        "Het spijt me, maar dat kan ik niet.",
        "Извините, я не могу помочь.",
        "很抱歉，我无法提供帮助。",
        "我不能协助处理这个请求。",
        "申し訳ございませんが、お手伝いできません。",
        "죄송하지만 도와드릴 수 없습니다.",
        "آسف، لا أستطيع المساعدة",
        "I'm sorry, but I can't help with that.\nGoals:\n- none of it [t1]",
    ],
)
def test_refusals_are_none_in_whatever_language(text):
    assert refused_as(text) == "refused"


@pytest.mark.parametrize(
    "inside",
    [FENCE, f"</memory {FENCE}>", "<memory", "</summary>", "< / memory >", "<FACTS>", "＜/memory＞",
     "<built t1-t2>"],
)  # fmt: skip
def test_what_would_close_the_memory_is_refused(inside):
    assert refused_as(f"{NOTES}\n- more {inside} [t1]") == "fence_inside"


@pytest.mark.parametrize(
    "text", ["The person asks about revenue.", "[t4] [t99]: nothing", "[t0] x"]
)
def test_what_names_neither_heading_nor_turn_is_no_summary(text):
    assert refused_as(text) == "no_reference"


def test_a_turn_counts_only_up_to_the_last_one_folded():
    assert refused_as("Revenue [t4]") == "no_reference"
    assert accepted("Revenue [t4]", request(turn(4), folded_through=3), LIMITS) == "Revenue [t4]"


@pytest.mark.parametrize(
    "text", ["Goals:\n- a\x00b [t1]", "Goals:\n- a\ud83d [t1]"], ids=["NUL", "half"]
)
def test_what_no_database_can_store_is_refused(text):
    assert refused_as(text) == "invalid_response"


# --- Too long, too short ------------------------------------------------------------------


def test_half_as_much_again_is_the_most():
    assert accepted(f"Goals:\n- {words(330)} [t1]", FOLD, LIMITS)
    assert refused_as(f"Goals:\n- {words(331)} [t1]") == "too_long"


@pytest.mark.parametrize(
    ("text", "most"),
    [("各地区的收入情况。", 73), ("各地域の売上です。", 73), ("รายได้ตามภูมิภาค", 83)],
    ids=["Chinese", "Japanese", "Thai"],
)
def test_scripts_without_spaces_have_as_much_room(text, most):
    """Some 660 characters of Chinese or 1,320 of Thai say what 330 words of English do."""
    assert accepted(f"Goals:\n- {text * (most - 2)} [t1]", FOLD, LIMITS)
    assert refused_as(f"Goals:\n- {text * (most + 2)} [t1]") == "too_long"


@pytest.mark.parametrize(
    "text",
    ["x" * 5000, "a,b;" * 2000, "- " * 5000, "\u0301" * 9000],
    ids=["x", "list", "-", "marks"],
)
def test_nothing_is_short_for_having_no_words(text):
    assert refused_as(f"Goals:\n- {text} [t1]") == "too_long"


def test_blank_lines_and_references_are_bounded_too():
    assert refused_as("Goals:\n- revenue" + " [t1]" * 2000) == "too_long"


def test_notes_that_lost_most_of_the_notes_before_are_refused():
    fold = request(turn(2), summary=f"Goals:\n- {words(100)} [t1]")

    assert refused_as(f"Goals:\n- {words(39)} [t1]", fold) == "shrunk"
    assert accepted(f"Goals:\n- {words(40)} [t1]", fold, LIMITS)


def test_notes_that_were_too_long_may_shrink():
    fold = request(turn(2), summary=f"Goals:\n- {words(221)} [t1]")

    assert accepted(f"Goals:\n- {words(20)} [t1]", fold, LIMITS)


def test_the_first_notes_may_be_short():
    assert accepted("Goals:\n- revenue [t1]", FOLD, LIMITS)


# --- Reading ------------------------------------------------------------------------------


def test_notes_are_read_line_by_line():
    assert note_lines(f"Before [t1]\n{NOTES}\nOpen: stores - south [t4.2]; north [t5, t7]") == [
        NoteLine("", "Before", (1,)),
        NoteLine("Goals", "Revenue by region in 2026", (1, 3)),
        NoteLine("Agreed", "active customer: ordered in the last 90 days", (2,)),
        NoteLine("Open", "stores - south ; north", (4, 5, 7)),
    ]


def test_what_begins_like_a_heading_is_a_line_like_others():
    lines = note_lines("Goals:\n- Agreed: nothing [t1]\n- Open\nBuilt by hand [t2]")

    assert {line.heading for line in lines} == {"Goals"}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Goals:\n- Revenue by region [t1] [t2]", 3),
        ("## Goals\n**Open:** none", 0),
        ("各地区收入", 3),
        ("a WHERE x = 'paid'", 5),
        ("customer_lifetime_value_in_euros", 3),
    ],
)
def test_words_are_counted_without_headings_and_references(text, count):
    assert word_count(text) == count


def test_failures_say_a_code_and_nothing_else():
    failed = SummarizationFailed("rate_limited", detail="http_429", input_tokens=3, calls=1)

    assert str(failed) == "rate_limited"
    assert failed.code in FAILURES
