"""POST and DELETE /auth/token."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from rbac.models import AuthToken, Role, User
from tests.rbac.conftest import PASSWORD, Bearer

pytestmark = pytest.mark.django_db

URL = "/api/v1/auth/token"


def log_in(**body: Any) -> Any:
    return APIClient().post(URL, body, format="json")


def test_a_password_gives_a_token_that_works_for_ten_hours(ana: User) -> None:
    answer = log_in(tenant="acme", user_id="ana", password=PASSWORD)
    assert answer.status_code == 201
    assert answer.json().keys() == {"token", "expires_at"}
    ends = datetime.fromisoformat(answer.json()["expires_at"])
    assert timedelta(hours=9) < ends - timezone.now() <= timedelta(hours=10)
    me = APIClient().get("/api/v1/me", HTTP_AUTHORIZATION=f"Token {answer.json()['token']}")
    assert me.json()["user_id"] == "ana"
    ana.refresh_from_db()
    assert ana.last_login is not None


def test_the_tenant_is_default_when_left_out(db: None) -> None:
    User.objects.create_user("default", "eve", PASSWORD)
    assert log_in(user_id="eve", password=PASSWORD).status_code == 201


def test_all_who_may_not_log_in_get_the_same_answer(ana: User, ben: User, bi: Bearer) -> None:
    ben.deactivate()
    robot = User.objects.create_user("acme", "robot", PASSWORD, role=Role.AGENT)
    User.objects.get_or_create_person("acme", "seen")
    answers = [
        log_in(tenant="acme", user_id="ana", password="wrong"),
        log_in(tenant="globex", user_id="ana", password=PASSWORD),
        log_in(tenant="acme", user_id="nobody", password=PASSWORD),
        log_in(tenant="acme", user_id="ben", password=PASSWORD),
        log_in(tenant="acme", user_id=robot.user_id, password=PASSWORD),
        log_in(tenant="acme", user_id="seen", password="!"),
        log_in(tenant="acme", user_id="ANA", password=PASSWORD),
    ]
    bodies = [{k: v for k, v in a.json().items() if k != "request_id"} for a in answers]
    assert {a.status_code for a in answers} == {401}
    assert bodies == [bodies[0]] * len(bodies)
    assert bodies[0]["code"] == "invalid_credentials"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"user_id": "ana"}, "password"),
        ({"password": "x"}, "user_id"),
        ({"user_id": "a#b", "password": "x"}, "user_id"),
        ({"user_id": "a\x00b", "password": "x"}, "user_id"),
        ({"user_id": "ana", "password": ""}, "password"),
        ({"user_id": "ana", "password": "x" * 5000}, "password"),
        ({"user_id": "ana", "password": 1}, "password"),
        ({"user_id": ["ana"], "password": "x"}, "user_id"),
        ({"tenant": "SYSTEM", "user_id": "ana", "password": "x"}, "tenant"),
        ({"tenant": None, "user_id": "ana", "password": "x"}, "tenant"),
        ({"user_id": "ana", "password": "x", "more": 1}, "more"),
    ],
)
def test_what_is_wrong_in_the_body_is_named(db: None, body: dict[str, Any], field: str) -> None:
    answer = log_in(**body)
    assert answer.status_code == 422
    assert field in answer.json()["errors"]


@pytest.mark.parametrize("body", ["", "[]", "null", "1", '"x"'])
def test_a_body_that_is_no_object_is_refused(db: None, body: str) -> None:
    answer = APIClient().post(URL, body, content_type="application/json")
    assert answer.status_code in {400, 422}


def test_a_stale_token_does_not_keep_anybody_from_logging_in(ana: User) -> None:
    api = APIClient(headers={"Authorization": "Token rt_old"})
    answer = api.post(
        URL, {"tenant": "acme", "user_id": "ana", "password": PASSWORD}, format="json"
    )
    assert answer.status_code == 201


def test_the_eleventh_wrong_password_has_to_wait_and_so_has_the_right_one(
    ana: User, ben: User
) -> None:
    for _ in range(10):
        assert log_in(tenant="acme", user_id="ana", password="wrong").status_code == 401
    answer = log_in(tenant="acme", user_id="ana", password=PASSWORD)
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_attempts")
    assert 0 < int(answer["Retry-After"]) <= 60
    assert log_in(tenant="acme", user_id="ben", password=PASSWORD).status_code == 201


def test_a_forged_forwarded_address_does_not_make_somebody_new(ana: User, settings: Any) -> None:
    settings.LOGIN_RATE = "1/min"
    body = {"tenant": "acme", "password": "wrong"}
    answers = [
        APIClient().post(
            URL, {**body, "user_id": f"u{n}"}, format="json", HTTP_X_FORWARDED_FOR=f"192.0.2.{n}"
        )
        for n in range(11)
    ]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]


def test_an_attempt_counts_once(ana: User, settings: Any) -> None:
    settings.LOGIN_RATE = "4/min"
    answers = [log_in(tenant="acme", user_id="ana", password="wrong").status_code for _ in range(5)]
    assert answers == [401] * 4 + [429]


def test_right_passwords_are_never_counted(ana: User, settings: Any) -> None:
    settings.LOGIN_RATE = "1/min"
    for _ in range(12):
        assert log_in(tenant="acme", user_id="ana", password=PASSWORD).status_code == 201


def test_log_in_works_and_is_throttled_without_redis(ana: User, no_redis: None) -> None:
    assert log_in(tenant="acme", user_id="ana", password=PASSWORD).status_code == 201
    for _ in range(10):
        log_in(tenant="acme", user_id="ana", password="wrong")
    assert log_in(tenant="acme", user_id="ana", password=PASSWORD).status_code == 429


@pytest.mark.django_db(transaction=True)
def test_logging_out_revokes_this_token_and_no_other(ana_bearer: Bearer) -> None:
    _, other = AuthToken.objects.issue(ana_bearer.user, name="other")
    assert ana_bearer.api.get("/api/v1/me").status_code == 200
    answer = ana_bearer.api.delete(URL)
    assert (answer.status_code, answer.content) == (204, b"")
    assert ana_bearer.api.get("/api/v1/me").status_code == 401
    assert ana_bearer.api.delete(URL).status_code == 401
    assert APIClient().get("/api/v1/me", HTTP_AUTHORIZATION=f"Token {other}").status_code == 200


def test_logging_out_needs_a_token(api: APIClient, ana: User) -> None:
    assert api.delete(URL).status_code == 401
    api.login(tenant="acme", user_id="ana", password=PASSWORD)
    assert api.delete(URL).status_code == 401
