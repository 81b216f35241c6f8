"""Unit tests of advantages from reward intervals, their settings and their diagnostics."""

import math

import numpy as np
import pytest

from rangeline.advantages import (
    compute_advantages,
    count_sign_flips,
    dr_grpo_advantages,
    grpo_advantages,
    median_pair_weight,
    point_reward,
    range_advantages,
    rloo_advantages,
    uarm_advantages,
)
from rangeline.errors import BadInputError, ConfigError
from rangeline.records import RewardIntervals

ALL = ("range", "dr_grpo", "grpo", "rloo", "uarm")


def make_intervals(lower, upper, ids, missing=None):
    """Make intervals in [0, 1] for one prompt id a row."""
    num = len(ids)
    return RewardIntervals(
        prompt_id_N=tuple(ids),
        lower_N=np.array(lower, dtype=float),
        upper_N=np.array(upper, dtype=float),
        unbounded_N=np.zeros(num, dtype=bool),
        missing_N=np.zeros(num, dtype=bool) if missing is None else np.array(missing),
        support=(0.0, 1.0),
        source="judge_interval",
    )


MIXED = make_intervals(
    [0.1, 0.2, 0.0, 0.5, 0.3, 0.4], [0.5, 0.2, 0.0, 0.9, 0.7, 0.8], "abaaba", [False, False, True, False, False, False]
)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("range", range_advantages(MIXED.lower_N, MIXED.upper_N, "abaaba", ~MIXED.missing_N)),
        ("dr_grpo", dr_grpo_advantages(MIXED.center_N, "abaaba", ~MIXED.missing_N)),
        ("grpo", grpo_advantages(MIXED.center_N, "abaaba", ~MIXED.missing_N)),
        ("rloo", rloo_advantages(MIXED.center_N, "abaaba", ~MIXED.missing_N)),
        ("uarm", uarm_advantages(MIXED.lower_N, MIXED.upper_N, "abaaba", ~MIXED.missing_N)),
    ],
)
def test_record_holds_the_estimator_s_values(estimator, expected):
    """The record is the pure function's result, with its name and its active rows."""
    record = compute_advantages(MIXED, estimator=estimator)
    assert expected.tolist() == record.value_N.tolist()
    assert [True, True, False, True, True, True] == record.active_N.tolist()
    assert (estimator, MIXED.prompt_id_N) == (record.estimator, record.prompt_id_N)


@pytest.mark.parametrize("estimator", ALL)
def test_groups_of_fewer_than_two_valid_rollouts_are_not_active(estimator):
    """A lone rollout, and one whose companions are missing, get 0 and are not active."""
    intervals = make_intervals([0.9, 0.1, 0.2], [0.9, 0.1, 0.2], "abb", [False, False, True])
    record = compute_advantages(intervals, estimator=estimator)
    assert ([0.0] * 3, [False] * 3) == (record.value_N.tolist(), record.active_N.tolist())


@pytest.mark.parametrize("estimator", ALL)
def test_no_rollout_gives_no_advantage(estimator):
    """An empty set is an empty answer."""
    assert 0 == len(compute_advantages(make_intervals([], [], ""), estimator=estimator).value_N)


@pytest.mark.parametrize("estimator", ALL)
def test_equal_intervals_give_exactly_nothing(estimator):
    """A group that agrees carries no signal, and stays active."""
    record = compute_advantages(make_intervals([0.1] * 3, [0.7] * 3, "qqq"), estimator=estimator)
    assert ([0.0] * 3, [True] * 3) == (record.value_N.tolist(), record.active_N.tolist())


@pytest.mark.parametrize(
    ("reduction", "expected"), [("lower", [0.1, 0.3]), ("middle", [0.3, 0.4]), ("upper", [0.5, 0.5])]
)
def test_point_reward_and_its_use(reduction, expected):
    """With xi = 1, 1/2, 0 the advantage of two rollouts is half their difference."""
    intervals = make_intervals([0.1, 0.3], [0.5, 0.5], "qq")
    assert expected == pytest.approx(point_reward(intervals, reduction).tolist())
    half = (expected[1] - expected[0]) / 2
    value = compute_advantages(intervals, estimator="dr_grpo", reduction=reduction).value_N
    assert [-half, half] == pytest.approx(value.tolist())


def test_point_reward_of_missing_is_nan():
    """What is missing has no point either."""
    assert math.isnan(point_reward(MIXED, "lower")[2])


def test_settings_reach_their_estimators():
    """Form and width change range, alpha and zeta change uarm."""
    base = compute_advantages(MIXED, estimator="range").value_N
    assert (base != compute_advantages(MIXED, estimator="range", form="reciprocal").value_N).any()
    assert (base != compute_advantages(MIXED, estimator="range", reference_width=0.5).value_N).any()
    base = compute_advantages(MIXED, estimator="uarm").value_N
    assert (base != compute_advantages(MIXED, estimator="uarm", alpha=0.3).value_N).any()
    assert (base != compute_advantages(MIXED, estimator="uarm", zeta=0.1).value_N).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "best"}, "'estimator' must be one of range, range_root, dr_grpo, grpo, rloo, uarm; got 'best'"),
        ({"estimator": "grpo", "reduction": "mean"}, "'reduction' must be one of lower, middle, upper; got 'mean'"),
        ({"estimator": "uarm", "reduction": "upper"}, "'reduction' must be 'middle' for estimator 'uarm'"),
        ({"estimator": "range", "form": "steep"}, "'form' must be one of reciprocal, .*; got 'steep'"),
        ({"estimator": "range", "reference_width": 0.0}, "'reference_width' must be positive and finite; got 0.0"),
        ({"estimator": "range", "reference_width": math.nan}, "'reference_width' must be positive and finite; got nan"),
        ({"estimator": "uarm", "zeta": 0.0}, "'zeta' must be positive and finite; got 0.0"),
        ({"estimator": "uarm", "alpha": 1.0}, r"'alpha' must lie in \(0, 1\); got 1.0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    """Unknown names, values out of range and settings without a meaning are named."""
    with pytest.raises(ConfigError, match=message):
        compute_advantages(MIXED, **settings)


def test_bad_arrays_are_refused():
    """Lengths must agree, and an active row must have a number."""
    with pytest.raises(BadInputError, match=r"one value a rollout; got shape \(1,\) for 2 prompt ids"):
        dr_grpo_advantages([0.1], "qq", [True, True])
    with pytest.raises(BadInputError, match="'active_N' must have one value a rollout; got 1 for 2"):
        dr_grpo_advantages([0.1, 0.2], "qq", [True])
    with pytest.raises(BadInputError, match=r"finite where active; got \[0.1, nan\] \(row 2, prompt 'b'\)"):
        range_advantages([0.5, 0.1, 0.1], [0.5, 0.2, math.nan], "abb", [True] * 3)


def test_prompt_ids_are_told_apart_by_type():
    """1 and "1" are two prompts."""
    assert [0.0, 0.0] == dr_grpo_advantages([0.0, 1.0], [1, "1"], [True, True]).tolist()


def test_float32_rounding_is_no_spread():
    """Rewards that differ by less than float32 can tell are equal for GRPO, at any size."""
    assert [0.0, 0.0] == grpo_advantages([10.0, 10.0 + 1e-7], "qq", [True, True]).tolist()
    assert [-1.0, 1.0] == pytest.approx(grpo_advantages([1e-9, 2e-9], "qq", [True, True]).tolist())


def test_median_pair_weight_by_hand():
    """Half widths 0, .1, .3: weights of the pairs are f(.1), f(.3), f(.4), and the median is f(.3)."""
    intervals = make_intervals([0.5, 0.4, 0.2, 0.0], [0.5, 0.6, 0.8, 1.0], "qqqr")
    expected = math.exp(-(0.3**2) / (2 * 0.25**2))
    assert expected == pytest.approx(median_pair_weight(intervals))


def test_median_pair_weight_needs_a_pair():
    """Without a pair there is no median, and settings are still checked."""
    lone = make_intervals([0.5], [0.5], "q")
    assert median_pair_weight(lone) is None
    with pytest.raises(ConfigError, match="'reference_width' must be positive"):
        median_pair_weight(lone, reference_width=-1.0)


def test_sign_flips_count_opposite_signs_only():
    """Zeros flip nothing, and tiny values have signs too."""
    assert 2 == count_sign_flips([1.0, -1e-300, 0.0, 2.0], [-1.0, 1e-300, 5.0, 1.0])
