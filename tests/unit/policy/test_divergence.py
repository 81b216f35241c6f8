"""Laws of the KL estimators: their mean, and the mean of their gradient, over a whole small vocabulary."""

import math

import pytest
import torch

from rangeline.errors import BadInputError
from rangeline.policy.divergence import MAX_LOG_RATIO, kl_per_token

LOGITS = [0.3, -0.7, 1.1, 0.2]
REFERENCE = [0.9, 0.1, -0.4, 0.3]


def policies():
    """Return the logits, with gradient, and the log-probs of policy and reference."""
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor(REFERENCE, dtype=torch.float64), dim=0)
    return logits, torch.log_softmax(logits, dim=0), reference


def divergence(p, q):
    """Return KL(p || q) of two vectors of log-probs."""
    return (p.exp() * (p - q)).sum()


def mean_gradient(form):
    """Return the gradient of an estimator as a loss term, averaged over tokens drawn from the policy."""
    logits, current, reference = policies()
    (current.detach().exp() * kl_per_token(current, reference, form)).sum().backward()
    return logits.grad


@pytest.mark.parametrize(("form", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) - 1 + 0.5)])
def test_value_is_that_of_the_formula(form, expected):
    """With d = 1/2 the forms are d, d^2/2 and exp(-d) - 1 + d."""
    value = kl_per_token(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), form)
    assert expected == pytest.approx(value.item(), rel=1e-6)


@pytest.mark.parametrize(("form", "slope"), [("k1", 1.0), ("k2", 0.5), ("k3", 1 - math.exp(-0.5))])
def test_gradient_of_one_token_is_that_of_the_formula(form, slope):
    """With d = 1/2 the derivatives by the current log-prob are 1, d and 1 - exp(-d)."""
    current = torch.tensor([[-1.0]], requires_grad=True)
    kl_per_token(current, torch.tensor([[-1.5]]), form).sum().backward()
    assert slope == pytest.approx(current.grad.item(), rel=1e-6)


@pytest.mark.parametrize("form", ["k1", "k3"])
def test_k1_and_k3_have_the_mean_of_the_divergence(form):
    """Averaged over the policy's tokens they are KL(policy || reference)."""
    _, current, reference = policies()
    mean = (current.exp() * kl_per_token(current, reference, form)).sum()
    assert divergence(current, reference).item() == pytest.approx(mean.item(), rel=1e-12)


def test_k2_has_nearly_the_mean_of_the_divergence():
    """Averaged over the policy's tokens k2 is biased, but near for near policies."""
    _, current, reference = policies()
    near = torch.log_softmax(current + 0.01 * (reference - current), dim=0)
    mean = (current.exp() * kl_per_token(current, near, "k2")).sum()
    assert divergence(current, near).item() == pytest.approx(mean.item(), rel=0.02)
    far = (current.exp() * kl_per_token(current, reference, "k2")).sum()
    assert abs(far.item() - divergence(current, reference).item()) > 0.01


def test_k1_has_no_mean_gradient():
    """As a loss term k1 pulls nowhere in the mean: the score has mean 0."""
    assert torch.zeros(4, dtype=torch.float64).tolist() == pytest.approx(mean_gradient("k1").tolist(), abs=1e-15)


def test_k2_has_the_gradient_of_the_reverse_divergence():
    """As a loss term k2 pulls as KL(policy || reference) does."""
    logits, current, reference = policies()
    divergence(current, reference).backward()
    assert logits.grad.tolist() == pytest.approx(mean_gradient("k2").tolist(), rel=1e-12)


def test_k3_has_the_gradient_of_the_forward_divergence():
    """As a loss term k3 pulls as KL(reference || policy) does."""
    logits, current, reference = policies()
    divergence(reference, current).backward()
    assert logits.grad.tolist() == pytest.approx(mean_gradient("k3").tolist(), rel=1e-12)


@pytest.mark.parametrize("form", ["k2", "k3"])
def test_equal_policies_are_no_distance_apart(form):
    """At equal log-probs value and gradient are 0."""
    current = torch.tensor([[-1.0]], requires_grad=True)
    value = kl_per_token(current, torch.tensor([[-1.0]]), form)
    value.sum().backward()
    assert (0.0, 0.0) == (value.item(), current.grad.item())


@pytest.mark.parametrize("form", ["k1", "k2", "k3"])
def test_huge_gap_stays_finite(form):
    """A gap beyond the bound counts as the bound."""
    value = kl_per_token(torch.tensor([[-1000.0]]), torch.tensor([[0.0]]), form)
    bound = kl_per_token(torch.tensor([[-MAX_LOG_RATIO]]), torch.tensor([[0.0]]), form)
    assert bound.item() == value.item()


def test_unknown_form_is_refused():
    """A form that does not exist is named, never replaced."""
    with pytest.raises(BadInputError, match="'kl_form' must be k1, k2 or k3; got 'k4'"):
        kl_per_token(torch.zeros(1, 1), torch.zeros(1, 1), "k4")
