"""What the views share: ids from the address, the person a call is for, keyset pages."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from rest_framework.request import Request
from rest_framework.views import APIView

from config.errors import Invalid, validate
from conversations.api.schemas import OwnerQuery, query_of
from conversations.models import ConversationThread
from conversations.querysets import ThreadQuerySet
from rbac import names
from rbac.principal import Person, Principal

Q = TypeVar("Q", bound=OwnerQuery)
R = TypeVar("R")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryView(APIView):
    """A view on the memory of one person."""

    @property
    def principal(self) -> Principal:
        """Who is calling."""
        return cast(Principal, self.request.user)

    def query(self, model: type[Q]) -> Q:
        """Return the query string as `model`; raise `Invalid` for what is wrong in it."""
        return validate(model, query_of(self.request.query_params))

    def owner(self, named: str | None) -> Person:
        """Return the person a call is for, whom an agent names in the body or the query string.

        Raises `Invalid` where the two differ, and what `Principal.acting_for` raises.
        """
        asked = self.query(OwnerQuery).user_id if self.request.query_params else None
        if named and asked and names.normal(named) != names.normal(asked):
            message = "The body and the query string name different people."
            raise Invalid(message, errors={"user_id": [message]})
        return self.principal.acting_for(named or asked)

    def threads(self, owner: Person) -> ThreadQuerySet:
        """Return the threads that the caller may see of a person that `owner()` has given."""
        return ConversationThread.objects.visible_to(self.principal, owner.user_id)

    def thread(self, thread_id: str, user_id: str | None) -> ConversationThread:
        """Return a thread that the caller may see; raise `ThreadNotFound`."""
        threads = ConversationThread.objects.visible_to(self.principal, user_id)
        return threads.or_404(as_uuid("thread_id", thread_id))


def in_query(model: type[OwnerQuery]) -> list[Any]:
    """Return `model` as drf-spectacular takes the parameters of a query string."""
    return [model]


def as_uuid(name: str, text: str) -> uuid.UUID:
    """Return an id of the address as a UUID; raise `Invalid` where it is none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        message = "Must be a UUID, such as 0b6f2f5e-6f0a-4f0e-9d0c-2f6d6c1f9a11."
        raise Invalid(message, errors={name: [message]}) from None


def page(
    request: Request,
    rows: Sequence[R],
    limit: int,
    represent: Callable[[R], dict[str, Any]],
    follow: Callable[[R], dict[str, str]],
) -> dict[str, Any]:
    """Return `{"results", "next"}` of `limit` + 1 rows, or fewer on the last page.

    `follow` gives the query parameters by which the page after a row is asked for.
    """
    following = follow(rows[limit - 1]) if len(rows) > limit else None
    return {
        "results": [represent(row) for row in rows[:limit]],
        "next": next_page(request, following),
    }


def next_page(request: Request, following: Mapping[str, str] | None) -> str | None:
    """Return this page's address with other parameters; None where no page follows."""
    if following is None:
        return None
    params = request.query_params.copy()
    for name, value in following.items():
        params[name] = value
    return request.build_absolute_uri(f"{request.path}?{params.urlencode()}")


def encode_cursor(at: datetime, thread_id: uuid.UUID) -> str:
    """Return a list's place as an opaque word: microseconds and id, exactly."""
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(f"{micros}.{thread_id}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[datetime, uuid.UUID]:
    """Return the place that `encode_cursor` wrote; raise `Invalid` for anything else."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        micros, _, thread_id = base64.urlsafe_b64decode(padded).decode().partition(".")
        return _EPOCH + timedelta(microseconds=int(micros)), uuid.UUID(thread_id)
    except (ValueError, OverflowError):
        message = "Take cursor from the next of the page before."
        raise Invalid(message, errors={"cursor": [message]}) from None
