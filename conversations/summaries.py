"""Running summaries: what a summariser is given, what it returns, and what is taken for one.

Pure. A summary ("notes") is lines under headings, each ending with the turns it is about:

    Goals:
    - Revenue by region in 2026 [t1] [t4]
    Agreed:
    - active customer: ordered in the last 90 days [t5]

It will stand in every view of its thread and be the base of the next one, so what a model answers
is taken only if `fault_of` finds nothing in it; else nothing is folded. Nothing is mended on the
way: only blanks around the text, a code fence around all of it, and a model's thinking before it
are taken off (`cleaned`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

import regex

from conversations.folding import FoldTurn
from conversations.quoting import quoted

HEADINGS: Final = ("Goals", "Agreed", "Found", "Built", "Open", "Preferences")

# Why there is no summary. The codes are stable: events, metrics and documents name them.
FAILURES: Final[Mapping[str, str]] = {
    # The call
    "connection": "The server could not be reached, or broke off in the middle of its answer.",
    "timeout": "The whole answer was not there within SUMMARY_TIMEOUT_SECONDS.",
    "rate_limited": "The server answered 429: too many calls, or no quota left.",
    "unauthorized": "The server answered 401 or 403: OPENAI_API_KEY is missing, wrong or expired.",
    "bad_request": "Another 4xx: the server does not know the model, or refuses a parameter.",
    "provider_error": "The server answered 5xx, or 200 with an error in it.",
    "invalid_response": "The answer is no chat completion, is over 1 MB, or can't be stored.",
    # What was answered
    "truncated": "The model did not finish by itself (finish_reason is not `stop`).",
    "refused": "The model, or a filter on its way, refused.",
    "empty": "Nothing is said in it: blank, headings only, or `none`.",
    "fence_inside": "It holds the thread's fence word, or what looks like a tag of ours.",
    "too_long": "More than 1.5 times SUMMARY_MAX_WORDS, also when asked to be shorter.",
    "no_reference": "It has neither a heading of ours nor a turn that is there, such as [t3].",
    "shrunk": "Less than 40 % is left of notes that were within the limit.",
    # The fold itself
    "worker_lost": "The worker that made it ended, or was ended, without a word.",
    "turns_missing": "The turns to be folded could not be read.",
    "database": "PostgreSQL refused or did not answer: the log has `fold_broke`.",
    "unexpected": "A fault of ours: the log has `fold_broke`, with the place.",
}
# Those that may have passed a few seconds later.
PASSING_FAILURES: Final = frozenset({"connection", "timeout", "rate_limited", "provider_error"})


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What one fold is to be made of.

    `summary` stands for turns 1 to `folded_through` ("" at first); `turns` follow it without a
    gap, oldest first; `amended` are turns within it that were finished after they were folded.
    `fence` is the word that marks this thread's quoted text.
    """

    thread_id: uuid.UUID
    fence: str
    summary: str
    folded_through: int
    turns: Sequence[FoldTurn]
    amended: Sequence[FoldTurn] = ()

    @property
    def through(self) -> int:
        """The last turn that the new summary stands for."""
        return self.turns[-1].position if self.turns else self.folded_through


@dataclass(frozen=True, slots=True)
class Summary:
    """A new running summary, and how it came about.

    `model` is "extractive" for the offline summariser; `prompt_source` "langfuse", "built_in" or
    "none". `prompt_problem` says why Langfuse's prompt was not used, or is an old one:
    "langfuse_unreachable", "langfuse_unauthorized", "prompt_not_found", "prompt_unreadable",
    "prompt_lacks_variable: turns", "prompt_misplaces_variable: turns"; "" where all is well.
    Token counts are the provider's, over all `calls` that were made.
    """

    text: str
    model: str
    prompt_name: str = ""
    prompt_version: str = ""
    prompt_source: str = "none"
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    prompt_problem: str = ""


class SummarizationFailed(Exception):
    """There is no summary: why, as a stable `code` that says nothing of what was said.

    `code` is one of `FAILURES`; `detail` is for operators: "http_400 unsupported_parameter". The
    token counts are those of the calls that were made in vain, to `model`. `prompt_problem` as
    in `Summary`.
    """

    def __init__(
        self,
        code: str,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        calls: int = 0,
        cached_input_tokens: int = 0,
        model: str = "",
        detail: str = "",
        prompt_problem: str = "",
    ) -> None:
        super().__init__(code)
        self.code = code
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.calls = calls
        self.cached_input_tokens = cached_input_tokens
        self.model = model
        self.detail = detail
        self.prompt_problem = prompt_problem


@dataclass(frozen=True, slots=True)
class SummaryLimits:
    """How long notes should be, in words as `word_count` counts them, and the most they may be.

    `most_chars` holds against what has few words and many characters.
    """

    max_words: int = 220

    @property
    def most_words(self) -> int:
        """More than this is `too_long`."""
        return self.max_words * 3 // 2

    @property
    def most_chars(self) -> int:
        """More than this is `too_long` however it is counted: about 3.3 times plain English."""
        return self.most_words * 20


# --- Reading notes ------------------------------------------------------------------------

_HEADING = re.compile(
    r"\s{0,3}(?:#{1,6}\s*)?(?:[0-9]{1,2}[.)]\s+)?(?P<mark>\*{1,3}|_{1,3})?"
    rf"(?P<name>{'|'.join(HEADINGS)})\s*(?P<colon>[:：])?(?(mark)(?:\*{{1,3}}|_{{1,3}}))\s*"
    r"(?P<late_colon>[:：])?\s*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_BULLET = re.compile(r"\A\s*(?:[-*•‣–+]|[0-9]{1,3}[.)])\s+")
_REFERENCE = re.compile(
    r"\[t[0-9]{1,9}(?:\.[0-9]{1,9})?(?:\s*[,;–-]\s*t?[0-9]{1,9}(?:\.[0-9]{1,9})?)*\]",
    re.IGNORECASE,
)
_TURN = re.compile(r"t?([0-9]+)(?:\.[0-9]+)?", re.IGNORECASE)
_NOTHING = frozenset(
    {
        "none", "nothing", "n/a", "na", "-", "–", "—", "nil", "null", "empty", "nothing yet",
        "none yet", "ninguno", "ninguna", "nada", "aucun", "aucune", "rien", "keine", "keiner",
        "nichts", "nenhum", "nenhuma", "nessuno", "nessuna", "niente", "geen", "无", "無", "なし",
        "없음", "нет",
    }
)  # fmt: skip


class NoteLine(NamedTuple):
    """A line of notes: `NoteLine("Goals", "Revenue by region", (1, 4))`.

    `heading` is "" before the first; `text` lacks the bullet and the references, and is never
    empty; `turns` are those it names, in its order.
    """

    heading: str
    text: str
    turns: Sequence[int]


def note_lines(notes: str) -> list[NoteLine]:
    """Return what the lines of notes say, those left out that say nothing ("Open: none")."""
    heading, lines = "", []
    for line in notes.splitlines():
        name, text = _without_heading(line)
        heading = name or heading
        turns = tuple(int(turn[1]) for found in _REFERENCE.findall(text)
                      for turn in _TURN.finditer(found[1:-1]))  # fmt: skip
        said = _BULLET.sub("", _REFERENCE.sub("", text), count=1) if text else ""
        said = said.strip()
        if said and (turns or said.rstrip(".。").casefold() not in _NOTHING):
            lines.append(NoteLine(heading, said, turns))
    return lines


def _without_heading(line: str) -> tuple[str, str]:
    """Return a line's heading, if it is or begins with one, and the rest of the line."""
    found = _HEADING.fullmatch(line)
    if not found or (found["rest"] and not (found["colon"] or found["late_colon"])):
        return "", line
    return found["name"].capitalize(), found["rest"]


# --- Counting words -----------------------------------------------------------------------

# Scripts that put no spaces between words, with their punctuation: about two characters a word,
# or four letters.
_TWO_A_WORD = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303f\u30fc\uff00-\uffef]")
_FOUR_A_WORD = regex.compile(r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]")
# So that nothing counts for little by having no spaces.
_WORD_CHARS = 12


def word_count(notes: str) -> int:
    r"""Return about how many words notes say, headings and references not counted.

    >>> word_count("Goals:\n- Revenue by region [t1]"), word_count("各地区收入")
    (3, 3)
    """
    return sum(words_of(line.text) for line in note_lines(notes))


def words_of(text: str) -> int:
    """Return about how many words a text has, in any script; a long one counts as several."""
    spaced, two = _TWO_A_WORD.subn(" ", text)
    spaced, four = _FOUR_A_WORD.subn(" ", spaced)
    spaced_words = sum(ceil(len(word) / _WORD_CHARS) for word in spaced.split())
    return spaced_words + ceil(int(two) / 2) + ceil(int(four) / 4)


# --- What is taken for a summary ----------------------------------------------------------

_CODE_FENCE_OPENS = re.compile(r"```[\w-]{0,20}[ \t]{0,20}\n")
_THINKING = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
_END_OF_THINKING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
# PostgreSQL takes no NUL, UTF-8 no half of a surrogate pair.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

# How a refusal begins. Notes begin with a heading, so what an honest line says is never looked at.
_REFUSALS = (
    r"(?:i ?['’]?a?m |we ?['’]?a?re )?(?:(?:really|very|so|truly) )?sorry(?:\W*$|[,.;:!…—–-])",
    r"(?:i ?['’]?a?m |we ?['’]?a?re )?(?:(?:really|very|so|truly) )?sorry (?:but|i|we|for|that)\b",
    r"(?:my |i )?apologi[sz]e?s?\b",
    r"(?:unfortunately|regrettably|regretfully),? (?:i|we)\b",
    r"(?:i|we) (?:can ?not|can['’]?t|could ?n['’]?t|will not|won['’]?t|must decline)\b",
    r"(?:i|we) (?:do not|don['’]?t) (?:feel|have|think|want)\b",
    r"(?:i ?['’]?a?m|we ?['’]?a?re) (?:not able|unable|not allowed|not permitted)\b",
    r"as an? (?:ai|artificial|large language|language model|assistant)\b",
    r"lo (?:siento|lamento)\b|lamentablemente\b|no (?:puedo|me es posible)\b",
    r"como (?:una? )?(?:ia|modelo)\b",
    r"(?:je suis )?(?:vraiment )?désolée?\b|je (?:ne peux|ne suis pas|regrette)\b|en tant qu['’e]",
    r"(?:es )?tut mir (?:sehr )?leid\b|(?:ich )?entschuldig|leider (?:kann|darf) ich\b",
    r"ich (?:kann|darf) (?:\w+ ){0,4}nicht\b|als (?:ki|sprachmodell)\b",
    r"desculpe|sinto muito\b|infelizmente\b|não (?:posso|consigo)\b",
    r"mi dispiace\b|purtroppo\b|non posso\b",
    r"het spijt me\b|helaas\b|ik kan (?:\w+ ){0,4}niet\b",
    r"przykro mi\b|niestety\b|üzgünüm\b",
    r"(?:к сожалению|извините|простите)\b|я не могу\b",
    r"[很非十真]?[常分的]?(?:抱歉|对不起|對不起)|我[无無]法|我不[能會会]",
    r"作[为為](?:一[个個名])?(?:ai|人工智[能慧]|助手)",
    r"(?:大変|誠に)?(?:申し訳|すみません|恐れ入り)|(?:その|この)?ご?(?:要望|依頼)にはお?(?:応え|答え)",
    r"죄송|미안|도와드릴 수 없",
    r"آسف|عذرا|لا (?:أستطيع|يمكنني)|क्षमा करें|ขออภัย|ขอโทษ|xin lỗi|maaf\b",
)
_REFUSAL = re.compile(rf"[\W_]*(?:{'|'.join(_REFUSALS)})", re.IGNORECASE)


def cleaned(text: str) -> str:
    """Return a model's answer without blanks, thinking before it, and a code fence around it."""
    text = _without_thinking(text).strip()
    opens = _CODE_FENCE_OPENS.match(text)
    if opens and text.endswith("```") and len(text) >= opens.end() + len("```"):
        return text[opens.end() : -len("```")].strip()
    return text


def _without_thinking(text: str) -> str:
    end = _END_OF_THINKING.search(text)
    if _THINKING.match(text):
        return text[end.end() :] if end else ""
    # Some servers' chat templates hold the opening tag, and answer without it.
    if end and not _has_heading(text[: end.start()]):
        return text[end.end() :]
    return text


def fault_of(notes: str, request: SummaryRequest, limits: SummaryLimits) -> str:
    """Return why cleaned text is no summary of `request`, as a code; "" if it is one."""
    return next(_faults(notes, request, limits), "")


def _faults(notes: str, request: SummaryRequest, limits: SummaryLimits) -> Iterator[str]:
    if _UNSTORABLE.search(notes):
        yield "invalid_response"
    if not word_count(notes):
        yield "empty"
    if is_refusal(notes):
        yield "refused"
    if _holds_fence(notes, request.fence):
        yield "fence_inside"
    if is_too_long(notes, limits):
        yield "too_long"
    if not _has_heading(notes) and not _names_turn(notes, request.through):
        yield "no_reference"
    if is_shrunk(notes, request.summary, limits):
        yield "shrunk"


def is_too_long(notes: str, limits: SummaryLimits) -> bool:
    """Whether notes are longer than they may be."""
    return len(notes) > limits.most_chars or word_count(notes) > limits.most_words


def is_shrunk(notes: str, previous: str, limits: SummaryLimits) -> bool:
    """Whether notes lost most of what those before them said, which were not too long."""
    before = word_count(previous)
    return 0 < before <= limits.max_words and word_count(notes) * 10 < before * 4


def is_refusal(notes: str) -> bool:
    """Whether a text begins as refusals do, in any of some twenty languages."""
    first_line = notes.lstrip().partition("\n")[0]
    return not _without_heading(first_line)[0] and _REFUSAL.match(first_line) is not None


def _holds_fence(notes: str, fence: str) -> bool:
    # Quoting finds our tags in any width or style that Unicode calls the same.
    return fence in notes or quoted(notes, fence).count("‹") > notes.count("‹")


def _has_heading(notes: str) -> bool:
    return any(_without_heading(line)[0] for line in notes.splitlines())


def _names_turn(notes: str, through: int) -> bool:
    return any(1 <= turn <= through for line in note_lines(notes) for turn in line.turns)
