"""The offline summariser: notes put together from what turns say of themselves, without a model.

Pure and deterministic; the default where no key is set. Goals are the questions, Agreed the
definitions, Found the beginnings of answers, Built the artifacts, Open what was not completed;
Preferences come over from notes that a model wrote before. Everything is copied, nothing is
computed, and no text of a turn can pass for a heading or a reference. What there was no room for
is told in a line: `- (earlier ones left out) [t1-t7]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conversations.folding import FoldTurn
from conversations.quoting import beginning_of, one_line, quoted_line
from conversations.summaries import (
    HEADINGS,
    SummaryLimits,
    SummaryRequest,
    is_shrunk,
    note_lines,
    word_count,
    words_of,
)
from conversations.turns import Status

# What each heading keeps at least, as a share of all words, in the order in which they give way
# when there are too many: details are in the facts and in the artifact lines beside the notes,
# definitions stay longest.
_LEAST_SHARES: Final = (
    ("Found", 0.3), ("Built", 0.1), ("Goals", 0.2), ("Open", 0.1), ("Preferences", 0.1),
    ("Agreed", 0.0),
)  # fmt: skip
# Facts hold definitions whole.
_LINE_CHARS: Final = {"Goals": 120, "Found": 160, "Built": 120, "Open": 120, "Agreed": 120}
_COPIED_CHARS = 320
# One line never takes more than this share: dropping it must not leave too little.
_LINES_AT_LEAST = 5
_BUILT_A_TURN = 8
_REFERENCES_A_LINE = 3
# A fold adds at most this share of the words that it replaces: short turns would else be shorter
# than notes about them. So few words may always be said.
_SHARE_OF_TURNS: Final = 1 / 3
_LEAST_WORDS = 40
# Of a text that is longer the rest gives no more room.
_COUNTED_CHARS = 10_000
_LEFT_OUT = "(earlier ones left out)"
_NO_TEXT = "(no text)"
_NOTHING_SAID = "(nothing was said)"

_NOT_COMPLETE = (Status.PENDING, Status.FAILED, Status.STOPPED)
_STATUS = re.compile(rf"(?:{'|'.join(_NOT_COMPLETE)}): ")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？])|(?=\n)")
_SHORT_SENTENCE_CHARS = 30
# Marks of Markdown before the text of a line, and lines that hold no sentence.
_MARKUP = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]*|[-*+][ \t]+|\*\*(?=\S))", re.MULTILINE)
_NO_SENTENCE = re.compile(r"^[ \t]*(?:\||```|---).*$", re.MULTILINE)
_FIGURE = re.compile(r"[0-9]")
# Enough of a long text to find a line in.
_LOOKED_AT = 20


@dataclass(slots=True)
class _Line:
    """A line under a heading, and the turns it is about, in order."""

    heading: str
    text: str
    turns: Sequence[int]

    @property
    def key(self) -> str:
        """What two lines share that are about the same: a term, a question, else all of it."""
        text = self.text.casefold()
        if self.heading == "Agreed":
            return text.partition(": ")[0].strip("\"'“”«» ")
        return _STATUS.sub("", text, count=1) if self.heading == "Open" else text

    @property
    def last(self) -> int:
        """The last turn that it is about; 0 if it names none."""
        return max(self.turns, default=0)

    def __str__(self) -> str:
        shown = self.turns
        if self.text == _LEFT_OUT and len(shown) > 1:
            return f"- {self.text} [t{shown[0]}-t{shown[-1]}]"
        if len(shown) > _REFERENCES_A_LINE:
            shown = [shown[0], *shown[1 - _REFERENCES_A_LINE :]]
        return " ".join((f"- {self.text}", *(f"[t{turn}]" for turn in shown)))


def extractive_summary(request: SummaryRequest, limits: SummaryLimits) -> str:
    """Return the new notes of a fold, within the limits; every `SummaryRequest` has some.

    They have as many words as those before and a third of the turns that they replace, or 40.
    They are such that `summaries.fault_of` finds nothing, and the same for the same request.
    """
    notes = _Notes(request, limits).text(_words_for(request, limits))
    if is_shrunk(notes, request.summary, limits):
        notes = _Notes(request, limits, keep_retired=True).text(limits.max_words)
    return notes


def _words_for(request: SummaryRequest, limits: SummaryLimits) -> int:
    turns = (*request.amended, *request.turns)
    texts = (text[:_COUNTED_CHARS] for turn in turns for text in (turn.query, turn.answer))
    new = int(sum(map(words_of, texts)) * _SHARE_OF_TURNS)
    words = word_count(request.summary) + new
    return min(limits.max_words, max(_LEAST_WORDS, words))


class _Notes:
    """Notes that grow line by line: those before, amended turns, new turns."""

    def __init__(
        self, request: SummaryRequest, limits: SummaryLimits, *, keep_retired: bool = False
    ) -> None:
        self._fence = request.fence
        self._limits = limits
        self._line_words = max(1, limits.max_words // _LINES_AT_LEAST)
        self._keep_retired = keep_retired
        self._through = request.through
        self._lines: dict[tuple[str, str], _Line] = {}
        self._left_out: dict[str, _Line] = {}
        self._copy(request.summary)
        for turn in request.amended:
            self._settle(turn)
        for turn in (*request.amended, *request.turns):
            self._add(turn)

    def text(self, most_words: int) -> str:
        """Return the lines that fit, under their headings, by the turn that each began with."""
        most_chars = self._limits.most_chars * 2 // 3
        lines = _fitting(list(self._lines.values()), self._left_out, most_words, most_chars)
        lines.sort(key=lambda line: min(line.turns, default=0))
        shown = []
        for heading in HEADINGS:
            own = [str(line) for line in lines if line.heading == heading]
            shown += [f"{heading}:", *own] if own else []
        return "\n".join(shown) or f"{HEADINGS[0]}:\n- {_NOTHING_SAID}"

    # --- Notes before ---------------------------------------------------------------------

    def _copy(self, summary: str) -> None:
        """Take over what notes say, in whatever form, nothing of it dropped or merged."""
        for heading, text, named in note_lines(summary):
            turns = sorted({turn for turn in named if 1 <= turn <= self._through})
            if text == _LEFT_OUT:
                _leave_out(self._left_out, heading or "Found", turns)
                continue
            for part in self._parts(self._plain(text, len(text))):
                line = _Line(heading or "Found", part, turns)
                key = line.key
                while (line.heading, key) in self._lines:
                    key += "\n"  # no text has one
                self._lines[line.heading, key] = line

    def _settle(self, turn: FoldTurn) -> None:
        """Take away what notes say is open of a turn that was finished since."""
        for key, line in list(self._lines.items()):
            if line.heading == "Open" and turn.position in line.turns:
                line.turns = [other for other in line.turns if other != turn.position]
                if not line.turns:
                    self._retire(key, turn.position)

    def _retire(self, key: tuple[str, str], position: int) -> None:
        """Take away a line that turn `position` has made untrue, if there is one."""
        line = self._lines.pop(key, None)
        if line and self._keep_retired:
            self._put("Found", f"no longer {line.heading.lower()}: {line.text}", position)

    # --- Turns ----------------------------------------------------------------------------

    def _add(self, turn: FoldTurn) -> None:
        question = self._short("Goals", turn.query)
        if turn.status == Status.COMPLETE:
            self._retire(("Open", question.casefold()), turn.position)
        for heading, text in list(self._said(turn, question)) or [("Goals", _NO_TEXT)]:
            self._put(heading, text, turn.position)

    def _said(self, turn: FoldTurn, question: str) -> Iterator[tuple[str, str]]:
        if question:
            yield "Goals", question
        for artifact in turn.artifacts:
            if artifact.get("kind") == "definition" and artifact.get("term"):
                text = f"{artifact['term']}: {artifact.get('meaning') or ''}"
                yield "Agreed", self._short("Agreed", text)
        if turn.status in _NOT_COMPLETE:
            yield "Open", f"{turn.status!s}: {question or _NO_TEXT}"
        elif found := self._short("Found", _first_sentence(turn.answer)):
            yield "Found", found
        built = [text for artifact in turn.artifacts if (text := _built(artifact))]
        for text in built[:_BUILT_A_TURN]:
            yield "Built", self._short("Built", text)

    def _put(self, heading: str, text: str, position: int) -> None:
        """Add a line, or the turn to a line that says the same; what is newer replaces."""
        line = _Line(heading, text, [position])
        key = (heading, line.key)
        known = self._lines.get(key)
        if known and known.text.casefold() == text.casefold():
            known.turns = sorted({*known.turns, position})
        elif not known or known.last <= position:
            self._retire(key, position)
            self._lines[key] = line

    # --- Text -----------------------------------------------------------------------------

    def _plain(self, text: str, chars: int) -> str:
        """Return the beginning of text as one line that can't pass for anything else."""
        begun = text.lstrip()[: _LOOKED_AT * chars]
        line = quoted_line(one_line(begun, len(begun)), self._fence)
        # Again: where a fence word was taken out, what is left may look like a tag.
        return quoted_line(line, self._fence)

    def _short(self, heading: str, text: str) -> str:
        chars = _LINE_CHARS[heading]
        line = self._plain(text, chars)
        begun = self._begun(line, chars)
        if len(begun) == len(line):
            return line
        # A figure that lost its end, "4.1" of "4.1 M", would be another figure.
        words = begun.split(" ")
        while len(words) > 1 and _FIGURE.search(words[-1]):
            words.pop()
        return " ".join(words) + " …"

    def _parts(self, line: str) -> Iterator[str]:
        while line:
            begun = self._begun(line, _COPIED_CHARS)
            yield begun
            line = line[len(begun) :].lstrip()

    def _begun(self, line: str, chars: int) -> str:
        """Return as much of a line's beginning as may stand in one, whole words if it has any."""
        begun = beginning_of(line, chars) or line[:chars]
        if len(begun) < len(line) and line[len(begun)] != " ":
            begun = begun.rpartition(" ")[0].rstrip() or begun
        while words_of(begun) > self._line_words and len(begun) > 1:
            begun = begun.rpartition(" ")[0].rstrip() or begun[: len(begun) // 2]
        return begun


# --- What is left out ---------------------------------------------------------------------


def _fitting(
    lines: list[_Line], left_out: dict[str, _Line], most_words: int, most_chars: int
) -> list[_Line]:
    """Return the lines without those that must go for the rest to fit, and a line about these.

    `left_out` holds that line by heading, as the notes before had it.
    """
    words = {id(line): words_of(line.text) for line in lines}
    words_left, chars_left = sum(words.values()), _chars_of(lines)
    while lines and (
        words_left + len(left_out) * words_of(_LEFT_OUT) > most_words
        or chars_left + _chars_of(left_out.values()) > most_chars
    ):
        gone = _first_to_go(lines, words, most_words)
        lines.remove(gone)
        words_left -= words[id(gone)]
        chars_left -= _chars_of([gone])
        _leave_out(left_out, gone.heading, gone.turns)
    return [*lines, *left_out.values()]


def _chars_of(lines: Iterable[_Line]) -> int:
    return sum(len(str(line)) + 1 for line in lines)


def _leave_out(left_out: dict[str, _Line], heading: str, turns: Sequence[int]) -> None:
    """Take in that something about `turns` is left out under a heading: the first and the last."""
    before = left_out[heading].turns if heading in left_out else ()
    known = {*before, *turns}
    left_out[heading] = _Line(heading, _LEFT_OUT, sorted({min(known), max(known)}) if known else [])


def _first_to_go(lines: Sequence[_Line], words: Mapping[int, int], most_words: int) -> _Line:
    """Return the line that was longest not spoken of, under a heading that has more than its least.

    What the conversation began with stays as long as there are other goals.
    """
    for heading, share in _LEAST_SHARES:
        own = [line for line in lines if line.heading == heading]
        if sum(words[id(line)] for line in own) > share * most_words:
            first = own[:1] if heading == "Goals" and len(own) > 1 else []
            return min((line for line in own if line not in first), key=lambda line: line.last)
    return min(lines, key=lambda line: line.last)


# --- What turns say -----------------------------------------------------------------------


def _first_sentence(answer: str) -> str:
    """Return an answer's first sentence, with the next one where it is as short as "Yes."."""
    text = answer.lstrip()[: _LOOKED_AT * _LINE_CHARS["Found"]]
    text = _MARKUP.sub("", _NO_SENTENCE.sub("", text)).strip()
    for end in _SENTENCE_END.finditer(text):
        if end.start() >= _SHORT_SENTENCE_CHARS:
            return text[: end.start()]
    return text


def _built(artifact: Mapping[str, Any]) -> str:
    """Return what an artifact is, in a line; "" for what goes without saying.

    A statement without a title was run for nearly every turn, and stands in the facts.
    """
    kind = str(artifact.get("kind") or "")
    title = next((artifact[n] for n in ("title", "name", "id", "file_id") if artifact.get(n)), "")
    if kind == "definition" or (kind == "sql" and not title):
        return ""
    form = artifact.get("chart_type") or artifact.get("visualization_type")
    named = [kind, *([str(form)] if form else []), *([f'"{title}"'] if title else [])]
    return " ".join(named) + _axes(artifact)


def _axes(artifact: Mapping[str, Any]) -> str:
    y = artifact.get("y")
    axes = [artifact.get("x"), *(y if isinstance(y, list | tuple) else [])]
    said = " × ".join(str(axis) for axis in axes if axis)
    return f": {said}" if said else ""
