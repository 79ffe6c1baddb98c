"""What every measurement shares: its scale, a person and her agent, and the running site."""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from django.conf import settings
from django.db import transaction

from benchmarks import material
from benchmarks.load import Client
from benchmarks.site import Site
from conversations.models import ConversationThread
from rbac.models import AuthToken, Role, User
from rbac.principal import Person

TENANT, PERSON = "bench", "ana"


@dataclass(frozen=True)
class Scale:
    """How much is done.

    `rounds` alternate; in each there are `calls` in process or `requests` over HTTP. `lengths`
    are turns of a thread, `threads` of one owner, `stored` the threads whose bytes are counted.
    """

    rounds: int = 11
    calls: int = 60
    requests: int = 400
    lengths: tuple[int, ...] = (10, 1_000, 10_000)
    threads: tuple[int, ...] = (100, 100_000)
    page: int = 1_000
    stored: int = 20_000


QUICK = Scale(
    rounds=3, calls=10, requests=50, lengths=(10, 100), threads=(100, 2_000), page=20, stored=400
)


@dataclass
class Bench:
    """One run: rows of the table ask it for what they need, and it is made once."""

    scale: Scale = field(default_factory=Scale)
    exits: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.exits.close()

    @cached_property
    def person(self) -> Person:
        """Whose threads are written and read."""
        user = User.objects.get_or_create_person(TENANT, PERSON)
        return Person.of(user)

    @cached_property
    def token(self) -> str:
        """An agent's token."""
        agent = User.objects.create_user(TENANT, "agent", role=Role.AGENT)
        return AuthToken.objects.issue(agent, name="benchmarks")[1]

    @cached_property
    def site(self) -> Site:
        """The site as gunicorn serves it; stops with the run."""
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
        return self.exits.enter_context(Site(settings.DATA_DIR, environment))

    @cached_property
    def client(self) -> Client:
        """The client of the site, another process."""
        return self.exits.enter_context(Client())

    def thread_of(self, turns: int) -> uuid.UUID:
        """Return a new thread of some real turns with its working set in place."""
        thread_id = uuid.uuid4()
        for number in range(turns):
            self.append(thread_id, number)
        ConversationThread.objects.rehydrate(thread_id)
        return thread_id

    def append(self, thread_id: uuid.UUID, number: int) -> None:
        """Write a turn as the API does."""
        with transaction.atomic():
            ConversationThread.objects.finalize_turn(
                owner=self.person,
                thread_id=thread_id,
                turn_id=uuid.uuid4(),
                body=material.body(number),
            )


def note(text: str) -> None:
    """Tell the person who waits what is being done."""
    print(f"… {text}", file=sys.stderr, flush=True)
