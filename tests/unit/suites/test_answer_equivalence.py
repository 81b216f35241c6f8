"""Exact equality of numbers in their spellings."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.errors import BadInputError
from rangeline.suites.answer_equivalence import numbers_equal, parse_number, plain_text


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("42.0", "42"),
        ("42.", "42"),
        ("1,000", "1000"),
        ("1{,}000", "1000"),
        ("1,234,567.50", "1234567.5"),
        ("\u22123", "-3"),
        ("+3", "3"),
        ("$29.00", "29"),
        ("-$5", "-5"),
        ("$-5$", "-5"),
        ("15%", "15"),
        (".5", "0.5"),
        ("1/3", "2/6"),
        ("2.5e3", "2500"),
        ("007", "7"),
        ("-0", "0"),
        ("**7**", "7"),
    ],
)
def test_spellings_of_one_number_are_equal(answer, reference):
    """Sign, separator, decimals, currency and markup do not change a number."""
    assert numbers_equal(answer, reference)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [("9", "8.5"), ("33.3", "100/3"), ("0.333333333333", "1/3"), ("3", "-3"), ("100", "1000"), ("0.1", "0.10000001")],
)
def test_near_numbers_are_not_equal(answer, reference):
    """There is no tolerance and no rounding."""
    assert not numbers_equal(answer, reference)


@pytest.mark.parametrize(
    "text",
    ["", ".", "six", "1,00", "1,0000", "1.000,5", "1.2.3", "1/0", "3x", "1st", "nan", "inf", "1e9999", "2^10", "1 000"],
)
def test_other_texts_are_no_numbers(text):
    """What is not one number in one separator style is not read as one."""
    assert parse_number(text) is None


def test_absent_answers_are_never_equal():
    """Two texts without a number are not equal: the reference is refused, the answer equals nothing."""
    assert not numbers_equal("", "0")
    with pytest.raises(BadInputError, match="'reference' must be a number; got ''"):
        numbers_equal("", "")


def test_hand_worked_values():
    """Values are exact fractions."""
    assert Fraction(-1, 8) == parse_number("-0.125")
    assert Fraction(4, 3) == parse_number("4 / 3")


def test_plain_text_parts_lines_once():
    """White space collapses, lines stay."""
    assert "a b\nc" == plain_text("  a \t b \n\n  c ")


@settings(max_examples=60, deadline=None, database=None)
@given(st.integers(-(10**15), 10**15))
def test_thousands_separators_change_nothing(value):
    """Any integer equals itself with separators and with a zero decimal."""
    assert numbers_equal(f"{value:,}", str(value))
    assert numbers_equal(f"{value}.0", str(value))
    assert not numbers_equal(str(value + 1), str(value))
