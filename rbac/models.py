"""People, agents and their tokens.

What changes a row here drops the copies that other processes hold of it (`principal_cache`),
after the commit. Every road is covered: `save`, `delete`, and the same on querysets.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, PermissionsMixin
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction
from django.db.models import F, Q, Value
from django.db.models.functions import Least
from django.utils import timezone
from knox.models import AbstractAuthToken, get_digest_token, get_expiry
from knox.settings import CONSTANTS

from rbac import names, principal_cache
from rbac.constraints import names_are_safe
from rbac.exceptions import RoleIsFixed, UnknownUser, UserExists
from rbac.fields import NameField, UsernameField

TOKEN_PREFIX = "rt_"  # noqa: S105  what tokens begin with
# Past this many people in one statement, all tokens of their tenants are dropped instead.
_MANY_PEOPLE = 1000


class Role(models.TextChoices):
    """What somebody may do in general; what in particular comes with modules."""

    USER = "user", "User"
    AGENT = "agent", "Agent"
    ADMIN = "admin", "Admin"


def validate_tenant(value: str) -> None:
    """Refuse what can't be the name of a tenant."""
    _refuse(names.tenant, value)


def validate_user_id(value: str) -> None:
    """Refuse what can't be a user id."""
    _refuse(names.user_id, value)


def _refuse(check: Any, value: str) -> None:
    try:
        check(value)
    except names.BadName as error:
        raise ValidationError(str(error), code="bad_name") from error


class UserQuerySet(models.QuerySet["User"]):
    """Which people and agents."""

    def people(self) -> UserQuerySet:
        """Everybody but agents."""
        return self.exclude(role=Role.AGENT)

    def agents(self) -> UserQuerySet:
        """Agents only."""
        return self.filter(role=Role.AGENT)

    def named(self, tenant: str, user_id: str) -> UserQuerySet:
        """Find the one of this name, or nobody; never an error, whatever the names hold.

        Index: `rbac_user_tenant_user_id`.
        """
        try:
            return self.filter(tenant=names.tenant(tenant), user_id=names.user_id(user_id))
        except names.BadName:
            return self.none()

    def update(self, **values: Any) -> int:
        """Update the rows, and drop the cached copies of these people after the commit.

        Somebody whom another transaction moves into this queryset while it runs may be updated
        without being dropped: their copy dies of age.
        """
        if not values.keys().isdisjoint(User.IDENTITY):
            raise ValueError("who somebody is, is never changed: keys elsewhere are made of it")
        if values.keys() <= {"last_login"}:
            return super().update(**values)
        with transaction.atomic(using=self.db):
            _forget(*self._concerned(), using=self.db)
            return super().update(**values)

    update.alters_data = True  # type: ignore[attr-defined]

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the people and what hangs on them; drop their cached copies after the commit."""
        with transaction.atomic(using=self.db):
            tokens = AuthToken.objects.using(self.db).filter(user__in=self.order_by().values("pk"))
            digests = list(tokens.values_list("digest", flat=True))
            _forget(*self._concerned(), digests, using=self.db)
            return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[User], *args: Any, **kwargs: Any) -> list[User]:
        """Insert many; refuses `update_conflicts`, which would change people unseen."""
        if kwargs.get("update_conflicts"):
            raise NotImplementedError("use update(), which drops cached copies")
        return super().bulk_create(objs, *args, **kwargs)

    def _concerned(self) -> tuple[list[uuid.UUID], list[str]]:
        rows = list(self.order_by().values_list("pk", "tenant"))
        return [pk for pk, _ in rows], sorted({tenant for _, tenant in rows})


_People = models.Manager.from_queryset(UserQuerySet)


class UserManager(_People["User"]):
    """The verbs that make and find people."""

    def create_user(
        self,
        tenant: str,
        user_id: str,
        password: str | None = None,
        role: str = Role.USER,
        **fields: Any,
    ) -> User:
        """Make somebody; without a password nobody can log in as them.

        Raises `names.BadName`, and `UserExists`.
        """
        user = self.model(
            tenant=names.tenant(tenant), user_id=names.user_id(user_id), role=role, **fields
        )
        user.set_password(password)
        try:
            with transaction.atomic(using=self.db):
                user.save(force_insert=True, using=self.db)
        except IntegrityError as error:
            if not self.named(tenant, user_id).exists():
                raise
            raise UserExists(f"Tenant {user.tenant} already has a {user.user_id}.") from error
        return user

    def create_superuser(self, username: str, password: str | None = None) -> User:
        """Make an administrator of all tenants from `"acme/ana"`, or `"ana"` in the default one.

        Raises `ValidationError`, which `createsuperuser` prints.
        """
        try:
            tenant, user_id = names.split(username)
            return self.create_user(tenant, user_id, password, role=Role.ADMIN, is_superuser=True)
        except (names.BadName, UserExists) as error:
            raise ValidationError(str(error)) from error

    def get_by_natural_key(self, username: str | None) -> User:
        """Return the one of a username, `"acme/ana"` or `"ana"`; raises `User.DoesNotExist`."""
        try:
            tenant, user_id = names.split(username or "")
        except names.BadName as error:
            raise self.model.DoesNotExist(str(error)) from error
        return self.get(tenant=tenant, user_id=user_id)

    def person(self, tenant: str, user_id: str) -> User:
        """Return the one of this name; raises `UnknownUser`. One query."""
        found: User | None = self.named(tenant, user_id).first()
        if found is None:
            raise UnknownUser(f"Nobody in tenant {tenant} has this user id.")
        return found

    def get_or_create_person(self, tenant: str, user_id: str) -> User:
        """Return the one of this name, made now if this is the first that we hear of them.

        Somebody made so is of role `user` and can't log in. Any number of first uses at once
        make one row. One query when they are known, else three. Raises `names.BadName`, and
        `UnknownUser` where `PEOPLE_MADE_ON_FIRST_USE` is off.
        """
        tenant, user_id = names.tenant(tenant), names.user_id(user_id)
        if found := self.named(tenant, user_id).first():
            return found
        if settings.PEOPLE_MADE_ON_FIRST_USE:
            person = self.model(tenant=tenant, user_id=user_id)
            person.set_unusable_password()
            self.bulk_create([person], ignore_conflicts=True)
        return self.person(tenant, user_id)


class User(AbstractBaseUser, PermissionsMixin):
    """A person or an agent of one tenant.

    The primary key is random and never used again: whoever gets the name of somebody who was
    deleted inherits nothing. `tenant` and `user_id` never change.
    """

    IDENTITY = frozenset({"id", "pk", "tenant", "user_id"})
    USERNAME_FIELD = "username"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = NameField(
        max_length=names.MAX_CHARS, default=names.DEFAULT_TENANT, validators=[validate_tenant]
    )
    user_id = NameField("user id", max_length=names.MAX_CHARS, validators=[validate_user_id])
    # What Django wants to be unique: log-in forms, createsuperuser and changepassword take it.
    username = UsernameField(help_text="tenant/user id; in the default tenant the user id alone.")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.USER)
    is_active = models.BooleanField(
        "active",
        default=True,
        help_text="Who is not active can't log in, and no agent can act for them.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[UserManager] = UserManager()

    class Meta:
        constraints = [
            # Read by every look-up of a person, and by the list in the admin.
            models.UniqueConstraint(fields=["tenant", "user_id"], name="rbac_user_tenant_user_id"),
            # Read by changepassword; Django asks for it.
            models.UniqueConstraint(fields=["username"], name="rbac_user_username"),
            models.CheckConstraint(
                condition=Q(role__in=["user", "agent", "admin"]), name="rbac_user_role_is_known"
            ),
            *names_are_safe(),
        ]
        indexes = [
            # Read when a person changes, to find the tokens whose copies may hold that person.
            models.Index(
                fields=["tenant"], condition=Q(role="agent"), name="rbac_user_agents_of_tenant"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.user_id}"

    @property
    def is_staff(self) -> bool:
        """Whether this person may log in to the admin pages."""
        return self.role == Role.ADMIN

    @property
    def is_agent(self) -> bool:
        """Whether this is a program, which acts for people and has no memory of its own."""
        return self.role == Role.AGENT

    @classmethod
    def normalize_username(cls, username: Any) -> Any:
        """Return `username` in NFC, as names are kept here (Django's own takes NFKC)."""
        return names.normal(username) if isinstance(username, str) else username

    @classmethod
    def from_db(
        cls, db: str | None, field_names: Collection[str], values: Collection[Any], **kwargs: Any
    ) -> User:
        """Remember who was loaded, so that `save` can tell whether that was changed."""
        user = super().from_db(db, field_names, values, **kwargs)
        user.loaded_as = user.identity()
        return user

    def identity(self) -> tuple[Any, Any]:
        """Return tenant and user id as they are loaded, None for what is not."""
        return self.__dict__.get("tenant"), self.__dict__.get("user_id")

    def _is_somebody_else(self) -> bool:
        before = getattr(self, "loaded_as", self.identity())
        return any(old not in {None, new} for old, new in zip(before, self.identity(), strict=True))

    def clean(self) -> None:
        """Check nothing more: a username is the database's to make."""

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write the row, and drop the cached copies of this person after the commit."""
        fields = kwargs.get("update_fields")
        is_new = self._state.adding
        if not is_new and self._is_somebody_else():
            raise ValueError("who somebody is, is never changed: keys elsewhere are made of it")
        super().save(*args, **kwargs)
        self.loaded_as = self.identity()
        if not is_new and (fields is None or set(fields) - {"last_login"}):
            _forget([self.pk], [self.tenant], using=self._state.db)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete this person and what hangs on them; drop the cached copies after the commit."""
        pk, tenant, using = self.pk, self.tenant, self._state.db
        with transaction.atomic(using=using):
            tokens = AuthToken.objects.using(using).filter(user=self)
            digests = list(tokens.values_list("digest", flat=True))
            deleted = super().delete(*args, **kwargs)
            _forget([pk], [tenant], digests, using=using)
        return deleted

    def deactivate(self) -> None:
        """Refuse this person, and every agent that would act for them, from the next call on."""
        self.is_active = False
        self.save(update_fields=["is_active"])

    def change_role(self, role: str) -> None:
        """Make a user an admin, or the other way round; raises `RoleIsFixed` for agents."""
        role = Role(role)
        if (role == Role.AGENT) != self.is_agent:
            raise RoleIsFixed(f"{self} is {self.role}.")
        self.role = role
        self.save(update_fields=["role"])


class AuthTokenQuerySet(models.QuerySet["AuthToken"]):
    """Which tokens."""

    def usable(self) -> AuthTokenQuerySet:
        """Those whose time is not up."""
        return self.filter(Q(expiry=None) | Q(expiry__gt=timezone.now()))

    def expired(self) -> AuthTokenQuerySet:
        """Those whose time is up."""
        return self.filter(expiry__lte=timezone.now())

    def digests_concerning(self, people: Sequence[uuid.UUID], tenants: Sequence[str]) -> list[str]:
        """Return the tokens whose cached copies may hold one of these people, of these tenants.

        Their own, and those of the tenants' agents, which remember whom they acted for. One
        query; a union, because an OR over the join would read every token.
        """
        if len(people) > _MANY_PEOPLE:
            return list(self.filter(user__tenant__in=tenants).values_list("digest", flat=True))
        agents = self.filter(user__tenant__in=tenants, user__role=Role.AGENT)
        own = self.filter(user__in=people)
        return list(own.values_list("digest", flat=True).union(agents.values_list("digest")))

    def bearer(self, digest: str) -> principal_cache.Bearer | None:
        """Return whose token this is, expired or not; None when unknown or deactivated.

        One query.
        """
        row = (
            self.filter(digest=digest, user__is_active=True)
            .values_list("user_id", "user__tenant", "user__user_id", "user__role", "expiry")
            .first()
        )
        if row is None:
            return None
        pk, tenant, user_id, role, expiry = row
        return principal_cache.Bearer(
            pk, tenant, user_id, role, expiry.timestamp() if expiry else None
        )

    def expire_within(self, overlap: timedelta) -> int:
        """Let these end when `overlap` is over, those that end sooner when they would anyway."""
        end = Value(timezone.now() + overlap, output_field=models.DateTimeField())
        return self.update(expiry=Least(F("expiry"), end))

    def update(self, **values: Any) -> int:
        """Update the rows, and drop the cached copies after the commit."""
        with transaction.atomic(using=self.db):
            self._drop_on_commit()
            return super().update(**values)

    update.alters_data = True  # type: ignore[attr-defined]

    def delete(self) -> tuple[int, dict[str, int]]:
        """Revoke these tokens: refused from the next call on."""
        with transaction.atomic(using=self.db):
            self._drop_on_commit()
            return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def _drop_on_commit(self) -> None:
        _drop_on_commit(list(self.order_by().values_list("digest", flat=True)), using=self.db)


_Tokens = models.Manager.from_queryset(AuthTokenQuerySet)


class TokenManager(_Tokens["AuthToken"]):
    """The verbs that make tokens."""

    def issue(
        self, user: User, *, name: str, ttl: timedelta | None = None
    ) -> tuple[AuthToken, str]:
        """Make a token; return its row and the token itself, which is kept nowhere.

        `ttl` None is for ever, for agents. What has expired of this user's is cleared away.
        """
        self.filter(user=user).expired().delete()
        digest, secret = get_digest_token(TOKEN_PREFIX)
        token: AuthToken = self.create(
            digest=digest,
            token_key=secret[: CONSTANTS.TOKEN_KEY_LENGTH],
            user=user,
            name=name,
            expiry=get_expiry(ttl),
        )
        return token, secret


class AuthToken(AbstractAuthToken):  # type: ignore[misc]
    """The digest of a token that was given to a person or an agent; deleting it revokes it."""

    # The beginning of the token, by which people know one from another.
    token_key = models.CharField(max_length=25, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    name = models.CharField(max_length=names.MAX_CHARS, blank=True, help_text="What it is for.")

    objects: ClassVar[TokenManager] = TokenManager()

    class Meta:
        verbose_name = "token"
        indexes = [
            # Read by log-in (expired ones), agent_token and the admin; by deletion of a user.
            models.Index(fields=["user", "created"], name="rbac_authtoken_user_created"),
        ]

    def __str__(self) -> str:
        return f"{self.handle} ({self.name})" if self.name else self.handle

    @property
    def handle(self) -> str:
        """The part of the token that may be shown: `rt_1f2e3d…`."""
        return f"{self.token_key[: len(TOKEN_PREFIX) + 6]}…"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write the row, and drop the cached copy after the commit."""
        is_new = self._state.adding
        super().save(*args, **kwargs)
        if not is_new:
            _drop_on_commit([self.digest], using=self._state.db)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Revoke this token: refused from the next call on."""
        digest, using = self.digest, self._state.db
        with transaction.atomic(using=using):
            deleted: tuple[int, dict[str, int]] = super().delete(*args, **kwargs)
            _drop_on_commit([digest], using=using)
        return deleted


def _forget(
    people: Sequence[uuid.UUID],
    tenants: Sequence[str],
    digests: Sequence[str] = (),
    *,
    using: str | None,
) -> None:
    """After the commit drop the copies that hold these people.

    `digests` are tokens that will be gone by then. Which others there are is asked after the
    commit: a token made after that question has seen only what was committed.
    """

    def drop() -> None:
        found = AuthToken.objects.using(using).digests_concerning(people, tenants)
        principal_cache.drop(dict.fromkeys([*digests, *found]))

    if people:
        transaction.on_commit(drop, using=using, robust=True)


def _drop_on_commit(digests: Sequence[str], *, using: str | None) -> None:
    if digests:
        transaction.on_commit(partial(principal_cache.drop, digests), using=using, robust=True)
