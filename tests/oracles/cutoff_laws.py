"""Laws of a weighted cutoff, each a function of the implementation, and the exact-rational definition behind them.

An implementation takes scores, calibration log weights, test log weights and alpha, as `weighted_cutoffs` does. A law
raises AssertionError where the implementation breaks it, so that seeded mutants can be held against the same laws.
"""

import math
from fractions import Fraction

import numpy as np

from rangeline.conformal.intervals import reward_intervals

ALPHAS = ("0.05", "0.1", "0.15", "0.2", "0.25", "0.3")
RANK_ALPHAS = ("0.01", "0.05", "0.1", "0.2", "0.3", "0.32")


def exact_cutoff(scores, weights, test_weight, alpha):
    """Return inf{v : sum_{E <= v} w >= (1 - alpha)(sum w + w_test)} in whole numbers; inf of nothing is infinity."""
    common = math.lcm(test_weight.denominator, *(w.denominator for w in weights))
    whole = [int(w * common) for w in weights]
    alpha = Fraction(alpha)
    needed = (alpha.denominator - alpha.numerator) * (sum(whole) + int(test_weight * common))
    rows = sorted((s, w) for s, w in zip(scores, whole, strict=True) if w > 0)
    below = 0
    for i, (score, weight) in enumerate(rows):
        below += weight
        last_of_ties = i + 1 == len(rows) or rows[i + 1][0] > score
        if last_of_ties and below * alpha.denominator >= needed:
            return score
    return math.inf


def random_case(rng):
    """Draw scores with and without ties, integer (zero too), unit or exponential weights, a test weight and alpha."""
    num = int(rng.integers(1, 40))
    scores = rng.integers(0, 8, num) / 8 if rng.random() < 0.5 else rng.random(num)
    kind = rng.integers(3)
    if kind == 0:
        weights = [Fraction(int(k)) for k in rng.integers(0, 5, num + 1)]
    elif kind == 1:
        weights = [Fraction(1)] * (num + 1)
    else:
        weights = [Fraction(float(w)) for w in rng.exponential(size=num + 1)]
    return scores.tolist(), weights[:-1], weights[-1], ALPHAS[rng.integers(len(ALPHAS))]


def logs(weights):
    """Return float logs of fractions, -inf for 0."""
    return [math.log(w) if w > 0 else -math.inf for w in weights]


def exact_mismatches(cutoffs, num_cases, *, seed=20, factor=1.0):
    """Return the random cases, all weights times a factor, in which the implementation is not exact."""
    rng = np.random.default_rng(seed)
    wrong = []
    for _ in range(num_cases):
        scores, weights, test, alpha = random_case(rng)
        log_all = np.array(logs([*weights, test])) + math.log(factor)
        actual = float(cutoffs(scores, log_all[:-1], log_all[-1:], float(alpha))[0])
        if exact_cutoff(scores, weights, test, alpha) != actual:
            wrong.append((scores, weights, test, alpha, actual))
    return wrong


def equals_exact_rational_arithmetic(cutoffs):
    """Give the exact cutoff, bit for bit, for ties and for zero, unit, integer and exponential weights."""
    assert [] == exact_mismatches(cutoffs, 1000)


def ignores_the_scale_of_the_weights(cutoffs):
    """Stay exact with all weights times 3 pi, 1e9, 1e-9 or 1/7."""
    for factor in (3 * math.pi, 1e9, 1e-9, 1 / 7):
        assert [] == exact_mismatches(cutoffs, 250, seed=21, factor=factor)


def bears_weights_of_any_size(cutoffs):
    """Take log weights of +-1e5 for weights all the same: only their differences count."""
    for shift in (-1e5, 1e5):
        actual = cutoffs([0.1, 0.2, 0.7], np.zeros(3) + shift, [shift], 0.5)
        assert [0.2] == actual.tolist()


def equals_the_split_rank(cutoffs):
    """Give the ceil((n+1)(1-alpha))-th smallest of n equally weighted scores, infinity beyond n; n up to 400."""
    for alpha in RANK_ALPHAS:
        for num in range(1, 401):
            rank = math.ceil((num + 1) * (1 - Fraction(alpha)))
            expected = float(rank) if rank <= num else math.inf
            actual = cutoffs(np.arange(1.0, num + 1), np.zeros(num), [0.0], float(alpha))[0]
            assert expected == actual, (num, alpha)


def needs_nine_rows_at_one_tenth(cutoffs):
    """Give the largest of nine equal rows at alpha .1, and infinity for eight."""
    assert [math.inf] == cutoffs(np.arange(8.0), np.zeros(8), [0.0], 0.1).tolist()
    assert [8.0] == cutoffs(np.arange(9.0), np.zeros(9), [0.0], 0.1).tolist()


def has_rank_51_of_74_at_alpha_32(cutoffs):
    """Give rank 51, since 75 * .68 is 51, although 75 * .68 in floats is more and rounds up to 52."""
    assert 52 == math.ceil(75 * 0.68)
    assert [51.0] == cutoffs(np.arange(1.0, 75), np.zeros(74), [0.0], 0.32).tolist()


def ignores_the_order_of_rows(cutoffs):
    """Give one cutoff for pairs of score and weight in any order, and another when weights change their scores."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        scores, log_weights, order = rng.random(12), rng.normal(size=12), rng.permutation(12)
        expected = cutoffs(scores, log_weights, [0.0], 0.3).tolist()
        assert expected == cutoffs(scores[order], log_weights[order], [0.0], 0.3).tolist()
    assert [0.1] == cutoffs([0.1, 0.9], np.log([8.0, 1.0]), [-math.inf], 0.2).tolist()
    assert [0.9] == cutoffs([0.1, 0.9], np.log([1.0, 8.0]), [-math.inf], 0.2).tolist()


def counts_integer_weights_as_copies(cutoffs):
    """Take a row of weight k for k rows of weight 1."""
    rng = np.random.default_rng(6)
    for _ in range(40):
        scores, counts = rng.integers(0, 6, 8) / 6, rng.integers(1, 5, 8)
        copies = np.repeat(scores, counts)
        expected = cutoffs(copies, np.zeros(len(copies)), [0.0], 0.2).tolist()
        assert expected == cutoffs(scores, np.log(counts), [0.0], 0.2).tolist()


def leaves_out_rows_of_weight_zero(cutoffs):
    """Take a row of weight 0 for no row: it is never the cutoff, wherever its score lies."""
    for zero in (0.1, 0.5, 0.9):
        scores, log_weights = [zero, 0.4, 0.6], [-math.inf, 0.0, 0.0]
        for alpha in (0.3, 0.5, 0.9):
            expected = cutoffs([0.4, 0.6], [0.0, 0.0], [-math.inf], alpha).tolist()
            assert expected == cutoffs(scores, log_weights, [-math.inf], alpha).tolist()
    assert [0.4] == cutoffs([0.1, 0.4], [-math.inf, 0.0], [-math.inf], 0.9).tolist()


def feels_the_test_weight(cutoffs):
    """Give a test weight of .01 a finite cutoff among 30 unit rows, and one of 20 none."""
    assert [28.0, math.inf] == cutoffs(np.arange(1.0, 31), np.zeros(30), np.log([0.01, 20.0]), 0.1).tolist()


def is_unbounded_without_evidence(cutoffs):
    """Give exactly [0, 1], flagged, never NaN, to a test weight that goes to infinity or without calibration weight."""
    found = [
        *cutoffs([0.1, 0.2], [0.0, 0.0], [50.0, 800.0, 1e300, math.inf], 0.1),
        *cutoffs([], [], [0.0, -math.inf], 0.1),
        *cutoffs([0.2], [-math.inf], [0.0], 0.1),
    ]
    assert [math.inf] * 7 == [float(value) for value in found]
    record = reward_intervals([0.3] * 7, [0.1] * 7, found, prompt_id_N=["q"] * 7, missing_N=[False] * 7)
    assert ([0.0] * 7, [1.0] * 7, [True] * 7) == (
        record.lower_N.tolist(),
        record.upper_N.tolist(),
        record.unbounded_N.tolist(),
    )


def never_grows_with_alpha(cutoffs):
    """Widen no interval when more misses are allowed."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        scores, log_weights = rng.random(15), rng.normal(size=15)
        found = [float(cutoffs(scores, log_weights, [0.0], alpha)[0]) for alpha in (0.02, 0.1, 0.2, 0.4, 0.8)]
        assert sorted(found, reverse=True) == found


def never_falls_as_the_test_weight_grows(cutoffs):
    """Give a heavier test rollout a cutoff at least as large, infinite in the end."""
    rng = np.random.default_rng(8)
    for _ in range(20):
        scores, log_weights = rng.random(15), rng.normal(size=15)
        found = cutoffs(scores, log_weights, [-math.inf, -9.0, -1.0, 0.0, 1.0, 3.0, 9.0, math.inf], 0.3).tolist()
        assert sorted(found) == found
        assert math.isfinite(found[0])
        assert math.inf == found[-1]


def answers_each_test_rollout_on_its_own(cutoffs):
    """Change no cutoff for a huge test weight elsewhere in the batch."""
    alone = cutoffs([0.1, 0.2, 0.3], [0.0] * 3, [0.0], 0.3).tolist()
    together = cutoffs([0.1, 0.2, 0.3], [0.0] * 3, [0.0, 900.0, math.inf], 0.3).tolist()
    assert [*alone, math.inf, math.inf] == together


LAWS = (
    equals_exact_rational_arithmetic,
    ignores_the_scale_of_the_weights,
    bears_weights_of_any_size,
    equals_the_split_rank,
    needs_nine_rows_at_one_tenth,
    has_rank_51_of_74_at_alpha_32,
    ignores_the_order_of_rows,
    counts_integer_weights_as_copies,
    leaves_out_rows_of_weight_zero,
    feels_the_test_weight,
    is_unbounded_without_evidence,
    never_grows_with_alpha,
    never_falls_as_the_test_weight_grows,
    answers_each_test_rollout_on_its_own,
)
