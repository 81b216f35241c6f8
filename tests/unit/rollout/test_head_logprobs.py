"""Log-probabilities through a linear head: values and gradients are those of log-softmax, whatever the chunks."""

import pytest
import torch

from rangeline.rollout.head_logprobs import head_logprobs, is_plain_linear

TARGET = torch.tensor([3, 0, 39, 7, 7])


def problem(*, bias=True, dtype=torch.float64):
    """Return a head of 40 tokens, five hidden states and a weight for each value."""
    generator = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(6, 40, bias=bias, dtype=dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype))
    hidden = torch.randn(5, 6, generator=generator, dtype=dtype, requires_grad=True)
    return head, hidden, torch.randn(2, 5, generator=generator, dtype=dtype)


def plain(head, hidden, factor):
    """Return log-probabilities and entropies by log-softmax over all logits."""
    logprob = torch.log_softmax(head(hidden) * factor, dim=-1)
    return logprob.gather(-1, TARGET[:, None])[:, 0], -(logprob.exp() * logprob).sum(dim=-1)


@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("factor", [1.0, 0.4])
@pytest.mark.parametrize("entropy", [True, False], ids=["entropy", "no entropy"])
def test_values_and_gradients_equal_log_softmax(chunk_rows, bias, factor, entropy):
    """In float64 all agree to 1e-12: log-probs, entropies, and gradients by states, weight and bias."""
    head, hidden, weight = problem(bias=bias)
    inputs = [hidden, *head.parameters()]
    results = []
    for logprob, spread in (
        plain(head, hidden, factor),
        head_logprobs(head, hidden, TARGET, factor=factor, chunk_rows=chunk_rows),
    ):
        loss = (weight[0] * logprob).sum() + (weight[1] * spread).sum() * entropy
        results.append([logprob, spread, *torch.autograd.grad(loss, inputs)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(expected, actual, atol=1e-12, rtol=1e-12)


def test_more_rows_than_a_tile_change_nothing():
    """Forty rows, in tiles of sixteen, give what they give one by one."""
    head, _, _ = problem(dtype=torch.float32)
    hidden, target = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)), torch.arange(40)
    together = head_logprobs(head, hidden, target)
    alone = [head_logprobs(head, hidden[i : i + 1], target[i : i + 1]) for i in range(40)]
    for place in (0, 1):
        expected = torch.cat([values[place] for values in alone])
        torch.testing.assert_close(expected, together[place], atol=1e-5, rtol=1e-5)


def test_autocast_rounds_products_and_keeps_values_in_float32():
    """Under bfloat16 autocast, values and gradients are float32 and those of float32 up to its rounding."""
    head, hidden, weight = problem(dtype=torch.float32)
    exact = head_logprobs(head, hidden, TARGET)[0]
    exact_grad = torch.autograd.grad((weight[0] * exact).sum(), head.weight)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = head_logprobs(head, hidden, TARGET)[0]
    grad = torch.autograd.grad((weight[0] * rounded).sum(), head.weight)[0]
    assert (torch.float32, torch.float32) == (rounded.dtype, grad.dtype)
    assert bool((exact != rounded).any())
    torch.testing.assert_close(exact, rounded, atol=0.1, rtol=0.02)
    assert float((exact_grad - grad).norm() / exact_grad.norm()) < 0.02


def test_a_gradient_of_the_values_alone_is_one_of_neither_frozen_part():
    """A frozen head gets no gradient, and its states get theirs."""
    head, hidden, _ = problem()
    head.requires_grad_(False)
    head_logprobs(head, hidden, TARGET)[0].sum().backward()
    assert (None, True) == (head.weight.grad, bool(hidden.grad.abs().sum() > 0))


@pytest.mark.parametrize(
    ("logits", "is_number"),
    [
        ([0.0, -torch.inf, 1.0], True),
        ([-torch.inf] * 3, False),
        ([0.0, torch.nan, 0.0], False),
        ([torch.inf, 0, 0], False),
    ],
)
def test_impossible_tokens_count_nothing_and_non_numbers_stay_so(logits, is_number):
    """A token of logit -inf adds nothing to the entropy; a row of NaN, +inf, or only -inf has no numbers."""
    head = torch.nn.Linear(2, 3)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor(logits))
        logprob, entropy = head_logprobs(head, torch.zeros(1, 2), torch.tensor([0]))
    assert [is_number] * 2 == [bool(torch.isfinite(logprob[0])), bool(torch.isfinite(entropy[0]))]
    if is_number:
        torch.testing.assert_close(torch.distributions.Categorical(logits=head.bias[[0, 2]]).entropy()[None], entropy)


def test_only_a_bare_linear_map_is_plain():
    """Hooks, subclasses and other modules keep their own forward."""

    class Adapted(torch.nn.Linear):
        pass

    hooked = torch.nn.Linear(2, 3)
    hooked.register_forward_hook(lambda module, inputs, output: output * 2)
    heads = [torch.nn.Linear(2, 3), Adapted(2, 3), hooked, torch.nn.Sequential(torch.nn.Linear(2, 3))]
    assert [True, False, False, False] == [is_plain_linear(head) for head in heads]
