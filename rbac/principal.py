"""Who is calling, and for whom.

principal = request.user
owner = principal.acting_for(body.user_id)      # a Person, or a problem for the caller
ConversationThread.objects.visible_to(principal)
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Literal

from config.errors import Invalid
from rbac import names, principal_cache
from rbac.exceptions import NotAPerson, NotYours, UserIdRequired, UserInactive
from rbac.models import Role, User
from rbac.principal_cache import Bearer, Cached


@dataclass(frozen=True, slots=True)
class Person:
    """Whose memory a call reads or writes. `pk` is never used again for anybody else."""

    pk: uuid.UUID
    tenant: str
    user_id: str

    @classmethod
    def of(cls, user: User) -> Person:
        """Return a stored user as a person."""
        return cls(user.pk, user.tenant, user.user_id)

    @classmethod
    def named(cls, tenant: str, user_id: str, *, may_be_inactive: bool = False) -> Person:
        """Return who is named so, made if this is the first that we hear of them.

        Raises `NotAPerson` for an agent, `UserInactive`, `UnknownUser` (where people are not
        made on first use) and `Invalid` for what can be no name.
        """
        user = User.objects.get_or_create_person(tenant, _user_id(user_id))
        if user.is_agent:
            raise NotAPerson("Agents have no memory; name the person whom it is about.")
        if not (user.is_active or may_be_inactive):
            raise UserInactive("Nothing can be read or written for them any more.")
        return cls.of(user)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling: somebody of a tenant, by a token or a log-in session.

    `token` is the digest of the token, None for a session. `known_people` is what this call
    has learnt so far of the people whom an agent names: their key, or None where the cache was
    asked and did not know.
    """

    pk: uuid.UUID
    tenant: str
    user_id: str
    role: str
    token: str | None = field(default=None, repr=False, compare=False)
    known_people: dict[str, uuid.UUID | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of_user(cls, user: User) -> Principal:
        """Return the principal of somebody who is logged in by a session."""
        return cls(user.pk, user.tenant, user.user_id, user.role)

    @classmethod
    def of_bearer(
        cls, bearer: Bearer, digest: str, known: dict[str, uuid.UUID | None]
    ) -> Principal:
        """Return the principal of a token."""
        return cls(bearer.pk, bearer.tenant, bearer.user_id, bearer.role, digest, known)

    @property
    def is_authenticated(self) -> Literal[True]:
        """A principal has shown who it is."""
        return True

    @property
    def is_anonymous(self) -> Literal[False]:
        """See `is_authenticated`."""
        return False

    @property
    def is_active(self) -> Literal[True]:
        """Who has been deactivated gets no principal."""
        return True

    @property
    def is_agent(self) -> bool:
        """Whether a program is calling, which must say for whom."""
        return self.role == Role.AGENT

    @property
    def is_admin(self) -> bool:
        """Whether an administrator is calling."""
        return self.role == Role.ADMIN

    @property
    def person(self) -> Person:
        """The caller as a person."""
        return Person(self.pk, self.tenant, self.user_id)

    def acting_for(self, user_id: str | None) -> Person:
        """Return whose memory this call is about.

        An agent names a person of its own tenant, who is made when this is the first that we
        hear of them; anybody else is themselves, and may say so. Raises `UserIdRequired`,
        `Invalid` (no possible user id), `UserInactive`, `NotAPerson`, `UnknownUser` (where
        people are not made on first use), `NotYours`.

        Cost for an agent: nothing when the name stood in the query string and the cache knows
        it, else one look-up in Redis, else one query (three for a person first seen).
        """
        if not self.is_agent:
            return self._self_named(user_id)
        if not user_id:
            raise UserIdRequired("An agent says for whom it calls, with user_id.")
        name = _user_id(user_id)
        pk = self._remembered(name) or self._looked_up(name)
        return Person(pk, self.tenant, name)

    def _self_named(self, user_id: str | None) -> Person:
        if user_id is not None and names.normal(user_id) != self.user_id:
            raise NotYours("Leave user_id out, or give your own.")
        return self.person

    def _remembered(self, name: str) -> uuid.UUID | None:
        if name not in self.known_people and self.token:
            self.known_people[name] = principal_cache.read_person(self.token, name)
        return self.known_people.get(name)

    def _looked_up(self, name: str) -> uuid.UUID:
        loading = principal_cache.Loading()
        person = Person.named(self.tenant, name)
        self.known_people[name] = person.pk
        if self.token:
            principal_cache.fill_person(self.token, name, person.pk, loading)
        return person.pk


def known_from(cached: Cached, user_id: str | None) -> dict[str, uuid.UUID | None]:
    """Return what a read of the cache says of the person who was asked for."""
    return {} if user_id is None else {user_id: cached.person}


def _user_id(text: str) -> str:
    try:
        return names.user_id(text)
    except names.BadName as error:
        raise Invalid("This can't be a user id.", errors={"user_id": [str(error)]}) from error
