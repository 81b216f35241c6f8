"""Laws of advantages: reductions, sums, invariances, missing rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.advantages import (
    dr_grpo_advantages,
    grpo_advantages,
    range_advantages,
    range_root_advantages,
    rloo_advantages,
    uarm_advantages,
)

FORMS = ("reciprocal", "reciprocal_squared", "exponential", "gaussian")
SCALAR = {"dr_grpo": dr_grpo_advantages, "grpo": grpo_advantages, "rloo": rloo_advantages}
INTERVALS = {"range": range_advantages, "range_root": range_root_advantages, "uarm": uarm_advantages}
REDUCTIONS = ("lower", "middle", "upper")
ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20
)


def unpack(rows):
    """Split rows into prompt ids, active flags, lower and upper ends."""
    ids, active, first, second = zip(*rows, strict=True)
    return list(ids), np.array(active), np.minimum(first, second), np.maximum(first, second)


def all_advantages(ids, active, lower, upper):
    """Compute every estimator, the scalar ones on midpoints."""
    values = {name: rule(lower, upper, ids, active) for name, rule in INTERVALS.items()}
    return values | {name: rule((lower + upper) / 2, ids, active) for name, rule in SCALAR.items()}


@pytest.mark.parametrize("form", FORMS)
@given(rows=ROWS, width=st.floats(1e-300, 1e6))
@settings(max_examples=60, deadline=None)
def test_zero_width_is_dr_grpo_to_the_last_bit(form, rows, width):
    """When every interval is a point, Range-GRPO is Dr.GRPO, bit for bit, for any reference width."""
    ids, active, reward, _ = unpack(rows)
    expected = dr_grpo_advantages(reward, ids, active)
    assert (expected == range_advantages(reward, reward, ids, active, form=form, reference_width=width)).all()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(rows=ROWS)
@settings(max_examples=30, deadline=None)
def test_even_widths_are_dr_grpo_up_to_one_factor(reduction, rows):
    """Where every interval is equally wide, every pair weighs alike, whichever point is compared."""
    ids, active, reward, _ = unpack(rows)
    value = range_advantages(reward - 0.1, reward + 0.1, ids, active, reference_width=0.2, reduction=reduction)
    assert dr_grpo_advantages(reward, ids, active) * np.exp(-0.5) == pytest.approx(value, abs=1e-12)


@given(rows=ROWS)
@settings(max_examples=60, deadline=None)
def test_range_root_keeps_signs_and_half_of_the_scale(rows):
    """Its signs are those of `range`, and rewards four times as far apart, at widths to match, double it."""
    ids, active, lower, upper = unpack(rows)
    plain = range_advantages(lower, upper, ids, active, reduction="upper")
    rooted = range_root_advantages(lower, upper, ids, active, reduction="upper")
    assert (np.sign(plain)[rooted != 0] == np.sign(rooted)[rooted != 0]).all()
    wide = range_root_advantages(4 * lower, 4 * upper, ids, active, reference_width=1.0, reduction="upper")
    assert 2 * rooted == pytest.approx(wide, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("form", FORMS)
@given(rows=ROWS)
@settings(max_examples=30, deadline=None)
def test_range_sums_to_zero_in_each_group(form, reduction, rows):
    """Each pair gives to one rollout what it takes from the other."""
    ids, active, lower, upper = unpack(rows)
    value = range_advantages(lower, upper, ids, active, form=form, reduction=reduction)
    sums = [value[[i == prompt for i in ids]].sum() for prompt in set(ids)]
    assert [0.0] * len(sums) == pytest.approx(sums, abs=1e-14)


@given(rows=ROWS, seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_row_order_is_irrelevant_to_the_last_bit(rows, seed):
    """Rows in any order give the same advantage to the same rollout, whatever groups lie between them."""
    columns = unpack(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    shuffled = all_advantages([columns[0][i] for i in order], *(column[order] for column in columns[1:]))
    for name, value in all_advantages(*columns).items():
        assert (value[order] == shuffled[name]).all(), name


@given(rows=ROWS)
@settings(max_examples=100, deadline=None)
def test_missing_rows_are_as_if_they_were_not_there(rows):
    """Dropping inactive rows changes nothing for the others; their own advantage is exactly 0, NaN or not."""
    ids, active, lower, upper = unpack(rows)
    kept = all_advantages(
        [i for i, a in zip(ids, active, strict=True) if a], active[active], lower[active], upper[active]
    )
    lower, upper = (np.where(active, column, np.nan) for column in (lower, upper))
    for name, value in all_advantages(ids, active, lower, upper).items():
        assert (value[~active] == 0).all(), name
        assert (value[active] == kept[name]).all(), name


@given(rows=ROWS)
@settings(max_examples=100, deadline=None)
def test_groups_do_not_see_each_other(rows):
    """A group alone has the advantages that it has among others."""
    ids, active, lower, upper = unpack(rows)
    together = all_advantages(ids, active, lower, upper)
    for prompt in set(ids):
        mask = np.array([i == prompt for i in ids])
        alone = all_advantages([prompt] * int(mask.sum()), active[mask], lower[mask], upper[mask])
        assert all((together[name][mask] == alone[name]).all() for name in together)


@given(rows=ROWS, shift=st.floats(-2, 2))
@settings(max_examples=60, deadline=None)
def test_a_common_shift_of_rewards_changes_nothing(rows, shift):
    """Only differences of rewards matter."""
    ids, active, lower, upper = unpack(rows)
    for rule in (range_advantages, uarm_advantages):
        expected = rule(lower, upper, ids, active)
        assert expected.tolist() == pytest.approx(rule(lower + shift, upper + shift, ids, active).tolist(), abs=1e-9)


@given(rewards=st.lists(st.integers(0, 5), min_size=2, max_size=9), factor=st.floats(1e-6, 1e6))
@settings(max_examples=100, deadline=None)
def test_grpo_has_unit_spread_at_any_scale(rewards, factor):
    """GRPO is free of the reward's scale: its mean square is 1, or 0 where all rewards are equal."""
    value = grpo_advantages(np.array(rewards) * factor, ["q"] * len(rewards), [True] * len(rewards))
    expected = 0.0 if len(set(rewards)) == 1 else 1.0
    assert expected == pytest.approx((value**2).mean())


@given(rows=ROWS)
@settings(max_examples=60, deadline=None)
def test_rloo_is_a_multiple_of_dr_grpo(rows):
    """Leaving oneself out of the baseline is a factor m / (m - 1)."""
    _, _, reward, _ = unpack(rows)
    ids, active, num = ["q"] * len(reward), [True] * len(reward), len(reward)
    factor = num / (num - 1) if num > 1 else 0.0
    expected = dr_grpo_advantages(reward, ids, active) * factor
    assert expected.tolist() == pytest.approx(rloo_advantages(reward, ids, active).tolist(), abs=1e-14)


@given(rows=ROWS)
@settings(max_examples=60, deadline=None)
def test_uarm_keeps_the_sign_of_the_centered_midpoint(rows):
    """Response-level weights are positive."""
    ids, active, lower, upper = unpack(rows)
    lower, upper = lower.round(6), upper.round(6)
    midpoint = dr_grpo_advantages((lower + upper) / 2, ids, active)
    assert (np.sign(midpoint) == np.sign(uarm_advantages(lower, upper, ids, active))).all()


@pytest.mark.parametrize("form", FORMS)
def test_weights_start_at_one_and_fall(form):
    """f(0) = 1, and a wider pair weighs strictly less, yet something."""
    halves = [0.0, 0.05, 0.1, 0.2, 0.4]
    gains = [
        range_advantages([0.0 - h, 1.0 - h], [0.0 + h, 1.0 + h], "qq", [True] * 2, form=form)[1] * 2 for h in halves
    ]
    assert 1.0 == gains[0]
    assert sorted(set(gains), reverse=True) == gains
    assert gains[-1] > 0


@pytest.mark.parametrize("form", FORMS)
def test_a_large_reference_width_is_midpoint_dr_grpo(form):
    """Attenuation vanishes as lambda grows."""
    lower, upper = np.array([0.1, 0.3, 0.2]), np.array([0.9, 0.4, 0.8])
    expected = dr_grpo_advantages((lower + upper) / 2, "qqq", [True] * 3)
    actual = range_advantages(lower, upper, "qqq", [True] * 3, form=form, reference_width=1e9)
    assert expected.tolist() == pytest.approx(actual.tolist(), abs=1e-8)


@pytest.mark.parametrize("middle", [0.1, 0.3, 0.6, 0.7])
def test_terms_that_cancel_leave_no_signal(middle):
    """The middle of a symmetric group has an advantage of exactly 0, not what rounding leaves."""
    reward = np.array([middle - 0.3 / 3, middle, middle + 0.3 / 3])
    value = range_advantages(reward - 0.05, reward + 0.05, ("p", "p", "p"), [True] * 3)
    assert 0.0 == value[1]
