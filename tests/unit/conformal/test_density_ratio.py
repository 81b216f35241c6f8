"""Unit tests of the density ratio."""

import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rangeline.conformal.density_ratio import DensityRatio, fit_density_ratio
from rangeline.conformal.scorer import one_hot
from rangeline.errors import CalibrationError

SOURCE = np.array([[0, 0]] * 8 + [[1, 0]] * 4 + [[1, -1]] * 4, dtype=np.int8)
TARGET = np.array([[0, 0]] * 2 + [[1, 0]] * 2 + [[1, 1]] * 4, dtype=np.int8)
METHODS = ["logistic", "counts", "forest", "boosting"]
STATES = np.array([[0, 0], [1, 0], [1, -1], [1, 1], [-1, -1]], dtype=np.int8)


def test_logistic_is_the_log_odds_corrected_for_pool_sizes():
    """Scikit-learn on the plain rows gives the same log-odds, plus log(m_source / m_target)."""
    features = one_hot(np.concatenate([SOURCE, TARGET]), [2, 2])
    peer = LogisticRegression(C=0.5, tol=1e-8, max_iter=1000).fit(features, [0] * 16 + [1] * 8)
    expected = peer.decision_function(one_hot(STATES, [2, 2])) + math.log(2)
    actual = fit_density_ratio(SOURCE, TARGET, [2, 2], regularisation=2.0).raw_log_ratio(STATES)
    assert expected.tolist() == pytest.approx(actual.tolist(), abs=1e-5)


def test_counts_by_hand():
    """Cells 8|2, 4|2, 4|0, 0|4 get 3 pseudo-counts, parted as logistic expects; pools of 16 and 8 are divided out."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method="counts")
    additive = fit_density_ratio(SOURCE, TARGET, [2, 2]).raw_log_ratio(STATES)
    share = 1 / (1 + np.exp(math.log(2) - additive))
    target, source = np.array([2, 2, 0, 4, 0]) + 3 * share, np.array([8, 4, 4, 0, 0]) + 3 * (1 - share)
    expected = np.log(2 * target / source)
    assert expected.tolist() == pytest.approx(ratio.raw_log_ratio(STATES).tolist())


def test_counts_of_a_ratio_of_one_are_laplaces():
    """Where logistic sees no shift, each cell gets two pseudo-counts a pool: 3|1 and 1|3 give log(3/5) and log(5/3)."""
    source = [[0, 0]] * 3 + [[0, 1]] + [[1, 0]] + [[1, 1]] * 3
    target = [[0, 0]] + [[0, 1]] * 3 + [[1, 0]] * 3 + [[1, 1]]
    actual = fit_density_ratio(source, target, [2, 2], method="counts").raw_log_ratio([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert [math.log(0.6), -math.log(0.6), -math.log(0.6), math.log(0.6)] == pytest.approx(actual.tolist(), abs=1e-6)


@pytest.mark.parametrize("method", ["counts", "boosting"])
def test_what_a_table_does_not_know_is_additive(method):
    """A state of neither pool has the logistic ratio, an unseen level in it a coefficient of 0."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 3], method=method)
    additive = fit_density_ratio(SOURCE, TARGET, [2, 3])
    unseen = [[0, 1], [-1, 2], [0, 2]]
    assert additive.raw_log_ratio(unseen).tolist() == ratio.raw_log_ratio(unseen).tolist()
    assert 0.0 == pytest.approx(ratio.coefficients[3 + 1 + 2], abs=1e-6)


def test_heavy_penalty_leaves_boosting_the_additive_ratio():
    """Shrinkage goes towards the logistic fit, not towards 1."""
    ratio, additive = (
        fit_density_ratio(SOURCE, TARGET, [2, 2], method=method, regularisation=1e7).raw_log_ratio(STATES)
        for method in ("boosting", "logistic")
    )
    assert additive.tolist() == pytest.approx(ratio.tolist(), abs=1e-3)


def test_boosting_sees_an_interaction_that_logistic_cannot():
    """Of a crossed shift, logistic says a ratio of 1 everywhere, boosting the right signs."""
    source = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [60, 20, 20, 60], axis=0)
    target = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [20, 60, 60, 20], axis=0)
    states = [[0, 0], [0, 1], [1, 0], [1, 1]]
    found = {m: fit_density_ratio(source, target, [2, 2], method=m).raw_log_ratio(states) for m in METHODS}
    assert [0.0] * 4 == pytest.approx(found["logistic"].tolist(), abs=1e-6)
    assert [-math.log(3), math.log(3), math.log(3), -math.log(3)] == pytest.approx(found["boosting"].tolist(), abs=0.2)


def test_larger_pool_is_not_a_likelier_one():
    """With the same shares of states in a large and a small pool every ratio is 1, an unseen state's too."""
    state = [[0, 0]] * 4 + [[0, 1]] * 2 + [[1, 0]]
    ratio = fit_density_ratio(state * 8, state, [2, 2], method="counts")
    assert pytest.approx([0.0] * 4, abs=1e-6) == ratio.raw_log_ratio([[0, 0], [0, 1], [1, 0], [1, 1]]).tolist()


@pytest.mark.parametrize("method", METHODS)
def test_direction_is_target_over_source(method):
    """A state of the target pool alone has a positive log-ratio, one of the source alone a negative one."""
    pools = (np.tile(pool, (5, 1)) for pool in (SOURCE, TARGET))
    log_ratio = fit_density_ratio(*pools, [2, 2], method=method).log_ratio(STATES)
    assert log_ratio[2] < 0 < log_ratio[3]


def test_log_ratio_is_clipped_and_counted():
    """Clipping acts in log space, and says where it acted."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method="counts", log_cap=(-0.5, 1.0))
    assert [True, False, True, True, True] == ratio.clipped_N(STATES).tolist()
    assert [-0.5, 1.0] == ratio.log_ratio(STATES)[[2, 3]].tolist()


@pytest.mark.parametrize("method", METHODS)
def test_ratio_survives_json(method):
    """Through text, every log-ratio keeps its bits."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method=method)
    read = DensityRatio.from_json(json.loads(json.dumps(ratio.to_json())))
    assert ratio.log_ratio(STATES).tolist() == read.log_ratio(STATES).tolist()
    assert ratio.to_json() == read.to_json()


@pytest.mark.parametrize("method", METHODS)
def test_a_state_has_one_ratio_in_any_batch(method):
    """Equal states get equal bits alone and among others."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method=method)
    alone = [float(ratio.log_ratio(state[None])[0]) for state in STATES]
    assert alone == ratio.log_ratio(STATES).tolist()


@pytest.mark.parametrize("method", METHODS)
def test_separable_states_are_bounded(method):
    """Pools without a common state have finite log-ratios of the right sign, and the cap bounds them."""
    source, target = np.zeros((300, 1), dtype=int), np.ones((300, 1), dtype=int)
    ratio = fit_density_ratio(source, target, [2], method=method, log_cap=(-2.0, 2.0))
    raw = ratio.raw_log_ratio([[0], [1]])
    assert np.isfinite(raw).all()
    assert [-2.0, 2.0] == ratio.log_ratio([[0], [1]]).tolist()
    assert [True, True] == ratio.clipped_N([[0], [1]]).tolist()


def test_unseen_state_takes_the_largest_ratio_of_its_nearest():
    """A forest gives a state of neither pool the largest ratio among those that differ in the fewest coordinates."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method="forest")
    near = ratio.raw_log_ratio([[0, 0], [1, 1], [1, -1]]).tolist()
    assert [max(near[:2]), max(near[0], near[2])] == ratio.raw_log_ratio([[0, 1], [0, -1]]).tolist()


@pytest.mark.parametrize("method", ["counts", "forest", "boosting"])
def test_tables_hold_the_observed_states(method):
    """The stored ratio is one number for each state of either pool, the logistic coefficients, and no tree."""
    content = fit_density_ratio(SOURCE, TARGET, [2, 2], method=method).to_json()
    assert [[0, 0], [1, -1], [1, 0], [1, 1]] == [state for state, _ in content["by_state"]]
    assert (0 if method == "forest" else 6) == len(content["coefficients"])


def test_forest_depends_on_its_seed_alone():
    """The same seed gives the same bits, another seed other draws."""
    tables = [fit_density_ratio(SOURCE, TARGET, [2, 2], method="forest", seed=seed).by_state for seed in (1, 1, 2)]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def test_forest_of_one_leaf_has_ratio_one():
    """Nine rows cannot be split into leaves of five, so that every leaf says the pools' share."""
    ratio = fit_density_ratio([[0]] * 5, [[1]] * 4, [2], method="forest", regularisation=1e9)
    assert [0.0, 0.0] == pytest.approx(ratio.raw_log_ratio([[0], [1]]).tolist(), abs=1e-6)


@pytest.mark.parametrize("prompt_ids", [None, (["a", "b"], ["c", "c"])])
def test_boosting_refuses_a_pool_that_cannot_be_split(prompt_ids):
    """Leaving prompts out needs two a pool, however many rows they have."""
    target = [[1]] if prompt_ids is None else [[1], [1]]
    with pytest.raises(CalibrationError, match="must have rows of at least 2 prompts for boosting; got 2 and 1"):
        fit_density_ratio([[0], [1]], target, [2], method="boosting", prompt_ids=prompt_ids)


def test_ids_and_rows_must_agree():
    """An id too few is named with its pool."""
    with pytest.raises(CalibrationError, match=r"must have one id a row; got 1 for 2 rows \(target pool\)"):
        fit_density_ratio([[0]], [[1], [1]], [2], prompt_ids=(["a"], ["b"]))


def test_no_row_has_no_ratio():
    """An empty batch gives an empty answer."""
    for method in METHODS:
        ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method=method)
        assert [] == ratio.log_ratio(np.zeros((0, 2), dtype=int)).tolist()


@pytest.mark.parametrize(("source", "target", "name"), [([], [[0]], "source_SK"), ([[0]], [], "target_DK")])
def test_empty_pool_is_refused(source, target, name):
    """A ratio needs both pools."""
    with pytest.raises(CalibrationError, match=f"'{name}' must hold at least one state; got 0 rows"):
        fit_density_ratio(source, target, [2])


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "trees"},
        {"regularisation": 0.0},
        {"regularisation": math.nan},
        {"log_cap": (1.0, -1.0)},
        {"log_cap": (-math.inf, 4.0)},
        {"log_cap": (-4.0, 701.0)},
    ],
)
def test_bad_settings_are_refused(settings):
    """Unknown methods, free fits and caps that are no interval are named."""
    with pytest.raises(CalibrationError, match="'method', 'regularisation' and 'log_cap' must be"):
        fit_density_ratio(SOURCE, TARGET, [2, 2], **settings)
