"""Whatever is sent: a clear problem with a code or a stored turn, never a 500, never half a turn."""

import json
import uuid

import pytest
from django.test import override_settings

from conversations.models import ConversationThread, ThreadMessage

BASE = {"user_id": "ana", "agent_type": "chat", "query": "Revenue"}


def put_raw(agent, thread_id, body: bytes, content_type="application/json"):
    return agent.client.put(
        f"/api/v1/threads/{thread_id}/turns/{uuid.uuid4()}", body, content_type=content_type
    )


# --- Bytes that a store refuses (A1, A3) ----------------------------------------------------

ODD_STRINGS = {"nul": "a\u0000b", "lone surrogate": "a\ud800b", "half a pair": "\udfff"}


@pytest.mark.parametrize("odd", ODD_STRINGS.values(), ids=ODD_STRINGS)
@pytest.mark.parametrize(
    "place",
    [
        lambda odd: {"query": odd + "?"},
        lambda odd: {"answer": odd},
        lambda odd: {"artifacts": [{"kind": "sql", "sql": f"SELECT '{odd}'"}]},
        lambda odd: {"artifacts": [{"kind": "file", "name": odd, "columns": [odd]}]},
        lambda odd: {"response_payload": {odd: [odd, {"k": odd}]}},
        lambda odd: {"status": "pending", "waiting_for": odd},
        lambda odd: {"session_id": odd},
    ],
    ids=["query", "answer", "sql", "file", "payload", "waiting_for", "session_id"],
)
def test_characters_that_postgres_refuses_are_replaced_and_the_turn_is_kept(
    agent, thread_id, odd, place
):
    body = json.dumps({**BASE, **place(odd)}).encode()

    answer = put_raw(agent, thread_id, body)

    assert answer.status_code == 201, answer.content
    assert ThreadMessage.objects.filter(thread_id=thread_id).count() == 1
    assert agent.context(thread_id, focus="sql").status_code == 200
    read = agent.get(f"threads/{thread_id}/turns").content.decode()
    assert "\ufffd" in read


def test_the_same_turn_with_such_a_character_again_is_the_same(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, answer="a\u0000b")

    assert agent.put_turn(thread_id, turn_id, answer="a\u0000b").status_code == 200


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_know_become_null(agent, thread_id, number):
    body = json.dumps({**BASE, "response_payload": {"v": "@"}}).replace('"@"', number).encode()

    assert put_raw(agent, thread_id, body).status_code == 201
    assert ThreadMessage.objects.get(thread_id=thread_id).response_payload == {"v": None}


def test_integers_past_64_bits_keep_every_digit(agent, thread_id):
    big = 9223372036854775808123

    agent.put_turn(thread_id, response_payload={"big": big})

    read = agent.get(f"threads/{thread_id}/turns").content
    assert json.loads(read)["results"][0]["response_payload"]["big"] == big


def test_a_payload_comes_back_with_its_keys_in_order_and_its_numbers_as_sent(agent, thread_id):
    body = json.dumps(BASE)[:-1] + ', "response_payload": {"z": 1, "a": 2.50, "m": 1e2}}'
    put_raw(agent, thread_id, body.encode())

    read = agent.get(f"threads/{thread_id}/turns").content.decode()
    assert '"response_payload":{"z":1,"a":2.5,"m":100.0}' in read


# --- What is no turn ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"query": "a",}', b"\xff\xfe{}", b"nul", b'{"query": 1' + b"0" * 5000 + b"}"],
)
def test_a_body_that_is_no_json_is_a_400(agent, thread_id, body):
    answer = put_raw(agent, thread_id, body)

    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed_json"
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"3", b'"text"', b"true"])
def test_a_body_that_is_no_object_is_a_422(agent, thread_id, body):
    answer = put_raw(agent, thread_id, body)

    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_a_body_of_another_type_is_a_415(agent, thread_id):
    answer = put_raw(agent, thread_id, b"<turn/>", "text/xml")

    assert answer.status_code == 415
    assert answer.json()["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query", None),
        ("query", 5),
        ("query", ["a"]),
        ("answer", {"text": "x"}),
        ("agent_type", "robot"),
        ("status", "done"),
        ("revision", -1),
        ("revision", 2**31),
        ("revision", 1.5),
        ("expected_position", 0),
        ("artifacts", {"kind": "sql"}),
        ("artifacts", [{"kind": "pie"}]),
        ("artifacts", [{"kind": "sql"}]),
        ("artifacts", [{"kind": "chart", "chart_type": "bar", "spec": {"mark": "bar"}}]),
        ("artifacts", [{"kind": "chart", "chart_type": "bar", "data": 7}]),
        ("waiting_for", "approval"),
        ("error_code", "timeout"),
        ("unknown_field", 1),
        ("user_id", "a#b"),
    ],
)
def test_a_wrong_field_is_named_in_a_422_and_nothing_is_stored(agent, thread_id, field, value):
    answer = agent.put_turn(thread_id, **{field: value})

    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"]
    assert not ConversationThread.objects.filter(pk=thread_id).exists()


@pytest.mark.parametrize("path", ["threads/7/turns/7", "threads/x/context", "threads/%00"])
def test_an_id_that_is_no_uuid_is_a_422_that_says_so(agent, path):
    answer = agent.get(path)

    assert answer.status_code == 422
    assert "UUID" in json.dumps(answer.json()["errors"])


def test_a_uuid_in_capitals_is_the_same_thread(agent, thread_id):
    agent.put_turn(str(thread_id).upper())

    assert agent.context(thread_id).status_code == 200


# --- Limits, each with its number (A6) ------------------------------------------------------


def test_a_body_of_3_megabytes_is_stored(agent, thread_id):
    assert agent.put_turn(thread_id, answer="a" * 3_000_000).status_code == 201


@pytest.mark.parametrize(
    ("setting", "limit", "change", "code"),
    [
        ("MAX_BODY_BYTES", 1_000, {"answer": "a" * 1_001}, "body_too_large"),
        ("MAX_QUERY_CHARS", 10, {"query": "é" * 11}, "too_large"),
        ("MAX_ANSWER_CHARS", 10, {"answer": "é" * 11}, "too_large"),
        ("MAX_PAYLOAD_BYTES", 10, {"response_payload": {"a": "é" * 9}}, "too_large"),
    ],
)
def test_what_is_over_a_limit_is_a_413_that_names_it(
    agent, thread_id, setting, limit, change, code
):
    with override_settings(**{setting: limit}):
        answer = agent.put_turn(thread_id, **change)

    assert answer.status_code == 413
    assert answer.json()["code"] == code
    assert f"{limit}" in answer.json()["detail"]
    assert setting in answer.json()["detail"]
    assert not ConversationThread.objects.filter(pk=thread_id).exists()


def test_a_query_of_exactly_the_limit_is_stored(agent, thread_id):
    with override_settings(MAX_QUERY_CHARS=10):
        assert agent.put_turn(thread_id, query="é" * 10).status_code == 201


def test_too_many_artifacts_are_a_422_that_names_the_number(agent, thread_id):
    artifacts = [{"kind": "sql", "sql": f"SELECT {n}"} for n in range(51)]

    answer = agent.put_turn(thread_id, artifacts=artifacts)

    assert answer.status_code == 422
    assert answer.json()["code"] == "too_many_artifacts"
    assert "50" in answer.json()["detail"]
    assert "MAX_ARTIFACTS" in answer.json()["detail"]


def test_an_artifact_that_is_too_large_is_a_413_that_names_the_number(agent, thread_id):
    answer = agent.put_turn(thread_id, artifacts=[{"kind": "sql", "sql": "x" * 70_000}])

    assert answer.status_code == 413
    assert "65536" in answer.json()["detail"]
    assert "MAX_ARTIFACT_BYTES" in answer.json()["detail"]


@pytest.mark.parametrize("depth", [101, 900, 5_000, 200_000])
def test_json_that_is_nested_too_deeply_is_a_422(agent, thread_id, depth):
    body = json.dumps({**BASE, "response_payload": "@"}).replace('"@"', "[" * depth + "]" * depth)

    answer = put_raw(agent, thread_id, body.encode())

    assert answer.status_code == 422
    assert "MAX_JSON_DEPTH" in answer.json()["detail"]


# --- Query strings (A4, D10) ----------------------------------------------------------------


@pytest.mark.parametrize(
    "odd", ["%00", "a%00b", "%ed%a0%80", "%ff", "%25", "_", "'", "%F0%9F%92%A9"]
)
def test_odd_characters_in_a_filter_find_nothing(agent, thread_id, odd):
    agent.put_turn(thread_id, query="Revenue")

    answer = agent.client.get(f"/api/v1/threads?user_id=ana&q={odd}")

    assert answer.status_code == 200
    assert answer.json()["results"] == []


@pytest.mark.parametrize(
    "query", ["search=%00", "limit=0", "limit=abc", "archived=maybe", "cursor=%00", "cursor=AAAA",
              "status=done", "metadata.=x", "metadata=x", "metadata=x&metadata.team=y", "pinned=perhaps", "focus=sql"],
)  # fmt: skip
def test_a_wrong_filter_is_a_422(agent, query):
    assert agent.client.get(f"/api/v1/threads?user_id=ana&{query}").status_code == 422


@pytest.mark.parametrize("budget", ["-1", "abc", "1.5", "", "999999999", "%00", "1e3"])
def test_a_budget_that_is_no_number_of_tokens_is_a_422(agent, thread_id, budget):
    agent.put_turn(thread_id)

    answer = agent.client.get(
        f"/api/v1/threads/{thread_id}/context?user_id=ana&token_budget={budget}"
    )

    assert answer.status_code == 422
    assert "token_budget" in answer.json()["errors"]


# --- Errors in general ----------------------------------------------------------------------


def test_an_address_that_is_not_there_is_a_problem_too(agent):
    answer = agent.get("nothing/here")

    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "not_found"


def test_a_verb_that_is_not_there_is_a_problem_too(agent, thread_id):
    answer = agent.client.post(f"/api/v1/threads/{thread_id}/context")

    assert answer.status_code == 405
    assert answer.json()["code"] == "method_not_allowed"


def test_a_problem_carries_the_id_of_its_request(agent):
    answer = agent.client.get("/api/v1/threads", HTTP_X_REQUEST_ID="trace-42")

    assert answer.json()["request_id"] == "trace-42"
    assert answer["X-Request-ID"] == "trace-42"
