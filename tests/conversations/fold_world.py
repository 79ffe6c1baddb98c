"""Threads that are long enough to fold, and a summariser that does what a test says."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import F

from conversations.models import ConversationThread
from conversations.summaries import SummarizationFailed, Summary, SummaryRequest
from conversations.turns import AgentType, TurnBody
from rbac.principal import Person


def append(owner: Person, thread_id: uuid.UUID, query: str, **body: Any) -> uuid.UUID:
    """Write one turn; return its turn_id."""
    turn_id = body.pop("turn_id", None) or uuid.uuid4()
    ConversationThread.objects.finalize_turn(
        owner=owner,
        thread_id=thread_id,
        turn_id=turn_id,
        body=TurnBody(query=query, agent_type=AgentType.CHAT, **body),
    )
    return turn_id


def grow(owner: Person, turns: int, thread_id: uuid.UUID | None = None) -> ConversationThread:
    """Write so many more turns: `Question 1` with `Answer 1`, and so on."""
    thread_id = thread_id or uuid.uuid4()
    row = ConversationThread.objects.filter(pk=thread_id).first()
    first = row.turn_count + 1 if row else 1
    for position in range(first, first + turns):
        append(owner, thread_id, f"Question {position}", answer=f"Answer {position}.")
    return ConversationThread.objects.get(pk=thread_id)


def thread_of(thread: ConversationThread) -> ConversationThread:
    """Return the thread as it is stored now."""
    return ConversationThread.objects.get(pk=thread.pk)


class ScriptedSummarizer:
    """Notes which positions each call is given; `before` runs during a call."""

    def __init__(
        self, before: Callable[[SummaryRequest], None] | None = None, input_tokens: int = 0
    ) -> None:
        self.requests: list[SummaryRequest] = []
        self._before = before
        self._input_tokens = input_tokens

    def summarize(self, request: SummaryRequest) -> Summary:
        self.requests.append(request)
        if self._before:
            self._before(request)
        said = [request.summary] if request.summary else ["Goals:"]
        said += [f"- {turn.query} [t{turn.position}]" for turn in request.turns]
        said += [f"- amended: {turn.answer} [t{turn.position}]" for turn in request.amended]
        text = "\n".join(said)
        return Summary(text=text, model="scripted", input_tokens=self._input_tokens)

    @property
    def given(self) -> Sequence[list[int]]:
        return [[turn.position for turn in request.turns] for request in self.requests]

    @property
    def folded(self) -> list[int]:
        return [position for window in self.given for position in window]


class FailingSummarizer:
    """Fails with a code, or with whatever exception it is given."""

    def __init__(self, failure: str | BaseException) -> None:
        coded = isinstance(failure, str)
        self._failure = SummarizationFailed(failure) if coded else failure
        self.calls = 0

    def summarize(self, request: SummaryRequest) -> Summary:
        self.calls += 1
        raise self._failure


class HangingSummarizer(ScriptedSummarizer):
    """Says in `began` that it was called, and answers once `go_on` is set."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        super().__init__(before=self._hang)

    def _hang(self, _request: SummaryRequest) -> None:
        self.began.set()
        assert self.go_on.wait(30)


def time_passes(thread: ConversationThread, seconds: float) -> None:
    """Move what the thread waits for into the past, as if so much time had gone by."""
    ago = timedelta(seconds=seconds)
    ConversationThread.objects.filter(pk=thread.pk).update(
        fold_blocked_until=F("fold_blocked_until") - ago, fold_due_at=F("fold_due_at") - ago
    )
