"""Making, finding, changing and removing people."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from rbac import names
from rbac.exceptions import RoleIsFixed, UnknownUser, UserExists
from rbac.models import Role, User
from tests.rbac.conftest import PASSWORD, in_parallel


def test_a_new_user_can_log_in_and_is_no_staff(ana: User) -> None:
    ana.refresh_from_db()
    assert (ana.tenant, ana.user_id, ana.role, ana.is_active) == ("acme", "ana", "user", True)
    assert ana.check_password(PASSWORD)
    assert not ana.is_staff
    assert not ana.is_superuser


def test_an_admin_is_staff(db: None) -> None:
    assert User.objects.create_user("acme", "root", role=Role.ADMIN).is_staff


def test_without_a_password_nobody_can_log_in(db: None) -> None:
    assert not User.objects.create_user("acme", "ana").has_usable_password()


def test_a_second_of_the_same_name_is_refused_and_leaves_the_transaction_usable(ana: User) -> None:
    with transaction.atomic():
        with pytest.raises(UserExists, match="acme"):
            User.objects.create_user("acme", "ana")
        assert User.objects.count() == 1


def test_the_same_user_id_in_two_tenants_is_two_people(ana: User) -> None:
    other = User.objects.create_user("globex", "ana")
    assert other.pk != ana.pk
    assert User.objects.person("globex", "ana") == other


def test_an_unknown_role_is_refused_by_the_database(db: None) -> None:
    with pytest.raises(IntegrityError, match="rbac_user_role_is_known"), transaction.atomic():
        User.objects.create_user("acme", "ana", role="king")


def test_a_username_is_unique_and_made_of_tenant_and_user_id(ana: User) -> None:
    root = User.objects.create_user("default", "root")
    assert (ana.username, root.username) == ("acme/ana", "root")
    assert User.objects.get_by_natural_key("acme/ana") == ana
    assert User.objects.get_by_natural_key("default/root") == root


@pytest.mark.parametrize("username", [None, "", "acme/nobody", "a#b", "ana\x00"])
def test_a_natural_key_that_names_nobody_is_just_unknown(db: None, username: str | None) -> None:
    with pytest.raises(User.DoesNotExist):
        User.objects.get_by_natural_key(username)


@pytest.mark.parametrize("user_id", ["nobody", "", "a#b", "a\x00b", "\ud800", "*"])
def test_who_is_not_there_is_unknown_whatever_the_name_holds(ana: User, user_id: str) -> None:
    with pytest.raises(UnknownUser):
        User.objects.person("acme", user_id)


def test_a_person_is_found_in_either_unicode_form(db: None) -> None:
    jose = User.objects.create_user("acme", "Jose\u0301")
    assert jose.user_id == "Jos\u00e9"
    assert User.objects.filter(user_id="Jose\u0301").get() == jose


def test_a_person_is_made_on_first_use_and_can_not_log_in(db: None) -> None:
    person = User.objects.get_or_create_person("acme", "Jose\u0301")
    assert (person.role, person.user_id, person.has_usable_password()) == ("user", "José", False)
    assert User.objects.get_or_create_person("acme", "José") == person


def test_a_known_person_costs_one_query(ana: User, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert User.objects.get_or_create_person("acme", "ana") == ana


def test_where_people_are_not_made_on_first_use_they_are_unknown(db: None, settings: Any) -> None:
    settings.PEOPLE_MADE_ON_FIRST_USE = False
    with pytest.raises(UnknownUser):
        User.objects.get_or_create_person("acme", "ana")
    assert not User.objects.exists()


def test_first_use_of_an_impossible_name_is_refused(db: None) -> None:
    with pytest.raises(names.BadName):
        User.objects.get_or_create_person("acme", "a#b")


@pytest.mark.django_db(transaction=True)
def test_twenty_first_uses_at_once_make_one_person() -> None:
    people = in_parallel(20, lambda _: User.objects.get_or_create_person("acme", "ana").pk)
    assert len(set(people)) == 1
    assert User.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_twenty_create_users_at_once_make_one_and_tell_the_others() -> None:
    def make(_: int) -> str:
        try:
            User.objects.create_user("acme", "ana")
        except UserExists:
            return "exists"
        return "made"

    assert sorted(in_parallel(20, make)) == ["exists"] * 19 + ["made"]


def test_deactivating_stays(ana: User) -> None:
    ana.deactivate()
    ana.refresh_from_db()
    assert not ana.is_active


def test_a_user_becomes_an_admin_and_back(ana: User) -> None:
    ana.change_role("admin")
    ana.refresh_from_db()
    assert ana.is_staff
    ana.change_role(Role.USER)
    assert not ana.is_staff


def test_people_and_agents_do_not_change_into_each_other(ana: User, bi: Any) -> None:
    with pytest.raises(RoleIsFixed):
        ana.change_role("agent")
    with pytest.raises(RoleIsFixed):
        bi.user.change_role("user")
    with pytest.raises(ValueError, match="king"):
        ana.change_role("king")


def test_who_somebody_is_never_changes(ana: User) -> None:
    ana.user_id = "anna"
    with pytest.raises(ValueError, match="never changed"):
        ana.save()
    loaded = User.objects.get(pk=ana.pk)
    loaded.tenant = "globex"
    with pytest.raises(ValueError, match="never changed"):
        loaded.save()
    with pytest.raises(ValueError, match="never changed"):
        User.objects.update(user_id="x")
    with pytest.raises(NotImplementedError):
        User.objects.bulk_create(
            [ana], update_conflicts=True, unique_fields=["id"], update_fields=["user_id"]
        )


def test_somebody_loaded_in_part_can_be_saved(ana: User) -> None:
    part = User.objects.only("is_active").get(pk=ana.pk)
    assert part.tenant == "acme"
    part.deactivate()
    ana.refresh_from_db()
    assert not ana.is_active


def test_a_new_person_of_an_old_name_is_somebody_else(ana: User) -> None:
    old = ana.pk
    ana.delete()
    assert User.objects.create_user("acme", "ana").pk != old


def test_createsuperuser_takes_a_username(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command("createsuperuser", "--noinput", "--username", "root", stdout=io.StringIO())
    call_command("createsuperuser", "--noinput", "--username", "acme/root", stdout=io.StringIO())
    root = User.objects.person("acme", "root")
    assert (root.is_superuser, root.is_staff, root.role) == (True, True, "admin")
    assert User.objects.person("default", "root").check_password(PASSWORD)


@pytest.mark.parametrize("username", ["acme/ana", "a#b", "SYSTEM"])
def test_createsuperuser_refuses_without_a_traceback(ana: User, username: str) -> None:
    with pytest.raises(CommandError):
        call_command("createsuperuser", "--noinput", "--username", username)


def test_full_clean_says_what_is_wrong_with_each_field(db: None) -> None:
    with pytest.raises(ValidationError) as caught:
        User(tenant="a:b", user_id="a\x00b", role="king", password="x").full_clean()
    assert caught.value.message_dict.keys() >= {"tenant", "user_id", "role"}


def test_changepassword_takes_a_username(
    ana: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namesake = User.objects.create_user("default", "ana", PASSWORD)
    monkeypatch.setattr("getpass.getpass", lambda *_, **__: "another long one")
    call_command("changepassword", "acme/ana")
    for user in (ana, namesake):
        user.refresh_from_db()
    assert ana.check_password("another long one")
    assert namesake.check_password(PASSWORD)
