"""Laws of the clipped objective on hand-worked numbers."""

import math

import pytest
import torch

from rangeline.errors import NonFiniteError
from rangeline.policy.objective import MAX_LOG_RATIO, ObjectiveTerms, TokenTerms, combine_terms, policy_loss


def terms(current, old, advantage, *, mask=None, reference=None, entropy=None, weight=1.0):
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


def test_reports_combine_by_tokens():
    """Losses add up; means are weighted by tokens; ratios take the maximum."""
    one = ObjectiveTerms(loss=1.0, clip_share=0.0, kl=0.0, entropy=1.0, ratio_max=1.5, num_tokens=1)
    three = ObjectiveTerms(loss=2.0, clip_share=1.0, kl=4.0, entropy=3.0, ratio_max=1.2, num_tokens=3)
    total = combine_terms([one, three])
    assert (
        total.loss,
        total.clip_share,
        total.kl,
        total.entropy,
        total.ratio_max,
        total.num_tokens,
    ) == (3.0, 0.75, 3.0, 2.5, 1.5, 4)


def test_no_report_combines_to_nothing():
    """No micro-batch at all gives zeros and ratio 1."""
    assert (combine_terms([]).num_tokens, combine_terms([]).loss, combine_terms([]).ratio_max) == (0, 0.0, 1.0)
