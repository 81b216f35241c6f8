"""The spread filter: what is recorded, when the EMA starts and moves, and which groups stay."""

import numpy as np
import pytest

from rangeline.rewards.source import point_intervals
from rangeline.rewards.spread_filter import FilterState, advance, group_spreads, kept_rows, observe


def _run(means, last):
    """Give the state after iterations 1 to `last`, the mean std of iteration t being means[t - 1]."""
    state, seen = FilterState(), []
    for number in range(1, last + 1):
        state = advance(state, number, filter_from=11, decay=0.99)
        seen.append(state.ema)
        state = observe(state, number, [means[number - 1]], record_from=6, filter_from=11)
    return state, seen


def test_first_five_iterations_leave_no_trace():
    """Before iteration 6 nothing is recorded."""
    assert FilterState() == _run([9.0] * 5, 5)[0]


def test_ema_starts_as_the_mean_of_iterations_6_to_10():
    """At iteration 11 the EMA is the mean of what iterations 6 to 10 recorded."""
    means = [9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 50, 7]
    _, seen = _run(means, 12)
    assert [None] * 10 == seen[:10]
    assert 3.0 == seen[10]


def test_ema_moves_by_the_iteration_before():
    """At iteration 12 it is .99 of itself and .01 of iteration 11, and so on."""
    _, seen = _run([0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 50, 7, 0], 13)
    second = 0.99 * 3 + 0.01 * 50
    assert [pytest.approx(second), pytest.approx(0.99 * second + 0.01 * 7)] == seen[11:]


def test_state_survives_json():
    """What is written is read again, bit for bit; nothing at all is the state of the start."""
    state, _ = _run([0.1 * t for t in range(1, 13)], 12)
    assert state == FilterState.from_json(state.to_json())
    assert FilterState() == FilterState.from_json({})


def test_undefined_spreads_are_left_out_of_the_mean():
    """Groups without a std, and stds that are no numbers, count in no mean; none at all records nothing."""
    state = observe(FilterState(), 6, [1.0, None, float("nan"), 3.0], record_from=6, filter_from=11)
    assert (2.0,) == state.recorded
    assert FilterState() == observe(FilterState(), 6, [None], record_from=6, filter_from=11)


def _intervals():
    rewards = np.array([0.0, 1.0, 0.5, 0.5, 0.3, np.nan])
    return point_intervals(("wide", "wide", "flat", "flat", "alone", "alone"), rewards, support=(0, 1), source="s")


def test_spread_divides_by_one_less():
    """The std of 0 and 1 is sqrt(.5); a group of one reward has none."""
    spreads = group_spreads(_intervals())
    assert (pytest.approx(np.sqrt(0.5)), 0.0, None) == (spreads["wide"], spreads["flat"], spreads["alone"])


def test_group_is_kept_at_the_threshold_and_not_below():
    """A group as wide as the threshold stays; a narrower one, and one without a spread, leaves whole."""
    made = _intervals()
    assert [True, True] + [False] * 4 == kept_rows(made, group_spreads(made)["wide"]).tolist()
    assert [False] * 6 == kept_rows(made, 0.8).tolist()
    assert [True] * 6 == kept_rows(made, None).tolist()


def test_a_mean_spread_moves_the_ema_once():
    """An iteration in which no group has a std leaves the next EMA where it is, and repeats no older mean."""
    state, _ = _run([0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 50], 11)
    moved = advance(state, 12, filter_from=11, decay=0.99)
    unseen = observe(moved, 12, [None, None], record_from=6, filter_from=11)
    assert moved.ema == advance(unseen, 13, filter_from=11, decay=0.99).ema
