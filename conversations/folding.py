"""Folding: which turns one LLM call is given, how they read there, and when to try again.

Pure. A thread's oldest turns are replaced, in what an agent is shown, by its running summary:
once more than 20 turns are unfolded, about ten of them go into it at a time, and the newest ten
always stay word for word (F1). After an outage this goes on window by window, so that no turn is
ever passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from conversations.pieces import TurnPieces, artifact_lines
from conversations.quoting import one_line
from conversations.tokenizer import count_tokens, first_tokens

# A job that was queued has this long before the next turn, or the sweep, queues another.
REQUEUE_SECONDS = 60

CUT_MARK = " (… cut)"
# What is kept stands in every view until the turn is no longer among the last ones.
_KEPT_LINE_CHARS = 400
_MORE = "[t{position}.{number}] ({more} more artifacts)"
_KEPT_A_TURN = 8
_LABEL = re.compile(r"\[t([0-9]+)\.[0-9]+\] ")
_LEAST_FOR_PART_TOKENS = 12


@dataclass(frozen=True, slots=True)
class FoldRules:
    """How folding is tuned; the defaults are the reference's.

    Folding is due while more than `threshold` turns are unfolded; the newest `keep` of them stay.
    One call is given `input_tokens` of turns at most. The artifact lines of the last
    `kept_artifact_turns` folded turns stay verbatim. A failure is tried again after
    `backoff_seconds`, doubling up to `backoff_max_seconds`.
    """

    keep: int = 10
    threshold: int = 20
    input_tokens: int = 12_000
    kept_artifact_turns: int = 5
    backoff_seconds: int = 60
    backoff_max_seconds: int = 3_600

    @property
    def turn_tokens(self) -> int:
        """The most that one turn may take of a call; it is cut to that."""
        return self.input_tokens // 3

    @property
    def window(self) -> int:
        """The most turns that one call folds."""
        return self.threshold + 1 - self.keep

    def is_due(self, folded_through: int, turn_count: int) -> bool:
        """Whether so many turns are unfolded that some are to be folded."""
        return turn_count - folded_through > self.threshold

    def span(self, folded_through: int, turn_count: int) -> range:
        """Return the positions that the next call folds, unless they are too long for it.

        >>> FoldRules().span(0, 21), FoldRules().span(11, 25)
        (range(1, 12), range(12, 12))
        """
        unfolded = turn_count - folded_through
        length = min(self.window, unfolded - self.keep) if unfolded > self.threshold else 0
        return range(folded_through + 1, folded_through + 1 + length)

    def next_try(
        self, folded_through: int, turn_count: int, due_at: datetime | None, now: datetime
    ) -> datetime | None:
        """Return when the fold is to be tried again that a turn has queued; None if it queues none.

        `due_at` is when it was to be tried before, None where nothing was due. A job has a minute,
        the next ones ever longer: where no worker runs, a busy thread must not fill the queue.
        """
        if not self.is_due(folded_through, turn_count) or (due_at and due_at > now):
            return None
        waited = now - due_at if due_at else timedelta()
        most = timedelta(seconds=self.backoff_max_seconds)
        return now + min(most, timedelta(seconds=REQUEUE_SECONDS) + waited)

    def pause(self, attempts: int) -> timedelta:
        """Return how long to wait after so many failures in a row: 60 s, 120 s, … 1 h."""
        doubled = self.backoff_seconds * 2 ** min(attempts - 1, 20)
        return timedelta(seconds=min(doubled, self.backoff_max_seconds))


@dataclass(frozen=True, slots=True)
class FoldTurn:
    """A turn as one fold is given it.

    `text` is how context views show it with its SQL, quoted, and cut where it is too long for a
    call; `tokens` are those of `text`.
    """

    position: int
    query: str
    answer: str
    artifacts: Sequence[Mapping[str, Any]]
    status: str
    text: str
    tokens: int


class FoldPlan(NamedTuple):
    """What one call is given: the next positions in order, and folded ones that were amended."""

    positions: Sequence[int]
    amended: Sequence[int]

    def through(self, folded_through: int) -> int:
        """Return the position up to which turns are folded once this is done."""
        return self.positions[-1] if self.positions else folded_through


def plan_fold(
    folded_through: int,
    span: range,
    sizes: Mapping[int, int],
    amended: Sequence[int],
    rules: FoldRules,
) -> FoldPlan | None:
    """Return which positions of `span` the next call is given; None where there are none.

    `sizes` are the tokens of the turns that can be given now, by position, each within
    `rules.turn_tokens`. Positions are taken without a gap as long as they fit. Amended ones get
    at most a third of the room beside new ones; what does not fit waits for the next call.
    """
    again = sorted(position for position in set(amended) if position <= folded_through)
    again = _fitting(again, sizes, rules.turn_tokens if span else rules.input_tokens)
    room = rules.input_tokens - sum(sizes[position] for position in again)
    positions = _fitting(span, sizes, room)
    return FoldPlan(positions, again) if positions or again else None


def _fitting(positions: Sequence[int], sizes: Mapping[int, int], room: int) -> list[int]:
    """Return the first positions that fit together, at least one if there is any."""
    taken: list[int] = []
    for position in positions:
        if position not in sizes:
            break
        room -= sizes[position]
        if room < 0 and taken:
            break
        taken.append(position)
    return taken


# --- A turn as a call is given it -------------------------------------------------------------


def turn_text(pieces: TurnPieces, max_tokens: int) -> tuple[str, int]:
    """Return a turn's text and its tokens, its long parts cut with a mark where it has to be.

    The artifacts give way to their line in brief first.
    """
    parts = _Parts(pieces)
    if parts.tokens > max_tokens:
        parts.shorten_artifacts()
    if parts.tokens > max_tokens:
        parts.cut(max_tokens)
    return "".join(parts.texts), parts.tokens


class _Parts:
    """Question, answer and artifact lines of a turn, and what they cost."""

    def __init__(self, pieces: TurnPieces) -> None:
        self._brief = (pieces.brief, pieces.tokens.brief)
        tokens = pieces.tokens
        self.texts = [pieces.question, pieces.answer, pieces.sql]
        self._costs = [tokens.question, tokens.answer, tokens.sql]

    @property
    def tokens(self) -> int:
        return sum(self._costs)

    def shorten_artifacts(self) -> None:
        self.texts[2], self._costs[2] = self._brief

    def cut(self, max_tokens: int) -> None:
        """Cut the longest to what the shorter ones leave, each having its even share."""
        room = max_tokens
        shortest_first = sorted(range(3), key=lambda part: self._costs[part])
        for left, part in zip((3, 2, 1), shortest_first, strict=True):
            share = room // left
            if self._costs[part] > share:
                self.texts[part] = _cut(self.texts[part], share)
                self._costs[part] = count_tokens(self.texts[part])
            room -= self._costs[part]


def _cut(text: str, tokens: int) -> str:
    keep = max(tokens, _LEAST_FOR_PART_TOKENS) - count_tokens(CUT_MARK + "\n") - 1
    return first_tokens(text.rstrip("\n"), keep).rstrip() + CUT_MARK + "\n"


# --- Kept artifact lines ----------------------------------------------------------------------


def keep_lines(
    kept: Sequence[str],
    turns: Sequence[tuple[int, Sequence[Mapping[str, Any]]]],
    through: int,
    rules: FoldRules,
) -> list[str]:
    """Return the artifact lines of the last folded turns, verbatim, oldest first (F2).

    `kept` are those of the fold before, `turns` the positions and artifacts of this one.
    """
    first = through - rules.kept_artifact_turns + 1
    folded_now = dict(turns)
    lines = [
        line
        for line in kept
        if (position := _position_of(line)) >= first and position not in folded_now
    ]
    for position, artifacts in folded_now.items():
        if first <= position <= through:
            lines += _kept_of_turn(position, artifacts)
    return sorted(lines, key=_position_of)


def _position_of(line: str) -> int:
    label = _LABEL.match(line)
    return int(label[1]) if label else 0


def _kept_of_turn(position: int, artifacts: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [one_line(line, _KEPT_LINE_CHARS) for line in artifact_lines(position, artifacts)]
    over = len(lines) - _KEPT_A_TURN
    if over <= 0:
        return lines
    more = _MORE.format(position=position, number=_KEPT_A_TURN + 1, more=over)
    return [*lines[:_KEPT_A_TURN], more]
