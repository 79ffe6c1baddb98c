"""Requests for summaries, as folds make them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from conversations.folding import FoldTurn
from conversations.pieces import turn_pieces
from conversations.summaries import (
    SummarizationFailed,
    SummaryLimits,
    SummaryRequest,
    cleaned,
    fault_of,
)
from conversations.tokenizer import count_tokens

FENCE = "k7Qd2x"
THREAD = uuid.UUID("0199c1a0-0000-7000-8000-000000000001")


def turn(
    position: int,
    query: str = "Revenue by region",
    answer: str = "North leads with 4.1 M.",
    artifacts: Sequence[Mapping[str, Any]] = (),
    status: str = "complete",
) -> FoldTurn:
    """A turn as a fold reads it from the database."""
    pieces = turn_pieces(
        position=position,
        created_at=datetime(2026, 11, 30, tzinfo=UTC),
        query=query,
        answer=answer,
        artifacts=artifacts,
        status=status,
        fence=FENCE,
        part_max_chars=20_000,
        count=count_tokens,
    )
    text = pieces.question + pieces.answer + pieces.sql
    return FoldTurn(position, query, answer, artifacts, status, text, count_tokens(text))


def request(
    *turns: FoldTurn,
    summary: str = "",
    amended: Sequence[FoldTurn] = (),
    folded_through: int | None = None,
) -> SummaryRequest:
    """A fold of these turns, after the summary of those before them."""
    if folded_through is None:
        folded_through = turns[0].position - 1 if turns else 0
    return SummaryRequest(THREAD, FENCE, summary, folded_through, turns, amended)


def accepted(text: str, fold: SummaryRequest, limits: SummaryLimits) -> str:
    """What a model answered, cleaned as the summariser does; fails where that is no summary."""
    notes = cleaned(text)
    if code := fault_of(notes, fold, limits):
        raise SummarizationFailed(code)
    return notes
