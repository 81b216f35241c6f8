import math

import pytest

from rangeline.evaluation.report_text import (
    count_text,
    level_text,
    number_of,
    number_text,
    points_text,
    share_text,
    shortened,
    signed_text,
    visible,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("a\x00b\x1b", "a⟨U+0000⟩b⟨U+001B⟩"),
        ("\u202ecba\u2066", "⟨U+202E⟩cba⟨U+2066⟩"),
        ("\u200b\ufeff\u2028", "⟨U+200B⟩⟨U+FEFF⟩⟨U+2028⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),
        ("\r\n", "⟨U+000D⟩\n"),
        ("é 汉 🙂 שלום", "é 汉 🙂 שלום"),
    ],
)
def test_hidden_characters_become_visible_and_others_stay(text, expected):
    """What has no glyph is written as its code point; the result can be encoded."""
    assert expected == visible(text)
    assert visible(text).encode()


@pytest.mark.parametrize("write", [count_text, number_text, points_text, share_text, signed_text])
@pytest.mark.parametrize("value", [None, math.nan])
def test_unknown_is_a_dash(write, value):
    """No writer turns an unknown value into a number."""
    assert write(value) == "\N{EN DASH}"


@pytest.mark.parametrize(
    ("write", "value", "expected"),
    [
        (number_text, 0.0, "0"),
        (number_text, -0.12345, "\N{MINUS SIGN}0.123"),
        (number_text, 123456.0, "123,456"),
        (number_text, 999.7, "1000"),
        (number_text, math.inf, "∞"),
        (number_text, -math.inf, "\N{MINUS SIGN}∞"),
        (count_text, 12288.0, "12,288"),
        (count_text, 2.5, "2.5"),
        (share_text, 0.9123, "91.2%"),
        (share_text, math.inf, "\N{EN DASH}"),
        (points_text, -0.0312, "\N{MINUS SIGN}3.1"),
        (signed_text, 0.0055, "+0.0055"),
        (signed_text, 0.0, "0"),
    ],
)
def test_numbers_are_written_shortly(write, value, expected):
    """Three digits, a true minus sign, thousands parted."""
    assert expected == write(value)


def test_cut_text_says_how_much_is_missing():
    """A reader sees that a text goes on."""
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdef", 2) == "ab [4 more characters not shown]"


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 1.0), (0.5, 0.5), (True, None), ("1", None), (None, None), (math.inf, None)]
)
def test_only_finite_numbers_are_numbers(value, expected):
    """Text, truth values and infinities are no metrics."""
    assert expected == number_of(value)


def test_a_confidence_keeps_its_digits():
    """No confidence below 1 is written as 100 %."""
    assert ["95%", "99.5%", "99.9%"] == [level_text(value) for value in (0.95, 0.995, 0.999)]
