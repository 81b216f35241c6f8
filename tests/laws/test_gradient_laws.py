"""Laws of the policy gradient: it is the formula's, and layout changes nothing."""

import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rangeline.policy.batch import build_batch
from rangeline.policy.supervised import SupervisedRow, supervised_update
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings
from rangeline.records import Advantages, RolloutSet

PROMPTS = {"a": (1, 2, 3), "b": (4, 5)}
ROWS = [
    ("a", 0, (10, 11, 12, 13), 1.5),
    ("a", 1, (20,), -0.5),
    ("a", 2, (30, 31), 0.0),
    ("b", 0, (40, 41, 42), -1.0),
    ("b", 1, (), 1.0),
    ("b", 2, (50, 51, 52, 53, 54), 0.25),
]
MAX_TOKENS = 6


def tiny(seed=0):
    """Make a tiny random policy in float64."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).double().eval()


def batch(rows=None, *, sampled=-1.0, pad_id=0):
    """Make a batch of the given rows."""
    rows = ROWS if rows is None else rows
    rollouts = RolloutSet(
        prompt_id_N=tuple(row[0] for row in rows),
        sample_N=tuple(row[1] for row in rows),
        completion_N=("",) * len(rows),
        prompt_token_ids_N=tuple(PROMPTS[row[0]] for row in rows),
        token_ids_N=tuple(row[2] for row in rows),
        sampled_logprobs_N=tuple((sampled,) * len(row[2]) for row in rows),
        finish_reason_N=("stop",) * len(rows),
        policy_version=0,
    )
    advantages = Advantages(
        prompt_id_N=rollouts.prompt_id_N,
        value_N=[row[3] for row in rows],
        active_N=[True] * len(rows),
        estimator="dr_grpo",
    )
    return build_batch(rollouts, advantages, pad_id=pad_id, max_tokens=MAX_TOKENS)


def gradient(made, *, model=None, **settings):
    """Return the gradient of one step, read from Adam's first moment, and the report."""
    model = tiny() if model is None else model
    chosen = UpdateSettings(**{"max_grad_norm": math.inf, "betas": (0.5, 0.9), **settings})
    trainer = PolicyTrainer(model, chosen, reference=tiny(1) if chosen.kl_coefficient else None, cpu=True)
    report = trainer.update(made)
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.model.parameters()]
    return torch.cat([moment.flatten() for moment in moments]) * 2, report


def naive_row(model, prompt, completion, temperature=1.0):
    """Compute log-probs and entropies of one completion without padding or chunks."""
    logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    logp = torch.log_softmax(logits / temperature, dim=-1)
    chosen = logp[torch.arange(len(completion)), torch.tensor(completion, dtype=torch.long)]
    return chosen, -(logp.exp() * logp).sum(-1)


def naive_gradient(aggregation, *, beta=0.0, entropy=0.0, temperature=1.0):
    """Add up the formula's gradient row by row, without padding, masks or micro-batches."""
    model, reference = tiny(), tiny(1)
    total = torch.zeros((), dtype=torch.float64)
    for prompt_id, _, completion, advantage in ROWS:
        if not completion:
            continue
        logp, spread = naive_row(model, PROMPTS[prompt_id], completion, temperature)
        with torch.no_grad():
            gap, _ = naive_row(reference, PROMPTS[prompt_id], completion, temperature)
        ratio = torch.exp(logp - logp.detach())
        distance = torch.exp(gap - logp) - (gap - logp) - 1
        divisor = {
            "dr_grpo": len(ROWS) * MAX_TOKENS,
            "grpo": len(ROWS) * len(completion),
            "dapo": sum(len(row[2]) for row in ROWS),
        }[aggregation]
        total = total - (ratio * advantage - beta * distance + entropy * spread).sum() / divisor
    total.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def assert_same(expected, actual, rtol=1e-5):
    """Check that two gradients agree relative to their norm."""
    assert (actual - expected).norm() <= rtol * expected.norm()
    assert expected.norm() > 1e-3


@pytest.mark.parametrize("aggregation", ["dr_grpo", "grpo", "dapo"])
def test_gradient_is_that_of_the_formula(aggregation):
    """The step's gradient equals a row-by-row computation of the objective."""
    actual, _ = gradient(batch(), aggregation=aggregation)
    assert_same(naive_gradient(aggregation), actual)


def test_gradient_with_kl_entropy_and_temperature_is_that_of_the_formula():
    """KL, entropy bonus and temperature enter the gradient as written."""
    actual, _ = gradient(batch(), kl_coefficient=0.3, entropy_coefficient=0.2, temperature=0.7)
    assert_same(naive_gradient("dr_grpo", beta=0.3, entropy=0.2, temperature=0.7), actual)


@pytest.mark.parametrize("tokens", [1, 9, 20, 10_000])
@pytest.mark.parametrize("aggregation", ["dr_grpo", "grpo", "dapo"])
def test_micro_batches_change_nothing(aggregation, tokens):
    """One row at a time or all at once: same gradient, loss and report."""
    expected, whole = gradient(batch(), aggregation=aggregation)
    actual, parts = gradient(batch(), aggregation=aggregation, micro_batch_tokens=tokens)
    assert_same(expected, actual)
    assert whole.loss == pytest.approx(parts.loss, rel=1e-5)
    assert whole.entropy == pytest.approx(parts.entropy, rel=1e-5)
    assert (whole.num_tokens, whole.active_rows) == (parts.num_tokens, parts.active_rows)


def test_row_order_changes_no_bit():
    """A batch in another order gives the very same gradient."""
    expected, _ = gradient(batch(), micro_batch_tokens=16)
    actual, _ = gradient(batch(ROWS[::-1]), micro_batch_tokens=16)
    assert torch.equal(expected, actual)


def test_padding_id_changes_no_bit():
    """What fills the padding is never read."""
    assert torch.equal(gradient(batch())[0], gradient(batch(pad_id=299))[0])


def test_dropping_rows_without_advantage_changes_nothing():
    """A vanishing entropy term keeps every row; the gradient is that of the dropped batch."""
    expected, dropped = gradient(batch())
    actual, kept = gradient(batch(), entropy_coefficient=1e-12)
    assert_same(expected, actual)
    assert (dropped.active_rows, kept.active_rows) == (4, 5)


@pytest.mark.parametrize("poison", [math.nan, -math.inf])
def test_broken_sampled_logprobs_change_no_bit(poison):
    """The engine's log-probs are reported on, never trained on, and broken ones are left out of the report."""
    expected, _ = gradient(batch())
    actual, report = gradient(batch(sampled=poison))
    assert torch.equal(expected, actual)
    assert (report.mismatch_mean, report.mismatch_max) == (0.0, 0.0)


def test_gradient_scales_with_the_advantages():
    """Twice the advantages, twice the gradient."""
    doubled = [(*row[:3], 2 * row[3]) for row in ROWS]
    assert_same(2 * gradient(batch())[0], gradient(batch(doubled))[0])


@pytest.mark.parametrize("tokens", [1, 12, 10_000])
def test_supervised_gradient_is_that_of_the_mean_target_token(tokens):
    """The supervised step divides by all target tokens, whatever the micro-batches."""
    rows = [SupervisedRow(prompt_ids=PROMPTS[row[0]], target_ids=row[2]) for row in ROWS if row[2]]
    settings = UpdateSettings(max_grad_norm=math.inf, betas=(0.5, 0.9), micro_batch_tokens=tokens)
    trainer = PolicyTrainer(tiny(), settings, cpu=True)
    report = supervised_update(trainer, rows, pad_id=0)
    model = tiny()
    picked = torch.cat([naive_row(model, row.prompt_ids, row.target_ids)[0] for row in rows])
    (-picked.mean()).backward()
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.model.parameters()]
    assert_same(
        torch.cat([parameter.grad.flatten() for parameter in model.parameters()]),
        torch.cat([moment.flatten() for moment in moments]) * 2,
    )
    assert -picked.mean().item() == pytest.approx(report.loss, rel=1e-6)
