"""People and tokens in /admin."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from rbac.models import AuthToken, Role, User
from tests.rbac.conftest import PASSWORD, Bearer

PEOPLE = "/admin/rbac/user/"
TOKENS = "/admin/rbac/authtoken/"


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def boss(db: None) -> Client:
    """An administrator of acme."""
    return logged_in(User.objects.create_user("acme", "boss", PASSWORD, role=Role.ADMIN))


@pytest.fixture
def root(db: None) -> Client:
    """A superuser."""
    return logged_in(User.objects.create_superuser("root", PASSWORD))


def new(**changed: str) -> dict[str, str]:
    return {
        "tenant": "acme", "user_id": "new", "role": "user", "usable_password": "true",
        "password1": PASSWORD, "password2": PASSWORD, **changed,
    }  # fmt: skip


def test_who_is_no_admin_is_sent_to_log_in(ana: User) -> None:
    assert logged_in(ana).get(PEOPLE).status_code == 302


def test_an_admin_sees_their_own_tenant(boss: Client, ana: User, olga: User) -> None:
    page = boss.get(PEOPLE).content.decode()
    assert "acme/ana" in page
    assert "olga" not in page
    assert "globex" not in page
    assert boss.get(f"{PEOPLE}{olga.pk}/change/").status_code == 302


def test_a_superuser_sees_all_tenants(root: Client, ana: User, olga: User) -> None:
    page = root.get(PEOPLE).content.decode()
    assert "acme/ana" in page
    assert "globex/olga" in page


def test_a_person_is_added_with_a_password(boss: Client) -> None:
    assert boss.post(f"{PEOPLE}add/", new()).status_code == 302
    person = User.objects.person("acme", "new")
    assert person.check_password(PASSWORD)
    assert person.role == "user"


def test_a_person_is_added_without_a_password(boss: Client) -> None:
    body = new(usable_password="false", password1="", password2="")
    assert boss.post(f"{PEOPLE}add/", body).status_code == 302
    assert not User.objects.person("acme", "new").has_usable_password()


@pytest.mark.parametrize(
    "changed",
    [
        {"password2": "other"},
        {"password1": "short", "password2": "short"},
        {"password1": "", "password2": ""},
        {"user_id": "a#b"},
        {"user_id": "SYSTEM"},
        {"user_id": "a\x00b"},
        {"user_id": "ana"},
        {"user_id": ""},
        {"role": "agent"},
        {"role": "king"},
        {"tenant": "globex"},
    ],
    ids=str,
)
def test_what_can_not_be_added_is_said_on_the_page(
    boss: Client, ana: User, changed: dict[str, str]
) -> None:
    before = User.objects.count()
    answer = boss.post(f"{PEOPLE}add/", new(**changed))
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert User.objects.count() == before


def test_a_superuser_adds_to_any_tenant(root: Client) -> None:
    assert root.post(f"{PEOPLE}add/", new(tenant="globex", role="admin")).status_code == 302
    assert User.objects.person("globex", "new").is_staff


def test_role_and_activity_are_changed_but_not_who_it_is(boss: Client, ana: User) -> None:
    answer = boss.post(
        f"{PEOPLE}{ana.pk}/change/",
        {"role": "admin", "user_id": "x", "tenant": "globex", "is_superuser": "on"},
    )
    assert answer.status_code == 302
    ana.refresh_from_db()
    assert (ana.tenant, ana.user_id, ana.role) == ("acme", "ana", "admin")
    assert not ana.is_active
    assert not ana.is_superuser


def test_a_superuser_makes_superusers(root: Client, ana: User) -> None:
    root.post(
        f"{PEOPLE}{ana.pk}/change/", {"role": "admin", "is_active": "on", "is_superuser": "on"}
    )
    ana.refresh_from_db()
    assert ana.is_superuser


def test_an_agent_stays_one(root: Client, bi: Bearer) -> None:
    assert root.get(f"{PEOPLE}{bi.user.pk}/change/").status_code == 200
    root.post(f"{PEOPLE}{bi.user.pk}/change/", {"role": "user", "is_superuser": "on"})
    bi.user.refresh_from_db()
    assert (bi.user.role, bi.user.is_superuser) == ("agent", False)


def test_an_admin_can_not_touch_a_superuser_of_the_same_tenant(boss: Client) -> None:
    chief = User.objects.create_superuser("acme/chief", PASSWORD)
    token, _ = AuthToken.objects.issue(chief, name="x")
    assert boss.post(f"{PEOPLE}{chief.pk}/change/", {"role": "user"}).status_code == 403
    body = {"password1": "another long one", "password2": "another long one"}
    assert boss.post(f"{PEOPLE}{chief.pk}/password/", body).status_code == 403
    assert boss.post(f"{PEOPLE}{chief.pk}/delete/", {"post": "yes"}).status_code == 403
    assert boss.post(f"{TOKENS}{token.pk}/delete/", {"post": "yes"}).status_code == 403
    action = {"action": "delete_selected", "_selected_action": str(chief.pk), "post": "yes"}
    boss.post(PEOPLE, action)
    boss.post(TOKENS, {**action, "_selected_action": token.pk})
    chief.refresh_from_db()
    assert chief.check_password(PASSWORD)
    assert AuthToken.objects.filter(pk=token.pk).exists()


def test_a_password_is_set_anew(boss: Client, ana: User) -> None:
    body = {"password1": "another long one", "password2": "another long one"}
    assert boss.get(f"{PEOPLE}{ana.pk}/password/").status_code == 200
    boss.post(f"{PEOPLE}{ana.pk}/password/", body)
    ana.refresh_from_db()
    assert ana.check_password("another long one")


def test_a_token_is_shown_by_its_beginning_only(boss: Client, bi: Bearer) -> None:
    for page in (boss.get(TOKENS), boss.get(f"{TOKENS}{bi.token.pk}/change/")):
        text = page.content.decode()
        assert bi.token.handle in text
        assert bi.secret[:12] not in text


def test_tokens_are_not_made_or_edited_here(root: Client, bi: Bearer) -> None:
    assert root.get(f"{TOKENS}add/").status_code == 403
    assert root.post(f"{TOKENS}{bi.token.pk}/change/", {"name": "x"}).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_deleting_a_token_revokes_it_at_once(root: Client, bi: Bearer) -> None:
    assert bi.api.get("/api/v1/me").status_code == 200
    assert root.post(f"{TOKENS}{bi.token.pk}/delete/", {"post": "yes"}).status_code == 302
    assert bi.api.get("/api/v1/me").status_code == 401


@pytest.mark.parametrize("query", ["?q=an", "?q=%00", "?role__exact=agent", "?is_active__exact=0"])
def test_lists_search_and_filter(root: Client, ana: User, bi: Bearer, query: str) -> None:
    assert root.get(PEOPLE + query).status_code in {200, 400}
    assert root.get(TOKENS + "?q=bi").status_code == 200


def test_the_lists_cost_the_same_for_many_rows(root: Client) -> None:
    def queries(url: str) -> int:
        with CaptureQueriesContext(connection) as made:
            assert root.get(url).status_code == 200
        return len(made)

    def add(first: int, last: int) -> None:
        for number in range(first, last):
            user = User.objects.create(tenant="acme", user_id=f"u{number}", password="!")
            AuthToken.objects.issue(user, name="x")

    add(0, 2)
    few = [queries(url) for url in (PEOPLE, TOKENS)]
    add(2, 60)
    assert [queries(url) for url in (PEOPLE, TOKENS)] == few


def test_a_name_can_not_run_in_the_page(root: Client) -> None:
    user: Any = User.objects.create_user("acme", "<script>alert(1)")
    page = root.get(f"{PEOPLE}{user.pk}/change/").content.decode()
    assert not re.search(r"<script>alert", page)
