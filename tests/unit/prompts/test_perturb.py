"""Hiding and spoiling references: something is always hidden, something always wrong, the same way each time."""

import re

import numpy as np
import pytest

from rangeline.errors import AnchorError
from rangeline.prompts.perturb import corrupted_text, masked_text, partial_text, reasoning_of


def _rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [("a 2. #### 5", "a 2."), ("#### 5", "5"), ("5", "5"), ("a #### b #### 5", "a #### b")],
)
def test_reasoning_is_what_stands_before_the_last_mark(reference, expected):
    """The answer after the last mark is no reasoning, unless there is nothing else."""
    assert expected == reasoning_of(reference)


@pytest.mark.parametrize(
    ("text", "share", "expected"),
    [("a b c d", 0.5, "a b ..."), ("a b", 0.99, "a ..."), ("68", 0.5, "6..."), ("7", 0.5, "...")],
)
def test_a_beginning_never_holds_the_end(text, share, expected):
    """The last word, or the last character of one word, is cut away."""
    assert expected == partial_text(text, share)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("text", ["68", "128", "3 and 4 make 7", "no number here"])
def test_a_mask_hides_some_and_leaves_some(text, seed):
    """Of several units one at least is hidden and one at least is left."""
    masked = masked_text(text, 0.5, _rng(seed))
    assert "_" in masked
    assert set(masked) - set("_ ")
    assert masked == masked_text(text, 0.5, _rng(seed))


def test_a_single_character_is_hidden():
    """A one-digit answer is not given away."""
    assert "_" == masked_text("7", 0.5, _rng())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("text", ["7", "10", "68", "0.5", "3 and 4 make 7", "one two two", "b a a a a"])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_corrupted_text_is_another_text(text, share, seed):
    """Whatever the draw, what comes out is not what went in, and no number grows a leading zero."""
    spoilt = corrupted_text(text, share, _rng(seed))
    assert text != spoilt
    assert text.startswith("0") or not re.search(r"\b0\d", spoilt)


def test_all_numbers_are_wrong_at_share_one():
    """At share 1 every number is another one."""
    assert all(a != b for a, b in zip(["3", "4", "7"], corrupted_text("3 4 7", 1.0, _rng()).split(), strict=True))


def test_a_lettered_answer_becomes_another_letter():
    """Where the answer is one of several, another of these takes its place."""
    assert {"A", "C"} == {corrupted_text("B", 1.0, _rng(seed), ("A", "B", "C")) for seed in range(12)}


@pytest.mark.parametrize("text", ["yes", "same same", ""])
def test_what_cannot_be_wrong_is_refused(text):
    """One word without a digit has nothing to spoil, and says so."""
    with pytest.raises(AnchorError, match="'corrupted' must have a number or two words to spoil"):
        corrupted_text(text, 1.0, _rng())


def test_a_blank_text_cannot_be_masked():
    """A blank reference is refused."""
    with pytest.raises(AnchorError, match="'reference' must hold something to hide"):
        masked_text("  ", 0.5, _rng())
