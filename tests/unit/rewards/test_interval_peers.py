"""Peers of interval methods, on groups worked by hand."""

import numpy as np
import pytest

from rangeline.records import RewardIntervals
from rangeline.rewards.interval_peers import student_t_intervals, t_bounds, variance_aware_intervals


def _judged(lower, upper, missing=None, ids=None):
    num = len(lower)
    return RewardIntervals(
        prompt_id_N=tuple(ids or ["p"] * num),
        lower_N=lower,
        upper_N=upper,
        unbounded_N=[False] * num,
        missing_N=missing or [False] * num,
        support=(0.0, 1.0),
        source="judge_interval",
    )


def test_draw_lies_in_its_interval_less_its_variance():
    """A draw of .25 in [.2, .8] is .35; the variance .36 / 12 = .03 is taken off."""
    judged = _judged([0.2, 0.5, 0.0], [0.8, 0.5, 1.0], [False, False, True])
    made = variance_aware_intervals(judged, np.array([0.25, 0.9, 0.5]))
    assert [pytest.approx(0.32), 0.5] == made.center_N[:2].tolist()
    assert [False, False, True] == made.missing_N.tolist()
    assert pytest.approx(0.35) == variance_aware_intervals(judged, np.full(3, 0.25), penalty=0.0).lower_N[0]


def test_t_bounds_of_equal_values_have_no_width():
    """Equal scores, and one alone, are known exactly."""
    assert (0.5, 0.5) == t_bounds(np.array([0.5, 0.5]), 0.95) == t_bounds(np.array([0.5]), 0.95)


def test_clear_halves_earn_one_and_zero():
    """Halves far apart are right and wrong."""
    scores = [0.1, 0.11, 0.12, 0.9, 0.91, 0.92]
    assert [0.0, 0.0, 0.0, 1.0, 1.0, 1.0] == student_t_intervals(_judged(scores, scores)).center_N.tolist()


def test_unclear_halves_are_missing():
    """Where both t-intervals reach across, no side is told; so it is for equal scores and for small groups."""
    near = [0.4, 0.5, 0.6, 0.7]
    assert student_t_intervals(_judged(near, near)).missing_N.all()
    assert student_t_intervals(_judged([0.5] * 4, [0.5] * 4)).missing_N.all()
    assert student_t_intervals(_judged([0.1, 0.9], [0.1, 0.9])).missing_N.all()


def test_missing_scores_leave_the_halves():
    """A missing rollout is in no half and stays missing."""
    scores = [0.1, 0.11, 0.9, 0.91, 0.5]
    made = student_t_intervals(_judged(scores, scores, [False] * 4 + [True]))
    assert [0.0, 0.0, 1.0, 1.0] == made.center_N[:4].tolist()
    assert made.missing_N[4]
