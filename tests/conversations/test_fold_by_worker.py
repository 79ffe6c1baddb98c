"""Folds as `manage.py worker` runs them: killed in the middle, or given jobs that it can't read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Q
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ

from conversations.folds import ThreadFold
from conversations.models import ConversationThread
from conversations.tasks import sweep_folds
from embedded.waiting import wait_until
from tests.config.workers import RunningWorker
from tests.conversations.fold_world import grow, time_passes
from tests.conversations.llm_server import LLMServer

pytestmark = pytest.mark.django_db(transaction=True)


def notes(request: dict[str, Any]) -> str:
    """Answer with a line for each turn that the request holds."""
    text = request["messages"][-1]["content"]
    turns = re.findall(r"^\[t(\d+) [\d-]+\] user: (.*)$", text, re.MULTILINE)
    return "Goals:\n" + "\n".join(f"- {said} [t{number}]" for number, said in turns)


@pytest.fixture
def llm() -> Iterator[LLMServer]:
    with LLMServer() as running:
        running.reply_with(notes)
        yield running


def claims_end(threads: list[ConversationThread]) -> None:
    for thread in threads:
        time_passes(thread, seconds=91)


def all_folded(count: int) -> bool:
    folded = ConversationThread.objects.filter(Q(folded_through=11), fold_due_at=None)
    return wait_until(lambda: folded.count() == count, seconds=60)


def test_workers_killed_in_the_middle_of_twenty_folds(ana, llm, tmp_path: Path) -> None:
    threads = [grow(ana, 21) for _ in range(20)]
    llm.hang()
    with RunningWorker(tmp_path, OPENAI_BASE_URL=llm.base_url) as worker:
        for _ in range(2):
            llm.wait_for_request()
        worker.kill(*worker.processes("worker"))
        llm.release()
        assert wait_until(lambda: ThreadFold.objects.count() >= 18, seconds=60)
        claims_end(threads)
        assert sweep_folds() == 2
        assert all_folded(20)
    assert ThreadFold.objects.count() == 20
    assert len(llm.requests) <= 22


def test_jobs_that_were_queued_under_another_secret_key(
    ana, llm, tmp_path: Path, monkeypatch
) -> None:
    threads = [grow(ana, 21) for _ in range(5)]
    new_key = "another-secret-key-of-more-than-fifty-characters-for-now"
    monkeypatch.setattr(Conf, "SECRET_KEY", new_key)
    with RunningWorker(tmp_path, OPENAI_BASE_URL=llm.base_url, SECRET_KEY=new_key) as worker:
        assert wait_until(lambda: worker.log.count("job_unreadable") == 5, seconds=30)
        assert not ThreadFold.objects.exists()
        claims_end(threads)
        assert sweep_folds() == 5
        assert all_folded(5)
    assert len(llm.requests) == 5


def test_a_job_that_is_given_out_again_while_it_runs_folds_once(ana, llm, tmp_path: Path) -> None:
    grow(ana, 21)
    llm.hang()
    with RunningWorker(tmp_path, OPENAI_BASE_URL=llm.base_url):
        llm.wait_for_request()
        OrmQ.objects.update(lock=timezone.now())
        # Another process has taken it, found the thread claimed, and reported the job done.
        assert wait_until(lambda: not OrmQ.objects.exists(), seconds=30)
        llm.release()
        assert all_folded(1)
    assert (ThreadFold.objects.count(), len(llm.requests)) == (1, 1)
