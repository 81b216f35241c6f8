"""Unit tests of cutoffs, reward intervals and the calibration set."""

import math

import numpy as np
import pytest

from rangeline.conformal.intervals import (
    CalibrationSet,
    minimum_calibration_rows,
    require_calibration_prompts,
    reward_intervals,
    weighted_cutoffs,
)
from rangeline.errors import CalibrationError


def calibration(**changes):
    """Make a set of two rows, with some fields changed."""
    content = {
        "prompt_id_C": ("a", "b"),
        "levels_CK": np.array([[0, 1], [-1, 0]], dtype=np.int8),
        "score_C": np.array([0.5, 0.25]),
        "scale_C": np.array([0.5, 1.0]),
        "truth_C": np.array([1.0, 0.0]),
        "nonconformity_C": np.array([1.0, 0.25]),
    }
    return CalibrationSet(**{**content, **changes})


def test_nine_rows_are_finite_at_alpha_one_tenth_and_eight_are_not():
    """At alpha .1 nine equal rows give the largest score and eight give infinity."""
    assert [math.inf] == weighted_cutoffs(np.arange(8.0), np.zeros(8), [0.0], 0.1).tolist()
    assert [8.0] == weighted_cutoffs(np.arange(9.0), np.zeros(9), [0.0], 0.1).tolist()


def test_hand_worked_weighted_cutoff():
    """Weights 1, 2, 1 and test weight 1: half of 5 is reached at the second score, 4/5 at the third."""
    logs = np.log([1.0, 2.0, 1.0])
    assert [0.2] == weighted_cutoffs([0.1, 0.2, 0.7], logs, [0.0], 0.5).tolist()
    assert [0.7] == weighted_cutoffs([0.1, 0.2, 0.7], logs, [0.0], 0.2).tolist()
    assert [math.inf] == weighted_cutoffs([0.1, 0.2, 0.7], logs, [0.0], 0.19).tolist()


def test_no_calibration_row_means_infinite_cutoffs():
    """Without calibration rows, or with weight 0 only, nothing can be promised."""
    assert [math.inf, math.inf] == weighted_cutoffs([], [], [0.0, -math.inf], 0.1).tolist()
    assert [math.inf] == weighted_cutoffs([0.2], [-math.inf], [0.0], 0.1).tolist()


def test_no_test_rollout_means_no_cutoff():
    """An empty batch gives an empty answer."""
    assert [] == weighted_cutoffs([0.2], [0.0], [], 0.1).tolist()


def test_infinite_cutoff_gives_exactly_the_support():
    """An infinite cutoff is the whole support, flagged, whatever the scale."""
    intervals = reward_intervals(
        [0.3, 0.3], [0.05, 0.5], [math.inf, 0.2], prompt_id_N=["q", "q"], missing_N=[False, False]
    )
    assert [0.0, 0.2] == pytest.approx(intervals.lower_N.tolist(), abs=1e-15)
    assert [1.0, 0.4] == pytest.approx(intervals.upper_N.tolist(), abs=1e-15)
    assert [True, False] == intervals.unbounded_N.tolist()
    assert "judge_interval" == intervals.source


def test_bounds_are_clipped_to_the_support():
    """Ends beyond the support are cut, and a finite cutoff is never flagged unbounded."""
    intervals = reward_intervals([0.9], [1.0], [5.0], prompt_id_N=["q"], missing_N=[False], support=(-1.0, 2.0))
    assert ([-1.0], [2.0], [False]) == (
        intervals.lower_N.tolist(),
        intervals.upper_N.tolist(),
        intervals.unbounded_N.tolist(),
    )


def test_missing_rows_keep_their_place_and_have_no_bounds():
    """A missing row may hold NaN everywhere; it is missing, not unbounded, not zero."""
    intervals = reward_intervals(
        [math.nan, 0.5], [math.nan, 0.1], [math.inf, 1.0], prompt_id_N=["q", "q"], missing_N=[True, False]
    )
    assert [True, False] == np.isnan(intervals.lower_N).tolist()
    assert [False, False] == intervals.unbounded_N.tolist()
    assert 0.4 == intervals.lower_N[1]


def test_minimum_rows_by_hand():
    """1/alpha - 1, rounded up, free of float noise."""
    assert [99, 19, 9, 4, 3] == [minimum_calibration_rows(alpha) for alpha in (0.01, 0.05, 0.1, 0.2, 0.3)]


def test_too_few_rows_are_refused_with_the_number_needed():
    """The message says how many prompts alpha needs, how many there are, and what to do."""
    require_calibration_prompts(9, 0.1)
    with pytest.raises(CalibrationError, match=r"at least 9 usable prompts for alpha=0.1; got 8. Add references"):
        require_calibration_prompts(8, 0.1)


def test_calibration_set_computes_its_scores():
    """`build` divides the distance by the scale."""
    built = CalibrationSet.build(
        ["a", "b"], [[0, 1], [-1, 0]], score_C=[0.5, 0.25], scale_C=[0.5, 1.0], truth_C=[1.0, 0.0]
    )
    assert [1.0, 0.25] == built.nonconformity_C.tolist()
    assert 2 == len(built)


def test_calibration_set_is_frozen_with_its_arrays():
    """Arrays are copies and read-only."""
    truth = np.array([1.0, 0.0])
    record = calibration(truth_C=truth)
    truth[0] = 0.5
    assert 1.0 == record.truth_C[0]
    with pytest.raises(ValueError, match="read-only"):
        record.truth_C[0] = 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"truth_C": np.array([1.0, math.nan])}, r"'truth_C' must lie in \[0, 1\]; got nan \(row 1\)"),
        ({"score_C": np.array([1.5, 0.25])}, r"'score_C' must lie in \[0, 1\]; got 1.5 \(row 0\)"),
        ({"scale_C": np.array([0.5, 0.0])}, r"'scale_C' must be positive and finite; got 0.0 \(row 1\)"),
        ({"nonconformity_C": np.array([1.0, 0.3])}, r"'nonconformity_C' must equal .* got 0.3 \(row 1\)"),
        ({"prompt_id_C": ("a",)}, r"'levels_CK' must have 1 rows"),
        ({"scale_C": np.array([0.5])}, r"'scale_C' must have shape \(2,\); got shape \(1,\)"),
    ],
)
def test_calibration_set_refuses_bad_rows(changes, message):
    """Each broken field is named with its value and row."""
    with pytest.raises(CalibrationError, match=message):
        calibration(**changes)
