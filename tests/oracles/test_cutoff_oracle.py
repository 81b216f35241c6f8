"""Cutoffs against exact rational arithmetic, the rank formula of split conformal, numpy and MAPIE."""

import math
from fractions import Fraction

import numpy as np
import pytest
from cutoff_laws import LAWS, exact_cutoff, exact_mismatches
from mapie.regression import SplitConformalRegressor
from sklearn.dummy import DummyRegressor

from rangeline.conformal.intervals import minimum_calibration_rows, weighted_cutoffs


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_cutoffs_obey_the_law(law):
    """The law that the name says holds of the cutoff."""
    law(weighted_cutoffs)


def test_cutoffs_equal_exact_rational_arithmetic():
    """20,000 random cases with ties, zero, unit, integer and exponential weights give the exact cutoff, bit for bit."""
    assert [] == exact_mismatches(weighted_cutoffs, 20_000)


def test_exact_cutoff_by_hand():
    """The oracle itself: weights 1, 2, 1 and test weight 1 reach half of 5 at the second score, 4/5 at the third."""
    scores, weights = [0.7, 0.1, 0.2], [Fraction(1), Fraction(1), Fraction(2)]
    assert [0.2, 0.7, math.inf] == [exact_cutoff(scores, weights, Fraction(1), a) for a in ("0.5", "0.2", "0.19")]
    assert 0.3 == exact_cutoff([0.3, 0.3], [Fraction(1, 3), Fraction(2, 3)], Fraction(0), "0.5")


@pytest.mark.parametrize("alpha", ["0.01", "0.05", "0.1", "0.15", "0.2", "0.3", "0.32", "0.5", "0.9"])
def test_minimum_rows_is_the_first_number_with_a_finite_cutoff(alpha):
    """The number of rows asked for is ceil(1/alpha - 1) in exact arithmetic, and cutoffs agree with it."""
    expected = math.ceil(1 / Fraction(alpha) - 1)
    assert expected == minimum_calibration_rows(float(alpha))
    finite = [bool(np.isfinite(weighted_cutoffs([0.5] * n, [0.0] * n, [0.0], float(alpha))[0])) for n in range(1, 101)]
    assert expected == finite.index(True) + 1


def test_cutoffs_agree_with_numpy_weighted_quantile():
    """On distinct scores with the test mass above all of them, numpy's inverted CDF gives the same cutoff."""
    rng = np.random.default_rng(22)
    for _ in range(200):
        scores, weights = rng.random(30), rng.exponential(size=31)
        expected = np.quantile(np.append(scores, np.inf), 0.83, weights=weights, method="inverted_cdf")
        assert expected == weighted_cutoffs(scores, np.log(weights[:-1]), np.log(weights[-1:]), 0.17)[0]


@pytest.mark.parametrize("num", [10, 20, 33])
def test_intervals_agree_with_mapie(num):
    """With equal weights and plain scores the interval is MAPIE's split-conformal interval."""
    truth = np.random.default_rng(num).random(num)
    features = np.zeros((num, 1))
    model = DummyRegressor(strategy="constant", constant=0.5).fit(features, truth)
    peer = SplitConformalRegressor(model, confidence_level=0.9, prefit=True).conformalize(features, truth)
    _, expected = peer.predict_interval(features[:1])
    cutoff = weighted_cutoffs(np.abs(truth - 0.5), np.zeros(num), [0.0], 0.1)[0]
    assert expected.reshape(-1).tolist() == pytest.approx([0.5 - cutoff, 0.5 + cutoff], abs=1e-12)
