"""Advantages against numbers of the paper and tables worked by hand."""

import math

import numpy as np
import pytest

from rangeline.advantages import (
    count_sign_flips,
    dr_grpo_advantages,
    grpo_advantages,
    range_advantages,
    rloo_advantages,
    uarm_advantages,
)

LOWER = np.array([0, 0.30, 0.30, 0.30, 0.30, 0.30, 0.40, 0.30])
UPPER = np.array([0.20, 0.94, 0.94, 0.94, 0.94, 0.94, 0.68, 0.94])
ONE_GROUP = (("q",) * 8, [True] * 8)


def test_midpoint_punishes_the_seventh_rollout_of_table_three():
    """The midpoint .54 lies .005 below the group's mean."""
    assert -0.0050 == pytest.approx(dr_grpo_advantages((LOWER + UPPER) / 2, *ONE_GROUP)[6], abs=5e-5)


@pytest.mark.parametrize(
    ("reference_width", "expected"), [(0.1, 0.0055), (0.25, 0.0069), (0.5, 0.0059), (1.0, 0.0033), (2.0, 0.0003)]
)
def test_range_turns_the_sign_of_table_three(reference_width, expected):
    """Comparisons with six wide intervals weigh less than the one with a narrow interval."""
    value = range_advantages(LOWER, UPPER, *ONE_GROUP, form="reciprocal", reference_width=reference_width)
    assert expected == pytest.approx(value[6], abs=5e-5)
    assert 1 == count_sign_flips(value, dr_grpo_advantages((LOWER + UPPER) / 2, *ONE_GROUP))


@pytest.mark.parametrize(("third_half_width", "expected"), [(0.1, -0.0048), (0.4, 0.0024)])
def test_proposition_two(third_half_width, expected):
    """Widening the better rollout's interval turns the sign, with every midpoint held fixed."""
    center, half = np.array([0.5, 0.42, 0.6]), np.array([0.1, 0.1, third_half_width])
    value = range_advantages(
        center - half, center + half, ["q"] * 3, [True] * 3, form="reciprocal", reference_width=0.5
    )
    assert expected == pytest.approx(value[0], abs=5e-5)


@pytest.mark.parametrize(
    ("form", "weight"),
    [
        ("reciprocal", 0.5 / 0.8),
        ("reciprocal_squared", 0.25 / (0.25 + 0.09)),
        ("exponential", math.exp(-0.6)),
        ("gaussian", math.exp(-0.09 / 0.5)),
    ],
)
def test_each_form_by_hand(form, weight):
    """Half widths .1 and .2, centers .3 and .7, lambda .5: the advantage is weight * .4 / 2."""
    value = range_advantages([0.2, 0.5], [0.4, 0.9], "qq", [True, True], form=form, reference_width=0.5)
    assert [-0.2 * weight, 0.2 * weight] == pytest.approx(value.tolist())


def test_uarm_by_hand():
    """With z = 1: noise .01 and .04, variance .04, so S = .015 + .005 and the shares are 2/3 and 1/3."""
    value = uarm_advantages(
        [0.75, 0.30], [0.85, 0.50], "qq", [True, True], alpha=math.erfc(1 / math.sqrt(2)), zeta=0.005
    )
    expected = [2 / 3 * 0.2 / math.sqrt(0.02), -1 / 3 * 0.2 / math.sqrt(0.02)]
    assert expected == pytest.approx(value.tolist(), rel=1e-6)


def test_uarm_follows_its_formula():
    """Three rollouts against numpy's own mean and population variance, z of 95 % from a table."""
    lower, upper = np.array([0.1, 0.5, 0.6]), np.array([0.3, 0.6, 1.0])
    center, noise = (lower + upper) / 2, ((upper - lower) / 1.959963984540054) ** 2
    signal = max(0.0, center.var() - noise.mean()) + 1e-6
    expected = signal / (signal + noise) * (center - center.mean()) / math.sqrt(signal)
    assert expected.tolist() == pytest.approx(uarm_advantages(lower, upper, "qqq", [True] * 3, alpha=0.05).tolist())


def test_equal_rewards_have_no_spread():
    """Four rewards of .4 give exactly 0, not rounding divided by rounding."""
    assert [0.0] * 4 == grpo_advantages([0.4] * 4, "qqqq", [True] * 4).tolist()


@pytest.mark.parametrize("num_high", [3, 7, 15])
def test_one_loser_among_equals_stays_small(num_high):
    """One 0 among equal .95 gives -sqrt(m), never thousands."""
    rewards = [0.95] * num_high + [0.0]
    ids, active = ["q"] * (num_high + 1), [True] * (num_high + 1)
    assert -math.sqrt(num_high) == pytest.approx(grpo_advantages(rewards, ids, active)[-1])
    assert -0.95 == pytest.approx(rloo_advantages(rewards, ids, active)[-1])


def test_missing_rollout_leaves_the_baseline():
    """Rewards 1, missing, 0, 0: the mean is 1/3, not 1/4."""
    value = dr_grpo_advantages([1.0, math.nan, 0.0, 0.0], "qqqq", [True, False, True, True])
    assert [2 / 3, 0.0, -1 / 3, -1 / 3] == pytest.approx(value.tolist())


def test_one_valid_rollout_has_nobody_to_be_compared_with():
    """A reward of 1 or 100 among missing ones gives 0, like an empty group."""
    assert [0.0] * 4 == dr_grpo_advantages([1.0] + [math.nan] * 3, "qqqq", [True, False, False, False]).tolist()
    assert [0.0, 0.0] == dr_grpo_advantages([100.0, 1.0], "qq", [False, True]).tolist()


def test_rloo_by_hand():
    """Rewards 1, 0, .5: each against the mean of the two others."""
    value = rloo_advantages([1.0, 0.0, 0.5], "qqq", [True] * 3)
    assert [0.75, -0.75, 0.0] == pytest.approx(value.tolist())
