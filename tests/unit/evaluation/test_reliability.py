"""Scores against the truth: bins of like scores, and order inside a prompt's group."""

from itertools import pairwise

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.evaluation.reliability import pair_agreement, reliability_bins

NAN = float("nan")


def test_few_scores_are_bins_of_their_own_with_means_by_hand():
    """Two scores give two bins, whose observed rewards are the means of their truths and lie inside their bands."""
    low, high = reliability_bins([0.2, 0.8, 0.8, 0.2], [0, 1, 0.5, 1], ["a", "a", "b", "b"], confidence=0.9)
    assert (0.2, 0.5, 2, 2) == (low.predicted, low.observed, low.num_rows, low.num_prompts)
    assert (0.8, 0.75) == (high.predicted, high.observed)
    assert low.lower <= low.observed <= low.upper


def test_unknown_rows_are_in_no_bin():
    """A row without a score or a truth counts nowhere, and nothing known gives no bin."""
    (only,) = reliability_bins([0.2, NAN, 0.2], [1.0, 1.0, NAN], ["a", "a", "a"], confidence=0.9)
    assert 1 == only.num_rows
    assert [] == reliability_bins([NAN], [1.0], ["a"], confidence=0.9)


def test_many_scores_are_joined_and_equal_ones_never_parted():
    """More scores than bins are joined in order; every row is in one bin, and no bins share a score."""
    score = np.repeat(np.linspace(0, 1, 30), [1, 5] * 15)
    bins = reliability_bins(score, np.ones(len(score)), [str(i) for i in range(len(score))], confidence=0.9, max_bins=4)
    assert len(bins) <= 4
    assert len(score) == sum(item.num_rows for item in bins)
    assert all(one.highest < other.lowest for one, other in pairwise(bins))


def test_band_counts_prompts_and_not_their_rows():
    """Ten equal rows of each of two prompts say no more than one row of each."""
    one = reliability_bins([0.5] * 2, [0.0, 1.0], ["a", "b"], confidence=0.9)[0]
    ten = reliability_bins([0.5] * 20, [0.0, 1.0] * 10, ["a", "b"] * 10, confidence=0.9)[0]
    assert (one.lower, one.upper) == pytest.approx((ten.lower, ten.upper))


def test_pairs_are_of_one_prompt_and_equal_scores_count_half():
    """Of two pairs one is right and one is tied: 0.75; rollouts of two prompts make no pair."""
    assert (0.75, 2) == pair_agreement([0.9, 0.1, 0.1], [1, 0, 1], ["a", "a", "a"])
    assert (None, 0) == pair_agreement([0.9, 0.1], [1, 0], ["a", "b"])


def test_agreement_turns_over_with_the_scores():
    """Scores turned over order every pair the other way."""
    score, truth = np.array([0.1, 0.4, 0.8]), [0.0, 1.0, 0.5]
    (share, pairs), (turned, _) = (pair_agreement(s, truth, ["a"] * 3) for s in (score, -score))
    assert 3 == pairs
    assert 1.0 == pytest.approx(share + turned)


def test_lengths_must_agree():
    """Rows are matched by position, so that a missing one must not shift the others."""
    with pytest.raises(BadInputError, match="a truth and a prompt for each row; got 1 scores, 2 truths"):
        pair_agreement([0.1], [1, 0], ["a", "b"])
