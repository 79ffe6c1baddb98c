"""Whatever stands where a copy should be is a miss, and is rebuilt: slower, never wrong."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import orjson
import pytest
from redis import Redis

from tests.conversations.cached_thread import Thread
from tests.conversations.conftest import Caller


@pytest.fixture
def thread(agent: Caller, redis: Redis) -> Thread:
    return Thread(agent, redis)


@pytest.fixture
def cached(thread: Thread) -> Thread:
    """A thread of three turns with a copy."""
    thread.append_three()
    thread.cache()
    return thread


@pytest.fixture(autouse=True)
def _every_key_has_a_time_to_live(redis: Redis) -> Iterator[None]:
    yield
    assert [key for key in redis.scan_iter() if redis.ttl(key) == -1] == []


@pytest.mark.parametrize("value", [b'{"a":', b"\xff\xfe", b"[]", b"null", b""])
@pytest.mark.parametrize("authenticated_apart", [False, True])
def test_a_string_in_its_place(cached, value, authenticated_apart, monkeypatch):
    if authenticated_apart:  # then the view reads the copy itself
        monkeypatch.setattr("conversations.api.context.ridden_of", lambda _: None)
    expected = cached.view()["text"]
    cached.redis.set(cached.key, value)
    assert cached.view()["text"] == expected
    assert cached.cache()["text"] == expected


def _as_list(redis: Redis, key: str) -> None:
    redis.rpush(key, "t:1")


def _as_set(redis: Redis, key: str) -> None:
    redis.sadd(key, "v")


def _as_sorted_set(redis: Redis, key: str) -> None:
    redis.zadd(key, {"v": 3})


def _as_stream(redis: Redis, key: str) -> None:
    redis.xadd(key, {"v": "3"})


def _as_hash_of_others(redis: Redis, key: str) -> None:
    redis.hset(key, mapping={"x:word": "1", "t:1": "{}", "f": "2"})


def _as_lease_for_ever(redis: Redis, key: str) -> None:
    redis.hset(key, "lease", "gone")


KINDS = [_as_list, _as_set, _as_sorted_set, _as_stream, _as_hash_of_others, _as_lease_for_ever]


@pytest.mark.parametrize("make", KINDS)
def test_another_type_in_its_place(cached, make):
    expected = cached.view()["text"]
    cached.redis.delete(cached.key)
    make(cached.redis, cached.key)
    assert cached.view()["text"] == expected
    assert cached.cache()["text"] == expected


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("change", ["append", "complete", "delete", "resend"])
def test_a_change_meets_another_type(cached, make, change):
    pending = uuid.uuid4()
    sent = {"turn": pending, "query": "Delete them?", "status": "pending"}
    cached.append(**sent)
    cached.redis.delete(cached.key)
    make(cached.redis, cached.key)
    if change == "append":
        cached.append()
    elif change == "complete":
        cached.append(turn=pending, query="Delete them?", answer="Deleted.", revision=1)
    elif change == "resend":
        cached.append(**sent)
    else:
        assert cached.agent.delete(f"threads/{cached.id}").status_code == 204
        assert cached.agent.context(cached.id).status_code == 404
        return
    assert cached.view()["text"] == cached.cold_view()["text"]
    assert cached.cache()["text"] == cached.cold_view()["text"]


NOT_NUMBERS = [
    b"", b"-1", b"x", b"null", b"[]", b'{"a":', b"\xff\xfe", b"1e5", b"1.5", b"nan", b"inf", b" 3",
    b"03", b"99999999999999999999", b"9" * 5000, None,
]  # fmt: skip
NOT_HEADS = [
    b"x", b"5", b"null", b"[]", b"{}", b'"abc"', b'["", {}]', b'["", {}, [], []]', b"\xff\xfe",
    b'[5, {}, []]', b'["", [], []]', b'["", {}, "abc"]', b'["", {}, [5]]', b'["", {}, ["a"]',
    b'["", {"entries": [5]}, []]', b'["", {"entries": [{}]}, []]',
    b'["", {"entries": [{"key": "filter|a", "last": "x"}]}, []]',
    b'["", {"entries": [{"key": "filter|a", "was": [1]}]}, []]', None,
]  # fmt: skip
BAD_HEADERS = [
    *(("v", value) for value in NOT_NUMBERS),
    *(("n", value) for value in [*NOT_NUMBERS, b"0", b"2", b"4", b"999999999999999"]),
    *(("k", value) for value in [*NOT_NUMBERS, b"3", b"4", b"999999999999999"]),
    *(("c", value) for value in NOT_NUMBERS),
    *(("h", value) for value in NOT_HEADS),
    *(("f", value) for value in [b"", b"1", b"1.", b".5", b"\xff\xfe", b"null", None]),
    *(("e", value) for value in [b"", b"\xff\xfe", b"null", b"other", None]),
    *(("o", value) for value in [b"", b"\xff\xfe", b"null", b"somebody else", None]),
    ("x:2", b"2"), ("x:9", b"9"), ("x:", b"1"), ("x:word", b"1"), ("lease", b"word"), ("zz", b"1"),
]  # fmt: skip


def test_a_header_field_that_is_not_as_it_is_written_here(cached):
    expected = cached.view()["text"]
    for field, value in BAD_HEADERS:
        cached.set(field, value)
        assert cached.view()["text"] == expected, (field, value)
        assert cached.cache()["text"] == expected, (field, value)


def test_a_header_field_that_is_not_as_it_is_written_here_when_a_turn_comes(cached):
    for field, value in BAD_HEADERS:
        cached.set(field, value)
        position = cached.append().json()["position"]
        assert cached.view(token_budget=100_000)["through_position"] == position, (field, value)
        assert cached.cache()["through_position"] == position, (field, value)


def _turns_of_other_shapes(stored: bytes) -> Iterator[bytes]:
    yield from (b"", b"null", b"5", b"[]", b"{}", b'"text"', b"[2]", b"\xff\xfe", stored[:-1])
    yield from (stored + b"," + stored, b"[" + stored + b"]", b'{"0": 2}', b'"0123456789"')
    turn = orjson.loads(stored)
    for index, values in {
        0: [1, 3, -2, 0, "2", None, 2.5, [2], 10**15],
        1: [None, [], 7, "1234567", [1] * 6, [1] * 8, [1] * 6 + [-1], [1] * 6 + ["1"]],
        2: [None, 7, [], {}],
        3: [None, -1, "1", 10**15, []],
        4: [None, 7, []],
        5: [None, -1, "1", 10**15],
        6: [None, 7],
        7: [None, []],
        8: [None, {}],
        9: [None, 7, [5], [["answer"]], [[5, 5]], [["answer", "5"]], {"answer": 5}, "ab"],
    }.items():
        for value in values:
            yield orjson.dumps([*turn[:index], value, *turn[index + 1 :]])
    yield stored.replace(b"[2,[", b"[2,[1" + b"0" * 30 + b",", 1)


def test_a_turn_that_is_not_as_it_is_written_here(cached):
    expected = cached.view()["text"]
    stored = cached.copy[b"t:2"]
    for value in [None, *_turns_of_other_shapes(stored)]:
        cached.set("t:2", value)
        assert cached.view()["text"] == expected, value
        assert cached.cache()["text"] == expected, value


def test_a_version_that_is_too_high_to_be_true_when_a_turn_comes(cached):
    cached.set("v", b"900")
    cached.append()
    assert cached.view()["positions"] == [1, 2, 3, 4]


def test_a_version_that_is_too_low_to_be_true_when_a_turn_comes(cached):
    cached.set("v", b"1")
    cached.append()
    assert cached.view()["positions"] == [1, 2, 3, 4]
