import itertools

import numpy as np
import pytest
from scipy.stats import binomtest, permutation_test

from rangeline.evaluation.comparison import paired_difference, sign_flip_p_value


@pytest.mark.parametrize("changes", [[1.0, 1.0, -1.0, 0.5], [0.25, -0.75, 0.5, 0.5, 1.0, 0.25], [0.0, 1.0], [0.1] * 7])
def test_sign_flip_test_equals_scipy(changes):
    """The exact two-sided test is scipy's permutation test of paired samples."""
    peer = permutation_test(
        (np.array(changes), np.zeros(len(changes))), lambda x, y: np.mean(x - y), permutation_type="samples"
    )
    assert pytest.approx(peer.pvalue, abs=1e-12) == sign_flip_p_value(changes, seed=0)


def test_sign_flip_test_equals_counting_by_hand():
    """Of the eight patterns of 1, 1, 1/2 the observed one and its mirror reach the observed sum."""
    signs = itertools.product((-1, 1), repeat=3)
    reached = [abs(a + b + c / 2) >= 2.5 for a, b, c in signs]
    assert pytest.approx(sum(reached) / 8) == sign_flip_p_value([1, 1, 0.5], seed=0)


def test_drawn_patterns_come_close_to_the_exact_tail():
    """For 20 equal changes, 15 up and 5 down, the sign-flip test is the binomial one, which is known."""
    changes = [1.0] * 15 + [-1.0] * 5
    assert pytest.approx(binomtest(15, 20).pvalue, abs=0.01) == sign_flip_p_value(changes, seed=0)


def test_sign_test_of_single_answers_is_mcnemar():
    """With one completion a problem, the sign test is McNemar's exact test of the discordant pairs."""
    before = [1, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    after = [1, 0, 1, 1, 1, 1, 1, 1, 0, 1]
    gained = sum(a > b for b, a in zip(before, after, strict=True))
    lost = sum(a < b for b, a in zip(before, after, strict=True))
    change = paired_difference(dict(enumerate(before)), dict(enumerate(after)), seed=0)
    assert pytest.approx(binomtest(min(gained, lost), gained + lost, 0.5).pvalue) == change.p_value
    assert pytest.approx(change.p_value) == change.mean_p_value
