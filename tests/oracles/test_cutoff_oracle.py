"""Cutoffs against exact rational arithmetic, the rank formula of split conformal, numpy and MAPIE."""

import math
from fractions import Fraction

import numpy as np
import pytest
from mapie.regression import SplitConformalRegressor
from sklearn.dummy import DummyRegressor

from rangeline.conformal.intervals import minimum_calibration_rows, weighted_cutoffs

ALPHAS = ("0.05", "0.1", "0.15", "0.2", "0.25", "0.3")


def exact_cutoff(scores, weights, test_weight, alpha):
    """Return inf{v : sum_{E <= v} w >= (1 - alpha)(sum w + w_test)} in fractions; inf of nothing is infinity."""
    needed = (1 - Fraction(alpha)) * (sum(weights, Fraction(0)) + test_weight)
    for candidate in sorted({s for s, w in zip(scores, weights, strict=True) if w > 0}):
        if sum((w for s, w in zip(scores, weights, strict=True) if s <= candidate), Fraction(0)) >= needed:
            return candidate
    return math.inf


def random_case(rng):
    """Draw scores, fraction weights, a test weight and alpha."""
    num = int(rng.integers(1, 40))
    scores = rng.integers(0, 8, num) / 8 if rng.random() < 0.5 else rng.random(num)
    kind = rng.integers(3)
    if kind == 0:
        weights = [Fraction(int(k)) for k in rng.integers(0, 5, num + 1)]
    elif kind == 1:
        weights = [Fraction(1)] * (num + 1)
    else:
        weights = [Fraction(float(w)) for w in rng.exponential(size=num + 1)]
    return scores.tolist(), weights[:-1], weights[-1], str(rng.choice(ALPHAS))


def logs(weights):
    """Return float logs of fractions, -inf for 0."""
    return [math.log(w) if w > 0 else -math.inf for w in weights]


def test_cutoffs_equal_exact_rational_arithmetic():
    """3000 random cases with ties, zero, integer and exponential weights give the exact cutoff, bit for bit."""
    rng = np.random.default_rng(20)
    cases = [random_case(rng) for _ in range(3000)]
    expected = [exact_cutoff(*case) for case in cases]
    actual = [
        float(weighted_cutoffs(scores, logs(weights), logs([test]), float(alpha))[0])
        for scores, weights, test, alpha in cases
    ]
    assert expected == actual


@pytest.mark.parametrize("factor", [3 * math.pi, 1e9, 1e-9, 1 / 7])
def test_exactness_survives_a_change_of_scale(factor):
    """Multiplying every weight by one number leaves 500 random cases exact."""
    rng = np.random.default_rng(21)
    for _ in range(500):
        scores, weights, test, alpha = random_case(rng)
        log_all = np.array(logs([*weights, test])) + math.log(factor)
        actual = weighted_cutoffs(scores, log_all[:-1], log_all[-1:], float(alpha))[0]
        assert exact_cutoff(scores, weights, test, alpha) == actual


@pytest.mark.parametrize("alpha", ["0.01", "0.05", "0.1", "0.2", "0.3", "0.32"])
def test_unit_weights_give_the_rank_of_split_conformal(alpha):
    """With n equal weights the cutoff is the ceil((n+1)(1-alpha))-th smallest score, infinite beyond n."""
    for num in range(1, 121):
        rank = math.ceil((num + 1) * (1 - Fraction(alpha)))
        expected = float(rank) if rank <= num else math.inf
        actual = weighted_cutoffs(np.arange(1.0, num + 1), np.zeros(num), [0.0], float(alpha))[0]
        assert expected == actual, (num, alpha)


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
