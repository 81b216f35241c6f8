"""Laws of cutoffs, intervals, density ratios, scorers and bands: reductions, invariances, monotone directions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.conformal.coverage import clustered_band
from rangeline.conformal.density_ratio import fit_density_ratio
from rangeline.conformal.intervals import reward_intervals, weighted_cutoffs, weighted_cutoffs_by_group
from rangeline.conformal.overlap import effective_sample_size, overlap_report
from rangeline.conformal.regressor import WeightedConformalRegressor
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


@pytest.mark.parametrize("method", ["logistic", "counts", "forest", "boosting"])
def test_density_ratio_ignores_row_order(method):
    """Shuffled rows of both pools give the same bits."""
    rng = np.random.default_rng(5)
    source, target = rng.integers(-1, 2, (30, 2)), rng.integers(0, 2, (20, 2))
    states = np.array([[-1, -1], [0, 1], [1, 1]])
    first = fit_density_ratio(source, target, [2, 2], method=method)
    again = fit_density_ratio(source[::-1], target[rng.permutation(20)], [2, 2], method=method)
    assert first.log_ratio(states).tolist() == again.log_ratio(states).tolist()


def _repeating_pools(seed):
    """Draw two pools of 128 prompts with 8 rollouts over 512 states, without shift; a prompt repeats its own state."""
    rng = np.random.default_rng(seed)
    pools = []
    for _ in range(2):
        own, shared = rng.integers(0, 8, (1024, 3)), np.repeat(rng.integers(0, 8, (128, 3)), 8, axis=0)
        pools.append(np.where(rng.random((1024, 1)) < 0.6, shared, own))
    prompts = np.arange(1024) // 8
    return *pools, tuple([f"{name}{number}" for number in prompts] for name in ("s", "t"))


@pytest.mark.parametrize("seed", [0, 1])
def test_rollouts_of_a_prompt_do_not_vouch_for_each_other(seed):
    """Without shift and at correlation .6, folds of prompts see nothing; folds of rows take repeats for a shift."""
    source, target, ids = _repeating_pools(seed)
    reports = []
    for prompt_ids in (ids, None):
        ratio = fit_density_ratio(source, target, [8] * 3, method="boosting", prompt_ids=prompt_ids)
        reports.append(overlap_report(ratio, source, target, source, prompt_ids=prompt_ids))
    by_prompt, by_row = reports
    assert 0.5 == pytest.approx(by_prompt.classifier_auc, abs=0.06)
    assert by_row.classifier_auc > 0.65
    assert by_prompt.ess_share > 0.75
    assert by_row.ess_share < 0.65


@pytest.mark.parametrize("method", ["logistic", "counts", "forest", "boosting"])
def test_density_ratio_ignores_row_order_of_prompts(method):
    """Rows shuffled together with their prompt ids give the same bits."""
    rng = np.random.default_rng(6)
    source, target = rng.integers(-1, 2, (32, 2)), rng.integers(0, 2, (24, 2))
    ids = [f"s{i // 4}" for i in range(32)], [f"t{i // 4}" for i in range(24)]
    order = rng.permutation(32)
    first = fit_density_ratio(source, target, [2, 2], method=method, prompt_ids=ids)
    shuffled = ([ids[0][i] for i in order], ids[1][::-1])
    again = fit_density_ratio(source[order], target[::-1], [2, 2], method=method, prompt_ids=shuffled)
    assert first.to_json() == again.to_json()


@pytest.mark.parametrize(
    ("method", "slack"), [("logistic", 0.05), ("counts", 0.05), ("forest", 0.1), ("boosting", 0.1)]
)
def test_equal_pools_have_ratio_one(method, slack):
    """The same states in both pools, even at another number of copies, give log-ratios near 0."""
    pool = np.array([[0], [0], [1], [-1]] * 25)
    ratio = fit_density_ratio(pool, np.tile(pool, (3, 1)), [2], method=method)
    assert [0.0, 0.0, 0.0] == pytest.approx(ratio.log_ratio([[0], [1], [-1]]).tolist(), abs=slack)


@pytest.mark.parametrize("method", ["logistic", "counts"])
def test_exchanging_the_pools_turns_the_ratio_around(method):
    """The log-ratio changes its sign when source and target change places."""
    source, target = np.array([[0]] * 12 + [[1]] * 4), np.array([[0]] * 3 + [[1]] * 6)
    forth = fit_density_ratio(source, target, [2], method=method).log_ratio([[0], [1]])
    back = fit_density_ratio(target, source, [2], method=method).log_ratio([[0], [1]])
    assert (-forth).tolist() == pytest.approx(back.tolist(), abs=1e-5)
    assert forth[0] < 0 < forth[1]


@pytest.mark.parametrize("method", ["logistic", "counts", "forest", "boosting"])
def test_every_method_finds_the_true_ratio(method):
    """From 4,000 rows a pool, each method is within .35 of every true log-ratio, and the mean weight is near 1."""
    rng = np.random.default_rng(8)
    source, target = (rng.choice(4, size=4000, p=p)[:, None] for p in ([0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]))
    ratio = fit_density_ratio(source, target, [4], method=method)
    expected = np.log([1 / 4, 2 / 3, 3 / 2, 4])
    assert expected.tolist() == pytest.approx(ratio.log_ratio([[0], [1], [2], [3]]).tolist(), abs=0.35)
    assert 1.0 == pytest.approx(overlap_report(ratio, source, target, source).mean_source_weight, abs=0.1)


@given(rows=ROWS, tests=st.lists(st.floats(-4, 4), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_one_group_is_no_group(rows, tests):
    """Cutoffs of a single group are those without groups."""
    scores, logs = np.array(rows).T
    expected = weighted_cutoffs(scores, logs, tests, 0.2).tolist()
    groups = {"group_C": ["g"] * len(scores), "group_N": ["g"] * len(tests)}
    assert expected == weighted_cutoffs_by_group(scores, logs, tests, 0.2, **groups).tolist()


@given(rows=ROWS, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_other_groups_change_no_cutoff(rows, seed):
    """A group's cutoff is that of its own rows alone; a group without rows has none."""
    scores, logs = np.array(rows).T
    group = np.random.default_rng(seed).integers(0, 3, len(scores))
    expected = [weighted_cutoffs(scores[group == g], logs[group == g], [0.5], 0.2)[0] for g in range(4)]
    actual = weighted_cutoffs_by_group(
        scores, logs, [0.5] * 4, 0.2, group_C=group.tolist(), group_N=list(range(4))
    ).tolist()
    assert expected == actual
    assert math.inf == actual[3]


@pytest.mark.parametrize("sigma", ["residual", "bernoulli", "plain"])
def test_calibration_rows_never_reach_the_scale(sigma):
    """Other calibration rewards change the cutoff alone: scorer and scale are those of the source rows."""
    levels, reward = np.array([[0], [1]] * 20), np.array([0.2, 0.9] * 20)
    model = WeightedConformalRegressor(sigma=sigma, alpha=0.3).fit(levels, reward)
    first = model.calibrate(levels, reward).calibration_
    again = model.calibrate(levels, 1 - reward).calibration_
    assert (first.score_C.tolist(), first.scale_C.tolist()) == (again.score_C.tolist(), again.scale_C.tolist())


def test_weighted_intervals_cover_where_unweighted_ones_do_not():
    """Under a shift to the noisy state, weighting restores the coverage that equal weights lose."""
    rng = np.random.default_rng(9)

    def draw(num, share):
        levels = (rng.random(num) < share).astype(int)[:, None]
        return levels, np.clip(0.5 + np.where(levels[:, 0] == 1, 0.45, 0.02) * rng.uniform(-1, 1, num), 0, 1)

    source, calibration, (target, truth) = draw(400, 0.1), draw(400, 0.1), draw(4000, 0.9)
    model = WeightedConformalRegressor(alpha=0.1, sigma="plain").fit(*source)

    def covered():
        lower, upper = model.predict_interval(target)
        return float(((lower <= truth) & (truth <= upper)).mean())

    model.calibrate(*calibration)
    assert covered() < 0.5
    model.calibrate(*calibration, target=draw(400, 0.9)[0])
    assert covered() > 0.85


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
