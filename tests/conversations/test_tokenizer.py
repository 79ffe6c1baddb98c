"""Token counts: what tiktoken says, offline, and cheaper where two counts share a middle."""

from __future__ import annotations

import os

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conversations import tokenizer
from conversations.tokenizer import (
    count_framed,
    count_tokens,
    encoding,
    first_tokens,
    last_tokens,
)

# What parts and joins tokens: cases, blanks, line ends, apostrophes, digits, marks, emoji.
TRICKY = st.text(alphabet="ab Z'sd.,/-\n\r\t 12é\u0301你😀\u200d<[(|\"`_", max_size=60)
WORDS = st.lists(st.sampled_from(["the", "North", "4.1", "it's", "SELECT", "\n", "é", "—"]))


def truly(text: str) -> int:
    return len(encoding().encode(text, disallowed_special=()))


def test_the_vocabulary_is_the_one_it_is_named_for():
    assert encoding().name == tokenizer.NAME == "o200k_base"
    assert encoding().encode("Rethread remembers.") == [49, 1068, 1293, 92722, 13]


def test_loading_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/somewhere")
    tokenizer._load()
    assert os.environ["TIKTOKEN_CACHE_DIR"] == "/somewhere"
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    tokenizer._load()
    assert "TIKTOKEN_CACHE_DIR" not in os.environ


@pytest.mark.parametrize(
    "text",
    ["", "你好世界" * 1000, "สวัสดีชาวโลก" * 200, "👨‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿" * 50, "<|endoftext|>", " \n\t" * 99],
    ids=["empty", "Chinese", "Thai", "emoji", "special token", "blanks"],
)
def test_counts_what_tiktoken_counts(text):
    assert count_tokens(text) == truly(text)


def test_counts_a_long_text_exactly_where_it_has_words():
    text = "SELECT region, SUM(amount) FROM orders WHERE status = 'paid'\n" * 2_000
    assert len(text) > 100_000
    assert count_tokens(text) == truly(text)


def test_takes_a_million_blanks():
    assert count_tokens(" " * 1_000_000) > 0


@settings(deadline=None)
@given(before=TRICKY, text=TRICKY | WORDS.map(" ".join), after=TRICKY)
@example(before="[t1] you: ", text="Shall I delete it?", after="\n")
@example(before="[t1] you: ", text="no gap", after="\n")
def test_a_framed_count_is_the_count_of_the_whole_and_of_the_text(before, text, after):
    assert count_framed(before, text, after) == (truly(before + text + after), truly(text))


@settings(deadline=None)
@given(label=st.sampled_from("[(<`-"), pieces=st.lists(TRICKY, min_size=1))
def test_pieces_that_start_in_ascii_and_end_in_a_newline_add_up(label, pieces):
    lines = [f"{label}{piece}\n" for piece in pieces]
    assert sum(map(count_tokens, lines)) == truly("".join(lines))


@settings(deadline=None)
@given(text=st.text(), tokens=st.integers(-1, 20))
def test_the_first_tokens_are_a_beginning_in_whole_characters(text, tokens):
    assert text.startswith(first_tokens(text, tokens))
    assert last_tokens(text, tokens) == "" or text.endswith(last_tokens(text, tokens))


def test_first_and_last_tokens_hold_as_many_as_asked_for():
    text = "North leads with 4.1 M, then South with 3.2 M."
    assert count_tokens(first_tokens(text, 5)) == 5
    assert count_tokens(last_tokens(text, 5)) == 5
    assert first_tokens(text, 500) == last_tokens(text, 500) == text


def test_a_cut_never_leaves_half_a_character():
    assert regex.fullmatch("[😀你]*", first_tokens("😀你" * 50, 7))
    assert regex.fullmatch("[😀你]*", last_tokens("😀你" * 50, 7))
