"""What Prometheus is told of folds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from config.metrics import AT_SCRAPE
from conversations.fold_metrics import FoldCollector
from conversations.models import ConversationThread, ThreadMessage
from tests.conversations.fold_world import FailingSummarizer, ScriptedSummarizer, grow, time_passes

pytestmark = pytest.mark.django_db(transaction=True)


def figures() -> dict[str, float]:
    """Return `{"rethread_folds_due": 1, "rethread_fold_oldest_due_seconds worker": 61}`."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in FoldCollector().collect()
        for sample in family.samples
    }


def due_for(thread: ConversationThread, seconds: float) -> ConversationThread:
    ago = timedelta(seconds=seconds)
    ThreadMessage.objects.filter(thread=thread).update(stored_at=F("stored_at") - ago)
    time_passes(thread, seconds)
    return thread


def test_without_folds_all_is_nought() -> None:
    assert figures() == {
        "rethread_folds_due": 0,
        "rethread_folds_failing": 0,
        "rethread_fold_oldest_due_seconds worker": 0,
        "rethread_fold_oldest_due_seconds retry": 0,
        "rethread_fold_oldest_due_seconds summary": 0,
    }


def test_a_fold_whose_job_nobody_took_is_due(ana) -> None:
    due_for(grow(ana, 21), 300)
    grow(ana, 21)  # whose job has just been queued
    told = figures()
    assert told["rethread_folds_due"] == 1
    assert 300 <= told["rethread_fold_oldest_due_seconds worker"] < 330


def test_a_job_queued_meanwhile_makes_a_fold_no_younger(ana) -> None:
    thread = due_for(grow(ana, 21), 300)
    grow(ana, 1, thread.pk)
    assert figures()["rethread_fold_oldest_due_seconds worker"] >= 300


def test_a_failed_fold_is_failing_until_it_succeeds(ana) -> None:
    thread = due_for(grow(ana, 21), 300)
    thread.fold(FailingSummarizer("timeout"))
    told = figures()
    assert (told["rethread_folds_due"], told["rethread_folds_failing"]) == (0, 1)
    assert told["rethread_fold_oldest_due_seconds retry"] >= 300
    assert told["rethread_fold_oldest_due_seconds worker"] == 0
    thread.fold(ScriptedSummarizer(), even_after_failure=True)
    assert figures()["rethread_folds_failing"] == 0


def test_a_failed_fold_whose_time_has_come_is_due_and_failing(ana) -> None:
    thread = grow(ana, 21)
    thread.fold(FailingSummarizer("timeout"))
    time_passes(thread, 61)
    told = figures()
    assert (told["rethread_folds_due"], told["rethread_folds_failing"]) == (1, 1)


def test_one_that_is_being_made_is_neither_due_nor_failing(ana) -> None:
    thread = due_for(grow(ana, 21), 300)
    told: dict[str, float] = {}
    thread.fold(ScriptedSummarizer(before=lambda _: told.update(figures())))
    assert (told["rethread_folds_due"], told["rethread_folds_failing"]) == (0, 0)
    assert told["rethread_fold_oldest_due_seconds summary"] >= 300


def test_it_is_three_queries(ana, django_assert_num_queries) -> None:
    grow(ana, 21)
    with django_assert_num_queries(3 + 3):  # in a transaction with its time limit
        figures()


def test_prometheus_gets_it_from_the_site(ana, client: Client) -> None:
    due_for(grow(ana, 21), 300)
    families = {
        family.name: family
        for family in text_string_to_metric_families(client.get("/metrics").text)
    }
    assert families["rethread_folds_due"].samples[0].value == 1
    assert [type(collector) for collector in AT_SCRAPE].count(FoldCollector) == 1
