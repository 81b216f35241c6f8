"""Laws of the clipped objective on hand-worked numbers."""

import math

import pytest
import torch

from rangeline.errors import NonFiniteError
from rangeline.policy.objective import MAX_LOG_RATIO, ObjectiveTerms, TokenTerms, combine_terms, policy_loss


def terms(current, old, advantage, *, mask=None, reference=None, entropy=None, weight=1.0, factor=None):
    """Make the token terms of plain lists."""
    current_BL = torch.tensor(current, dtype=torch.float64, requires_grad=True)
    mask_BL = torch.ones(current_BL.shape, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return TokenTerms(
        current_BL=current_BL,
        old_BL=torch.tensor(old, dtype=torch.float64),
        reference_BL=None if reference is None else torch.tensor(reference, dtype=torch.float64),
        entropy_BL=torch.zeros_like(mask_BL, dtype=torch.float64) if entropy is None else torch.tensor(entropy),
        mask_BL=mask_BL,
        advantage_B=torch.tensor(advantage, dtype=torch.float64),
        weight_B=torch.full((len(advantage),), weight, dtype=torch.float64),
        factor_BL=None if factor is None else torch.tensor(factor, dtype=torch.float64),
    )


def loss_of(made, **settings):
    """Compute the loss with both bounds at 0.2 unless told otherwise."""
    return policy_loss(made, **{"clip_low": 0.2, "clip_high": 0.2, **settings})


def test_unchanged_policy_loses_its_weighted_advantage():
    """At ratio 1 the loss is -sum w A and the gradient -w A for each token."""
    made = terms([[-1.0, -2.0]], [[-1.0, -2.0]], [3.0], weight=0.5)
    loss, report = loss_of(made)
    loss.backward()
    assert pytest.approx(loss.item()) == -3.0
    assert made.current_BL.grad.tolist() == [[-1.5, -1.5]]
    assert (report.ratio_max, report.clip_share, report.num_tokens) == (1.0, 0.0, 2)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "clipped"),
    [(2.0, 1.0, 1.3, 1.0), (0.5, 1.0, 0.5, 0.0), (2.0, -1.0, -2.0, 0.0), (0.5, -1.0, -0.9, 1.0), (1.2, 1.0, 1.2, 0.0)],
)
def test_clip_takes_the_smaller_gain(ratio, advantage, gain, clipped):
    """Only a gain beyond the bounds is clipped; a loss never is; upper and lower bound differ."""
    made = terms([[math.log(ratio)]], [[0.0]], [advantage])
    loss, report = loss_of(made, clip_low=0.1, clip_high=0.3)
    loss.backward()
    assert -gain == pytest.approx(loss.item())
    assert clipped == report.clip_share
    assert (clipped == 1.0) == (made.current_BL.grad.item() == 0.0)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_masked_tokens_change_nothing(poison):
    """Whatever stands outside the mask, loss and gradient are those without it."""
    made = terms(
        [[-1.0, poison]],
        [[-1.1, poison]],
        [1.0],
        mask=[[True, False]],
        reference=[[-1.2, poison]],
        entropy=[[0.3, poison]],
    )
    loss, _ = loss_of(made, kl_coefficient=0.1, entropy_coefficient=0.1)
    loss.backward()
    alone = terms([[-1.0]], [[-1.1]], [1.0], reference=[[-1.2]], entropy=[[0.3]])
    expected, _ = loss_of(alone, kl_coefficient=0.1, entropy_coefficient=0.1)
    expected.backward()
    assert expected.item() == loss.item()
    assert [[alone.current_BL.grad.item(), 0.0]] == made.current_BL.grad.tolist()


@pytest.mark.parametrize("poison", [math.nan, -math.inf])
@pytest.mark.parametrize("field", ["current", "old", "reference"])
def test_non_finite_logprob_inside_the_mask_is_an_error(field, poison):
    """A broken number that would be trained on stops the update and names its place."""
    values = {"current": [[-1.0, -1.0]], "old": [[-1.0, -1.0]], "reference": [[-1.0, -1.0]]}
    values[field] = [[-1.0, poison]]
    with pytest.raises(NonFiniteError, match=rf"'{field} log-probs' must be finite .*row 0 .* token 1"):
        loss_of(terms(values["current"], values["old"], [1.0], reference=values["reference"]), kl_coefficient=0.1)


def test_non_finite_loss_is_an_error():
    """Finite log-probs with an infinite advantage stop the update."""
    with pytest.raises(NonFiniteError, match=r"'loss' must be finite; got -inf"):
        loss_of(terms([[0.0]], [[0.0]], [math.inf]))


def test_kl_is_k3_and_never_negative():
    """The KL term is exp(d) - d - 1 with d = reference - current, 0 for equal policies."""
    loss, report = loss_of(terms([[-1.0, -1.0]], [[-1.0, -1.0]], [0.0], reference=[[-0.5, -1.0]]), kl_coefficient=2.0)
    k3 = math.exp(0.5) - 0.5 - 1
    assert k3 / 2 == pytest.approx(report.kl)
    assert 2 * k3 == pytest.approx(loss.item())


def test_entropy_bonus_lowers_the_loss():
    """The bonus subtracts coefficient times weighted entropy."""
    loss, report = loss_of(terms([[-1.0]], [[-1.0]], [0.0], entropy=[[2.0]]), entropy_coefficient=0.1)
    assert pytest.approx(loss.item()) == -0.2
    assert report.entropy == 2.0


def test_terms_that_are_off_are_not_read():
    """Without coefficients, KL and entropy leave the loss alone."""
    loss, report = loss_of(terms([[-1.0]], [[-1.0]], [1.0], reference=[[-9.0]], entropy=[[2.0]]))
    assert (loss.item(), report.kl) == (-1.0, 0.0)


def test_huge_ratio_stays_finite():
    """A log-ratio beyond the bound gives a finite loss and no gradient."""
    made = terms([[0.0]], [[-1000.0]], [-1.0])
    loss, _ = loss_of(made)
    loss.backward()
    assert math.exp(MAX_LOG_RATIO) == pytest.approx(loss.item())
    assert made.current_BL.grad.item() == 0.0


def test_no_token_is_no_loss():
    """Rows whose completion is empty give loss 0 and a finite report."""
    loss, report = loss_of(terms([[-1.0]], [[-1.0]], [1.0], mask=[[False]]))
    assert (loss.item(), report.num_tokens, report.entropy, report.ratio_max) == (0.0, 0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "moves"),
    [(2.0, -1.0, -2.0, True), (4.0, -1.0, -3.0, False), (0.5, -1.0, -0.8, False), (4.0, 1.0, 1.2, False)],
)
def test_dual_clip_bounds_what_a_bad_token_costs(ratio, advantage, gain, moves):
    """A token of negative advantage counts with ratio 3 at most, and has no gradient beyond; others are as before."""
    made = terms([[math.log(ratio)]], [[0.0]], [advantage])
    loss, report = loss_of(made, dual_clip=3.0)
    loss.backward()
    assert -gain == pytest.approx(loss.item())
    assert moves == (made.current_BL.grad.item() != 0.0)
    assert float(ratio > 3.0 and advantage < 0) == report.dual_clip_share


def test_dual_clip_is_off_unless_set():
    """Without it the cost of a bad token grows with its ratio."""
    loss, report = loss_of(terms([[math.log(50.0)]], [[0.0]], [-1.0]))
    assert (50.0, 0.0) == (pytest.approx(loss.item()), report.dual_clip_share)


def test_factor_weighs_the_clipped_term_alone():
    """An importance factor multiplies gain and gradient of the clipped term, and neither KL nor entropy."""
    made = terms([[-1.0, -1.0]], [[-1.0, -1.0]], [2.0], factor=[[0.5, 2.0]])
    loss, _ = loss_of(made)
    loss.backward()
    assert pytest.approx(loss.item()) == -5.0
    assert [[-1.0, -4.0]] == made.current_BL.grad.tolist()
    others = {"reference": [[-1.5]], "entropy": [[2.0]]}
    both = {"kl_coefficient": 0.3, "entropy_coefficient": 0.1}
    with_factor, _ = loss_of(terms([[-1.0]], [[-1.0]], [0.0], factor=[[9.0]], **others), **both)
    without, _ = loss_of(terms([[-1.0]], [[-1.0]], [0.0], **others), **both)
    assert without.item() == with_factor.item()


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_masked_factor_changes_nothing(poison):
    """A broken factor outside the mask is never read; inside it stops the update."""
    loss, _ = loss_of(terms([[-1.0, 0.0]], [[-1.0, 0.0]], [1.0], mask=[[True, False]], factor=[[2.0, poison]]))
    assert -2.0 == loss.item()
    with pytest.raises(NonFiniteError, match="'importance factors' must be finite"):
        loss_of(terms([[-1.0]], [[-1.0]], [1.0], factor=[[poison]]))


@pytest.mark.parametrize(("form", "expected"), [("k1", -0.5), ("k2", 0.125), ("k3", math.exp(0.5) - 1.5)])
def test_kl_form_is_the_one_named(form, expected):
    """The KL term of the loss and of the report is in the form that is set."""
    made = terms([[-1.0]], [[-1.0]], [0.0], reference=[[-0.5]])
    loss, report = loss_of(made, kl_coefficient=2.0, kl_form=form)
    assert (2 * expected, expected) == pytest.approx((loss.item(), report.kl))


def test_clip_shares_are_told_by_bound_and_row():
    """Of six tokens one is below the lower bound and two above the upper: means over tokens, extremes over rows."""
    low, same, high = math.log(0.5), 0.0, math.log(2.0)
    made = terms([[low, same], [high, high], [high, low]], [[0.0] * 2] * 3, [-1.0, 1.0, -1.0])
    _, report = loss_of(made)
    assert (2 / 6, 2 / 6, 4 / 6) == pytest.approx((report.clip_low_share, report.clip_high_share, report.clip_share))
    assert (0.0, 1.0) == (report.clip_low_min, report.clip_high_max)
    assert (0.5, 1.333333, 2.0) == pytest.approx((report.ratio_min, report.ratio_mean, report.ratio_max), rel=1e-5)


def told(**numbers):
    """Make a report that says nothing but the numbers given."""
    nothing = dict.fromkeys((item for item in ObjectiveTerms.__slots__), 0.0)
    return ObjectiveTerms(**{**nothing, "num_tokens": 0, **numbers})


def test_reports_combine_by_tokens():
    """Losses add up; means are weighted by tokens; extremes are over all micro-batches that have tokens."""
    one = told(loss=1.0, entropy=1.0, clip_low_min=0.5, ratio_min=0.9, ratio_mean=1.0, ratio_max=1.5, num_tokens=1)
    three = told(
        loss=2.0,
        clip_share=1.0,
        kl=4.0,
        entropy=3.0,
        clip_low_min=0.25,
        clip_high_max=0.5,
        ratio_min=0.8,
        ratio_mean=2.0,
        ratio_max=1.2,
        num_tokens=3,
    )
    total = combine_terms([one, three, told(ratio_max=99.0)])
    assert (3.0, 0.75, 3.0, 2.5, 4) == (total.loss, total.clip_share, total.kl, total.entropy, total.num_tokens)
    assert (0.25, 0.5) == (total.clip_low_min, total.clip_high_max)
    assert (0.8, 1.75, 1.5) == (total.ratio_min, total.ratio_mean, total.ratio_max)


def test_no_report_combines_to_nothing():
    """No micro-batch at all gives zeros and ratio 1."""
    assert (combine_terms([]).num_tokens, combine_terms([]).loss, combine_terms([]).ratio_max) == (0, 0.0, 1.0)
