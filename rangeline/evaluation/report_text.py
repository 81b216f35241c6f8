"""How the report writes values: unknown is a dash, never 0, and hidden characters become visible.

Completions are hostile data: bidirectional overrides and control characters can make a page read otherwise than it
is written, so that each is replaced by its code point between angle brackets.
"""

import itertools
import math
import unicodedata
from collections.abc import Sequence

DASH = "\N{EN DASH}"
"""Stands for every value that is not known."""

_MINUS = "\N{MINUS SIGN}"
_BARS = "▁▂▃▄▅▆▇█"

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of characters that have no glyph of their own; surrogates cannot be encoded either."""
_BLANKS = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0\ufffe\uffff")
"""Fillers and non-characters outside those categories that show as nothing."""


def visible(text: str) -> str:
    r"""Return the text with each hidden character written as its code point; newline and tab stay.

    Parameters
    ----------
    text
        Any text, lone surrogates included.

    Returns
    -------
    str
        Text that can be encoded as UTF-8; HTML is not escaped here.

    Examples
    --------
    >>> visible("a\u202eb")
    'a⟨U+202E⟩b'
    """
    return "".join(f"⟨U+{ord(letter):04X}⟩" if _is_hidden(letter) else letter for letter in text)


def markdown_cell(text: str) -> str:
    r"""Return one line of Markdown that shows the text as it is: no cell, tag, link or picture can begin in it.

    Parameters
    ----------
    text
        Any text: a method's label, an error message, words of a model.

    Returns
    -------
    str
        Hidden characters written out, line ends as blanks, and `\\`, `|`, `<` and `](` as plain characters.

    Examples
    --------
    >>> markdown_cell("a|b <img src=x> [c](http://d)\nE")
    'a\\|b &lt;img src=x> [c]\\(http://d) E'
    """
    line = " ".join(visible(text).split("\n"))
    return line.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")


def shortened(text: str, limit: int) -> str:
    """Return the text cut to a number of characters, saying how many were left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} [{len(text) - limit:,} more characters not shown]"


def number_of(value: object) -> float | None:
    """Return a finite number, or None for anything else: text, None, NaN, infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def number_text(value: float | None) -> str:
    """Return a number with three significant digits; a dash if it is not known."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", _MINUS)
    text = f"{value:.3g}"
    return (f"{value:.0f}" if "e+" in text else text).replace("-", _MINUS)


def count_text(value: float | None) -> str:
    """Return a count with thousands separated; a dash if it is not known."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:,.0f}" if float(value).is_integer() else number_text(value)


def share_text(value: float | None) -> str:
    """Return a share in percent with one decimal; a dash if it is not known."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{100 * value:.1f}%".replace("-", _MINUS)


def level_text(value: float) -> str:
    """Return a confidence in percent with all its digits: 0.995 is 99.5%, never 100%."""
    return f"{100 * value:.6g}%"


def points_text(value: float | None) -> str:
    """Return a difference of shares in signed percentage points, without the word; a dash if it is not known."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{100 * value:+.1f}".replace("-", _MINUS)


def signed_text(value: float | None) -> str:
    """Return a signed number with three significant digits; a dash if it is not known."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:+.3g}".replace("-", _MINUS) if value else "0"


def _is_hidden(letter: str) -> bool:
    return letter in _BLANKS or (letter not in "\n\t" and unicodedata.category(letter) in _HIDDEN)


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """Return shares in [0, 1] as a line of bars: at most so many, each the mean of its stretch; a blank where unknown.

    Examples
    --------
    >>> sparkline([0.0, None, 0.5, 1.0])
    '▁ ▅█'
    """
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)] if count else []
    bars = []
    for start, end in itertools.pairwise(edges):
        known = [value for value in values[start:end] if value is not None]
        level = round(min(max(math.fsum(known) / len(known), 0.0), 1.0) * (len(_BARS) - 1)) if known else None
        bars.append(" " if level is None else _BARS[level])
    return "".join(bars)
