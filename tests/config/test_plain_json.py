"""Any Python value becomes JSON that orjson, PostgreSQL and clients agree on."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
from collections import OrderedDict, UserDict
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.plain_json import TooDeep, canonical_bytes, clean_text, dump_bytes, to_plain


class Colour(enum.Enum):
    RED = "red"
    POINT = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


class Scalar:
    """A number that only says `item`."""

    def item(self) -> float:
        return 1.5


class Array:
    """What an array of numpy or a series of pandas looks like from outside."""

    def __init__(self, *held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return len(self.held)

    def __ne__(self, other: object) -> Any:
        return Array(*(each != each for each in self.held))

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        if len(self.held) > 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous")
        return bool(self.held[0])

    def item(self) -> Any:
        if len(self.held) > 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.held[0]

    def tolist(self) -> list[Any]:
        return list(self.held)


class Number:
    """A number of numpy: `tolist` gives what is no list."""

    def tolist(self) -> int:
        return 7


class LongDouble:
    """A number that has no form but its own."""

    def tolist(self) -> LongDouble:
        return LongDouble()

    def __str__(self) -> str:
        return "1.5"


class Frame:
    """A data frame of pandas."""

    def __init__(self, *rows: dict[Any, Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self, orient: str = "dict") -> Any:
        return list(self.rows) if orient == "records" else {"not": "this"}


class NotATime(dt.datetime):
    """pandas.NaT: a datetime that is equal to nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = dt.datetime.__hash__


class NotAvailable:
    """pandas.NA: whether it is equal to itself is not available either."""

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


class Sulky:
    """Raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __ne__(self, other: object) -> Any:
        raise RuntimeError("!=")

    __hash__ = object.__hash__

    def __str__(self) -> str:
        raise RuntimeError("str")


class Closed:
    """Holds something, and does not give it away."""

    def tolist(self) -> Any:
        raise RuntimeError("closed")

    def __str__(self) -> str:
        return "closed\x00"


class Broken(dict[str, Any]):
    """A mapping that breaks while it is read."""

    def items(self) -> Any:
        raise RuntimeError("broken")


TABLE = [
    (dt.datetime(2026, 11, 30, 9, tzinfo=dt.UTC), "2026-11-30T09:00:00Z"),
    (dt.datetime(2026, 11, 30, 9), "2026-11-30T09:00:00Z"),  # noqa: DTZ001  a naive one
    (
        dt.datetime(2026, 11, 30, 9, tzinfo=dt.timezone(dt.timedelta(hours=-8))),
        "2026-11-30T17:00:00Z",
    ),
    (dt.date(2026, 11, 30), "2026-11-30"),
    (dt.time(9, 30), "09:30:00"),
    (dt.timedelta(seconds=90), "P0DT00H01M30S"),
    (Decimal("1.10"), "1.10"),
    (Decimal("NaN"), None),
    (Decimal("-Infinity"), None),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (b"\x00\xff", "AP8="),
    (bytearray(b"a"), "YQ=="),
    (memoryview(b"abcd")[::2], "YWM="),
    (float("nan"), None),
    (float("inf"), None),
    ("a\x00b\ud800c", "a\ufffdb\ufffdc"),
    ((1, 2), [1, 2]),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset("a"), ["a"]),
    (OrderedDict(a=1), {"a": 1}),
    (UserDict(a=1), {"a": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    ({1: "a", None: "b", 1.5: "c"}, {"1": "a", "null": "b", "1.5": "c"}),
    ({uuid.UUID(int=1): 1}, {"00000000-0000-0000-0000-000000000001": 1}),
    (Colour.RED, "red"),
    (Colour.POINT, [1, 2]),
    (Level.LOW, 1),
    (Name("a\x00"), "a\ufffd"),
    (Scalar(), 1.5),
    (Array(1, float("nan"), dt.date(2026, 11, 30)), [1, None, "2026-11-30"]),
    (Array(float("nan")), [None]),
    (Array(Array(1, 2), Array(3)), [[1, 2], [3]]),
    (Array(), []),
    (Number(), 7),
    (LongDouble(), "1.5"),
    (Frame({"day": NotATime(2026, 1, 1), "n": NotAvailable()}), [{"day": None, "n": None}]),
    ({"rows": Frame({("a", ("b", 1)): Array(1)})}, {"rows": [{'["a", ["b", 1]]': [1]}]}),
    (NotATime(2026, 1, 1), None),
    (NotAvailable(), None),
    (Decimal("sNaN"), None),
    (complex("nan"), None),
    (Array, str(Array)),
    ([Sulky(), 1], ["<Sulky>", 1]),
    ([Closed(), 1], ["closed\ufffd", 1]),
    ([Broken(a=1), 2], ["{'a': 1}", 2]),
    ({"a": {Sulky()}}, {"a": ["<Sulky>"]}),
    (Fraction(1, 3), "1/3"),
    (True, True),
    (2**80, 2**80),
]


@pytest.mark.parametrize(("value", "plain"), TABLE, ids=[type(row[0]).__name__ for row in TABLE])
def test_each_kind_has_its_documented_form(value: Any, plain: Any) -> None:
    assert to_plain(value) == plain
    assert type(to_plain(value)) is type(plain)


def test_text_that_can_be_stored_is_returned_as_it_is() -> None:
    text = "Größe 🎉"

    assert clean_text(text) is text


def test_nesting_past_the_limit_is_refused() -> None:
    with pytest.raises(TooDeep):
        to_plain([[[1]]], max_depth=2)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(TooDeep):
        to_plain(value)


def test_an_array_that_holds_itself_is_refused() -> None:
    value = Array()
    value.held = (1, value)

    with pytest.raises(TooDeep):
        to_plain(value)


def test_one_that_gives_ever_new_ones_is_refused() -> None:
    class Endless(Array):
        def tolist(self) -> Any:
            return [type("Endless", (Endless,), {})()]

    with pytest.raises(TooDeep):
        to_plain(Endless(), max_depth=10_000)


def test_equal_values_give_equal_bytes() -> None:
    assert canonical_bytes({"b": 1, "a": {"d": 1, "c": 2}}) == b'{"a":{"c":2,"d":1},"b":1}'


def test_the_order_of_keys_is_the_same_beside_a_huge_integer() -> None:
    one = canonical_bytes({"é": 1, "a": 2**70, "Z": "é"})

    assert one == canonical_bytes({"Z": "é", "a": 2**70, "é": 1})


def test_a_huge_integer_is_dumped_with_every_digit() -> None:
    assert dump_bytes([2**80]) == b"[1208925819614629174706176]"


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
        dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-12))),
    ],
    ids=["first", "last"],
)
def test_a_moment_at_the_edge_of_time_has_a_form(moment: dt.datetime) -> None:
    to_plain(moment)


def test_a_key_that_is_a_bool_reads_as_in_json() -> None:
    assert to_plain({True: "a"}) == json.loads(json.dumps({True: "a"}))


def test_an_integer_of_any_length_is_dumped() -> None:
    dump_bytes(to_plain(10**5000))


def test_what_was_taken_at_the_depth_limit_is_dumped_inside_an_answer() -> None:
    value: Any = 2**70
    for _ in range(99):
        value = [value]

    dump_bytes({"results": [{"response_payload": to_plain(value)}]})


_any_text = st.text(st.characters(categories=None, exclude_categories=()))
_offsets = st.timedeltas(dt.timedelta(hours=-14), dt.timedelta(hours=14)).map(
    lambda offset: dt.timezone(dt.timedelta(minutes=offset // dt.timedelta(minutes=1)))
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    _any_text,
    _any_text.map(Name),
    st.binary(),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.uuids(),
    st.dates(),
    st.times(timezones=st.one_of(st.none(), _offsets)),
    st.datetimes(timezones=st.one_of(st.none(), _offsets)),
    st.timedeltas(),
    st.sampled_from([*Colour, *Level]),
)
_keys = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), _any_text, st.uuids(), st.dates()
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(_keys, inner),
        st.sets(_scalars.filter(lambda value: not isinstance(value, Decimal))),
    ),
    max_leaves=20,
)


@given(_values)
def test_plain_values_stay_as_they_are(value: Any) -> None:
    plain = to_plain(value)

    assert to_plain(plain) == plain
    assert json.loads(dump_bytes(plain)) == plain


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(_values)
def test_every_value_reaches_postgres_and_comes_back(value: Any) -> None:
    sent = dump_bytes(to_plain(value)).decode()

    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::json::text, %s::jsonb::text", [sent, sent])
        as_json, as_jsonb = cursor.fetchone()
    assert as_json == sent
    assert json.loads(as_jsonb, parse_float=Decimal) == json.loads(sent, parse_float=Decimal)


@given(st.recursive(st.one_of(st.integers(-(2**63), 2**64 - 1), _any_text), st.lists))
def test_orjson_dumps_what_fits_into_64_bits(value: Any) -> None:
    assert orjson.loads(orjson.dumps(to_plain(value))) == to_plain(value)
