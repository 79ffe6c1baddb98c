"""Context views as chat messages: a valid chat, whatever became of its turns."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.context import TOKENS_A_MESSAGE, render_conversation_context
from tests.conversations.test_context import (
    FENCE,
    FOCUSES,
    FOLDED,
    LONG,
    TWENTY,
    context,
    contexts,
    sql_turn,
    truly,
    turn,
)


def view(held, budget=100_000, focus="brief"):
    return render_conversation_context(held, focus, budget, "messages")


def said(shown):
    return [(message["role"], message["content"]) for message in shown.messages]


def test_a_view_is_head_question_answer_and_what_was_built():
    shown = view(context([sql_turn(1), turn(2, "Per month?", "Up 6 %.")]))
    head, *turns = said(shown)
    assert head[0] == "user"
    assert head[1].startswith(f"<memory {FENCE}>\n")
    assert head[1].endswith(f"\n</memory {FENCE}>")
    assert turns == [
        ("user", "Revenue of the north?"),
        ("assistant", "North is 4.1 M."),
        ("user", '[t1.1] sql "Revenue"\n'),
        ("user", "Per month?"),
        ("assistant", "Up 6 %."),
    ]
    assert shown.text == ""


def test_the_cache_prefix_is_the_first_message():
    shown = view(FOLDED)
    assert shown.cache_prefix == shown.messages[0]["content"]
    assert shown.cache_prefix_account()["tokens"] == truly(shown.cache_prefix)


def test_what_is_left_out_is_a_users_message():
    shown = view(TWENTY, view(TWENTY).tokens - 1)
    assert said(shown)[1] == ("user", "(t1-t5 left out for space)\n")
    assert said(shown)[2] == ("user", "Revenue of the north?")


def test_an_empty_view_has_no_messages():
    for shown in (view(context()), view(TWENTY, 20)):
        assert (shown.messages, shown.tokens, shown.cache_prefix) == ([], 0, "")


def test_the_answer_before_survives_with_the_newest_question():
    held = context([turn(1, answer="Shall I delete it?"), turn(2, "yes", "word " * 200)])
    label = view(context([turn(1)])).tokens - sum(turn(1).tokens[2:4]) - 2 * TOKENS_A_MESSAGE
    for budget in range(label + 60, view(held).tokens):
        shown = said(view(held, budget))
        assert ("assistant", "Shall I delete it?") in shown
        assert ("user", "yes") in shown


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"status": "stopped", "answer": "North"}, "(stopped): North"),
        ({"status": "stopped", "answer": ""}, "(stopped):"),
        ({"status": "failed", "answer": "", "error_code": "timeout"}, "(failed: timeout):"),
        ({"status": "pending", "answer": ""}, "(pending):"),
        (
            {"status": "pending", "answer": "", "waiting_for": "approval"},
            "(pending, waiting for approval):",
        ),
    ],
)
def test_a_turn_that_is_not_complete_is_answered_by_its_status(fields, content):
    shown = view(context([turn(1, "Why?", **fields), turn(2, "And now?")]))
    assert said(shown)[1:4] == [("user", "Why?"), ("assistant", content), ("user", "And now?")]


def test_a_complete_turn_without_an_answer_has_no_assistant_message():
    shown = view(context([turn(1, "Why?", ""), turn(2, "And now?", "Well.")]))
    assert said(shown)[1:] == [("user", "Why?"), ("user", "And now?"), ("assistant", "Well.")]


@settings(max_examples=150, deadline=None)
@given(held=contexts(), budget=st.integers(0, 700), focus=st.sampled_from(FOCUSES))
def test_tokens_are_those_of_the_contents_and_four_a_message(held, budget, focus):
    shown = view(held, budget, focus)
    assert shown.tokens == sum(truly(content) + 4 for _, content in said(shown))
    assert shown.tokens <= budget


@pytest.mark.parametrize("held", [TWENTY, FOLDED, LONG], ids=["twenty", "folded", "long"])
@pytest.mark.parametrize("focus", FOCUSES)
def test_no_budget_is_ever_exceeded(held, focus):
    whole = view(held, focus=focus).tokens
    for budget in [*range(500), *range(500, whole, 29), whole - 1, whole, whole + 1]:
        shown = view(held, budget, focus)
        assert shown.tokens == sum(truly(content) + 4 for _, content in said(shown)) <= budget


@settings(deadline=None)
@given(held=contexts(), budget=st.integers(0, 700) | st.just(100_000))
def test_every_view_is_a_valid_chat(held, budget):
    messages = said(view(held, budget))
    roles = [role for role, _ in messages]
    assert set(roles) <= {"user", "assistant"}
    assert roles[:1] in ([], ["user"])
    assert ("assistant", "assistant") not in pairwise(roles)
    assert all(content.strip() for _, content in messages)


@settings(deadline=None)
@given(held=contexts(), budget=st.integers(0, 700), focus=st.sampled_from(FOCUSES))
def test_every_unfolded_position_is_shown_or_left_out_once(held, budget, focus):
    shown = view(held, budget, focus)
    left_out = [n for span in shown.left_out for n in range(span["from"], span["to"] + 1)]
    assert left_out + shown.positions == list(range(held.folded_through + 1, held.turn_count + 1))


def test_no_assistant_message_says_what_was_built():
    for focus in FOCUSES:
        assistant = [
            content for role, content in said(view(TWENTY, focus=focus)) if role == "assistant"
        ]
        assert assistant == ["North is 4.1 M."] * 20
