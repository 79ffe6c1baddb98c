"""Which threads a command is about: ids, or filters, or all of them."""

from __future__ import annotations

import argparse
import re
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from conversations.models import ConversationThread
from conversations.querysets import ThreadQuerySet
from conversations.turns import AgentType
from rbac import names
from rbac.models import User

_BATCH = 200
_AGO = {"m": "minutes", "h": "hours", "d": "days"}


def add_selection(parser: CommandParser) -> None:
    """Take ids, `--owner`, `--agent-type`, `--since` and `--all`."""
    parser.add_argument("ids", nargs="*", type=uuid.UUID, metavar="ID", help="ids of threads")
    parser.add_argument(
        "--owner",
        type=owner_name,
        metavar="TENANT/USER",
        help="of this person (default tenant: USER)",
    )
    parser.add_argument("--agent-type", choices=[kind.value for kind in AgentType])
    parser.add_argument(
        "--since",
        type=_since,
        metavar="WHEN",
        help="with a turn written since: 90m, 24h, 7d, or 2026-11-30, 2026-11-30T09:00Z (UTC)",
    )
    parser.add_argument("--all", action="store_true", help="all threads")


def selected(
    *,
    ids: Sequence[uuid.UUID],
    owner: tuple[str, str] | None,
    agent_type: str | None,
    since: datetime | None,
    all: bool,  # noqa: A002  the option's name
    **_: Any,
) -> ThreadQuerySet:
    """Return the threads that the options name; exit 2 unless they name some in one way."""
    filters = any((owner, agent_type, since))
    if sum((bool(ids), filters, all)) != 1:
        raise CommandError(
            "Say which threads: ids, or filters (--owner, --agent-type, --since), or --all.",
            returncode=2,
        )
    threads = ConversationThread.objects.alive()
    if ids:
        threads = threads.filter(pk__in=ids)
    if owner:
        threads = threads.filter(owner=person(owner))
    if agent_type:
        threads = threads.filter(agent_type=agent_type)
    return threads.filter(touched_at__gte=since) if since else threads


def missing(threads: ThreadQuerySet, ids: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    """Return those of `ids` that are no threads, in their order."""
    found = set(threads.values_list("pk", flat=True)) if ids else set()
    return [one for one in dict.fromkeys(ids) if one not in found]


def keys(threads: ThreadQuerySet) -> Iterator[uuid.UUID]:
    """Yield the ids of `threads` in their order, a few hundred in memory at a time."""
    ordered = threads.order_by("pk").values_list("pk", flat=True)
    page = list(ordered[:_BATCH])
    while page:
        yield from page
        page = list(ordered.filter(pk__gt=page[-1])[:_BATCH])


def person(owner: tuple[str, str]) -> User:
    """Return who is named so; exit 1 where there is nobody."""
    user = User.objects.named(*owner).first()
    if user is None:
        raise CommandError(f"There is nobody called {owner[1]} in tenant {owner[0]}.")
    return user


def owner_name(text: str) -> tuple[str, str]:
    """Return tenant and user id of an argument."""
    try:
        return names.split(text)
    except names.BadName as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _since(text: str) -> datetime:
    try:
        if ago := re.fullmatch(r"([0-9]{1,9})([mhd])", text):
            return timezone.now() - timedelta(**{_AGO[ago[2]]: int(ago[1])})
        since = datetime.fromisoformat(text)
        return since if since.tzinfo else since.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is neither 24h nor 2026-11-30") from None
