"""Contrast scores as rewards: standardised in their group, missing where there is nothing to contrast."""

import math

import numpy as np
import pytest

from rangeline.advantages import compute_advantages
from rangeline.errors import AnchorError
from rangeline.rewards.anchor_contrast import (
    anchor_contrast_intervals,
    contrast_report,
    contrast_scores,
    standardised,
)
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.metric_head import HeadShape, MetricHead

NAN = float("nan")


def _head():
    return MetricHead(HeadShape(hidden_size=2, width=3, dimension=2))


def _anchors(**over):
    arrays = {
        "prompt_id_P": ("p", "q"),
        "positive_PKH": [[[1, 0], [1, 0.5]], [[0, 1], [0, 2]]],
        "negative_PKH": [[[0, 1], [0.5, 1]], [[0, 2], [0, 1]]],
        "query_PMH": np.ones((2, 2, 2)),
    }
    return AnchorSet(**(arrays | over))


def test_two_scores_become_plus_and_minus_one():
    """Scores 1 and 3: mean 2, population deviation 1, so -1/(1 + delta) and 1/(1 + delta) (equation 8)."""
    np.testing.assert_allclose([-1 / 1.0001, 1 / 1.0001], standardised(np.array([1.0, 3.0]), ("p", "p")))


def test_four_scores_by_hand():
    """Scores 0, 0, 0, 4: mean 1, deviation sqrt(3)."""
    expected = np.array([-1, -1, -1, 3]) / (math.sqrt(3) + 1e-4)
    np.testing.assert_allclose(expected, standardised(np.array([0.0, 0, 0, 4]), ("p",) * 4))


def test_groups_are_made_by_prompt_id():
    """Rows of one prompt are a group wherever they stand."""
    score = np.array([1.0, 10, 3, 30])
    np.testing.assert_allclose(
        standardised(score[[0, 2, 1, 3]], ("p", "p", "q", "q"), delta=0)[[0, 2, 1, 3]],
        standardised(score, ("p", "q", "p", "q"), delta=0),
    )


@pytest.mark.parametrize("score", [[2.0, 2, 2], [0.1, 0.1, 0.1], [1e6, 1e6 * (1 + 1e-9), 1e6], [5.0]])
def test_no_spread_is_zero_and_not_noise(score):
    """Equal scores, scores that differ by rounding, and a group of one teach nothing."""
    assert [0.0] * len(score) == standardised(np.array(score), ("p",) * len(score)).tolist()


def test_missing_scores_count_nowhere():
    """A missing score stays missing, and the others are as if it were not there."""
    actual = standardised(np.array([1.0, NAN, 3.0]), ("p",) * 3, delta=0)
    np.testing.assert_array_equal([-1.0, NAN, 1.0], actual)


@pytest.mark.parametrize("delta", [-1.0, NAN, math.inf])
def test_delta_must_be_usable(delta):
    """A negative or infinite delta is refused."""
    with pytest.raises(AnchorError, match="'delta' must be at least 0 and finite"):
        standardised(np.array([1.0]), ("p",), delta=delta)


@pytest.mark.parametrize("estimator", ["dr_grpo", "range"])
def test_advantages_of_the_rewards_are_those_of_equation_eight(estimator):
    """Subtracting a mean that is 0 already changes nothing, and zero width makes range equal to Dr.GRPO."""
    score, ids = np.array([0.3, -1, 2, 7, 7.5]), ("p", "p", "p", "q", "q")
    rewards = anchor_contrast_intervals(score, ids)
    np.testing.assert_allclose(
        standardised(score, ids), compute_advantages(rewards, estimator=estimator).value_N, atol=1e-12
    )


def test_rewards_have_no_width_and_no_support():
    """Contrast scores are points without bounds; what is missing is missing."""
    rewards = anchor_contrast_intervals(np.array([1.0, NAN, 3.0]), ("p",) * 3)
    assert ("anchor_contrast", None, [False, True, False]) == (
        rewards.source,
        rewards.support,
        rewards.missing_N.tolist(),
    )
    assert {0.0} == set(rewards.half_width_N[~rewards.missing_N])


def test_a_prompt_without_anchors_and_a_row_without_states_are_missing():
    """Neither is a score of 0."""
    hidden = np.array([[1, 0], [NAN, 0], [1, 0]], dtype=np.float32)
    score = contrast_scores(hidden, ("p", "p", "elsewhere"), head=_head(), anchors=_anchors())
    assert [False, True, True] == np.isnan(score).tolist()


def test_equal_sides_score_exactly_zero():
    """Prompt q holds the same anchors on both sides in another order."""
    hidden = np.array([[1, 0], [3, 9]], dtype=np.float32)
    assert [0.0, 0.0] == contrast_scores(hidden, ("q", "q"), head=_head(), anchors=_anchors()).tolist()


@pytest.mark.parametrize("hidden", [np.ones((1, 2)), np.ones((2, 3)), np.ones(2)])
def test_other_shapes_are_refused(hidden):
    """Another number of rows, or another model's hidden size, is refused."""
    with pytest.raises(AnchorError, match=r"'hidden_NH' must have shape \(2, 2\)"):
        contrast_scores(hidden.astype(np.float32), ("p", "p"), head=_head(), anchors=_anchors())


def test_report_tells_spread_silence_saturation_and_missing():
    """Groups (0, 2), (5, 5) and a single row, one score missing: all five numbers by hand."""
    report = contrast_report(np.array([0.0, 2, 5, 5, 1, NAN]), ("p", "p", "q", "q", "r", "r"))
    assert (13 / 5, 0.5, 0.5) == pytest.approx((report.mean_score, report.mean_spread, report.silent_share))
    assert (2 / 5, 1 / 6) == pytest.approx((report.saturated_share, report.missing_share))


def test_report_of_nothing_is_unknown():
    """Without any score nothing is measured, and nothing is 0."""
    report = contrast_report(np.array([NAN, NAN]), ("p", "p"))
    assert (None, None, None, None, 1.0) == (
        report.mean_score,
        report.mean_spread,
        report.silent_share,
        report.saturated_share,
        report.missing_share,
    )
