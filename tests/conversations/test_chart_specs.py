"""What holds of chart specs whatever library they are for, and of any other value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.chart_specs import CHART_TYPES, ChartDescription, describe_chart, one_line


def describe(spec: Any) -> ChartDescription:
    described = describe_chart(spec)
    assert described is not None
    return described


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "bar",
        {},
        {"mark": "A+"},
        {"mark": ["bar"]},
        {"data": [[1, 2]]},
        {"series": ["a"]},
        {"series": [{"type": ["bar"]}]},
        {"spec": {"mark": "bar"}},
    ],
)
def test_anything_else_is_no_chart(value: Any) -> None:
    assert describe_chart(value) is None


def test_field_names_are_kept_byte_for_byte() -> None:
    name = "  Umsatz (€)\u00a0[netto] "

    assert describe({"mark": "bar", "encoding": {"y": {"field": name}}}).y == (name,)


def test_titles_are_put_on_one_line() -> None:
    assert describe({"mark": "bar", "title": "Revenue\n\u202eby\tregion "}).title == (
        "Revenue by region"
    )
    assert one_line("\x00\n") is None


def test_a_deeply_nested_spec_is_read_without_recursion() -> None:
    spec: dict[str, Any] = {"mark": "bar"}
    for _ in range(50_000):
        spec = {"layer": [spec]}

    assert describe_chart(spec) is None


KEYS = st.sampled_from([
    "mark", "type", "encoding", "x", "y", "color", "field", "aggregate", "sort", "stack", "title",
    "text", "layer", "facet", "spec", "repeat", "transform", "fold", "as", "data", "layout",
    "name", "xaxis", "yaxis", "legend", "mode", "hole", "series", "xAxis", "yAxis", "dataset",
    "dimensions", "source", "encode", "radius", "value", "labels", "header", "values",
])  # fmt: skip
WORDS = st.sampled_from(["bar", "line", "pie", "arc", "scatter", "rect", "h", "quantitative", "-y"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


def shaped(**parts: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Specs that a library is recognised by, with anything at all in their parts."""
    return st.builds(dict, st.dictionaries(KEYS, JUNK, max_size=4), **parts)


CHANNELS = st.dictionaries(KEYS, st.dictionaries(KEYS, JUNK, max_size=4) | JUNK, max_size=5)
SPECS = (
    JUNK
    | shaped(mark=WORDS | JUNK, encoding=CHANNELS)
    | shaped(layer=st.lists(shaped(mark=WORDS, encoding=CHANNELS), max_size=3))
    | shaped(data=st.lists(shaped(type=WORDS), max_size=3), layout=JUNK)
    | shaped(series=st.lists(shaped(type=WORDS), max_size=3), dataset=JUNK)
)


@given(SPECS)
def test_no_value_raises_and_types_are_documented(spec: Any) -> None:
    described = describe_chart(spec)

    assert described is None or described.chart_type in CHART_TYPES


@given(SPECS)
def test_names_come_from_the_spec_itself(spec: Any) -> None:
    described = describe_chart(spec)
    names = [] if described is None else [described.x, described.series, *described.y]

    assert all(json.dumps(name) in json.dumps(spec) for name in names if name)
