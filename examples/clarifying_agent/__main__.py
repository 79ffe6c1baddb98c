"""`python -m examples.clarifying_agent ask|answer THREAD TURN TEXT`: one step, one process."""

from __future__ import annotations

import argparse
import os
from typing import Any
from urllib.error import HTTPError

import django
import psycopg

from conversations.checkpoints import RethreadSaver
from examples.clarifying_agent.agent import ClarifyingAgent, Model
from examples.clarifying_agent.http_json import NoAnswer, Rethread, call

# The saver connects to the database that Rethread's own settings name.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

_CREATE = "manage.py create_agent --tenant demo --name clarifier"
_NO_TOKEN = (
    f"TOKEN is not set: export what `{_CREATE}` prints on its last line; if that agent exists, "
    "`manage.py agent_token rotate` with the same name makes a new one."
)
_START_RETHREAD = "Start it with `make up` in another terminal, or set RETHREAD_URL to where it is."
_START_MODEL = (
    "Start `.venv/bin/python -m examples.clarifying_agent.scripted_model` in another terminal, or "
    "set OPENAI_BASE_URL to where a model is."
)
_NO_TABLES = "The database has no tables of checkpoints yet: run `manage.py release`."


def main() -> None:
    """Do one step and say how the turn stands; exit 1 with a sentence where it can't be done."""
    given = _arguments()
    # Before the settings are read: what `.env` names is for summaries, and asks for a key.
    model_url = os.environ.get("OPENAI_BASE_URL") or "http://127.0.0.1:9001/v1"
    django.setup()  # reads the settings, and with them the PORT of a `make up` beside this
    try:
        _say(_step(given, model_url))
    except (NoAnswer, HTTPError, psycopg.Error, LookupError) as error:
        raise SystemExit(_explained(error, model_url)) from error


def _explained(error: Exception, model_url: str) -> str:
    if isinstance(error, NoAnswer):
        is_model = error.url.startswith(model_url)
        return f"{error}. {_START_MODEL if is_model else _START_RETHREAD}"
    if isinstance(error, HTTPError):
        return f"Refused with {error.code}: {error.read().decode()}"
    if isinstance(error, psycopg.errors.UndefinedTable):
        return _NO_TABLES
    return str(error)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.clarifying_agent", description=__doc__
    )
    parser.add_argument("verb", choices=["ask", "answer"])
    parser.add_argument("thread", help="a UUID of your making")
    parser.add_argument("turn", help="a UUID of your making")
    parser.add_argument("text", help="the question, or what it asked back for")
    parser.add_argument("--user", default="ana", help="for whom the agent works (default: ana)")
    return parser.parse_args()


def _step(given: argparse.Namespace, model_url: str) -> dict[str, Any]:
    url = os.environ.get("RETHREAD_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
    token = os.environ.get("TOKEN")
    if not token:
        raise SystemExit(_NO_TOKEN)
    call("GET", f"{url}/health/live")  # sooner than a database would say that nothing runs
    with RethreadSaver.from_settings() as saver:
        agent = ClarifyingAgent(Rethread(url, token, given.user), Model(model_url), saver)
        turn: dict[str, Any] = getattr(agent, given.verb)(given.thread, given.turn, given.text)
        return turn


def _say(turn: dict[str, Any]) -> None:
    print(f"It asks: {turn['waiting_for']}" if turn["status"] == "pending" else turn["answer"])


if __name__ == "__main__":
    main()
