"""JSON in and out: limits, what is repaired, what is refused."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.test import Client

from config.errors import Invalid, MalformedJSON
from config.parsers import parse_json


@pytest.fixture(autouse=True)
def _site(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.config.faulty_site"


def send(client: Client, body: bytes | str, content_type: str = "application/json") -> Any:
    return client.post("/echo", body, content_type=content_type)


def test_what_is_sent_comes_back(client: Client) -> None:
    body = {"text": "Größe 你好 🎉", "n": [1, -2.5, True, None], "o": {"": ""}}

    assert send(client, json.dumps(body)).json() == body


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(2**70), 10**40])
def test_integers_keep_every_digit(client: Client, number: int) -> None:
    assert send(client, json.dumps([number])).json() == [number]


def test_nan_and_infinity_become_null(client: Client) -> None:
    assert send(client, "[NaN, Infinity, -Infinity, 1e999]").json() == [None] * 4


@pytest.mark.parametrize("text", [r"a\u0000b", r"a\ud800b", r"a\udfffb"])
def test_what_postgres_refuses_is_replaced_visibly(client: Client, text: str) -> None:
    assert send(client, f'{{"k{text}": "{text}"}}').json() == {"ka\ufffdb": "a\ufffdb"}


def test_a_pair_of_surrogates_stays_one_character(client: Client) -> None:
    assert send(client, r'["\ud83c\udf89"]').json() == ["🎉"]


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff\xfe\x00", b'{"a": 1,}', b"'a'", b"nul", b"\xc3("]
)
def test_no_json_is_a_400(body: bytes) -> None:
    with pytest.raises(MalformedJSON):
        parse_json(body)


def test_malformed_json_is_answered_as_a_problem(client: Client) -> None:
    answer = send(client, b'{"a":')

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json")


def test_a_byte_order_mark_is_no_fault() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("depth", [101, 5_000, 500_000])
def test_deep_nesting_is_refused_by_number(depth: int) -> None:
    with pytest.raises(Invalid, match="MAX_JSON_DEPTH"):
        parse_json(b"[" * depth + b"]" * depth)


def verdict(body: bytes) -> str:
    try:
        parse_json(body)
    except Invalid as error:
        return error.detail.partition("(")[2].rstrip(").")
    except MalformedJSON:
        return "malformed"
    return "taken"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('[{"a": [1]}]', "taken"),
        ('[{"a": [[1]]}]', "MAX_JSON_CONTAINERS"),
        ('["[[[[{{{{"]', "taken"),
        (r'["\"[[[[", {"[[[[": "\\"}]', "taken"),
        (r'["\\", [[["]"]]]]', "MAX_JSON_CONTAINERS"),
        (r'["a\"", [[[', "MAX_JSON_CONTAINERS"),
        ("[[[[", "MAX_JSON_CONTAINERS"),
        ('"[[[[', "malformed"),
    ],
)
def test_objects_and_lists_are_counted_but_no_brackets_in_strings(
    settings: Any, body: str, expected: str
) -> None:
    settings.MAX_JSON_CONTAINERS = 3

    assert verdict(body.encode()) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
def test_they_are_counted_in_every_encoding_of_json(settings: Any, encoding: str) -> None:
    settings.MAX_JSON_CONTAINERS = 3

    assert verdict(r'["\"", [[[1]]]]'.encode(encoding)) == "MAX_JSON_CONTAINERS"
    assert verdict(r'["\"", "[[[1]]]"]'.encode(encoding)) == "taken"


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 2_000_000, b'\\"' * 2_000_000, b'"[' * 1_500_000])
def test_no_string_takes_long_to_be_told_apart(settings: Any, body: bytes) -> None:
    """A pattern that tries again from each quote would take hours."""
    settings.MAX_JSON_CONTAINERS = 3
    started = time.process_time()

    assert verdict(b"[[[[" + body) != "taken"
    assert time.process_time() - started < 5


def test_nesting_up_to_the_limit_is_taken() -> None:
    parse_json(b"[" * 100 + b"]" * 100)


def test_a_body_of_three_megabytes_is_taken(client: Client) -> None:
    assert send(client, json.dumps(["a" * 3_000_000])).status_code == 200


def test_a_body_over_the_limit_is_a_413_that_names_it(client: Client, settings: Any) -> None:
    settings.MAX_BODY_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000

    answer = send(client, json.dumps(["a" * 1000]))

    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert "MAX_BODY_BYTES" in answer.json()["detail"]
    assert answer["Content-Type"] == "application/problem+json"


def test_a_body_of_exactly_the_limit_is_taken(client: Client, settings: Any) -> None:
    settings.MAX_BODY_BYTES = 1000

    assert send(client, json.dumps(["a" * 996])).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/html"])
def test_another_kind_of_body_is_a_415(client: Client, kind: str) -> None:
    answer = send(client, b"a=1", kind)

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "application/merge-patch+json"]
)
def test_json_by_another_name_is_taken(client: Client, kind: str) -> None:
    assert send(client, b"[1]", kind).json() == [1]


def test_the_answer_is_json_whatever_accept_says(client: Client) -> None:
    answer = client.post(
        "/echo", b"[1]", content_type="application/json", headers={"accept": "text/html"}
    )

    assert answer["Content-Type"] == "application/json"


def test_a_body_sent_in_chunks_is_read_or_refused(client: Client) -> None:
    answer = client.generic(
        "POST",
        "/echo",
        b"[1]",
        content_type="application/json",
        CONTENT_LENGTH="",
        HTTP_TRANSFER_ENCODING="chunked",
    )

    assert answer.status_code == 411 or answer.json() == [1]
