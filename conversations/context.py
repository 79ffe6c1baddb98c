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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from conversations.head import Head, counted, fact_lines
from conversations.pieces import TurnPieces, TurnTokens, quoted, whole_graphemes
from conversations.tokenizer import NAME as TOKENIZER
from conversations.tokenizer import count_tokens, first_tokens, last_tokens

Focus = Literal["brief", "sql", "visualizations"]
Format = Literal["text", "messages"]

WINDOW_STEP = 5
# What a chat message costs beside its content, by OpenAI's own way of counting.
TOKENS_A_MESSAGE = 4
# With less room than this for the newest turn, the head gives way.
_LEAST_FOR_NEWEST_TOKENS = 96
_LEAST_FOR_PART_TOKENS = 12
_CUT = " (… cut)"


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

    def head(self) -> Head:
        """Return what stands before the turns."""
        folded = self.folded_through
        return Head(
            fence=self.fence,
            summary=quoted(self.summary, self.fence) if self.summary else "",
            summary_span=f"t1-t{folded}",
            facts=fact_lines(self.facts, self.fence) if self.facts else (),
            kept_lines=[quoted(line, self.fence) for line in self.kept_lines],
            kept_span=f"t{max(1, folded - 4)}-t{folded}",
        )


@dataclass(slots=True)
class ContextView:
    """One rendering, and the account of what is in it and what is not.

    `text`, or `messages` (`[{"role": "user", "content": "…"}]`); `left_out` is
    `[{"from": 6, "to": 10, "why": "budget"}]`, `cut` `[{"position": 12, "part": "answer",
    "tokens": 812}]`, the tokens that are missing of that part.
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
            "sha256": hashlib.sha256(self.cache_prefix.encode()).hexdigest(),
        }


@dataclass(slots=True)
class _Shown:
    """The turns of a view: pieces in order, what they cost, and what is missing of them."""

    pieces: list[TurnPieces] = field(default_factory=list)
    tokens: int = 0
    note: str = ""
    cut: list[dict[str, Any]] = field(default_factory=list)


def render_conversation_context(
    context: ConversationContext,
    focus: Focus,
    token_budget: int,
    format: Format = "text",  # noqa: A002  its name in the HTTP API
) -> ContextView:
    """Render `context` for one kind of node in at most `token_budget` tokens.

    The oldest turns go first, five at a time; then the newest stands with the answer before it;
    then it is cut with a mark. The head shrinks only where it leaves no room for the newest turn.
    A budget that the label alone exceeds gives an empty view, with everything in `left_out`.
    """
    view = ContextView(focus, token_budget)
    costs = _Costs(focus, TOKENS_A_MESSAGE if format == "messages" else 0)
    if not (context.turns or context.summary):
        return _finish(view, context, None, _Shown(), format)
    head = context.head()
    room = token_budget - head.tokens() - costs.a_message
    shown = _whole_turns(context, costs, room)
    if shown is None:
        if room < _LEAST_FOR_NEWEST_TOKENS:
            head = _give_way(head, context, costs, token_budget)
            room = token_budget - head.tokens() - costs.a_message
        if room < 0:
            return _finish(view, context, None, _Shown(), format)
        shown = _whole_turns(context, costs, room) or _newest_cut(context.turns[-1], costs, room)
    view.tokens = head.tokens() + costs.a_message + shown.tokens
    return _finish(view, context, head, shown, format)


def _give_way(head: Head, context: ConversationContext, costs: _Costs, budget: int) -> Head:
    wanted = costs.of(context.turns[-1]) if context.turns else 0
    return head.shrunk_to(budget - costs.a_message - min(wanted, budget // 2))


class _Costs:
    """What pieces cost in a focus, as text or as chat messages."""

    def __init__(self, focus: Focus, a_message: int) -> None:
        self.a_message = a_message
        self.focus = focus
        self.index = TurnTokens._fields.index(focus)
        self.artifacts_at = TurnPieces._fields.index(focus)

    def of(self, turn: TurnPieces) -> int:
        """Return what a whole turn costs."""
        counts = turn[1]
        if not self.a_message:
            return counts[0] + counts[1] + counts[self.index]
        return self.question(turn) + self.answer(turn) + self.artifacts(turn)

    def question(self, turn: TurnPieces) -> int:
        """Return what its question costs."""
        if not self.a_message:
            return turn.tokens.question
        return turn.tokens.said + self.a_message if turn.tokens.said else 0

    def answer(self, turn: TurnPieces) -> int:
        """Return what its answer costs; nothing where there is none."""
        if not turn.answer:
            return 0
        return turn.tokens.replied + self.a_message if self.a_message else turn.tokens.answer

    def artifacts(self, turn: TurnPieces) -> int:
        """Return what its artifact lines cost in this focus."""
        lines = turn.tokens[self.index]
        return lines + self.a_message if lines else 0

    def note(self, text: str) -> int:
        """Return what the line about left-out turns costs."""
        return counted(text) + self.a_message if text else 0

    def measured(self, label: str, text: str) -> int:
        """Return what a piece of this label and text costs, counted now."""
        if self.a_message:
            return count_tokens(text) + self.a_message
        return count_tokens(f"{label}{text}\n")


# --- Which turns --------------------------------------------------------------------------


def _whole_turns(context: ConversationContext, costs: _Costs, room: int) -> _Shown | None:
    """Return the most turns that fit whole, or None where not even the newest does."""
    turns = context.turns
    if not turns:
        return _Shown() if room >= 0 else None
    return _aligned_window(context, costs, room) or _newest_with_answer_before(context, costs, room)


def _aligned_window(context: ConversationContext, costs: _Costs, room: int) -> _Shown | None:
    turns, unfolded_from = context.turns, context.folded_through + 1
    newest = turns[-1][0]
    best: _Shown | None = None
    cost = 0
    for index in range(len(turns) - 1, -1, -1):
        cost += costs.of(turns[index])
        if cost > room:
            break
        start = turns[index][0]
        if (start - unfolded_from) % WINDOW_STEP or (start == newest != unfolded_from):
            continue
        note = _note(unfolded_from, start)
        if (tokens := cost + costs.note(note)) <= room:
            best = _Shown(list(turns[index:]), tokens, note)
    return best


def _newest_with_answer_before(
    context: ConversationContext, costs: _Costs, room: int
) -> _Shown | None:
    newest = context.turns[-1]
    left = room - costs.of(newest)
    note = _note(context.folded_through + 1, newest.position)
    if left < 0:
        return None
    if left < costs.note(note):
        return _Shown([newest], costs.of(newest))
    shown = _Shown([newest], costs.of(newest) + costs.note(note), note)
    if len(context.turns) > 1:
        _put_answer_before(shown, context.turns[-2], costs, left - costs.note(note))
    return shown


def _put_answer_before(shown: _Shown, before: TurnPieces, costs: _Costs, room: int) -> None:
    """Show the answer that the newest question replies to, its end where it is too long."""
    answer = before.answer
    if not answer:
        return
    if costs.answer(before) > room:
        answer = _fitted(before.answer, before.replied_at, costs, room, keep_end=True)
    if not answer:
        return
    only_answer = before._replace(question="", brief="", sql="", visualizations="", answer=answer)
    spent = costs.measured(answer[: before.replied_at], answer[before.replied_at : -1])
    shown.pieces.insert(0, only_answer)
    shown.tokens += spent
    shown.cut.append(_missing(before, "query", costs.question(before)))
    if answer != before.answer:
        shown.cut.append(_missing(before, "answer", max(1, costs.answer(before) - spent)))
    if lines := costs.artifacts(before):
        shown.cut.append(_missing(before, "artifacts", lines))


def _newest_cut(newest: TurnPieces, costs: _Costs, room: int) -> _Shown:
    """Return the newest turn cut to `room`.

    At most half of it for the question, unless the rest needs less; then the artifacts, whole or
    in brief; then what fits of the answer.
    """
    shown = _Shown()
    question, left = _cut_part(
        shown,
        newest,
        "query",
        newest.question,
        newest.said_at,
        costs,
        room,
        min(room, max(room // 2, room - costs.answer(newest) - costs.artifacts(newest))),
    )
    if not question:
        return _Shown()
    lines, spent = _artifact_lines(newest, costs, left)
    if spent < costs.artifacts(newest):
        shown.cut.append(_missing(newest, "artifacts", costs.artifacts(newest) - spent))
    left -= spent
    answer, left = _cut_part(
        shown, newest, "answer", newest.answer, newest.replied_at, costs, left, left
    )
    shown.pieces = [newest._replace(question=question, answer=answer, **{costs.focus: lines})]
    shown.tokens = room - left
    return shown


def _artifact_lines(turn: TurnPieces, costs: _Costs, room: int) -> tuple[str, int]:
    whole: str = turn[costs.artifacts_at]
    if costs.artifacts(turn) <= room:
        return whole, costs.artifacts(turn)
    in_brief = turn.tokens.brief + costs.a_message
    return (turn.brief, in_brief) if in_brief <= room else ("", 0)


def _cut_part(
    shown: _Shown,
    turn: TurnPieces,
    part: str,
    piece: str,
    label_chars: int,
    costs: _Costs,
    left: int,
    room: int,
) -> tuple[str, int]:
    """Return `piece` in at most `room`, and what is left of `left` after it."""
    if not piece:
        return "", left
    whole = costs.question(turn) if part == "query" else costs.answer(turn)
    if whole <= room:
        return piece, left - whole
    kept = _fitted(piece, label_chars, costs, room)
    spent = costs.measured(kept[:label_chars], kept[label_chars:-1]) if kept else 0
    shown.cut.append(_missing(turn, part, max(1, whole - spent)))
    return kept, left - spent


def _fitted(
    piece: str, label_chars: int, costs: _Costs, room: int, *, keep_end: bool = False
) -> str:
    """Return `piece` cut to cost at most `room`, with a mark; "" where that is too little."""
    label, text = piece[:label_chars], piece[label_chars:-1]
    overhead = costs.measured(label, _CUT)
    for keep in range(room - overhead, _LEAST_FOR_PART_TOKENS - 1, -2):
        kept = last_tokens(text, keep) if keep_end else first_tokens(text, keep)
        marked = f"(cut …) {kept.lstrip()}" if keep_end else whole_graphemes(kept) + _CUT
        if costs.measured(label, marked) <= room:
            return f"{label}{marked}\n"
    return ""


def _missing(turn: TurnPieces, part: str, tokens: int) -> dict[str, Any]:
    return {"position": turn.position, "part": part, "tokens": tokens}


def _note(unfolded_from: int, start: int) -> str:
    if start <= unfolded_from:
        return ""
    last = start - 1
    span = f"t{last}" if last == unfolded_from else f"t{unfolded_from}-t{last}"
    return f"({span} left out for space)\n"


# --- Putting it together ------------------------------------------------------------------


def _finish(
    view: ContextView, context: ConversationContext, head: Head | None, shown: _Shown, form: Format
) -> ContextView:
    whole = [turn for turn in shown.pieces if turn.question]
    view.positions = [turn[0] for turn in whole]
    view.left_out = _left_out(context, whole[0][0] if whole else context.turn_count + 1)
    view.cut = shown.cut + [
        _missing(turn, part, tokens) for turn in whole for part, tokens in turn.clipped
    ]
    if form == "messages":
        view.messages = _messages(head, shown, view.focus) if head else []
    elif head:
        view.text = _text(head, shown, view.focus)
    view.cache_prefix = head.text() if head else ""
    return view


def _left_out(context: ConversationContext, shown_from: int) -> list[dict[str, Any]]:
    held_from = context.turns[0][0] if context.turns else context.turn_count + 1
    spans = (
        (context.folded_through + 1, min(held_from, shown_from) - 1, "window"),
        (held_from, shown_from - 1, "budget"),
    )
    return [{"from": low, "to": high, "why": why} for low, high, why in spans if low <= high]


def _text(head: Head, shown: _Shown, focus: Focus) -> str:
    pieces = [head.text(), shown.note]
    artifacts_at = TurnPieces._fields.index(focus)
    for turn in shown.pieces:
        pieces += (turn[2], turn[4], turn[artifacts_at])
    pieces.append(head.closing)
    return "".join(pieces)


def _messages(head: Head, shown: _Shown, focus: Focus) -> list[dict[str, str]]:
    # Artifact lines are the user's, never inside an assistant message: models would write such
    # lines instead of calling tools.
    said = [("user", head.text() + head.closing), ("user", shown.note)]
    for turn in shown.pieces:
        said.append(("user", turn.question[turn.said_at : -1]))
        said.append(("assistant", turn.answer[turn.replied_at : -1]))
        said.append(("user", getattr(turn, focus)))
    return [{"role": role, "content": content} for role, content in said if content]
