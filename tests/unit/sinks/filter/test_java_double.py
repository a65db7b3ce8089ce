"""Doubles read as Java reads them; ``broker/test_filters.py`` asks Java itself about these and others."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.sinks.filter.sql92 import compare_doubles, parse_double


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("5", 5), (" 6 ", 6), ("\x01\t6\n\x1f", 6), ("6d", 6), ("6F", 6), (".5", 0.5), ("5.", 5), ("5.e1D", 50)),
        *(("0x10p0", 16), ("-0X.8P+1", -1), ("0x1.p1f", 2), ("1e400", math.inf), ("-1e400", -math.inf), ("1e-400", 0)),
        *(("0x1p99999", math.inf), ("-0x1p99999", -math.inf), ("+Infinity", math.inf), ("-Infinity", -math.inf)),
    ],
)
def test_a_double(text: str, value: float) -> None:
    assert parse_double(text) == value


@pytest.mark.parametrize("text", ["NaN", "+NaN", "-NaN", " NaN "])
def test_not_a_number_is_a_double(text: str) -> None:
    value = parse_double(text)
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            ".",
            "+",
            "e5",
            "1e",
            "1e+",
            "1_0",
            "5L",
            "5dd",
            "nan",
            "inf",
            "infinity",
            "NaNd",
            "Infinityf",
            "0x10",
        ),
        *("0xp1", "0x.p1", "\u00a05", "\u30005", "\uff19", "1,5", "- 5", "d"),
    ],
)
def test_not_a_double(text: str) -> None:
    assert parse_double(text) is None


@given(st.floats())
def test_every_double_is_read_back(value: float) -> None:
    text = repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    again = parse_double(text)
    assert again is not None
    assert compare_doubles(again, value) == 0


def test_doubles_have_a_total_order() -> None:
    ordered = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
    for i, left in enumerate(ordered):
        for j, right in enumerate(ordered):
            assert compare_doubles(left, right) == (i > j) - (i < j)
