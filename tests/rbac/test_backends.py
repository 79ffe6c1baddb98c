"""Log-in with a password, as the admin pages and the API use it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.hashers import get_hasher
from django.test import Client, RequestFactory
from rest_framework.test import APIClient

from rbac.models import Role, User
from tests.rbac.conftest import PASSWORD


@pytest.mark.parametrize(
    "who", [{"tenant": "acme", "user_id": "ana"}, {"username": "acme/ana"}], ids=str
)
def test_tenant_and_user_id_or_a_username(ana: User, who: dict[str, str]) -> None:
    assert authenticate(None, password=PASSWORD, **who) == ana
    assert authenticate(None, password="wrong", **who) is None


def test_a_user_id_alone_is_of_the_default_tenant(ana: User) -> None:
    assert authenticate(None, username="ana", password=PASSWORD) is None
    eve = User.objects.create_user("default", "eve", PASSWORD)
    for who in ({"username": "eve"}, {"username": "default/eve"}, {"user_id": "eve"}):
        assert authenticate(None, password=PASSWORD, **who) == eve


@pytest.mark.parametrize(
    "who",
    [
        {},
        {"username": ""},
        {"username": "a/b/c"},
        {"username": "acme/a\x00"},
        {"user_id": "a\x00"},
        {"tenant": "\ud800", "user_id": "ana"},
        {"username": "x" * 10_000},
    ],
)
def test_impossible_names_are_nobody(ana: User, who: dict[str, str]) -> None:
    assert authenticate(None, password=PASSWORD, **who) is None


def test_agents_and_the_deactivated_can_not_log_in(ana: User) -> None:
    User.objects.create_user("acme", "robot", PASSWORD, role=Role.AGENT)
    assert authenticate(None, username="acme/robot", password=PASSWORD) is None
    ana.deactivate()
    assert authenticate(None, username="acme/ana", password=PASSWORD) is None


@pytest.mark.parametrize("username", ["acme/ana", "acme/nobody", "acme/seen", "a#b", "acme/robot"])
def test_everybody_costs_one_hash(
    ana: User, username: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    User.objects.get_or_create_person("acme", "seen")
    User.objects.create_user("acme", "robot", role=Role.AGENT)
    hasher = type(get_hasher())
    hashed: list[str] = []
    encode = hasher.encode

    def counted(self: object, password: str, *args: object, **kwargs: object) -> str:
        hashed.append(password)
        return encode(self, password, *args, **kwargs)

    monkeypatch.setattr(hasher, "encode", counted)
    authenticate(None, username=username, password="wrong")
    assert len(hashed) == 1


# --- Through the form of /admin


def admin_form(username: str, password: str) -> Any:
    return Client().post("/admin/login/?next=/admin/", {"username": username, "password": password})


def is_refused(answer: Any) -> bool:
    """The form again, with what it says of a wrong password."""
    says = "Please enter the correct username and password"
    return answer.status_code == 200 and says in answer.content.decode()


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_user("acme", "boss", PASSWORD, role=Role.ADMIN)


@pytest.mark.parametrize("store", ["redis", "no_redis"])
def test_guesses_at_the_admin_pages_are_counted(
    boss: User, store: str, request: pytest.FixtureRequest, settings: Any
) -> None:
    settings.LOGIN_RATE = "3/min"
    request.getfixturevalue(store)
    for _ in range(2):
        assert is_refused(admin_form("acme/boss", "wrong"))
    assert admin_form("acme/boss", PASSWORD).status_code == 302
    for _ in range(3):
        assert is_refused(admin_form("acme/boss", "wrong"))
    assert is_refused(admin_form("acme/boss", PASSWORD))


def test_pages_and_api_count_together(boss: User, settings: Any) -> None:
    settings.LOGIN_RATE = "2/min"
    body = {"tenant": "acme", "user_id": "boss", "password": "wrong"}
    assert is_refused(admin_form("acme/boss", "wrong"))
    assert APIClient().post("/api/v1/auth/token", body, format="json").status_code == 401
    assert is_refused(admin_form("acme/boss", PASSWORD))
    body["password"] = PASSWORD
    assert APIClient().post("/api/v1/auth/token", body, format="json").status_code == 429


@pytest.mark.parametrize("username", ["acme/boss", "a/b/c"])
def test_an_address_that_tries_names_is_stopped_whatever_they_are(
    boss: User, username: str, settings: Any
) -> None:
    settings.LOGIN_RATE = "1/min"
    for number in range(10):
        assert is_refused(admin_form(f"nobody{number}", "wrong"))
    assert is_refused(admin_form(username, PASSWORD))


def test_one_person_has_one_counter_however_the_name_is_typed(db: None, settings: Any) -> None:
    User.objects.create_user("acme", "jos\u00e9", PASSWORD)
    settings.LOGIN_RATE = "1/min"
    request = RequestFactory().post("/")
    assert authenticate(request, tenant="acme", user_id="jos\u00e9", password="wrong") is None
    assert authenticate(request, tenant="acme", user_id="jose\u0301", password=PASSWORD) is None
    assert authenticate(request, username="acme/jose\u0301", password=PASSWORD) is None


def test_without_a_request_nothing_is_counted(ana: User, settings: Any) -> None:
    settings.LOGIN_RATE = "1/min"
    for _ in range(3):
        assert authenticate(None, username="acme/ana", password="wrong") is None
    assert authenticate(None, username="acme/ana", password=PASSWORD) == ana


def test_an_admin_logs_in_to_the_admin_pages_with_a_long_name(db: None) -> None:
    tenant, user_id = "t" * 100, "u" * 128
    User.objects.create_user(tenant, user_id, PASSWORD, role=Role.ADMIN)
    client = Client()
    answer = client.post(
        "/admin/login/?next=/admin/",
        {"username": f"{tenant}/{user_id}", "password": PASSWORD},
    )
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert client.get("/admin/").status_code == 200
