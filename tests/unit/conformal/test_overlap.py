"""Unit tests of the overlap report, the effective sample size and the Pareto shape."""

import math

import numpy as np
import pytest

from rangeline.conformal.density_ratio import fit_density_ratio
from rangeline.conformal.overlap import effective_sample_size, num_unseen_levels, overlap_report, pareto_k, pareto_shape
from rangeline.errors import CalibrationError

METHODS = ["logistic", "counts", "forest", "boosting"]
SOURCE = np.array([[0, 0]] * 8 + [[1, 0]] * 4 + [[1, -1]] * 4, dtype=np.int8)
TARGET = np.array([[0, 0]] * 2 + [[1, 0]] * 2 + [[1, 1]] * 4, dtype=np.int8)
STATES = np.array([[0, 0], [1, 0], [1, -1], [1, 1], [-1, -1]], dtype=np.int8)


def test_effective_sample_size_by_hand():
    """(1+1+2)^2 / (1+1+4) = 16/6; equal weights count fully; no weight counts nothing."""
    assert 16 / 6 == pytest.approx(effective_sample_size(np.log([1.0, 1.0, 2.0])))
    assert 3.0 == effective_sample_size([-900.0] * 3)
    assert 0.0 == effective_sample_size([])
    assert 0.0 == effective_sample_size([-math.inf, -math.inf])


def test_overlap_report_by_hand():
    """Shares are of calibration rows; the unseen share is of target rows."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], method="counts", log_cap=(-1.0, 1.0))
    assert [False, False, True, True, False] == ratio.clipped_N(STATES).tolist()
    report = overlap_report(ratio, SOURCE, TARGET, STATES[2:4])
    low, high = math.exp(-1), math.exp(1)
    assert (low + high) ** 2 / (low**2 + high**2) == pytest.approx(report.ess)
    assert report.ess / 2 == report.ess_share
    assert high / (low + high) == pytest.approx(report.max_weight_share)
    assert 1.0 == report.clipped_share
    assert 0.5 == report.clipped_target_share
    assert 1 == report.num_unseen_levels
    assert not report.separable
    assert report.pareto_k is None
    assert 0.5 == report.unseen_target_share
    assert (16, 8) == (report.num_source, report.num_target)
    assert 0.5 < report.classifier_auc <= 1


@pytest.mark.parametrize("method", METHODS)
def test_auc_is_one_for_disjoint_pools_and_none_for_single_rows(method):
    """Pools without a common state are told apart; a pool of one row cannot be folded."""
    source, target = np.zeros((30, 1), dtype=int), np.ones((30, 1), dtype=int)
    ratio = fit_density_ratio(source, target, [2], method=method)
    assert 1.0 == overlap_report(ratio, source, target, source).classifier_auc
    assert overlap_report(ratio, source, target[:1], source).classifier_auc is None


def test_empty_calibration_is_refused_by_the_report():
    """There is no effective sample size of nothing to report."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2])
    with pytest.raises(CalibrationError, match="'calibration_CK' must hold at least one state"):
        overlap_report(ratio, SOURCE, TARGET, SOURCE[:0])


@pytest.mark.parametrize("method", METHODS)
def test_separable_pools_are_flagged(method):
    """No state in both pools is flagged; one common state is enough to lift the flag."""
    source, target = np.zeros((6, 1), dtype=int), np.ones((6, 1), dtype=int)
    ratio = fit_density_ratio(source, target, [2], method=method)
    report = overlap_report(ratio, source, target, source)
    assert (True, 1.0, 1) == (report.separable, report.unseen_target_share, report.num_unseen_levels)
    target[0] = 0
    assert not overlap_report(fit_density_ratio(source, target, [2], method=method), source, target, source).separable


def test_caps_of_calibration_and_target_are_one_cap():
    """On the same rows the two clip shares are equal."""
    ratio = fit_density_ratio(SOURCE, TARGET, [2, 2], log_cap=(-0.1, 0.1))
    report = overlap_report(ratio, SOURCE, TARGET, TARGET)
    assert 0 < report.clipped_share == report.clipped_target_share


def test_mean_source_weight_is_one_for_unsmoothed_shares():
    """Weights of source rows sum to the target's mass on states that the source holds."""
    source, target = [[0]] * 30 + [[1]] * 10, [[0]] * 10 + [[1]] * 30
    ratio = fit_density_ratio(source, target, [2], method="counts", regularisation=1e-9)
    assert 1.0 == pytest.approx(overlap_report(ratio, source, target, source).mean_source_weight)


def test_unseen_levels_count_pairs_of_coordinate_and_level():
    """UNKNOWN is a level; a level seen in another coordinate does not count as seen."""
    assert 0 == num_unseen_levels([[0, 1]], [[0, 1]])
    assert 2 == num_unseen_levels([[0, 1]], [[-1, 0]])


@pytest.mark.parametrize("shape", [-0.3, 0.1, 0.5, 0.9])
def test_pareto_shape_of_a_known_sample(shape):
    """On 5,000 draws of a generalised Pareto law the shape is found within .08, whatever the scale."""
    uniform = np.random.default_rng(10).random(5000)
    sample = (uniform**-shape - 1) / shape
    assert shape == pytest.approx(pareto_shape(sample), abs=0.08)
    assert pareto_shape(sample) == pytest.approx(pareto_shape(1000 * sample), abs=1e-9)


@pytest.mark.parametrize("shape", [0.3, 0.7, 1.2])
def test_pareto_k_of_weights_with_a_known_tail(shape):
    """Weights of Pareto tail index 1/k have shape k, whatever their scale."""
    log_weight = -shape * np.log(np.random.default_rng(11).random(20_000))
    assert shape == pytest.approx(pareto_k(log_weight), abs=0.08)
    assert pareto_k(log_weight) == pytest.approx(pareto_k(log_weight - 800), abs=1e-6)


@pytest.mark.parametrize("logs", [[], [0.0], [0.0] * 50, list(np.log([1, 2, 3, 4, 5])) * 10, [-math.inf] * 50])
def test_pareto_k_of_few_distinct_weights_is_not_defined(logs):
    """Rows of a few states have no tail to fit."""
    assert pareto_k(logs) is None


@pytest.mark.parametrize("excess", [[], [1.0], [0.0, 1.0], [math.nan, 1.0], [1.0, math.inf]])
def test_pareto_shape_refuses_what_is_no_excess(excess):
    """Excesses are two or more positive finite numbers."""
    with pytest.raises(CalibrationError, match="'excess_M' must be 2 or more positive finite numbers; got"):
        pareto_shape(excess)


def test_pareto_k_refuses_infinite_weights():
    """The weight is named by its row."""
    with pytest.raises(CalibrationError, match=r"'log_weight_C' must be below infinity and not NaN; got inf \(row 1\)"):
        pareto_k([0.0, math.inf])
