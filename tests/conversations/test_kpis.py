"""Key figures as people write them, in their language."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from conversations import kpis


def shown(value, language="en", name="Total"):
    return kpis.for_people(name, value, language)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8_200_000, "8.2M"),
        (12_345_678.9, "12.3M"),
        (8_000_000, "8M"),
        (1_234_000_000, "1.2B"),
        (5 * 10**12, "5T"),
        (10**15, "1.00e+15"),
        (999_999.996, "1,000,000"),
        (12_345.678, "12,345.68"),
        (10_000, "10,000"),
        (2024, "2024"),
        (47, "47"),
        (4.1, "4.1"),
        (0.1 + 0.2, "0.3"),
        (0.00012345, "0.000123"),
        (1e-7, "1.00e-7"),
        (0, "0"),
        (-0.0, "0"),
        (-1_500_000, "-1.5M"),
        (2.675, "2.68"),
        (Decimal("1.10"), "1.1"),
        (Decimal("1E+5"), "100,000"),
        (10**39, "1.00e+39"),
    ],
)
def test_a_number_is_as_short_as_says_what_it_is(value, text):
    assert shown(value) == text


def test_a_decimal_that_became_text_in_json_is_still_a_number():
    assert shown("8200000.00") == "8.2M"


@pytest.mark.parametrize("text", ["$1.4M", "00501", "Q4", "NA", "1,5", "٣", "1e9999999"])
def test_other_texts_stay_as_they_are(text):
    assert shown(text) == text


@pytest.mark.parametrize(
    "value",
    [None, float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("sNaN"), "", " ",
     pytest.param(10**5_000, id="huge")],
)  # fmt: skip
def test_what_is_missing_is_a_dash(value):
    assert shown(value) == "–"


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("USD", "$12.3M"),
        ("$", "$12.3M"),
        ("currency", "$12.3M"),
        ("eur", "€12.3M"),
        ("MXN", "MX$12.3M"),
        ("%", "12.3M %"),
        ("percent", "12.3M %"),
        ("kg", "12.3M kg"),
        ("", "12.3M"),
    ],
)
@pytest.mark.parametrize("key", ["unit", "currency", "format"])
def test_a_unit_is_shown_where_it_is_given(key, unit, text):
    assert shown({"value": 12_345_678, key: unit}) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("Total USD", 12_300_000, "$12.3M"),
        ("ingresos_usd", 12_300_000, "$12.3M"),
        ("Revenue ($)", -5, "-$5"),
        ("margin_pct", 4.1, "4.1 %"),
        ("Margen %", 4.1, "4.1 %"),
        ("percentile", 4.1, "4.1"),
        ("Total", 4.1, "4.1"),
    ],
)
def test_or_where_the_name_has_it(name, value, text):
    assert shown(value, name=name) == text


def test_a_given_unit_wins_over_the_name():
    assert shown({"value": 4, "unit": "%"}, name="Total USD") == "4 %"


@pytest.mark.parametrize(
    ("language", "large", "grouped"),
    [
        ("en", "$1.2B", "12,345.68"),
        ("es", "$1,234M", "12,345.68"),
        ("es-mx", "$1,234M", "12,345.68"),
        ("es-es", "$1.234M", "12.345,68"),
        ("es-ar", "$1.234M", "12.345,68"),
    ],
)
def test_signs_and_scales_are_those_of_the_language(language, large, grouped):
    assert shown({"value": 1_234_000_000, "unit": "USD"}, language) == large
    assert shown(12_345.678, language) == grouped


def test_yes_and_no_are_words():
    with translation.override("es"):
        assert (shown(True, "es"), shown(False, "es")) == ("sí", "no")


def test_what_is_no_figure_is_shown_in_short():
    assert shown({"rows": list(range(900))}).endswith("…")
    assert len(shown("x" * 900)) <= 61


@pytest.mark.parametrize(
    ("given_", "names"),
    [
        ({"a": 1, 2: 3}, ["a", "2"]),
        ([{"name": "a", "value": 1}, {"label": "b", "value": 2}, {"value": 3}, "x"], ["a", "b"]),
        (None, []),
        ("text", []),
        (5, []),
    ],
)
def test_figures_come_as_a_mapping_or_a_list(given_, names):
    assert list(kpis.by_name(given_)) == names


@given(
    st.one_of(
        st.integers(),
        st.floats(),
        st.decimals(),
        st.text(),
        st.from_regex(r"-?[1-9][0-9]{0,40}(\.[0-9]{1,40})?([eE]-?[0-9]{1,6})?", fullmatch=True),
    ),
    st.sampled_from(["en", "es", "es-ar"]),
    st.sampled_from(["", "USD", "%", "kg"]),
)
def test_every_value_gives_a_short_text(value, language, unit):
    text = shown({"value": value, "unit": unit}, language)

    assert 0 < len(text) <= 80
    assert "\n" not in text
