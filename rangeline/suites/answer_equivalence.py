r"""Are two answers equal: exact comparison of numbers written in different ways.

Each text is read as an exact fraction and two answers are equal when the fractions are. Nothing is rounded or divided:
8.5 is not 9, 33.3 is not 100/3, while 42.0 is 42 and 1,000 is 1000. A percent sign, a currency sign and a unit are
taken as units and not as factors. Symbolic expressions are not read here: what is not a plain number is no number.
"""

import re
from decimal import Decimal
from fractions import Fraction

from rangeline.errors import BadInputError

MAX_NUMBER_LENGTH = 400
"""Characters of the longest number that is read; longer runs of digits are noise, and costly to compare."""

_MINUS_SIGNS = "\u2212\u2013\u2010\u2011\ufe63\uff0d"
_WIDE_SPACES = "\u00a0\u202f\u2009"
_WIDE_DIGITS = "".join(map(chr, range(0xFF10, 0xFF1A)))
_CHARACTERS = str.maketrans(
    _MINUS_SIGNS + _WIDE_SPACES + _WIDE_DIGITS, "-" * len(_MINUS_SIGNS) + " " * len(_WIDE_SPACES) + "0123456789", "`"
)
_FIXED_SPACES = re.compile(rf"(?<=[0-9])[{_WIDE_SPACES}](?=[0-9]{{3}}(?![0-9]))")
"""Spaces that keep the thousands of one number together."""
_DROPPED = ("**", "__", "\\(", "\\)", "\\[", "\\]", "\\,", "\\!")
_CURRENCY = re.compile(r"(?<![0-9])[$€£]|[$€£](?![0-9])")

# One separator style: groups of three after commas, a point before decimals. "1,00" and "1.000,5" are several numbers.
_UNSIGNED = (
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<!\.)\.[0-9]+)"
    r"(?:[eE][+-]?[0-9]{1,3}(?![0-9]))?"
)
# Nor its tail: x3. Scripts without spaces between words may stand right before a number.
_MIXED = r"[0-9]{1,9} [0-9]{1,9}/[0-9]{1,9}"
_BEFORE = r"(?<![/^{])(?<!(?=[^\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])\w)(?<![0-9]\.)"
_SIGN = r"(?:(?<![)\]}%!])[+-])?"
# Not the head of a longer thing: 3x, 1st, 2^10, 4\sqrt{2}, 1.2.3. Units of two letters and more may follow.
_AFTER = (
    r"(?![0-9_]|\.[0-9]|(?:st|nd|rd|th)\b|[A-Za-z]\b| ?[/^] ?(?:[0-9({\\]|[A-Za-z]\b)"
    r"|\\(?:sqrt|pi|frac|cdot|times)|[√π\u00b2\u00b3\u00b9\u2070-\u2079]|[eE][+-]?[0-9])"
)
NUMBER = re.compile(rf"{_BEFORE}(?>{_SIGN}(?:{_MIXED}|{_UNSIGNED}(?: ?/ ?[+-]?{_UNSIGNED})?)){_AFTER}")
"""A number in text that went through `plain_text`: sign, thousands separators, decimals, exponent, (mixed) fraction."""


def plain_text(text: str) -> str:
    """Return text with one minus sign, single spaces and no markup, currency or mathematics delimiters.

    Examples
    --------
    >>> plain_text("**Total:**  $1,000")
    'Total: 1,000'
    """
    text = (
        _FIXED_SPACES.sub("", text).translate(_CHARACTERS).replace("{,}", ",").replace("\\$", "$").replace("\\%", "%")
    )
    for mark in _DROPPED:
        text = text.replace(mark, "")
    text = re.sub(r"[^\S\n]+", " ", _CURRENCY.sub("", text)).replace("= - ", "= -")
    return re.sub(r"\n+", "\n", re.sub(r" ?\n ?", "\n", text)).strip()


def parse_number(text: str) -> Fraction | None:
    """Return the exact value of a text that is one number; None where it is anything else.

    Parameters
    ----------
    text
        A number as people write it, such as ``-3``, ``$29.00``, ``1,000``, ``1/3``, ``2.5e-3`` or ``15%``.

    Examples
    --------
    >>> parse_number("1,000.50"), parse_number("six"), parse_number("1/0")
    (Fraction(2001, 2), None, None)
    """
    plain = plain_text(text).rstrip(" .").removesuffix("%").rstrip()
    if len(plain) > MAX_NUMBER_LENGTH or NUMBER.fullmatch(plain) is None:
        return None
    mixed = re.fullmatch(rf"({_SIGN})({_MIXED})", plain)
    if mixed is not None:
        whole, part = mixed[2].split(" ")
        value = parse_number(part)
        return None if value is None else (int(whole) + value) * (-1 if mixed[1] == "-" else 1)
    above, _, below = plain.replace(",", "").replace(" ", "").partition("/")
    divisor = Fraction(Decimal(below)) if below else Fraction(1)
    return Fraction(Decimal(above)) / divisor if divisor else None


def canonical_number(answer: str) -> str:
    """Return one writing for all writings of a number; a text that is no number stays as it is.

    Examples
    --------
    >>> canonical_number("1,000"), canonical_number("1000.0"), canonical_number("six")
    ('1000', '1000', 'six')
    """
    value = parse_number(answer)
    return answer if value is None else str(value)


def numbers_equal(answer: str, reference: str) -> bool:
    """Say whether an answer and a reference are the same number, exactly.

    Parameters
    ----------
    answer
        Text of the answer; a text that is no number equals nothing.
    reference
        Text of the reference, a number.

    Raises
    ------
    BadInputError
        If the reference is not a number.

    Examples
    --------
    >>> numbers_equal("42.0", "42"), numbers_equal("9", "8.5"), numbers_equal("", "42")
    (True, False, False)
    """
    truth = parse_number(reference)
    if truth is None:
        msg = f"'reference' must be a number; got {reference[:80]!r}. Correct the row or choose another suite."
        raise BadInputError(msg)
    return parse_number(answer) == truth
