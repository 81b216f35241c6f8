"""Laws of the mismatch between sampler and trainer, on hand-worked numbers."""

import math

import pytest
import torch

from rangeline.errors import MismatchError
from rangeline.policy.mismatch import (
    Mismatch,
    combine_mismatch,
    compare_with_sampler,
    measure_mismatch,
    require_small_mismatch,
)

LN2 = math.log(2)


def compare(old, sampled, mask=None, *, correction="none", cap=2.0):
    """Compare plain lists."""
    old_BL = torch.tensor(old, dtype=torch.float64)
    mask_BL = torch.ones(old_BL.shape, dtype=torch.bool) if mask is None else torch.tensor(mask)
    sampled_BL = torch.tensor(sampled, dtype=torch.float64)
    return compare_with_sampler(old_BL, sampled_BL, mask_BL, correction=correction, cap=cap)


def measure(old, sampled, mask=None, *, correction="none", cap=2.0):
    """Measure plain lists."""
    return measure_mismatch(compare(old, sampled, mask, correction=correction, cap=cap), correction=correction)


def test_gaps_and_ratios_are_those_of_the_formula():
    """Gaps of log 2 and -log 4: mean 1.5 log 2, largest log 4, ratios 2 and 1/4, one sequence of ratio 1/2."""
    found = measure([[-1.0, -3.0]], [[-1.0 - LN2, -3.0 + 2 * LN2]])
    assert (1.5 * LN2, 2 * LN2) == pytest.approx((found.mismatch_mean, found.mismatch_max))
    ratios = (found.importance_ratio_min, found.importance_ratio_mean, found.importance_ratio_max)
    assert (0.25, 1.125, 2.0) == pytest.approx(ratios)
    assert 0.5 == pytest.approx(found.sequence_ratio_mean)
    assert (2, 1, 0) == (found.mismatch_tokens, found.mismatch_sequences, found.mismatch_unknown)


def test_without_correction_nothing_is_made_up_for():
    """No factor is given, and what is left is what was there."""
    rows = compare([[-1.0, -3.0]], [[-2.0, -2.5]])
    found = measure_mismatch(rows, correction="none")
    assert rows.factor_BL is None
    assert (1.0, 1.0) == (found.importance_factor_min, found.importance_factor_max)
    assert found.mismatch_mean == found.mismatch_mean_corrected
    assert found.sequence_ratio_max == found.sequence_ratio_max_corrected


def test_token_factors_are_truncated_ratios():
    """At token level each factor is its ratio, at most the cap; what lies beyond the cap is left."""
    old, sampled = [[0.0, 0.0, 0.0]], [[-LN2 / 2, -3 * LN2, 2 * LN2]]
    rows = compare(old, sampled, correction="token", cap=4.0)
    assert [math.sqrt(2), 4.0, 0.25] == pytest.approx(rows.factor_BL[0].tolist())
    found = measure_mismatch(rows, correction="token")
    assert LN2 == pytest.approx(found.mismatch_max_corrected)
    assert LN2 / 3 == pytest.approx(found.mismatch_mean_corrected)
    assert 2.0 == pytest.approx(found.sequence_ratio_max_corrected)
    assert 1 / 3 == pytest.approx(found.truncated_share)


def test_sequence_factors_are_one_for_all_tokens_of_a_row():
    """At sequence level every token of a row has the row's ratio, at most the cap."""
    rows = compare([[0.0, 0.0], [0.0, 0.0]], [[-LN2, -LN2], [0.0, LN2]], correction="sequence", cap=3.0)
    assert [[3.0, 3.0], [0.5, 0.5]] == [pytest.approx(row) for row in rows.factor_BL.tolist()]
    found = measure_mismatch(rows, correction="sequence")
    assert (4.0, 4 / 3) == pytest.approx((found.sequence_ratio_max, found.sequence_ratio_max_corrected))
    assert (0.5, 1.0) == pytest.approx((found.sequence_ratio_min, found.sequence_ratio_min_corrected))
    assert 0.5 == found.truncated_share


@pytest.mark.parametrize("correction", ["none", "token", "sequence"])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_unknown_token_is_in_no_mean(poison, correction):
    """A sampled log-prob that is no number is counted, has factor 1 at token level, and changes no other number."""
    found = measure([[-1.0, -1.0]], [[-1.5, poison]], correction=correction)
    alone = measure([[-1.0]], [[-1.5]], correction=correction)
    assert 1 == found.mismatch_unknown
    assert alone == Mismatch(**{**{n: getattr(found, n) for n in Mismatch.__slots__}, "mismatch_unknown": 0})
    if correction == "token":
        factors = compare([[-1.0, -1.0]], [[-1.5, poison]], correction="token").factor_BL
        assert 1.0 == factors[0, 1].item()


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 5.0])
def test_masked_tokens_change_nothing(poison):
    """Whatever stands outside the mask, on either side, factors and numbers are those without it."""
    for correction in ("token", "sequence"):
        rows = compare([[-1.0, poison]], [[-1.5, poison]], [[True, False]], correction=correction)
        assert [math.exp(0.5), 1.0] == pytest.approx(rows.factor_BL[0].tolist())
        assert measure([[-1.0]], [[-1.5]], correction=correction) == measure_mismatch(rows, correction=correction)


def test_nothing_known_is_no_mismatch():
    """Rows without a known token give ratios of 1 and gaps of 0, and say how much is unknown."""
    assert Mismatch(mismatch_unknown=2) == measure([[-1.0, -1.0]], [[math.nan, math.nan]])
    assert Mismatch() == combine_mismatch([])
    assert Mismatch(mismatch_unknown=1) == combine_mismatch([Mismatch(mismatch_unknown=1)])


@pytest.mark.parametrize("correction", ["none", "token", "sequence"])
def test_micro_batches_combine_to_the_whole(correction):
    """Two rows measured apart and combined are the two rows measured at once, one row without a token included."""
    old, sampled = [[-1.0, -2.0], [-3.0, 0.0], [0.0, 0.0]], [[-1.5, -5.0], [-1.0, 0.0], [0.0, 0.0]]
    mask = [[True, True], [True, False], [False, False]]
    whole = measure(old, sampled, mask, correction=correction)
    parts = [measure([o], [s], [m], correction=correction) for o, s, m in zip(old, sampled, mask, strict=True)]
    combined = combine_mismatch(parts)
    for name in Mismatch.__slots__:
        assert getattr(whole, name) == pytest.approx(getattr(combined, name)), name


def test_huge_gap_stays_finite():
    """A gap that no ratio can hold gives a finite ratio, and the cap as factor."""
    found = measure([[0.0]], [[-5000.0]], correction="token")
    assert 2.0 == found.importance_factor_max
    assert all(math.isfinite(getattr(found, name)) for name in Mismatch.__slots__)


def test_factors_carry_no_gradient():
    """The factor weighs the gradient and has none of its own."""
    old = torch.tensor([[-1.0]], requires_grad=True)
    mask = torch.tensor([[True]])
    rows = compare_with_sampler(old, torch.tensor([[-1.5]]), mask, correction="token", cap=2.0)
    assert not rows.factor_BL.requires_grad


def test_gate_closes_above_the_limit():
    """A mean gap above the limit is an error with a next step; at it, below it and without a limit nothing happens."""
    found = Mismatch(mismatch_mean=0.5, mismatch_max=2.0, mismatch_tokens=4)
    require_small_mismatch(found, 0.5)
    require_small_mismatch(found, None)
    with pytest.raises(MismatchError, match=r"'mismatch_mean' must be at most 0\.25.*got 0\.5 .*sampler_dtype"):
        require_small_mismatch(found, 0.25)
