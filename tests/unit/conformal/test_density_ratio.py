"""Unit tests of the density ratio, the overlap report and the effective sample size."""

import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rangeline.conformal.density_ratio import (
    DensityRatio,
    effective_sample_size,
    fit_density_ratio,
    overlap_report,
)
from rangeline.conformal.scorer import one_hot
from rangeline.errors import CalibrationError

SOURCE = np.array([[0, 0]] * 8 + [[1, 0]] * 4 + [[1, -1]] * 4, dtype=np.int8)
TARGET = np.array([[0, 0]] * 2 + [[1, 0]] * 2 + [[1, 1]] * 4, dtype=np.int8)
STATES = np.array([[0, 0], [1, 0], [1, -1], [1, 1], [-1, -1]], dtype=np.int8)


def test_logistic_is_the_log_odds_corrected_for_pool_sizes():
    """Scikit-learn on the plain rows gives the same log-odds, plus log(m_source / m_target)."""
    features = one_hot(np.concatenate([SOURCE, TARGET]), [2, 2])
    peer = LogisticRegression(C=0.5, tol=1e-8, max_iter=1000).fit(features, [0] * 16 + [1] * 8)
    expected = peer.decision_function(one_hot(STATES, [2, 2])) + math.log(2)
    actual = fit_density_ratio(SOURCE, TARGET, [2, 2], regularisation=2.0).raw_log_ratio(STATES)
    assert expected.tolist() == pytest.approx(actual.tolist(), abs=1e-5)


def test_counts_by_hand():
    """Cells 8|2, 4|2, 4|0, 0|4 and one for all others, with pseudo-counts 1 and 1/2: totals 21 and 10.5."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method="counts")
    expected = [math.log(2 * r) for r in (2.5 / 9, 2.5 / 5, 0.5 / 5, 4.5 / 1, 0.5 / 1)]
    assert expected == pytest.approx(ratio.raw_log_ratio(STATES).tolist())


def test_larger_pool_is_not_a_likelier_one():
    """With the same shares of states in a large and a small pool every ratio is 1, an unseen state's too."""
    state = [[0, 0]] * 4 + [[0, 1]] * 2 + [[1, 0]]
    ratio = fit_density_ratio(state * 8, state, [2, 2], method="counts")
    assert pytest.approx([0.0] * 4) == ratio.raw_log_ratio([[0, 0], [0, 1], [1, 0], [1, 1]]).tolist()


@pytest.mark.parametrize("method", ["logistic", "counts"])
def test_direction_is_target_over_source(method):
    """A state of the target pool alone has a positive log-ratio, one of the source alone a negative one."""
    log_ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method=method).log_ratio(STATES)
    assert log_ratio[2] < 0 < log_ratio[3]


def test_log_ratio_is_clipped_and_counted():
    """Clipping acts in log space, and says where it acted."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method="counts", log_cap=(-0.5, 1.0))
    assert [True, False, True, True, False] == ratio.clipped_N(STATES).tolist()
    assert [-0.5, 1.0] == ratio.log_ratio(STATES)[[2, 3]].tolist()


@pytest.mark.parametrize("method", ["logistic", "counts"])
def test_ratio_survives_json(method):
    """Through text, every log-ratio keeps its bits."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method=method)
    read = DensityRatio.from_json(json.loads(json.dumps(ratio.to_json())))
    assert ratio.log_ratio(STATES).tolist() == read.log_ratio(STATES).tolist()
    assert ratio.to_json() == read.to_json()


@pytest.mark.parametrize("method", ["logistic", "counts"])
def test_a_state_has_one_ratio_in_any_batch(method):
    """Equal states get equal bits alone and among others."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method=method)
    alone = [float(ratio.log_ratio(state[None])[0]) for state in STATES]
    assert alone == ratio.log_ratio(STATES).tolist()


def test_effective_sample_size_by_hand():
    """(1+1+2)^2 / (1+1+4) = 16/6; equal weights count fully; no weight counts nothing."""
    assert 16 / 6 == pytest.approx(effective_sample_size(np.log([1.0, 1.0, 2.0])))
    assert 3.0 == effective_sample_size([-900.0] * 3)
    assert 0.0 == effective_sample_size([])
    assert 0.0 == effective_sample_size([-math.inf, -math.inf])


def test_overlap_report_by_hand():
    """Shares are of calibration rows; the unseen share is of target rows."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method="counts", log_cap=(-1.0, 1.0))
    report = overlap_report(ratio, SOURCE, TARGET, STATES[2:4])
    low, high = math.exp(-1), math.exp(1)
    assert (low + high) ** 2 / (low**2 + high**2) == pytest.approx(report.ess)
    assert report.ess / 2 == report.ess_share
    assert high / (low + high) == pytest.approx(report.max_weight_share)
    assert 1.0 == report.clipped_share
    assert 0.5 == report.unseen_target_share
    assert (16, 8) == (report.num_source, report.num_target)
    assert 0.5 < report.classifier_auc <= 1


@pytest.mark.parametrize("method", ["logistic", "counts"])
def test_auc_is_one_for_disjoint_pools_and_none_for_single_rows(method):
    """Pools without a common state are told apart; a pool of one row cannot be folded."""
    source, target = np.zeros((6, 1), dtype=int), np.ones((6, 1), dtype=int)
    ratio = fit_density_ratio(source, target, [2], method=method)
    assert 1.0 == overlap_report(ratio, source, target, source).classifier_auc
    assert overlap_report(ratio, source, target[:1], source).classifier_auc is None


@pytest.mark.parametrize(("source", "target", "name"), [([], [[0]], "source_SK"), ([[0]], [], "target_DK")])
def test_empty_pool_is_refused(source, target, name):
    """A ratio needs both pools."""
    with pytest.raises(CalibrationError, match=f"'{name}' must hold at least one state; got 0 rows"):
        fit_density_ratio(source, target, [2])


def test_empty_calibration_is_refused_by_the_report():
    """There is no effective sample size of nothing to report."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2])
    with pytest.raises(CalibrationError, match="'calibration_CK' must hold at least one state"):
        overlap_report(ratio, SOURCE, TARGET, SOURCE[:0])


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "forest"},
        {"regularisation": 0.0},
        {"regularisation": math.nan},
        {"log_cap": (1.0, -1.0)},
        {"log_cap": (-math.inf, 4.0)},
    ],
)
def test_bad_settings_are_refused(settings):
    """Unknown methods, free fits and caps that are no interval are named."""
    with pytest.raises(CalibrationError, match="'method', 'regularisation' and 'log_cap' must be"):
        fit_density_ratio(SOURCE, TARGET, [2, 2], **settings)
