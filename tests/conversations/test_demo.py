"""manage.py demo, against a server."""

from __future__ import annotations

import io
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from config.models import WorkerHeartbeat
from conversations.demo import sales
from conversations.demo.script import FIRST_MORNING, SECOND_MORNING
from conversations.models import ConversationThread, ThreadMessage
from rbac.models import AuthToken, User


def demo(url: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("demo", url=url, stdout=out, no_color=True, **options)
    return out.getvalue()


@pytest.fixture(autouse=True)
def _no_worker_starts(monkeypatch) -> None:
    monkeypatch.setattr("conversations.management.commands.demo._REPORT_SECONDS", 0)


@pytest.fixture
def played(live_server: Any, transactional_db: None) -> str:
    return demo(live_server.url)


def test_it_leaves_one_thread_of_about_thirty_turns(played):
    thread = ConversationThread.objects.get()
    steps = len(FIRST_MORNING) + len(SECOND_MORNING)
    assert (thread.turn_count, steps) == (steps, steps)
    assert 28 <= steps <= 34
    assert thread.title == "What is our revenue in 2026 so far?"
    assert (timezone.now() - thread.created_at).days == 3


def test_every_kind_of_turn_and_artifact_occurs(played):
    turns = list(ThreadMessage.objects.order_by("position"))
    assert {turn.status for turn in turns} == {"complete", "stopped", "failed"}
    assert {turn.agent_type for turn in turns} == {"chat", "copilot"}
    kinds = {artifact["kind"] for turn in turns for artifact in turn.artifacts}
    assert kinds == {"sql", "chart", "visualization", "dashboard", "definition", "file"}
    assert [turn.revision for turn in turns if turn.revision] == [1]


def test_figures_come_from_the_database(played):
    turn = ThreadMessage.objects.get(position=2)
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path = {sales.SCHEMA}, public")
        cursor.execute(turn.artifacts[0]["sql"])
        rows = cursor.fetchall()
        cursor.execute("RESET search_path")
    assert turn.answer.startswith(f"{rows[0][0]} leads with {rows[0][1]:,.0f} EUR")
    assert turn.response_payload["rows"] == [[region, str(revenue)] for region, revenue in rows]
    assert (turn.artifacts[0]["columns"], turn.artifacts[0]["row_count"]) == (
        ["region", "revenue"], 4,
    )  # fmt: skip


def test_the_failed_turn_has_really_failed(played):
    turn = ThreadMessage.objects.get(status="failed")
    assert turn.error_code == "undefined_table"
    assert "stock" in turn.response_payload["error"]


def test_it_shows_that_the_views_survive_the_loss_of_their_copy(played):
    assert played.count("from cache, then") == 3
    assert played.count("from database: the same text") == 3


def test_it_prints_the_three_views_with_their_account(played):
    for focus in ("brief", "sql", "visualizations"):
        assert f"focus {focus}:" in played
    assert played.count(" of 1,000 tokens; turns ") == 3
    assert "left out 1-" in played
    assert "Add the channel bars to the Monday dashboard" in played


def test_without_a_worker_it_says_so_and_goes_on(played):
    assert "No worker reports, so nothing is folded: start `manage.py worker`." in played
    assert "== What the agent is shown" in played


def report_worker() -> None:
    beat = {"host": "here", "state": WorkerHeartbeat.WORKING, "beat_at": timezone.now()}
    WorkerHeartbeat.objects.create(id="here", **beat)


def fold_until(stop: threading.Event) -> None:
    while not stop.wait(0.05):
        for thread in ConversationThread.objects.alive():
            thread.fold()
    connection.close()


@pytest.fixture
def worker(transactional_db: None) -> Iterator[None]:
    """What reports and folds as `manage.py worker` does."""
    report_worker()
    stop = threading.Event()
    thread = threading.Thread(target=fold_until, args=[stop])
    thread.start()
    yield
    stop.set()
    thread.join()


def test_it_shows_what_a_fold_makes_of_the_view(worker, live_server):
    played = demo(live_server.url)
    before = re.search(r"before  turns 1-(\d+) as they were: ([\d,]+) tokens", played)
    after = re.search(r"after   a summary of turns 1-11, (\d+) facts, and turns 12-31 ", played)
    assert before
    assert int(before[1]) >= 20
    assert after
    assert "The summary begins:\n  Goals:\n  - What is our revenue in 2026 so far? [t1]" in played
    assert "  filter sales.status: IN ('paid','shipped') [t3]" in played
    assert "<summary t1-t11>" in played


def test_a_fold_that_does_not_come_holds_it_up_no_longer_than_said(live_server, monkeypatch):
    report_worker()
    monkeypatch.setattr("conversations.management.commands.demo._FOLD_SECONDS", 0.3)
    played = demo(live_server.url)
    assert "Not within 0.3 s: `manage.py fold_status` may say why." in played
    assert "== What the agent is shown" in played


def test_what_next_names_where_folds_are_seen(played, live_server):
    thread = ConversationThread.objects.get()
    assert f"{live_server.url}/api/v1/threads/{thread.pk}/folds?user_id=ana" in played
    assert "manage.py fold_status" in played


def test_it_ends_with_a_call_that_works(played, live_server, client):
    token = played.split("Authorization: Token ")[1].split("'")[0]
    path = played.split(f"'{live_server.url}")[1].split("'")[0]
    assert client.get(path, headers={"Authorization": f"Token {token}"}).status_code == 200


def test_away_from_a_terminal_it_is_plain(played):
    assert "\x1b" not in played
    assert not set(played) & set("╭╮╰╯─│")


def test_again_it_takes_the_place_of_the_one_before(played, live_server):
    second = demo(live_server.url)
    assert "the demo before this one is deleted" in second
    assert ConversationThread.objects.alive().count() == 1
    assert AuthToken.objects.filter(name="demo").count() == 1


def test_without_a_server_it_says_what_to_do(db):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CommandError, match=r"No server answers at .* `make up`") as caught:
            demo(url)
    assert caught.value.returncode == 1
    assert not User.objects.exists()


def test_an_address_that_is_none_is_a_usage_error(db):
    with pytest.raises(CommandError) as caught:
        demo("127.0.0.1:8000")
    assert caught.value.returncode == 2


def test_the_port_of_the_environment_is_the_default(db, monkeypatch):
    monkeypatch.setenv("PORT", "9")
    with pytest.raises(CommandError, match=r"http://127\.0\.0\.1:9 "):
        call_command("demo", stdout=io.StringIO())


def test_a_server_on_another_database_is_told_by_its_refusal(
    live_server, transactional_db, monkeypatch
):
    monkeypatch.setattr("conversations.management.commands.demo._token", lambda: "rt_unknown")
    with pytest.raises(CommandError, match="works on another database"):
        demo(live_server.url)
