"""For whom somebody may act."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import Invalid
from rbac.exceptions import NotAPerson, NotYours, UnknownUser, UserIdRequired, UserInactive
from rbac.models import User
from rbac.principal import Principal
from tests.rbac.conftest import Bearer, in_parallel


def principal_of(bearer: Bearer) -> Principal:
    user = bearer.user
    return Principal(user.pk, user.tenant, user.user_id, user.role, bearer.token.digest)


def test_a_person_acts_for_themselves_named_or_not(ana: User) -> None:
    principal = Principal.of_user(ana)
    for user_id in (None, "ana"):
        person = principal.acting_for(user_id)
        assert (person.pk, person.tenant, person.user_id) == (ana.pk, "acme", "ana")


@pytest.mark.parametrize("user_id", ["ben", "olga", "nobody", "ANA", "", "*", "a\x00"])
def test_a_person_acts_for_nobody_else(ana: User, ben: User, user_id: str) -> None:
    for role in ("user", "admin"):
        ana.role = role
        with pytest.raises(NotYours):
            Principal.of_user(ana).acting_for(user_id)


@pytest.mark.parametrize("user_id", [None, ""])
def test_an_agent_says_for_whom(bi: Bearer, user_id: str | None) -> None:
    with pytest.raises(UserIdRequired):
        principal_of(bi).acting_for(user_id)


def test_an_agent_acts_for_the_people_of_its_tenant(bi: Bearer, ana: User) -> None:
    assert principal_of(bi).acting_for("ana").pk == ana.pk


def test_an_agent_never_reaches_another_tenant(bi: Bearer, globex_bot: Bearer, olga: User) -> None:
    here = principal_of(bi).acting_for("olga")
    there = principal_of(globex_bot).acting_for("olga")
    assert there.pk == olga.pk != here.pk
    assert (here.tenant, there.tenant) == ("acme", "globex")


def test_a_person_first_seen_is_made(bi: Bearer) -> None:
    person = principal_of(bi).acting_for("Jose\u0301")
    assert User.objects.get(pk=person.pk).user_id == person.user_id == "José"


def test_first_seen_people_are_unknown_where_they_are_not_made(bi: Bearer, settings: Any) -> None:
    settings.PEOPLE_MADE_ON_FIRST_USE = False
    with pytest.raises(UnknownUser):
        principal_of(bi).acting_for("ana")


@pytest.mark.parametrize("user_id", ["a#b", "SYSTEM", "a/b", "a\x00b", "\ud800", "x" * 300, " a"])
def test_an_impossible_user_id_is_refused_by_field(bi: Bearer, user_id: str) -> None:
    with pytest.raises(Invalid) as caught:
        principal_of(bi).acting_for(user_id)
    assert "user_id" in (caught.value.errors or {})


def test_nobody_acts_for_somebody_deactivated(bi: Bearer, ana: User) -> None:
    ana.deactivate()
    with pytest.raises(UserInactive):
        principal_of(bi).acting_for("ana")


def test_nobody_acts_for_an_agent(bi: Bearer) -> None:
    with pytest.raises(NotAPerson):
        principal_of(bi).acting_for("bi")


def test_twice_in_one_call_asks_once(bi: Bearer, ana: User, django_assert_num_queries: Any) -> None:
    principal = principal_of(bi)
    with django_assert_num_queries(1):
        assert principal.acting_for("ana") == principal.acting_for("ana")


@pytest.mark.django_db(transaction=True)
def test_twenty_calls_for_somebody_first_seen_agree(bi: Bearer) -> None:
    people = in_parallel(20, lambda _: principal_of(bi).acting_for("new").pk)
    assert len(set(people)) == 1


def test_a_principal_is_what_drf_and_django_take_for_a_user(ana: User) -> None:
    principal = Principal.of_user(ana)
    assert principal.is_authenticated is True
    assert principal.is_anonymous is False
    assert principal.is_active is True
    assert not principal.is_agent
    assert principal == Principal.of_user(ana)
    assert "digest" not in repr(Principal(ana.pk, "acme", "ana", "user", "digest"))
