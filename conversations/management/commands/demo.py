"""Play an analyst's conversation through the HTTP API, and show what memory makes of it."""

from __future__ import annotations

import os
import time
from contextlib import closing
from datetime import timedelta
from typing import Any, TextIO, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from config.models import WorkerHeartbeat
from config.redis import RedisUnavailable
from conversations.demo import play, sales
from conversations.demo.client import BadAddress, Client, NoAnswer, Refused
from conversations.demo.script import FIRST_MORNING, SECOND_MORNING
from conversations.demo.show import Stage
from rbac.models import AuthToken, Role, User

TENANT, PERSON, AGENT = "demo", "ana", "demo-agent"
TOKEN_NAME = "demo"  # noqa: S105
TOKEN_HOURS = 24
# A worker that was started with the server reports by then; one that reports has folded by then.
_REPORT_SECONDS, _FOLD_SECONDS = 5, 20

_NEXT = """\
Ask for a view yourself; the token is good for {hours} hours, agent_token revoke ends it:

  curl -s -H 'Authorization: Token {token}' \\
    '{url}/api/v1/threads/{thread}/context?user_id={person}&focus=sql&token_budget=1000'

Other things to try:

  {url}/api/docs/                                   every call, with its fields
  {url}/api/v1/threads/{thread}/folds?user_id={person}
                                                    with that token: each fold and its summary
  manage.py fold_status                             what is to be folded, what was, what failed
  manage.py export_threads {thread}
  manage.py rehydrate_thread {thread}
  manage.py agent_token revoke --tenant {tenant} --name {agent}
  manage.py create_agent --tenant acme --name bi    an agent of your own"""


class Command(BaseCommand):
    """`demo`, beside a running `make up`; `--url` names another server."""

    help = "Play a conversation of thirty turns over a small sales database, and show its memory."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the server's address and the size of the views."""
        parser.add_argument("--url", help="default: http://127.0.0.1:8000, or PORT's")
        parser.add_argument("--token-budget", type=int, default=1000, metavar="TOKENS")

    def handle(self, *, url: str | None, token_budget: int, **_: Any) -> None:
        """Play it; exit 1 with a sentence when the server or a store is not there."""
        started = time.perf_counter()
        self.stage = Stage(cast(TextIO, self.stdout))
        self.token_budget = token_budget
        address = url or _default_address()
        try:
            with closing(Client(address)) as client:
                self._play(client)
        except BadAddress as error:
            raise CommandError(f"{error}.", returncode=2) from error
        except NoAnswer as error:
            raise CommandError(
                f"No server answers at {address} ({error}). Start one with `make up` in another "
                "terminal, or name yours with --url."
            ) from error
        except Refused as error:
            raise CommandError(_explained(error, address)) from error
        except DatabaseError as error:
            raise CommandError(f"The database refused: {str(error).strip()}") from error
        self.stage.say(f"\nThe demo took {time.perf_counter() - started:.1f} s.")

    def _play(self, client: Client) -> None:
        if not client.is_up():
            raise CommandError(f"What answers at {client.url} is not Rethread.")
        self.stage.chapter("A small sales database, and an agent")
        orders = sales.make_schema()
        self.stage.say(f"Schema {sales.SCHEMA} has {orders:,} orders of 2025 and 2026.")
        client.token = _token()
        self.stage.say(f"The agent {TENANT}/{AGENT} has a token and works for {PERSON}.")
        analyst = play.Analyst(client, PERSON)
        if analyst.forget_earlier_demos():
            self.stage.say("The thread of the demo before this one is deleted.")
        self.stage.chapter("Three days ago: a conversation begins")
        for told in analyst.play(FIRST_MORNING, play.three_days_ago()):
            self.stage.turn(told)
        self._lose_working_set(analyst)
        self.stage.chapter("Today: the conversation goes on")
        unfolded = self._play_second_morning(analyst)
        self._show_fold(analyst, unfolded)
        self._show_views(analyst)
        self._what_next(analyst)

    def _play_second_morning(self, analyst: play.Analyst) -> dict[str, Any]:
        """Play it, and return the last whole view before a worker folded: it may be that quick."""
        unfolded = analyst.whole_view()
        for told in analyst.play(SECOND_MORNING):
            self.stage.turn(told)
            view = analyst.whole_view()
            unfolded = unfolded if view["folded_through"] else view
        return unfolded

    def _lose_working_set(self, analyst: play.Analyst) -> None:
        self.stage.chapter("In between: the copy in Redis is lost")
        try:
            for focus in play.FOCUSES:
                warm, cold = analyst.warm_and_cold(focus, self.token_budget)
                self.stage.comparison(warm, cold)
                if warm["text"] != cold["text"]:
                    raise CommandError("A view changed when its copy was lost: that is a fault.")
        except RedisUnavailable:
            self.stage.say("Redis does not answer, so every view comes from PostgreSQL anyway.")
        else:
            self.stage.say("PostgreSQL has everything; the first reader fills a new copy.")

    def _show_fold(self, analyst: play.Analyst, unfolded: dict[str, Any]) -> None:
        self.stage.chapter("In the background: the oldest turns are folded")
        folded = analyst.view_once_folded(_REPORT_SECONDS)
        reports = WorkerHeartbeat.objects.alive().exists()
        if reports and not folded:
            folded = analyst.view_once_folded(_FOLD_SECONDS)
        if folded:
            self.stage.fold(unfolded, folded)
        elif reports:
            self.stage.say(f"Not within {_FOLD_SECONDS} s: `manage.py fold_status` may say why.")
        else:
            self.stage.say("No worker reports, so nothing is folded: start `manage.py worker`.")

    def _show_views(self, analyst: play.Analyst) -> None:
        self.stage.chapter("What the agent is shown before its next answer")
        for focus in play.FOCUSES:
            self.stage.view(analyst.view(focus, self.token_budget))

    def _what_next(self, analyst: play.Analyst) -> None:
        self.stage.chapter("What next")
        client, thread = analyst.client, analyst.thread_id
        self.stage.say(
            _NEXT.format(
                hours=TOKEN_HOURS, token=client.token, url=client.url, thread=thread,
                tenant=TENANT, person=PERSON, agent=AGENT,
            )
        )  # fmt: skip


def _token() -> str:
    """Return a token of the demo's agent, which takes the place of the demo's before it."""
    people = User.objects
    if not people.named(TENANT, PERSON).exists():
        people.create_user(TENANT, PERSON)
    agent = people.named(TENANT, AGENT).first() or people.create_user(
        TENANT, AGENT, role=Role.AGENT
    )
    if not agent.is_agent:
        raise CommandError(f"{agent} is a person; the demo wants that name for its agent.")
    AuthToken.objects.filter(user=agent, name=TOKEN_NAME).delete()
    _, secret = AuthToken.objects.issue(agent, name=TOKEN_NAME, ttl=timedelta(hours=TOKEN_HOURS))
    return secret


def _default_address() -> str:
    host = os.environ.get("HOST", "127.0.0.1")
    if host in {"0.0.0.0", "::"}:  # noqa: S104  read, not bound to
        host = "127.0.0.1"
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{os.environ.get('PORT', '8000')}"


def _explained(error: Refused, address: str) -> str:
    if error.status == 401:
        return (
            f"{address} does not know the token that was made just now: that server works on "
            "another database than this command. Run the demo with that server's DATABASE_URL."
        )
    return f"{address} refused a call: {error}."
