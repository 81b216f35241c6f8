"""Hide or spoil a part of a reference, so that it can hint at the right way or at a wrong one.

Numbers of a text are its units; where it has none, words are; where it is one single word or number, its characters
are. Every choice comes from a stream that the caller keys, so that the same prompt is always treated alike.
Nothing is divided. There is no paper's text for the exact masking or corruption: all three rules are ours.
"""

import math
import re
from collections.abc import Sequence

import numpy as np

from rangeline.errors import AnchorError

MARK = "####"
"""What parts a worked solution from its answer."""
HIDDEN = "_"
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"\S+")


def reasoning_of(reference: str) -> str:
    """Return the worked part of a reference, before its last `####`; the reference itself where it has none.

    Examples
    --------
    >>> reasoning_of("2 and 3 make 5. #### 5")
    '2 and 3 make 5.'
    >>> reasoning_of("#### 5")
    '5'
    """
    before, _, after = reference.rpartition(MARK)
    return before.strip() or after.strip()


def partial_text(text: str, share: float) -> str:
    """Return the beginning of a text: this share of its words, or of its characters where it is one word.

    Parameters
    ----------
    text
        What to cut; its last unit is always cut away, and where it has two units or more one is always kept.
    share
        In (0, 1).

    Examples
    --------
    >>> partial_text("first add the units", 0.5)
    'first add ...'
    >>> partial_text("68", 0.5)
    '6...'
    """
    words = text.split()
    if len(words) > 1:
        return " ".join(words[: _some(len(words), share)]) + " ..."
    word = text.strip()
    return (word[: _some(len(word), share)] if len(word) > 1 else "") + "..."


def masked_text(text: str, share: float, rng: np.random.Generator) -> str:
    """Return a text with this share of its units hidden, at least one and, of several, not all.

    Parameters
    ----------
    text
        A worked solution, an explanation or a bare answer.
    share
        In (0, 1).
    rng
        Stream that chooses the units.

    Raises
    ------
    AnchorError
        When the text is blank.

    Examples
    --------
    >>> masked_text("68", 0.5, np.random.default_rng(0))
    '_8'
    """
    spans = _units(text)
    return _replace(text, spans, _chosen(len(spans), share, rng), [HIDDEN] * len(spans))


def corrupted_text(text: str, share: float, rng: np.random.Generator, alternatives: Sequence[str] = ()) -> str:
    """Return a text with this share of its numbers made wrong; other words in other places where it has no number.

    Parameters
    ----------
    text
        A worked solution, an explanation or a bare answer.
    share
        In (0, 1]; at least one unit is spoilt.
    rng
        Stream that chooses the units and what stands in their place.
    alternatives
        Other possible answers; where the text is one of them, another one takes its place.

    Raises
    ------
    AnchorError
        When nothing in the text can be made wrong: one word without a digit, or the same word throughout.

    Examples
    --------
    >>> corrupted_text("68", 1.0, np.random.default_rng(0))
    '65'
    """
    others = [item for item in alternatives if item != text.strip()]
    if others and len(others) < len(alternatives):
        return others[int(rng.integers(len(others)))]
    numbers = [match.span() for match in _NUMBER.finditer(text)]
    if numbers:
        chosen = _chosen(len(numbers), share, rng, keep_one=False)
        return _replace(text, numbers, chosen, [_wrong_number(text[a:b], rng) for a, b in numbers])
    words = [match.span() for match in _WORD.finditer(text)]
    kept = [text[a:b] for a, b in words]
    if len(set(kept)) < 2:
        msg = f"'corrupted' must have a number or two words to spoil; got '{text:.40}'. Use a condition without it."
        raise AnchorError(msg)
    chosen = sorted(_chosen(len(words), max(share, 2 / len(words)), rng, keep_one=False))
    if len({kept[i] for i in chosen}) < 2:
        chosen = list(range(len(words)))
    turn = next(n for n in range(1, len(chosen)) if any(kept[i] != kept[j] for i, j in _turned(chosen, n)))
    spoilt = list(kept)
    for i, j in _turned(chosen, turn):
        spoilt[i] = kept[j]
    return _replace(text, words, chosen, spoilt)


def _turned(chosen: Sequence[int], by: int) -> list[tuple[int, int]]:
    return list(zip(chosen, [*chosen[by:], *chosen[:by]], strict=True))


def _some(total: int, share: float) -> int:
    """Return a share of a total, rounded up: at least one, and fewer than all of several."""
    return max(1, min(math.ceil(share * total), total - 1))


def _units(text: str) -> list[tuple[int, int]]:
    words = [match.span() for match in _WORD.finditer(text)]
    if not words:
        msg = f"'reference' must hold something to hide; got '{text}'. Give the prompt another reference."
        raise AnchorError(msg)
    if len(words) == 1:
        first, last = words[0]
        return [(i, i + 1) for i in range(first, last)]
    return [match.span() for match in _NUMBER.finditer(text)] or words


def _chosen(total: int, share: float, rng: np.random.Generator, *, keep_one: bool = True) -> list[int]:
    count = _some(total, share) if keep_one else max(1, min(math.ceil(share * total), total))
    return [int(i) for i in rng.permutation(total)[:count]]


def _replace(text: str, spans: Sequence[tuple[int, int]], chosen: Sequence[int], by: Sequence[str]) -> str:
    for i in sorted(chosen, reverse=True):
        first, last = spans[i]
        text = text[:first] + by[i] + text[last:]
    return text


def _wrong_number(number: str, rng: np.random.Generator) -> str:
    digits = [i for i, char in enumerate(number) if char.isdigit()]
    at = digits[int(rng.integers(len(digits)))]
    # A first digit never becomes 0: "05" would be the number 5 in another writing.
    lowest = 1 if at == 0 and len(digits) > 1 else 0
    others = [str(d) for d in range(lowest, 10) if str(d) != number[at]]
    return number[:at] + others[int(rng.integers(len(others)))] + number[at + 1 :]
