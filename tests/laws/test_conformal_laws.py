"""Laws of cutoffs, intervals, density ratios, scorers and bands: reductions, invariances, monotone directions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.conformal.coverage import clustered_band
from rangeline.conformal.density_ratio import effective_sample_size, fit_density_ratio
from rangeline.conformal.intervals import reward_intervals, weighted_cutoffs
from rangeline.conformal.scorer import ResidualScale, StateScorer

ROWS = st.lists(st.tuples(st.integers(0, 6).map(lambda k: k / 6), st.floats(-4, 4)), min_size=1, max_size=25)


@given(rows=ROWS, test=st.floats(-4, 4), shift=st.floats(-50, 50))
@settings(max_examples=150, deadline=None)
def test_only_ratios_of_weights_matter(rows, test, shift):
    """Adding one number to every log weight changes no cutoff."""
    scores, logs = np.array(rows).T
    assert weighted_cutoffs(scores, logs, [test], 0.137) == weighted_cutoffs(
        scores, logs + shift, [test + shift], 0.137
    )


@given(rows=ROWS, test=st.floats(-4, 4), seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_calibration_order_is_irrelevant(rows, test, seed):
    """Permuting calibration rows changes no cutoff."""
    scores, logs = np.array(rows).T
    order = np.random.default_rng(seed).permutation(len(scores))
    assert weighted_cutoffs(scores, logs, [test], 0.137) == weighted_cutoffs(scores[order], logs[order], [test], 0.137)


@given(rows=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_integer_weight_is_that_many_copies(rows):
    """A row of weight k counts as k rows of weight 1, and weight 0 as no row."""
    scores, counts = (np.array(column) for column in zip(*rows, strict=True))
    with np.errstate(divide="ignore"):
        weighted = weighted_cutoffs(scores, np.log(counts), [0.0], 0.2)
    copies = np.repeat(scores, counts)
    assert weighted_cutoffs(copies, np.zeros(len(copies)), [0.0], 0.2) == weighted


def test_weight_zero_is_omission_even_for_the_smallest_score():
    """A row of weight 0 can never be the cutoff."""
    assert 0.4 == weighted_cutoffs([0.1, 0.4], [-math.inf, 0.0], [-math.inf], 0.9)[0]


@given(rows=ROWS, test=st.floats(-4, 4))
@settings(max_examples=100, deadline=None)
def test_cutoff_never_grows_with_alpha(rows, test):
    """Allowing more misses never widens an interval."""
    scores, logs = np.array(rows).T
    cutoffs = [weighted_cutoffs(scores, logs, [test], alpha)[0] for alpha in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)]
    assert sorted(cutoffs, reverse=True) == cutoffs


@given(rows=ROWS)
@settings(max_examples=100, deadline=None)
def test_width_never_falls_as_the_test_weight_grows(rows):
    """A test rollout further from the calibration rows has a cutoff at least as large."""
    scores, logs = np.array(rows).T
    cutoffs = weighted_cutoffs(scores, logs, [-math.inf, -9.0, -1.0, 0.0, 1.0, 3.0, 9.0, math.inf], 0.3).tolist()
    assert sorted(cutoffs) == cutoffs
    assert math.inf == cutoffs[-1]


def test_each_test_rollout_is_answered_on_its_own():
    """A huge test weight elsewhere in the batch changes no other cutoff."""
    alone = weighted_cutoffs([0.1, 0.2, 0.3], [0.0] * 3, [0.0], 0.3)
    together = weighted_cutoffs([0.1, 0.2, 0.3], [0.0] * 3, [0.0, 900.0, math.inf], 0.3)
    assert [alone[0], math.inf, math.inf] == together.tolist()


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.4])
def test_weighted_exchangeability_covers_the_promised_mass(alpha):
    """Whichever row plays the test rollout, covered rows hold 1 - alpha of the weight: the guarantee itself."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        scores, weights = rng.random(15), rng.exponential(size=15)
        logs = np.log(weights)
        rest = [np.delete(np.arange(15), i) for i in range(15)]
        covered = [
            scores[i] <= weighted_cutoffs(scores[rest[i]], logs[rest[i]], logs[[i]], alpha)[0] for i in range(15)
        ]
        assert weights[covered].sum() >= (1 - alpha) * weights.sum() * (1 - 1e-9)


def test_intervals_stay_inside_the_support_and_hold_the_score():
    """Whatever the cutoff, 0 <= lower <= score <= upper <= 1."""
    rng = np.random.default_rng(4)
    score, scale = rng.random(50), rng.random(50) + 0.05
    cutoff = np.where(rng.random(50) < 0.2, np.inf, 10 ** rng.uniform(-3, 300, 50))
    intervals = reward_intervals(score, scale, cutoff, prompt_id_N=["q"] * 50, missing_N=[False] * 50)
    assert ((intervals.lower_N >= 0) & (intervals.lower_N <= score)).all()
    assert ((intervals.upper_N <= 1) & (intervals.upper_N >= score)).all()


@pytest.mark.parametrize("method", ["logistic", "counts"])
def test_density_ratio_ignores_row_order(method):
    """Shuffled rows of both pools give the same bits."""
    rng = np.random.default_rng(5)
    source, target = rng.integers(-1, 2, (30, 2)), rng.integers(0, 2, (20, 2))
    states = np.array([[-1, -1], [0, 1], [1, 1]])
    first = fit_density_ratio(source, target, [2, 2], method=method)
    again = fit_density_ratio(source[::-1], target[rng.permutation(20)], [2, 2], method=method)
    assert first.log_ratio(states).tolist() == again.log_ratio(states).tolist()


@pytest.mark.parametrize("method", ["logistic", "counts"])
def test_equal_pools_have_ratio_one(method):
    """The same states in both pools, even at another number of copies, give log-ratios near 0."""
    pool = np.array([[0], [0], [1], [-1]] * 25)
    ratio = fit_density_ratio(pool, np.tile(pool, (3, 1)), [2], method=method)
    assert [0.0, 0.0, 0.0] == pytest.approx(ratio.log_ratio([[0], [1], [-1]]).tolist(), abs=0.05)


@pytest.mark.parametrize("method", ["logistic", "counts"])
def test_exchanging_the_pools_turns_the_ratio_around(method):
    """The log-ratio changes its sign when source and target change places."""
    source, target = np.array([[0]] * 12 + [[1]] * 4), np.array([[0]] * 3 + [[1]] * 6)
    forth = fit_density_ratio(source, target, [2], method=method).log_ratio([[0], [1]])
    back = fit_density_ratio(target, source, [2], method=method).log_ratio([[0], [1]])
    assert (-forth).tolist() == pytest.approx(back.tolist(), abs=1e-5)
    assert forth[0] < 0 < forth[1]


@given(logs=st.lists(st.floats(-5, 5), min_size=1, max_size=20), shift=st.floats(-1000, 1000))
@settings(max_examples=100, deadline=None)
def test_effective_sample_size_is_scale_free_and_bounded(logs, shift):
    """Effective sample size lies between 1 and the number of rows, whatever the scale of the weights."""
    ess = effective_sample_size(logs)
    assert 1 - 1e-9 <= ess <= len(logs) + 1e-9
    assert ess == pytest.approx(effective_sample_size(np.array(logs) + shift), rel=1e-9)


def test_scorer_and_scale_ignore_the_order_of_source_rows():
    """The same source rows in another order give the same bytes."""
    rng = np.random.default_rng(6)
    levels, reward = rng.integers(-1, 3, (40, 2)), rng.random(40)
    order = rng.permutation(40)
    scorer = StateScorer.fit(levels, reward, [3, 3])
    assert scorer.to_bytes() == StateScorer.fit(levels[order], reward[order], [3, 3]).to_bytes()
    score = scorer.score(levels)
    scale = ResidualScale.fit(levels, score, reward, [3, 3])
    assert scale.to_json() == ResidualScale.fit(levels[order], score[order], reward[order], [3, 3]).to_json()


def test_band_of_copies_is_the_band_of_one_row_a_prompt():
    """Identical rows inside a prompt add no evidence: the band equals that of one row a prompt."""
    once = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1])
    ids = [f"q{i}" for i in range(12)]
    single = clustered_band(once, ids, confidence=0.9)
    copied = clustered_band(np.repeat(once, 8), np.repeat(ids, 8).tolist(), confidence=0.9)
    by_row = clustered_band(np.repeat(once, 8), [f"r{i}" for i in range(96)], confidence=0.9)
    assert single == pytest.approx(copied, abs=1e-12)
    assert copied[0] < by_row[0] < by_row[1] < copied[1]


def test_band_ignores_the_order_of_rows():
    """Shuffled rows give the same band, bit for bit."""
    rng = np.random.default_rng(7)
    values, ids = rng.integers(0, 2, 30), [f"q{i % 7}" for i in range(30)]
    order = rng.permutation(30)
    expected = clustered_band(values, ids, confidence=0.95)
    assert expected == clustered_band(values[order], [ids[i] for i in order], confidence=0.95)
