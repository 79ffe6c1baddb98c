"""Real conversations, folded as they grow, by a model over HTTP that remembers only its last input.

The 20 threads of SParC, one a database, of 6 to 134 turns: written turn by turn, each queued fold
run at once, as a worker does.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

import pytest
from django.conf import settings
from django.db import transaction
from django.test import override_settings
from django_q.models import OrmQ
from pytest_django.plugin import DjangoDbBlocker

from conversations.context import Focus, render_conversation_context
from conversations.conversation_memory import get_conversation_memory
from conversations.conversation_summarizer import get_summarizer
from conversations.folds import ThreadFold
from conversations.models import ConversationThread, DatabaseEpoch
from conversations.tasks import fold_thread
from conversations.tokenizer import count_tokens
from conversations.turns import AgentType, TurnBody
from rbac.models import User
from rbac.principal import Person
from tests import sparc
from tests.conversations.llm_server import LLMServer
from tests.conversations.test_drift_of_facts import kept, shown, triples_in

pytestmark = [
    pytest.mark.data,
    pytest.mark.django_db,
    pytest.mark.skipif(bool(sparc.ABSENT), reason=sparc.ABSENT or "the data are here"),
]

FOCUSES: tuple[Focus, ...] = ("brief", "sql", "visualizations")
EARLY, LATE = range(30, 51), range(110, 131)


class Grown(NamedTuple):
    """A thread that was written to its end; `largest` are tokens of views by focus and when."""

    thread: sparc.SparcThread
    row: ConversationThread
    folds: list[ThreadFold]
    sql_view: str
    largest: Mapping[tuple[str, str], int]

    @property
    def said(self) -> set[Any]:
        folded = self.thread.turns[: self.row.folded_through]
        return {triple for turn in folded for triple in triples_in(turn.sql)}


class Run(NamedTuple):
    """All threads, and what the model was asked."""

    threads: list[Grown]
    requests: list[dict[str, Any]]

    @property
    def calls(self) -> int:
        return len(self.requests)


def forgetful(request: dict[str, Any]) -> str:
    """Answer with what the last input says, about 220 words, and nothing of the notes before."""
    text = request["messages"][-1]["content"]
    asked = re.findall(r"^\[t(\d+) [\d-]+\] user: (.*)$", text, re.MULTILINE)
    answered = dict(re.findall(r"^\[t(\d+)\] you: (.*)$", text, re.MULTILINE))
    said = [f"- {question} {answered[number]} [t{number}]" for number, question in asked]
    return "Goals:\n" + "\n".join(said)


@pytest.fixture(scope="module")
def run(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Run]:
    with django_db_blocker.unblock(), LLMServer() as server:
        server.reply_with(forgetful)
        DatabaseEpoch.objects.get_or_create(id=1)
        user = User.objects.create_user("sparc", "analyst")
        get_summarizer.cache_clear()
        try:
            with override_settings(OPENAI_BASE_URL=server.base_url):
                grown = [_grow(one, Person.of(user)) for one in sparc.threads("database")]
            yield Run(grown, list(server.requests))
        finally:
            get_summarizer.cache_clear()
            OrmQ.objects.all().delete()
            ids = [one.id for one in sparc.threads("database")]
            get_conversation_memory().drop(*ids)
            ConversationThread.objects.filter(pk__in=ids).delete()
            user.delete()


def _grow(thread: sparc.SparcThread, owner: Person) -> Grown:
    largest: dict[tuple[str, str], int] = {}
    for number, turn in enumerate(thread.turns, start=1):
        body = TurnBody(
            query=turn.query,
            answer=turn.answer,
            artifacts=turn.artifacts,
            agent_type=AgentType.CHAT,
        )
        with transaction.atomic():
            ConversationThread.objects.finalize_turn(
                owner=owner, thread_id=thread.id, turn_id=uuid.uuid4(), body=body
            )
        _work_off()
        when = "early" if number in EARLY else "late" if number in LATE else ""
        if when:
            _note_largest(largest, thread, owner, when)
    row = ConversationThread.objects.get(pk=thread.id)
    view = render_conversation_context(_context(thread, owner), "sql", 4_000)
    return Grown(thread, row, list(row.folds.order_by("id")), view.text, largest)


def _work_off() -> None:
    for job in OrmQ.objects.order_by("id"):
        fold_thread(*job.task["args"])
        job.delete()


def _context(thread: sparc.SparcThread, owner: Person) -> Any:
    return ConversationThread.objects.conversation_context(thread.id, owner).context


def _note_largest(largest: dict[Any, int], thread: Any, owner: Person, when: str) -> None:
    context = _context(thread, owner)
    for focus in FOCUSES:
        tokens = render_conversation_context(context, focus, 8_000).tokens
        largest[focus, when] = max(tokens, largest.get((focus, when), 0))


def test_every_thread_ends_with_ten_to_twenty_unfolded_turns(run) -> None:
    unfolded = {one.thread.name: one.row.turn_count - one.row.folded_through for one in run.threads}
    assert len(unfolded) == 20
    for one in run.threads:
        assert min(one.row.turn_count, 10) <= unfolded[one.thread.name] <= 20


def test_one_call_of_the_model_folds_eleven_turns_and_no_turn_twice(run) -> None:
    folds = [fold for one in run.threads for fold in one.folds]
    assert run.calls == len(folds)
    assert {fold.last - fold.first + 1 for fold in folds} == {11}
    for one in run.threads:
        spans = [at for fold in one.folds for at in range(fold.first, fold.last + 1)]
        assert spans == list(range(1, one.row.folded_through + 1))


@pytest.mark.parametrize("focus", FOCUSES)
def test_views_stop_growing_with_the_thread(run, focus) -> None:
    grown = [one.largest for one in run.threads if (focus, "late") in one.largest]
    ratios = [largest[focus, "late"] / largest[focus, "early"] for largest in grown]
    assert len(ratios) == 3
    assert max(ratios) <= 1.2


def test_each_comparison_of_a_folded_turn_stands_in_the_facts_and_in_the_sql_view(run) -> None:
    said = sum(len(one.said) for one in run.threads)
    assert said > 150
    assert sum(len(one.said & kept(one.row.facts)) for one in run.threads if one.said) == said
    assert sum(len(one.said & shown(one.sql_view)) for one in run.threads) == said


def test_no_comparison_is_kept_that_was_never_said(run) -> None:
    for one in run.threads:
        if one.row.folded_through:
            assert kept(one.row.facts) <= one.said


def test_the_bare_summary_of_a_forgetful_model_has_lost_most_of_them(run) -> None:
    in_summary = sum(
        1 for one in run.threads for triple in one.said if triple.literal in one.row.summary
    )
    said = sum(len(one.said) for one in run.threads)
    assert in_summary < said / 2


def test_no_request_to_the_model_grows_with_the_thread(run) -> None:
    sizes = [
        sum(count_tokens(message["content"]) for message in request["messages"])
        for request in run.requests
    ]
    assert max(sizes) <= settings.FOLD_INPUT_TOKENS
    assert max(sizes) <= 3 * median(sizes)
