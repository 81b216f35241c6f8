"""Bad inputs of the conformal room: each is refused by name and row, none becomes a number."""

import math

import numpy as np
import pytest

from rangeline.conformal.density_ratio import fit_density_ratio
from rangeline.conformal.intervals import (
    CalibrationSet,
    minimum_calibration_rows,
    reward_intervals,
    weighted_cutoffs,
    weighted_cutoffs_by_group,
)
from rangeline.conformal.overlap import effective_sample_size
from rangeline.conformal.scorer import ResidualScale, StateScorer, one_hot
from rangeline.errors import CalibrationError


@pytest.mark.parametrize("score", [math.nan, math.inf, -0.1])
def test_unusable_scores_are_refused_by_row(score):
    """NaN, infinite and negative nonconformity scores name their row."""
    with pytest.raises(CalibrationError, match=r"'nonconformity_C' must be finite and at least 0; got .* \(row 1\)"):
        weighted_cutoffs([0.1, score], [0.0, 0.0], [0.0], 0.1)


@pytest.mark.parametrize("log_weight", [math.nan, math.inf])
def test_unusable_calibration_weights_are_refused_by_row(log_weight):
    """A calibration weight must be a number below infinity."""
    with pytest.raises(CalibrationError, match=r"'log_weight_C' must be below infinity and not NaN; .* \(row 0\)"):
        weighted_cutoffs([0.1, 0.2], [log_weight, 0.0], [0.0], 0.1)
    with pytest.raises(CalibrationError, match=r"'log_weight_C' must be below infinity and not NaN; .* \(row 0\)"):
        effective_sample_size([log_weight, 0.0])


def test_nan_test_weight_is_refused_by_row():
    """A test weight may be infinite, but never NaN."""
    with pytest.raises(CalibrationError, match=r"'log_weight_N' must not be NaN; got nan \(row 1\)"):
        weighted_cutoffs([0.1], [0.0], [math.inf, math.nan], 0.1)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_alpha_outside_the_open_unit_interval_is_refused(alpha):
    """Alpha is a share, 0 and 1 excluded."""
    with pytest.raises(CalibrationError, match=r"'alpha' must lie in \(0, 1\)"):
        weighted_cutoffs([0.1], [0.0], [0.0], alpha)
    with pytest.raises(CalibrationError, match=r"'alpha' must lie in \(0, 1\)"):
        minimum_calibration_rows(alpha)


def test_lengths_must_agree():
    """One weight a score."""
    with pytest.raises(CalibrationError, match=r"'log_weight_C' must have shape \(2,\); got shape \(1,\)"):
        weighted_cutoffs([0.1, 0.2], [0.0], [0.0], 0.1)
    with pytest.raises(CalibrationError, match="'log_weight_N' must have one axis"):
        weighted_cutoffs([0.1], [0.0], [[0.0]], 0.1)


def test_grouped_cutoffs_name_the_row_of_the_whole_table():
    """A bad row is named by its place among all rows, not inside its group."""
    groups = {"group_C": ["a", "b", "b"], "group_N": ["b", "a"]}
    with pytest.raises(CalibrationError, match=r"'nonconformity_C' must be finite and at least 0; got nan \(row 2\)"):
        weighted_cutoffs_by_group([0.1, 0.2, math.nan], [0.0] * 3, [0.0] * 2, 0.1, **groups)
    with pytest.raises(CalibrationError, match=r"'log_weight_C' must be below infinity and not NaN; .* \(row 1\)"):
        weighted_cutoffs_by_group([0.1, 0.2, 0.3], [0.0, math.inf, 0.0], [0.0] * 2, 0.1, **groups)
    with pytest.raises(CalibrationError, match=r"'log_weight_N' must not be NaN; got nan \(row 1\)"):
        weighted_cutoffs_by_group([0.1, 0.2, 0.3], [0.0] * 3, [0.0, math.nan], 0.1, **groups)


@pytest.mark.parametrize("name", ["group_C", "group_N"])
def test_labels_must_match_the_rows(name):
    """One label a row, on both sides."""
    groups = {"group_C": ["a", "b"], "group_N": ["a"]} | {name: ["a"] * 3}
    with pytest.raises(CalibrationError, match=rf"'{name}' must have one label for each of [12] rows; got 3"):
        weighted_cutoffs_by_group([0.1, 0.2], [0.0] * 2, [0.0], 0.1, **groups)


def test_extreme_weights_neither_overflow_nor_warn():
    """Log weights of +-1e300 are weights all the same."""
    with np.errstate(all="raise", under="ignore"):
        cutoffs = weighted_cutoffs([0.1, 0.2], [-1e300, 1e300], [-1e300, 1e300, math.inf], 0.1)
    assert [0.2, math.inf, math.inf] == cutoffs.tolist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([math.nan], [1.0], [1.0]), r"'score_N' must lie in \[0.0, 1.0\]; got nan \(row 0\)"),
        (([1.2], [1.0], [1.0]), r"'score_N' must lie in \[0.0, 1.0\]; got 1.2 \(row 0\)"),
        (([0.5], [0.0], [math.inf]), r"'scale_N' must be positive and finite; got 0.0 \(row 0\)"),
        (([0.5], [1.0], [math.nan]), r"'cutoff_N' must be at least 0; got nan \(row 0\)"),
        (([0.5], [1.0], [-1.0]), r"'cutoff_N' must be at least 0; got -1.0 \(row 0\)"),
        (([0.5, 0.5], [1.0], [1.0]), r"'score_N' must have shape \(1,\); got shape \(2,\)"),
    ],
)
def test_unusable_rows_make_no_interval(columns, message):
    """A valid row with a broken score, scale or cutoff is refused; 0 times infinity never happens."""
    with pytest.raises(CalibrationError, match=message):
        reward_intervals(*columns, prompt_id_N=["q"], missing_N=[False])


def test_missing_flags_must_match_the_rows():
    """One flag a rollout."""
    with pytest.raises(CalibrationError, match=r"'missing_N' must have shape \(1,\); got \(2,\)"):
        reward_intervals([0.5], [1.0], [1.0], prompt_id_N=["q"], missing_N=[False, True])


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([[2]], r"must lie in \[-1, 1\]; got 2 \(row 0, column 0\)"),
        ([[0], [-2]], r"must lie in \[-1, 1\]; got -2 \(row 1, column 0\)"),
        ([[0, 0]], "must be whole numbers with 1 columns; got int64 of shape"),
        ([[0.0]], "must be whole numbers with 1 columns; got float64"),
        ([0], "must be whole numbers with 1 columns"),
    ],
)
def test_states_of_another_rubric_are_refused(levels, message):
    """Levels out of range, of another width or not whole are refused wherever states enter."""
    with pytest.raises(CalibrationError, match=message):
        one_hot(levels, [2])
    with pytest.raises(CalibrationError, match=message):
        fit_density_ratio([[0]], levels, [2])
    for method in ("logistic", "counts", "forest", "boosting"):
        ratio = fit_density_ratio([[0]] * 2, [[1]] * 2, [2], method=method)
        with pytest.raises(CalibrationError, match=message):
            ratio.log_ratio(levels)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -0.01, 1.01])
def test_rewards_outside_the_unit_interval_train_nothing(reward):
    """Neither the scorer nor its scale accepts a reward that is no reward."""
    with pytest.raises(CalibrationError, match=r"'reward_S' must lie in \[0, 1\]; got .* \(row 1\)"):
        StateScorer.fit([[0], [1]], [0.5, reward], [2])
    with pytest.raises(CalibrationError, match=r"'reward_S' must lie in \[0, 1\]; got .* \(row 1\)"):
        ResidualScale.fit([[0], [1]], [0.5, 0.5], [0.5, reward], [2])


def test_zero_scale_is_refused_before_it_divides():
    """A scale of 0 never becomes an infinite score."""
    with pytest.raises(CalibrationError, match=r"'scale_C' must be positive and finite; got 0.0 \(row 0\)"):
        CalibrationSet.build(["q"], [[0]], score_C=[0.5], scale_C=[0.0], truth_C=[1.0])
