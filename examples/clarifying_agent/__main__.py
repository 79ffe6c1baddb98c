"""`python -m examples.clarifying_agent ask|answer THREAD TURN TEXT`: one step, one process."""

from __future__ import annotations

import argparse
import os
from typing import Any
from urllib.error import HTTPError

from conversations.checkpoints import RethreadSaver
from examples.clarifying_agent.agent import ClarifyingAgent, Model
from examples.clarifying_agent.http_json import Rethread

# The saver connects to the database that Rethread's own settings name.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def main() -> None:
    """Do one step and say how the turn stands."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.clarifying_agent", description=__doc__
    )
    parser.add_argument("verb", choices=["ask", "answer"])
    parser.add_argument("thread", help="a UUID of your making")
    parser.add_argument("turn", help="a UUID of your making")
    parser.add_argument("text", help="the question, or what it asked back for")
    parser.add_argument("--user", default="ana", help="for whom the agent works (default: ana)")
    given = parser.parse_args()
    rethread = Rethread(
        os.environ.get("RETHREAD_URL", "http://127.0.0.1:8000"), os.environ["TOKEN"], given.user
    )
    model = Model(os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:9001/v1"))
    with RethreadSaver.from_settings() as saver:
        step = getattr(ClarifyingAgent(rethread, model, saver), given.verb)
        try:
            _say(step(given.thread, given.turn, given.text))
        except HTTPError as error:
            raise SystemExit(f"Refused with {error.code}: {error.read().decode()}") from error
        except LookupError as error:
            raise SystemExit(str(error)) from error


def _say(turn: dict[str, Any]) -> None:
    print(f"It asks: {turn['waiting_for']}" if turn["status"] == "pending" else turn["answer"])


if __name__ == "__main__":
    main()
