"""examples/clarifying_agent: asks, ends, is resumed elsewhere, and knows it the next time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings as django_settings
from django.db import connection
from rest_framework.test import APIClient

from conversations import checkpoint_tables, checkpoints
from rbac.models import AuthToken, User

pytest.importorskip("langgraph.checkpoint.postgres", reason="LangGraph is not installed")

QUESTION = "Do you mean the fiscal or the calendar year?"
ANSWER = "Revenue was 4.1 M in the fiscal year, July to June."


@pytest.fixture
def token(transactional_db: None) -> str:
    agent = User.objects.create_user("acme", "bi", role="agent")
    return AuthToken.objects.issue(agent, name="test", ttl=None)[1]


@pytest.fixture
def api(token: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


@pytest.fixture
def model() -> Iterator[str]:
    """The address of the scripted model, in a process of its own."""
    server = start("examples.clarifying_agent.scripted_model", "--port", "0")
    assert server.stdout
    yield server.stdout.readline().strip()
    server.kill()
    server.communicate()


@pytest.fixture
def agent(live_server: Any, token: str, model: str) -> Any:
    """Runs one step of the agent in a new process and returns what that says."""
    checkpoints.ensure_checkpoint_tables()
    empty_checkpoints()

    def step(verb: str, thread: Any, turn: Any, text: str, **env: str) -> str:
        process = start(
            "examples.clarifying_agent", verb, str(thread), str(turn), text,
            **{"DATABASE_URL": database_url(), "RETHREAD_URL": live_server.url, "TOKEN": token,
               "OPENAI_BASE_URL": model, **env},
        )  # fmt: skip
        said, _ = process.communicate(timeout=60)
        return said.strip()

    return step


@pytest.fixture
def nowhere() -> str:
    """An address at which nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def start(module: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=django_settings.BASE_DIR,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def database_url() -> str:
    """The tests' own database: DATABASE_URL names the one that it was made beside."""
    its = connection.settings_dict
    host = quote(its["HOST"], safe="")
    return f"postgres://{its['USER']}:{quote(its['PASSWORD'] or '')}@{host}:{its['PORT']}/{its['NAME']}"


def empty_checkpoints() -> None:
    with connection.cursor() as cursor:
        for table in checkpoint_tables.TABLES:
            cursor.execute(f"TRUNCATE checkpoints.{table}")


def checkpointed() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM checkpoints.checkpoints")
        return int(cursor.fetchone()[0])


def turn_of(api: APIClient, thread: Any, turn: Any) -> dict[str, Any]:
    answer: dict[str, Any] = api.get(
        f"/api/v1/threads/{thread}/turns/{turn}", {"user_id": "ana"}
    ).json()
    return answer


def test_it_asks_is_resumed_in_another_process_and_remembers_the_next_time(agent, api):
    thread, first, second = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()

    assert agent("ask", thread, first, "Revenue this year") == f"It asks: {QUESTION}"
    waiting = turn_of(api, thread, first)
    assert (waiting["status"], waiting["waiting_for"]) == ("pending", QUESTION)
    listed = api.get("/api/v1/threads", {"user_id": "ana", "status": "pending"}).json()["results"]
    assert [one["thread_id"] for one in listed] == [str(thread)]
    assert checkpointed() > 0

    assert agent("answer", thread, first, "fiscal") == ANSWER
    done = turn_of(api, thread, first)
    assert (done["status"], done["revision"], done["answer"]) == ("complete", 1, ANSWER)
    assert checkpointed() == 0

    assert agent("ask", thread, second, "And revenue by region?") == ANSWER
    assert turn_of(api, thread, second)["position"] == 2


def test_without_that_memory_it_asks_again(agent):
    assert (
        agent("ask", uuid.uuid4(), uuid.uuid4(), "And revenue by region?") == f"It asks: {QUESTION}"
    )


def test_the_same_step_again_changes_nothing(agent, api):
    """Whoever starts it can't know whether the first try came through."""
    thread, turn = uuid.uuid4(), uuid.uuid4()
    for _ in range(2):
        assert agent("ask", thread, turn, "Revenue this year") == f"It asks: {QUESTION}"
    assert agent("answer", thread, turn, "fiscal") == ANSWER
    assert "waits for nobody" in agent("answer", thread, turn, "calendar")
    assert turn_of(api, thread, turn)["answer"] == ANSWER


# --- What is missing is said in a sentence ------------------------------------------------


def ask(agent: Any, **env: str) -> str:
    said: str = agent("ask", uuid.uuid4(), uuid.uuid4(), "Revenue this year", **env)
    assert "Traceback" not in said
    return said


def test_without_a_token_it_says_how_to_make_one(agent):
    said = ask(agent, TOKEN="")
    assert said.startswith("TOKEN is not set: ")
    assert "manage.py create_agent" in said
    assert "agent_token rotate" in said


def test_without_rethread_it_says_what_to_start(agent, nowhere):
    said = ask(agent, RETHREAD_URL=nowhere)
    assert said.startswith(f"No answer from {nowhere}/")
    assert "`make up`" in said
    assert "RETHREAD_URL" in said


def test_without_a_model_it_says_what_to_start(agent, nowhere):
    said = ask(agent, OPENAI_BASE_URL=f"{nowhere}/v1")
    assert said.startswith(f"No answer from {nowhere}/v1/")
    assert "examples.clarifying_agent.scripted_model" in said


def test_rethread_is_looked_for_at_the_port_of_the_environment(agent, nowhere):
    said = ask(agent, RETHREAD_URL="", PORT=nowhere.rpartition(":")[2])
    assert said.startswith(f"No answer from {nowhere}/")


def test_without_tables_of_checkpoints_it_says_what_makes_them(agent):
    with connection.cursor() as cursor:
        cursor.execute("ALTER SCHEMA checkpoints RENAME TO elsewhere")
    try:
        assert "`manage.py release`" in ask(agent)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER SCHEMA elsewhere RENAME TO checkpoints")


def test_what_can_not_be_done_is_an_exit_status_of_1(nowhere):
    process = start(
        "examples.clarifying_agent", "ask", "a", "b", "c", RETHREAD_URL=nowhere, TOKEN="x"
    )
    process.communicate(timeout=60)
    assert process.returncode == 1
