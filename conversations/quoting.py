"""Stored text as a context view may show it: data, with nothing in it that passes for a marker.

A view's markers are its tags (`<memory …>`, `<facts>`), the labels of turns and artifacts
(`[t7] you: `, `[t7.1] `), the fence word, and the marks of what was left out. What looks like one
of them, in any width or style that Unicode calls the same, has its bracket replaced by one that no
marker has. What nobody sees is taken out, and so are base64 and what is very long, with a mark.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
import regex

ONE_LINE_CHARS = 200

# What is left out is never counted, it may be megabytes: measured on SQL, and on random base64.
_CHARS_A_TOKEN = 4.0
_BASE64_CHARS_A_TOKEN = 1.5

_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
# Controls, overrides of the direction of writing, fillers, and bytes hidden in tags or in rows of
# variation selectors. Joiners stay, scripts and emoji need them, and flags are made of tags.
_INVISIBLE = regex.compile(
    "\U0001f3f4[\U000e0030-\U000e007a]{1,6}\U000e007f(*SKIP)(*FAIL)"
    f"|(?<=[{_SELECTORS}])[{_SELECTORS}]+"
    rf"|[[\p{{Cc}}--[\t\n]][\p{{DI}}--[\u200c\u200d{_SELECTORS}]]]+",
    regex.VERSION1,
)
_PRINTABLE_YET_UNSEEN = re.compile(
    f"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0{_SELECTORS}]"
)
_SKIPPED = regex.compile(r"[\p{M}\p{DI}]")  # what doesn't keep two words from looking alike
_BLANKS = re.compile(r"\s+")

# A bracket of ours, or one that Unicode calls the same, and enough of what follows to tell.
_TAG = re.compile(r"[<＜﹤](?=\s*([^<＜﹤]{0,40}))")
_BRACKETS = r"\[(［﹇（﹙︵⁽₍"
_BRACKET = re.compile(f"[{_BRACKETS}]")
_LABEL = re.compile(
    rf"^((?:[^\S\n]|[\u200c\u200d{_SELECTORS}])*)([{_BRACKETS}])(?=([^\n]{{0,20}}))", re.MULTILINE
)
_LABEL_ANYWHERE = re.compile(rf"()([{_BRACKETS}])(?=(.{{0,20}}))")
_TAG_NAME = re.compile(r"\s*(?:/\s*)?(?:memory|facts|summary|built)\b", re.IGNORECASE)
_CLOSING_TAG_NAME = re.compile(r"\s*/\s*memory\b", re.IGNORECASE)
_TURN_NUMBER = re.compile(r"t\d", re.IGNORECASE)
_CUT_MARK = re.compile(r"\((?=… (?:cut\)|[\d,]+ characters)|cut …\)|base64 data left out)")

_BASE64 = re.compile(
    r"data:[\w.+/-]*(?:;[\w=.+-]+)*,[^\s\"'`<>()\\]{64,}(?<![.,;:!?])"
    r"|(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/]{60,}\n){4,}[A-Za-z0-9+/]*={0,2}"
    r"|(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{512,}={0,2}"
)
_DIGIT = re.compile("[0-9]")
_GRAPHEME = regex.compile(r"\X")
_GRAPHEME_LOOK_BACK_CHARS = 256


class Part(NamedTuple):
    """Text as it is shown, and how many characters of base64 and of the rest are not."""

    text: str
    base64_chars: int = 0
    over_chars: int = 0

    def missing_tokens(self) -> int:
        """Return an estimate of what is left out."""
        estimate = self.base64_chars / _BASE64_CHARS_A_TOKEN + self.over_chars / _CHARS_A_TOKEN
        return max(1, round(estimate)) if estimate else 0


def quoted(text: str, fence: str) -> str:
    """Return stored text as it may stand in a view."""
    return without_base64(_escaped(text, fence)).text


def quoted_part(text: str, fence: str, max_chars: int) -> Part:
    """Return stored text as it may stand in a view, in about `max_chars`, its end marked if cut."""
    # Of megabytes the beginning will do, unless most of it is base64.
    for looked_at in (4 * max_chars, len(text)):
        shown = without_base64(_escaped(text[:looked_at], fence))
        unseen_chars = max(0, len(text) - looked_at)
        if not unseen_chars or len(shown.text) > 2 * max_chars:
            break
    if len(shown.text) <= max_chars:
        return shown
    kept = beginning_of(shown.text, max_chars)
    over = len(shown.text) - len(kept) + unseen_chars
    return Part(f"{kept} (… {over:,} characters left out)", shown.base64_chars, over)


def quoted_line(text: str, fence: str) -> str:
    """Return stored text as one line in which nothing can pass for a label, wherever it stands."""
    line = quoted(text, fence).replace("\n", " ")
    if _may_hold_label(line):
        line = _LABEL_ANYWHERE.sub(_escape_label, line)
    return line


def verbatim(text: str, fence: str) -> str:
    """Return text as it is, in which only what would close the memory is defused."""
    text = _without_fence(text, fence)
    if "<" in text or not text.isascii():
        text = _TAG.sub(lambda m: "‹" if _CLOSING_TAG_NAME.match(_read_as(m[1])) else m[0], text)
    return text


def quoted_json(value: Mapping[str, Any], fence: str) -> str:
    r"""Return one line of JSON that reads back as `value`.

    What may not stand in a view is written as `\u003c`, which JSON takes for the character.
    """
    text = orjson.dumps(value).decode()
    if not text.isascii() or not text.isprintable():
        text = _LINE_BREAKS.sub(_as_json, _INVISIBLE.sub(_as_json, text))
    if "<" in text or not text.isascii():
        text = _TAG.sub(lambda m: _as_json(m) if _TAG_NAME.match(_read_as(m[1])) else m[0], text)
    return text.replace(fence, f"{fence[0]}\\u{ord(fence[1]):04x}{fence[2:]}")


def _as_json(match: re.Match[str] | regex.Match[str]) -> str:
    utf16 = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{utf16[at : at + 4]}" for at in range(0, len(utf16), 4))


# --- Escaping -----------------------------------------------------------------------------


def _escaped(text: str, fence: str) -> str:
    # First of all: what is left where the fence stood must not pass for the end of a tag's name.
    text = _without_fence(_visible(text), fence).strip()
    if "<" in text or not text.isascii():
        text = _TAG.sub(lambda m: "‹" if _TAG_NAME.match(_read_as(m[1])) else m[0], text)
    if _may_hold_label(text):
        text = _LABEL.sub(_escape_label, text)
    if "(…" in text or "(cut …" in text or "(base64" in text:
        text = _CUT_MARK.sub("⟨", text)
    return text


def _may_hold_label(text: str) -> bool:
    if text.isascii():
        return "[t" in text or "(t" in text or "[T" in text or "(T" in text
    return _BRACKET.search(text) is not None


def _visible(text: str) -> str:
    # Nearly always, and much faster.
    if text.replace("\n", " ").isprintable() and (
        text.isascii() or not _PRINTABLE_YET_UNSEEN.search(text)
    ):
        return text
    shown: str = _INVISIBLE.sub("", _LINE_BREAKS.sub("\n", text))
    return shown


def _read_as(text: str) -> str:
    """Return what `text` looks like to a reader who makes nothing of width, style or accents."""
    if text.isascii():
        return text
    plain: str = _SKIPPED.sub("", unicodedata.normalize("NFKD", text))
    return plain


def _escape_label(match: re.Match[str]) -> str:
    if not _TURN_NUMBER.match(_read_as(match[3])):
        return match[0]
    return match[1] + ("⟦" if match[2] in "[［﹇" else "⟨")


def _without_fence(text: str, fence: str) -> str:
    return text.replace(fence, "·" * len(fence)) if fence in text else text


# --- Leaving out --------------------------------------------------------------------------


def without_base64(text: str) -> Part:
    """Return `text` with a mark in place of each data URI and of what is base64 by its looks."""
    left_out: list[int] = []

    def mark(match: re.Match[str]) -> str:
        run = match[0]
        if not (run.startswith("data:") or _DIGIT.search(run)):
            return run
        left_out.append(len(run))
        return f"(base64 data left out, {len(run):,} characters)"

    if _has_long_word(text):
        text = _BASE64.sub(mark, text)
    return Part(text, sum(left_out))


def _has_long_word(text: str) -> bool:
    """Whether sixty characters stand together without a space: all base64 does."""
    at = 0
    while (end := at + 60) <= len(text):
        at = text.rfind(" ", at, end) + 1
        if not at:
            return True
    return False


def beginning_of(text: str, max_chars: int) -> str:
    """Return the beginning of `text` in at most `max_chars`, never cut inside a grapheme."""
    if max_chars >= len(text):
        return text
    if text[max_chars - 1 : max_chars + 1].isascii():
        return text[:max_chars].rstrip()
    end = start = max(0, max_chars - _GRAPHEME_LOOK_BACK_CHARS)
    for grapheme in _GRAPHEME.finditer(text, start):
        if grapheme.end() > max_chars:
            break
        end = grapheme.end()
    return text[:end].rstrip()


def ending_of(text: str, max_chars: int) -> str:
    """Return the end of `text` in at most `max_chars`, never begun inside a grapheme."""
    begin = len(text) - max_chars
    if begin <= 0:
        return text
    for grapheme in _GRAPHEME.finditer(text, max(0, begin - _GRAPHEME_LOOK_BACK_CHARS)):
        if grapheme.start() >= begin:
            return text[grapheme.start() :].lstrip()
    return ""


def one_line(text: str, max_chars: int = ONE_LINE_CHARS) -> str:
    """Return `text` in one line of at most `max_chars`, "…" standing for the rest."""
    line = _BLANKS.sub(" ", text).strip()
    return line if len(line) <= max_chars else beginning_of(line, max_chars) + "…"
