"""The prompt cache's share of a context view, as rows of the table (see `prompt_cache`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from benchmarks import prompt_cache
from benchmarks.bench import Bench, note
from benchmarks.report import Line
from conversations.context import Focus
from tests import sparc


def measure(bench: Bench) -> Iterator[Line]:
    """Render real conversations turn by turn, where their file is at hand."""
    if sparc.ABSENT:
        yield Line("prompt-cache reuse", sparc.ABSENT)
        return
    note("prompt-cache reuse")
    for grouping in get_args(sparc.Grouping):
        for focus in get_args(Focus):
            reuse = prompt_cache.measure(grouping, focus)
            yield Line(
                f"prompt-cache reuse, {focus}, one thread a {grouping}",
                f"{reuse.prefix_share:.1%} of a view at {prompt_cache.BUDGET_TOKENS:,} tokens",
                "view of the turn before",
                reuse.prefix_share,
                prompt_cache.GOAL,
                least=True,
            )
