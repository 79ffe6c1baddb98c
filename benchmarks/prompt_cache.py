"""How much of a context view a provider's prompt cache can reuse, turn by turn.

`python -m benchmarks.prompt_cache` renders every conversation of SParC (see `tests/sparc.py`)
after each of its turns, as an agent would ask for it, and prints which share of a view's tokens
the view before began with, on average from the second turn on. Beside it stand what that share
would be if views had no budget, and how much of the budget is used once a thread is over it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean
from typing import get_args
from unittest.mock import patch

from conversations import context
from conversations.context import (
    ContextView,
    ConversationContext,
    Focus,
    render_conversation_context,
)
from conversations.pieces import PART_MAX_CHARS, TurnPieces, fence_of, turn_pieces
from conversations.tokenizer import count_tokens, encoding
from tests import sparc

GOAL = 0.75
BUDGET_TOKENS = 1_000
WINDOW_TURNS = 40
STEPS = (context.WINDOW_STEP, 1)
_DAY = datetime(2026, 11, 30, tzinfo=UTC)


@dataclass(frozen=True)
class Reuse:
    """What one way of rendering gives: the share that is reused, and that of the budget used."""

    prefix_share: float
    budget_share: float | None


def measure(
    grouping: sparc.Grouping,
    focus: Focus,
    window_step: int = context.WINDOW_STEP,
    budget: int = BUDGET_TOKENS,
) -> Reuse:
    """Render all threads turn by turn, the window dropping `window_step` turns at a time."""
    prefix_shares: list[float] = []
    budget_shares: list[float] = []
    with patch.object(context, "WINDOW_STEP", window_step):
        for thread in sparc.threads(grouping):
            views = list(_views(thread, focus, budget))
            prefix_shares += _prefix_shares([view.text for view in views])
            budget_shares += [view.tokens / budget for view in views if view.left_out]
    return Reuse(fmean(prefix_shares), fmean(budget_shares) if budget_shares else None)


def _prefix_shares(texts: Sequence[str]) -> list[float]:
    in_tokens = [encoding().encode_ordinary(text) for text in texts]
    return [_common(before, after) / len(after) for before, after in pairwise(in_tokens)]


def _common(before: Sequence[int], after: Sequence[int]) -> int:
    pairs = zip(before, after, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))


def _views(thread: sparc.SparcThread, focus: Focus, budget: int) -> Iterator[ContextView]:
    turns = _pieces(thread)
    for count in range(1, len(turns) + 1):
        held = turns[max(0, count - WINDOW_TURNS) : count]
        shown = ConversationContext(
            str(thread.id), "", fence_of(thread.id, ""), count, count, 0, turns=held
        )
        yield render_conversation_context(shown, focus, budget)


def _pieces(thread: sparc.SparcThread) -> Sequence[TurnPieces]:
    return [
        turn_pieces(
            position=position,
            created_at=_DAY,
            query=turn.query,
            answer=turn.answer,
            artifacts=turn.artifacts,
            status="complete",
            fence=fence_of(thread.id, ""),
            part_max_chars=PART_MAX_CHARS,
            count=count_tokens,
        )
        for position, turn in enumerate(thread.turns, start=1)
    ]


def main() -> int:
    """Print a line for each grouping, focus and step; return 2 where there is no data."""
    if sparc.ABSENT:
        print(sparc.ABSENT)
        return 2
    print(f"Reused of a view at {BUDGET_TOKENS:,} tokens (goal: {GOAL:.0%})")
    print(
        f"{'one thread a':14}{'focus':16}{'drops':>8}{'reused':>9}{'unlimited':>11}{'budget':>10}"
    )
    for grouping in get_args(sparc.Grouping):
        for focus in get_args(Focus):
            unlimited = measure(grouping, focus, budget=10**9).prefix_share
            for step in STEPS:
                print(_line(grouping, focus, step, measure(grouping, focus, step), unlimited))
    return 0


def _line(grouping: str, focus: str, step: int, reuse: Reuse, unlimited: float) -> str:
    turns = f"{step} turn{'s' if step > 1 else ''}"
    used = "all fits" if reuse.budget_share is None else f"{reuse.budget_share:.0%}"
    return (
        f"{grouping:14}{focus:16}{turns:>8}{reuse.prefix_share:>9.1%}{unlimited:>11.1%}{used:>10}"
    )


if __name__ == "__main__":
    sys.exit(main())
