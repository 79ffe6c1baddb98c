"""Who is let in with a token or a session, and at what cost."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIClient, APIRequestFactory
from rest_framework.views import APIView

from config import redis as redis_gate
from rbac.authentication import TokenAuthentication, ridden_of
from rbac.models import AuthToken, User
from tests.rbac.conftest import PASSWORD, Bearer

pytestmark = pytest.mark.django_db


def get(header: str | None) -> Any:
    headers = {} if header is None else {"HTTP_AUTHORIZATION": header}
    return APIClient().get("/api/v1/me", **headers)


def test_a_token_is_enough(bi: Bearer) -> None:
    for scheme in ("Token", "token", "TOKEN"):
        assert get(f"{scheme} {bi.secret}").json()["user_id"] == "bi"


def test_a_cold_call_asks_postgres_once(bi: Bearer, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert bi.api.get("/api/v1/me").status_code == 200


@pytest.mark.parametrize("header", [None, "", "Bearer abc", "Basic YTpi", "Tokens x"])
def test_without_a_token_the_answer_is_not_authenticated(db: None, header: str | None) -> None:
    answer = get(header)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert answer["WWW-Authenticate"] == "Token"


@pytest.mark.parametrize(
    "token",
    ["", " ", "x", "rt_" + "0" * 64, "a b", "\u2713", "é", "a\x00b", "a\tb", "\udcff", "x" * 129,
     "x" * 1_000_000],
    ids=range(12),
)  # fmt: skip
def test_a_token_that_can_not_be_one_is_invalid_never_a_500(db: None, token: str) -> None:
    answer = get(f"Token {token}")
    assert (answer.status_code, answer.json()["code"]) == (401, "invalid_token")


def bodies_of_the_refused(bearer: Bearer, ana: Bearer) -> list[Any]:
    answers = [get("Token rt_" + "0" * 64)]
    _, secret = AuthToken.objects.issue(ana.user, name="x", ttl=timedelta(hours=-1))
    answers.append(get(f"Token {secret}"))
    bearer.token.delete()
    answers.append(bearer.api.get("/api/v1/me"))
    ana.user.deactivate()
    answers.append(ana.api.get("/api/v1/me"))
    return answers


@pytest.mark.django_db(transaction=True)
def test_unknown_expired_revoked_and_deactivated_look_the_same(
    bi: Bearer, ana_bearer: Bearer
) -> None:
    bi.api.get("/api/v1/me")
    ana_bearer.api.get("/api/v1/me")
    answers = bodies_of_the_refused(bi, ana_bearer)
    assert {answer.status_code for answer in answers} == {401}
    bodies = [{k: v for k, v in a.json().items() if k != "request_id"} for a in answers]
    assert bodies == [bodies[0]] * len(bodies)


def test_a_cached_principal_still_expires(ana: User) -> None:
    now = timezone.now()
    _, secret = AuthToken.objects.issue(ana, name="x", ttl=timedelta(seconds=20))
    with time_machine.travel(now + timedelta(seconds=15), tick=False):
        assert get(f"Token {secret}").status_code == 200
    with time_machine.travel(now + timedelta(seconds=21), tick=False):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert get(f"Token {secret}").status_code == 401
        assert len(queries) == 0


@pytest.mark.django_db(transaction=True)
def test_the_next_call_after_a_change_knows_it(ana_bearer: Bearer) -> None:
    def me() -> Any:
        return ana_bearer.api.get("/api/v1/me")

    assert me().json()["role"] == "user"
    ana_bearer.user.change_role("admin")
    assert me().json()["role"] == "admin"
    ana_bearer.user.deactivate()
    assert me().status_code == 401


@pytest.mark.django_db(transaction=True)
def test_deleting_somebody_refuses_their_token(ana_bearer: Bearer) -> None:
    assert ana_bearer.api.get("/api/v1/me").status_code == 200
    User.objects.filter(pk=ana_bearer.user.pk).delete()
    assert ana_bearer.api.get("/api/v1/me").status_code == 401


def test_without_redis_every_call_asks_postgres_and_is_right(
    no_redis: None, ana_bearer: Bearer, django_assert_num_queries: Any
) -> None:
    for _ in range(2):
        with django_assert_num_queries(1):
            assert ana_bearer.api.get("/api/v1/me").status_code == 200
    ana_bearer.user.deactivate()
    assert ana_bearer.api.get("/api/v1/me").status_code == 401


def test_a_silent_redis_costs_one_time_out(silent_redis: None, bi: Bearer) -> None:
    began = time.monotonic()
    for _ in range(5):
        assert bi.api.get("/api/v1/me").status_code == 200
    assert time.monotonic() - began < 1.5


# --- sessions


def test_a_session_gives_a_principal(api: APIClient, ana: User) -> None:
    assert api.login(tenant="acme", user_id="ana", password=PASSWORD)
    assert api.get("/api/v1/me").json()["user_id"] == "ana"


def test_a_session_of_somebody_deactivated_is_refused_at_once(api: APIClient, ana: User) -> None:
    api.login(tenant="acme", user_id="ana", password=PASSWORD)
    ana.deactivate()
    assert api.get("/api/v1/me").status_code == 401


def test_a_session_that_writes_needs_a_csrf_token(ana: User) -> None:
    api = APIClient(enforce_csrf_checks=True)
    api.login(tenant="acme", user_id="ana", password=PASSWORD)
    assert api.get("/api/v1/me").status_code == 200
    answer = api.post("/api/v1/me")
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")


# --- riding along


class Riding(APIView):
    """Reads two things of its own with the token."""

    authentication_classes = [TokenAuthentication]

    def ride_along(self, request: Request, pipeline: Any) -> None:
        pipeline.get("mine")
        pipeline.hgetall("mine")

    def get(self, request: Request) -> Response:
        user_id = request.query_params.get("user_id")
        person = request.user.acting_for(user_id)
        ridden = ridden_of(request)
        return Response({"person": person.user_id, "ridden": repr(ridden)})


class OnFoot(APIView):
    """Reads nothing with the token."""

    authentication_classes = [TokenAuthentication]

    def get(self, request: Request) -> Response:
        return Response({"ridden": repr(ridden_of(request))})


def ride(bearer: Bearer | str, query: str = "", view: type[APIView] = Riding) -> Any:
    secret = bearer if isinstance(bearer, str) else bearer.secret
    request = APIRequestFactory().get(f"/{query}", HTTP_AUTHORIZATION=f"Token {secret}")
    return view.as_view()(request)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each round trip to Redis."""
    made: list[int] = []
    attempt = redis_gate.attempt

    def counted(call: Any) -> Any:
        made.append(1)
        return attempt(call)

    monkeypatch.setattr(redis_gate, "attempt", counted)
    return made


def test_a_view_reads_its_own_keys_in_the_tokens_round_trip(
    redis: Any, bi: Bearer, ana: User, trips: list[int], django_assert_num_queries: Any
) -> None:
    redis.set("mine", "x")
    ride(bi, "?user_id=ana")
    trips.clear()
    with django_assert_num_queries(0):
        answer = ride(bi, "?user_id=ana")
    assert answer.data["person"] == "ana"
    assert answer.data["ridden"].startswith("[b'x', ")
    assert "Error" in answer.data["ridden"]
    assert len(trips) == 1


def test_a_person_not_asked_for_in_the_query_costs_one_trip_more(
    bi: Bearer, ana: User, trips: list[int], django_assert_num_queries: Any
) -> None:
    from rbac.principal import Principal

    ride(bi, "?user_id=ana")
    trips.clear()
    user = bi.user
    principal = Principal(user.pk, user.tenant, user.user_id, user.role, bi.token.digest)
    with django_assert_num_queries(0):
        assert principal.acting_for("ana").pk == ana.pk
    assert len(trips) == 1


def test_a_cold_token_keeps_what_rode_along(redis: Any, bi: Bearer) -> None:
    redis.set("mine", "x")
    assert ride(bi, "?user_id=ana").data["ridden"].startswith("[b'x'")


def test_what_rode_along_is_none_without_redis(no_redis: None, bi: Bearer) -> None:
    assert ride(bi, "?user_id=ana").data == {"person": "ana", "ridden": "None"}


def test_a_view_that_does_not_ride_gets_an_empty_list(redis: Any, bi: Bearer) -> None:
    assert ride(bi, view=OnFoot).data == {"ridden": "[]"}


def test_what_rode_along_for_an_invalid_token_reaches_nobody(redis: Any, db: None) -> None:
    redis.set("mine", "secret")
    answer = ride("rt_unknown", "?user_id=ana")
    assert answer.status_code == 401
    assert "secret" not in str(answer.data)


@pytest.mark.parametrize("query", ["?user_id=%00", "?user_id=a%23b", "?user_id=", "?user_id=%ff"])
def test_an_impossible_person_in_the_query_is_a_problem_for_the_caller(
    bi: Bearer, query: str
) -> None:
    assert ride(bi, query).status_code in {422, 200}
    assert ride(bi, query).status_code != 500
