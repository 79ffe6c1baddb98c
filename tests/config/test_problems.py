"""Whatever is raised, the answer is a problem with a stable code."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import OperationalError
from django.http import Http404
from django.test import Client
from pydantic import BaseModel
from rest_framework import exceptions as drf

from config import errors
from tests.config import faulty_site

CASES = [
    (errors.Problem("No."), 400, "bad_request"),
    (errors.Invalid("No."), 422, "invalid"),
    (errors.MalformedJSON(), 400, "malformed_json"),
    (errors.BodyTooLarge(), 413, "body_too_large"),
    (errors.NotFound(), 404, "not_found"),
    (errors.Unavailable(), 503, "unavailable"),
    (Http404("secret detail"), 404, "not_found"),
    (PermissionDenied("secret detail"), 403, "permission_denied"),
    (RequestDataTooBig("secret detail"), 413, "body_too_large"),
    (SuspiciousOperation("secret detail"), 400, "bad_request"),
    (OperationalError("secret detail"), 503, "unavailable"),
    (drf.PermissionDenied(), 403, "permission_denied"),
    (drf.NotAuthenticated(), 401, "not_authenticated"),
    (drf.AuthenticationFailed(), 401, "authentication_failed"),
    (drf.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
    (drf.NotFound(), 404, "not_found"),
    (drf.ValidationError({"a": ["No."]}), 400, "invalid"),
    (drf.Throttled(wait=1.5), 429, "throttled"),
]


@pytest.fixture(autouse=True)
def _site(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.config.faulty_site"
    faulty_site.to_raise.clear()


def ask(error: Exception, address: str = "/api") -> Any:
    faulty_site.to_raise.append(error)
    return Client(raise_request_exception=False).get(address)


@pytest.mark.parametrize(
    ("error", "status", "code"), CASES, ids=[type(case[0]).__name__ for case in CASES]
)
def test_an_exception_becomes_a_problem(error: Exception, status: int, code: str) -> None:
    answer = ask(error)

    body = answer.json()
    # DRF answers 403 for 401 where no authentication class says how to log in.
    assert answer.status_code in {status, 403 if status == 401 else status}
    assert answer["Content-Type"] == "application/problem+json"
    assert (body["status"], body["code"]) == (answer.status_code, code)
    assert {"type", "title", "detail", "request_id"} <= body.keys()
    assert "secret detail" not in answer.text


def test_a_problem_is_never_cached() -> None:
    assert ask(errors.NotFound())["Cache-Control"] == "no-store"


def test_extra_members_stand_beside_the_others() -> None:
    body = ask(errors.Problem("Taken.", stored={"position": 3})).json()

    assert body["stored"] == {"position": 3}


def test_headers_of_a_problem_are_sent() -> None:
    assert ask(errors.Problem("Wait.", headers={"Retry-After": "7"}))["Retry-After"] == "7"


def test_a_throttled_caller_is_told_when_to_come_back() -> None:
    assert ask(drf.Throttled(wait=1.5))["Retry-After"] == "3"


def test_a_fault_of_ours_says_nothing_about_itself() -> None:
    answer = ask(RuntimeError("password=hunter2"))

    assert (answer.status_code, answer.json()["code"]) == (500, "server_error")
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("error", [Http404(), PermissionDenied(), SuspiciousOperation()])
def test_a_page_answers_with_a_problem_too(error: Exception) -> None:
    assert ask(error, "/page")["Content-Type"] == "application/problem+json"


def test_a_body_that_a_page_reads_too_large_is_a_413() -> None:
    assert ask(RequestDataTooBig(), "/page").status_code == 413


def test_an_absent_address_is_a_problem(client: Client) -> None:
    answer = client.get("/nowhere")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


class Person(BaseModel):
    name: str
    tags: list[int] = []


def test_validation_says_what_is_wrong_by_field() -> None:
    with pytest.raises(errors.Invalid) as refused:
        errors.validate(Person, {"tags": [1, "x"]})

    assert refused.value.errors is not None
    assert refused.value.errors.keys() == {"name", "tags.1"}


def test_validation_names_the_body_when_it_is_no_object() -> None:
    with pytest.raises(errors.Invalid) as refused:
        errors.validate(Person, [])

    assert refused.value.errors is not None
    assert refused.value.errors.keys() == {"body"}


def test_validation_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(errors.Invalid) as refused:
        errors.validate(Person, {"name": 12345})

    assert "12345" not in str(errors.body(refused.value))


def test_validation_lists_fifty_errors_at_most() -> None:
    with pytest.raises(errors.Invalid) as refused:
        errors.validate(Person, {"name": "ana", "tags": ["x"] * 5000})

    assert refused.value.errors is not None
    assert len(refused.value.errors) == 50
