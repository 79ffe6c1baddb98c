"""Context views: what an agent's node is shown of a thread, under a token budget.

Pure: a view is a function of a `ConversationContext`, which a working set holds and PostgreSQL
can rebuild, so that a warm, a cold and a Redis-less read agree byte for byte.

    <memory k7Qd2x>
    What was said and built in this conversation so far …
    <facts> … </facts>
    <summary t1-t12> … </summary>
    <built t8-t12> … </built>
    (t13-t17 left out for space)
    [t18 2026-11-30] user: Only the north, per month.
    [t18] you: North is 4.1 M, up 6 %.
    [t18.1] sql "Revenue, north" → month, revenue; 12 rows
    </memory k7Qd2x>

The window of turns starts at `folded_through + 1 + 5k`, so that most of a view is the beginning
of the next one and a provider's prompt cache can reuse it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from conversations.head import CUT_MARK, Head, counted, head_of
from conversations.pieces import TurnPieces, TurnTokens
from conversations.quoting import beginning_of, ending_of
from conversations.tokenizer import NAME as TOKENIZER
from conversations.tokenizer import count_tokens, first_tokens, last_tokens

Focus = Literal["brief", "sql", "visualizations"]
Format = Literal["text", "messages"]
Lack = tuple[int, str, int]  # position, part, and how many tokens of it are not shown

DEFAULT_TOKEN_BUDGET = 2_000
WINDOW_STEP = 5
# What a chat message costs beside its content, by OpenAI's own way of counting.
TOKENS_A_MESSAGE = 4
_LEAST_FOR_PART_TOKENS = 12
# What the answer before the newest turn may always have: "yes" says nothing without it.
_FOR_ANSWER_BEFORE_TOKENS = 32


@dataclass(frozen=True, slots=True)
class ConversationContext:
    """A thread as memory knows it: running summary, facts, and the newest unfolded turns.

    `turns` stand at positions … `turn_count`, without a gap; `owner` is the primary key of the
    person whose thread it is.
    """

    thread_id: str
    owner: str
    fence: str
    version: int
    turn_count: int
    folded_through: int
    summary: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    kept_lines: Sequence[str] = ()
    turns: Sequence[TurnPieces] = ()

    def head(self, budget: int | None = None) -> Head:
        """Return what stands before the turns: whole, or shrunk to half of `budget`."""
        return head_of(
            self.fence, self.folded_through, self.summary, self.facts, self.kept_lines, budget
        )

    def is_empty(self) -> bool:
        """Whether there is nothing to remember: no turn yet, or memory is switched off."""
        return not (self.turns or self.summary or self.facts or self.kept_lines)


@dataclass(slots=True)
class ContextView:
    """One rendering, and the account of what is in it and what is not.

    `text`, or `messages` (`[{"role": "user", "content": "…"}]`). Every unfolded position is
    either in `positions` or in one of the ranges of `left_out`:
    `[{"from": 6, "to": 10, "why": "budget"}]`. What a shown turn lacks is in `cut`:
    `[{"position": 12, "part": "answer", "tokens": 812}]`; what the head lacks as well, at the
    position up to which turns are folded. `cache_prefix` is what stays until the next fold.
    """

    focus: Focus
    token_budget: int
    text: str = ""
    messages: list[dict[str, str]] | None = None
    tokens: int = 0
    positions: list[int] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    cut: list[dict[str, Any]] = field(default_factory=list)
    cache_prefix: str = ""
    tokenizer: str = TOKENIZER

    def cache_prefix_account(self) -> dict[str, Any]:
        """Return what tells a caller whether a provider's prompt cache can hold the prefix."""
        return {
            "chars": len(self.cache_prefix),
            "tokens": counted(self.cache_prefix),
            "sha256": _sha256(self.cache_prefix),
        }


def render_conversation_context(
    context: ConversationContext,
    focus: Focus,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    format: Format = "text",  # noqa: A002  its name in the HTTP API
) -> ContextView:
    """Render `context` for one kind of node in at most `token_budget` tokens.

    The oldest turns go first, five at a time; then the newest stands alone, after the answer
    that it replies to; then it is cut, with a mark. Where not even the newest turn fits beside
    the whole head, the head shrinks to half of the budget. A budget that the label alone exceeds
    gives an empty view, with everything in `left_out`.
    """
    form = _FORMS[focus, format]
    head, shown = _within_budget(context, form, token_budget)
    view = ContextView(focus, token_budget)
    if head:
        view.tokens = head.tokens + form.a_message + shown.tokens
        view.positions = [turn.position for turn in shown.turns]
        view.cut = _cuts(context, head, shown, form)
        view.cache_prefix = head.text if format == "text" else head.text + head.closing
    view.left_out = _left_out(context, view.positions)
    if format == "messages":
        view.messages = _messages(head, shown, form) if head else []
    elif head:
        view.text = _text(head, shown, form)
    return view


# --- What a turn costs in a focus and format ----------------------------------------------


class _Piece(NamedTuple):
    """A question or an answer as a form shows it; its content starts at `content_at`."""

    position: int
    part: str
    text: str
    content_at: int
    cost: int


class _Form:
    """A focus in a format: where a turn's pieces are, and what they cost.

    `lines_of` takes a turn's artifact lines.
    """

    def __init__(self, focus: Focus, format: Format) -> None:  # noqa: A002
        self.focus = focus
        self.is_chat = format == "messages"
        self.a_message = TOKENS_A_MESSAGE if self.is_chat else 0
        self.lines_of: Callable[[TurnPieces], str] = attrgetter(focus)
        self._lines_at = TurnTokens._fields.index(focus)

    def cost(self, turn: TurnPieces) -> int:
        """Return what a whole turn costs."""
        tokens = turn.tokens
        lines = tokens[self._lines_at]
        if not self.is_chat:
            return tokens.question + tokens.answer + lines
        messages = 1 + (tokens.replied > 0) + (lines > 0)
        return tokens.said + tokens.replied + lines + messages * self.a_message

    def question(self, turn: TurnPieces) -> _Piece:
        """Return its question."""
        tokens = turn.tokens
        cost = tokens.said + self.a_message if self.is_chat else tokens.question
        return _Piece(turn.position, "query", turn.question, turn.said_at, cost)

    def answer(self, turn: TurnPieces) -> _Piece:
        """Return its answer, which costs nothing where there is none."""
        tokens = turn.tokens
        cost = tokens.replied + self.a_message if self.is_chat else tokens.answer
        return _Piece(
            turn.position, "answer", turn.answer, turn.replied_at, cost if turn.answer else 0
        )

    def artifacts(self, turn: TurnPieces) -> int:
        """Return what its artifact lines cost."""
        tokens = turn.tokens[self._lines_at]
        return tokens + self.a_message if tokens else 0

    def in_brief(self, turn: TurnPieces) -> tuple[str, int]:
        """Return its artifacts in one line, and what that costs."""
        tokens = turn.tokens.brief
        return turn.brief, tokens + self.a_message if tokens else 0

    def note(self, text: str) -> int:
        """Return what the line about left-out turns costs."""
        return counted(text) + self.a_message if text else 0

    def measured(self, label: str, content: str) -> int:
        """Return what a piece of this label and content costs, counted now."""
        if self.is_chat:
            return count_tokens(content) + self.a_message
        return count_tokens(f"{label}{content}\n")


_FOCUSES: tuple[Focus, ...] = ("brief", "sql", "visualizations")
_FORMATS: tuple[Format, ...] = ("text", "messages")
_FORMS = {(focus, format_): _Form(focus, format_) for focus in _FOCUSES for format_ in _FORMATS}


# --- What fits ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Shown:
    """The turns of a view, as far as they are shown; what they cost; and what they lack."""

    turns: Sequence[TurnPieces] = ()
    tokens: int = 0
    note: str = ""
    lacks: Sequence[Lack] = ()


def _within_budget(
    context: ConversationContext, form: _Form, budget: int
) -> tuple[Head | None, _Shown]:
    """Choose head and turns; no head where there is nothing to show or no room for the label."""
    if context.is_empty():
        return None, _Shown()
    head = context.head()
    newest = form.cost(context.turns[-1]) if context.turns else 0
    if head.tokens + form.a_message + newest > budget:
        head = context.head(budget - form.a_message)
    room = budget - form.a_message - head.tokens
    if room < 0:
        return None, _Shown()
    return head, _turns_within(context, form, room) if context.turns else _Shown()


def _turns_within(context: ConversationContext, form: _Form, room: int) -> _Shown:
    return (
        _aligned_window(context, form, room)
        or _newest_whole(context, form, room)
        or _newest_cut(context, form, room)
        or _Shown()
    )


def _aligned_window(context: ConversationContext, form: _Form, room: int) -> _Shown | None:
    """Return the turns from the first start, five by five, that lets all after it fit."""
    turns = context.turns
    costs = [form.cost(turn) for turn in turns]
    first = (context.folded_through + 1 - turns[0].position) % WINDOW_STEP
    # The newest turn alone is no window: it wants the answer before it.
    starts = range(first, len(turns) - 1, WINDOW_STEP) if len(turns) > 1 else (0,)
    for start in starts:
        note = _note_before(context, turns[start].position)
        tokens = sum(costs[start:]) + form.note(note)
        if tokens <= room:
            return _Shown(turns[start:], tokens, note)
    return None


def _newest_whole(context: ConversationContext, form: _Form, room: int) -> _Shown | None:
    """Return the newest turn whole, after the answer that it replies to, or that answer's end."""
    newest, before = context.turns[-1], _replied_to(context)
    space = _Space(form, room - form.cost(newest))
    if space.left < 0:
        return None
    if before is None:
        return space.shown([newest], room, _note_before(context, newest.position))
    note = _note_before(context, before.position)
    least = min(form.answer(before).cost, _FOR_ANSWER_BEFORE_TOKENS)
    answer = space.only_answer(before, max(least, space.left - form.note(note)))
    return space.shown([answer, newest], room, note) if answer else None


def _newest_cut(context: ConversationContext, form: _Form, room: int) -> _Shown | None:
    """Return the newest turn cut to `room`, after some of the answer that it replies to.

    At most half of the room is for the question, unless the rest needs less; then the answer
    before has its little; then come the artifacts, whole or in brief; then what fits of the
    answer.
    """
    newest, before = context.turns[-1], _replied_to(context)
    space = _Space(form, room)
    rest = form.cost(newest) - form.question(newest).cost
    question = space.fit(form.question(newest), max(room // 2, room - rest))
    if not question:
        return None
    answer_before = space.only_answer(before, _FOR_ANSWER_BEFORE_TOKENS) if before else None
    lines = space.artifacts(newest)
    answer = space.fit(form.answer(newest), space.left)
    shown_as: dict[str, Any] = {"question": question, "answer": answer, form.focus: lines}
    cut = newest._replace(**shown_as)
    return space.shown([answer_before, cut] if answer_before else [cut], room)


def _replied_to(context: ConversationContext) -> TurnPieces | None:
    """Return the turn before the newest, if it has an answer to reply to."""
    before = context.turns[-2] if len(context.turns) > 1 else None
    return before if before and before.answer else None


def _note_before(context: ConversationContext, position: int) -> str:
    first, last = context.folded_through + 1, position - 1
    if last < first:
        return ""
    return f"(t{first}{f'-t{last}' if last > first else ''} left out for space)\n"


class _Space:
    """Room that is being filled: what is left of it, and what the turns in it lack."""

    def __init__(self, form: _Form, room: int) -> None:
        self.form = form
        self.left = room
        self._lacks: list[Lack] = []

    def fit(self, piece: _Piece, at_most: int, *, its_end: bool = False) -> str:
        """Put a piece in, cut to `at_most` tokens if need be; "" where that is too little."""
        at_most = min(at_most, self.left)
        if piece.cost <= at_most:
            self.left -= piece.cost
            return piece.text
        kept, tokens = _fitted(piece, self.form, at_most, its_end=its_end)
        self.left -= tokens
        self._lack(piece.position, piece.part, max(1, piece.cost - tokens))
        return kept

    def only_answer(self, turn: TurnPieces, at_most: int) -> TurnPieces | None:
        """Put a turn's answer in, its end if need be, and nothing else of the turn."""
        lacked = len(self._lacks)
        answer = self.fit(self.form.answer(turn), at_most, its_end=True)
        if not answer:
            del self._lacks[lacked:]
            return None
        self._lack(turn.position, "query", self.form.question(turn).cost)
        self._lack(turn.position, "artifacts", self.form.artifacts(turn))
        return turn._replace(question="", brief="", sql="", visualizations="", answer=answer)

    def artifacts(self, turn: TurnPieces) -> str:
        """Put artifact lines in: whole, in brief, or not at all."""
        whole = self.form.artifacts(turn)
        for lines, tokens in ((self.form.lines_of(turn), whole), self.form.in_brief(turn)):
            if tokens <= self.left:
                self.left -= tokens
                self._lack(turn.position, "artifacts", whole - tokens)
                return lines
        self._lack(turn.position, "artifacts", whole)
        return ""

    def shown(self, turns: Sequence[TurnPieces], room: int, note: str = "") -> _Shown:
        """Return the turns that were put in, with a note about those before where it fits."""
        if self.form.note(note) > self.left:
            note = ""
        return _Shown(turns, room - self.left + self.form.note(note), note, self._lacks)

    def _lack(self, position: int, part: str, tokens: int) -> None:
        if tokens > 0:
            self._lacks.append((position, part, tokens))


def _fitted(piece: _Piece, form: _Form, room: int, *, its_end: bool) -> tuple[str, int]:
    """Return a piece cut to cost at most `room`, with a mark, and its cost; ("", 0) if too long."""
    label, content = piece.text[: piece.content_at], piece.text[piece.content_at : -1]
    keep = room - form.measured(label, CUT_MARK)
    while keep >= _LEAST_FOR_PART_TOKENS:
        cut = _ending(content, keep) if its_end else _beginning(content, keep)
        tokens = form.measured(label, cut)
        if tokens <= room:
            return f"{label}{cut}\n", tokens
        keep -= tokens - room
    return "", 0


def _beginning(content: str, tokens: int) -> str:
    return beginning_of(content, len(first_tokens(content, tokens))) + CUT_MARK


def _ending(content: str, tokens: int) -> str:
    return "(cut …) " + ending_of(content, len(last_tokens(content, tokens)))


# --- Putting it together ------------------------------------------------------------------


def _text(head: Head, shown: _Shown, form: _Form) -> str:
    parts = [head.text, shown.note]
    lines_of = form.lines_of
    for turn in shown.turns:
        parts += (turn.question, turn.answer, lines_of(turn))
    parts.append(head.closing)
    return "".join(parts)


def _messages(head: Head, shown: _Shown, form: _Form) -> list[dict[str, str]]:
    # Artifact lines are the user's, never inside an assistant message: models would write such
    # lines instead of calling tools.
    said = [("user", head.text + head.closing), ("user", shown.note)]
    for turn in shown.turns:
        said.append(("user", turn.question[turn.said_at : -1]))
        said.append(("assistant", turn.answer[turn.replied_at : -1]))
        said.append(("user", form.lines_of(turn)))
    return [{"role": role, "content": content} for role, content in said if content]


def _left_out(context: ConversationContext, positions: Sequence[int]) -> list[dict[str, Any]]:
    unfolded_from, after = context.folded_through + 1, context.turn_count + 1
    shown_from = positions[0] if positions else after
    held_from = context.turns[0].position if context.turns else after
    spans = (
        (unfolded_from, held_from - 1, "window" if context.turns else "memory_off"),
        (held_from, shown_from - 1, "budget"),
    )
    return [{"from": low, "to": high, "why": why} for low, high, why in spans if low <= high]


def _cuts(
    context: ConversationContext, head: Head, shown: _Shown, form: _Form
) -> list[dict[str, Any]]:
    """Return what is missing of the head and of the turns shown, each part once."""
    lacks = [(context.folded_through, part, tokens) for part, tokens in head.cut]
    lacks += shown.lacks
    for turn in shown.turns:
        for part, tokens in turn.clipped:
            if part in ("query", "answer"):
                lacks.append((turn.position, part, tokens))
            elif part == form.focus:
                lacks.append((turn.position, "artifacts", tokens))
    total: dict[tuple[int, str], int] = {}
    for position, part, tokens in lacks:
        total[position, part] = total.get((position, part), 0) + tokens
    return [
        {"position": position, "part": part, "tokens": tokens}
        for (position, part), tokens in total.items()
    ]


@lru_cache(maxsize=512)
def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
