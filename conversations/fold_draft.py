"""A fold in the making: turns go in, a summary with facts and kept lines comes out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.conf import settings

from conversations.facts import fold_facts, set_by_persons
from conversations.fold_schedule import fold_rules
from conversations.folding import FoldPlan, FoldRules, FoldTurn, keep_lines, plan_fold
from conversations.summaries import SummarizationFailed, Summary, SummaryRequest

if TYPE_CHECKING:
    from conversations.conversation_summarizer import Summarizer
    from conversations.models import ConversationThread


# What a column holds; only a server that makes its figures up gets there.
_MAX_COUNT = 2**31 - 1


@dataclass(slots=True)
class FoldDraft:
    """A summary in the making, with what stands beside it, and what it took so far."""

    folded_through: int
    summary: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    kept_lines: Sequence[str] = ()
    first: int = 1
    amended: Sequence[int] = ()
    made: Summary | None = None
    began: float = field(default_factory=time.monotonic)
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0

    @classmethod
    def from_start(cls, thread: ConversationThread) -> FoldDraft:
        """Return one of which no turn is folded yet; only what people have set stays."""
        return cls(folded_through=0, facts=set_by_persons(thread.facts))

    @classmethod
    def of(cls, thread: ConversationThread) -> FoldDraft:
        """Return what the thread has now."""
        return cls(
            folded_through=thread.folded_through,
            summary=thread.summary,
            facts=thread.facts,
            kept_lines=thread.kept_lines,
            first=thread.folded_through + 1,
        )

    def add(
        self,
        thread: ConversationThread,
        span: range,
        amended: Sequence[int],
        summarizer: Summarizer,
    ) -> None:
        """Fold as much of `span` and of `amended` turns as one call takes.

        Raises `SummarizationFailed`, and then the draft is what it was, but for what it took.
        """
        rules = fold_rules()
        amended = sorted(set(amended))[: rules.window]
        turns = thread.turns.to_fold([*amended, *span], rules.turn_tokens)
        sizes = {turn.position: turn.tokens for turn in turns}
        plan = plan_fold(self.folded_through, span, sizes, amended, rules)
        if plan is None:
            raise SummarizationFailed("turns_missing")
        self._take_in(thread, plan, {turn.position: turn for turn in turns}, rules, summarizer)

    def _take_in(
        self,
        thread: ConversationThread,
        plan: FoldPlan,
        turns: Mapping[int, FoldTurn],
        rules: FoldRules,
        summarizer: Summarizer,
    ) -> None:
        through = plan.through(self.folded_through)
        built = [(at, turns[at].artifacts) for at in (*plan.amended, *plan.positions)]
        facts = fold_facts(
            self.facts, built,
            dialect=settings.SQL_DIALECT, max_tokens=settings.FACTS_MAX_TOKENS, through=through,
        )  # fmt: skip
        request = SummaryRequest(
            thread_id=thread.pk,
            fence=thread.fence,
            summary=self.summary,
            folded_through=self.folded_through,
            turns=[turns[position] for position in plan.positions],
            amended=[turns[position] for position in plan.amended],
        )
        made = self._summarized(request, summarizer)
        self.kept_lines = keep_lines(self.kept_lines, built, through, rules)
        self.facts, self.summary, self.made = facts, made.text, made
        self.folded_through, self.amended = through, [*self.amended, *plan.amended]

    def _summarized(self, request: SummaryRequest, summarizer: Summarizer) -> Summary:
        try:
            made = summarizer.summarize(request)
        except SummarizationFailed as error:
            self._count(error)
            raise
        self._count(made)
        return made

    def _count(self, cost: Summary | SummarizationFailed) -> None:
        """Take in what calls have cost, whatever came of them."""
        for name in ("input_tokens", "cached_input_tokens", "output_tokens", "calls"):
            setattr(self, name, min(_MAX_COUNT, getattr(self, name) + getattr(cost, name)))

    @property
    def duration_ms(self) -> int:
        """How long it has taken, in milliseconds."""
        return int((time.monotonic() - self.began) * 1000)

    def account(self) -> dict[str, Any]:
        """Return what events, records and log lines say of it; no text of the thread."""
        return {
            "model": self.made.model if self.made else "",
            "prompt_name": self.made.prompt_name if self.made else "",
            "prompt_version": self.made.prompt_version if self.made else "",
            "prompt_source": self.made.prompt_source if self.made else "none",
            "input_tokens": self.input_tokens,
            "cached_input_tokens": self.cached_input_tokens,
            "output_tokens": self.output_tokens,
            "calls": self.calls,
            "duration_ms": self.duration_ms,
        }
