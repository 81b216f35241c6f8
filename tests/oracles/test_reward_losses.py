"""RLPR's and VeriFree's losses, computed again in float64 from whole logits and loops."""

import numpy as np
import pytest
import torch
from reward_case import byte_worker, context_of, row

from rangeline.advantages import compute_advantages
from rangeline.stages.reference_rewards import score_by_reference_probability, score_by_verifree

ROWS = [row("p"), row("q", "12", prompt="5 + 7 = ?")]
COMPLETIONS = [
    ("p", "so 3 and 4\n#### 7"),
    ("p", "hm\n#### 8"),
    ("p", "no idea"),
    ("q", "five\n#### 12"),
    ("q", "five and seven\n#### 1"),
    ("q", "#### 12"),
]
MAX_TOKENS = 64


def _logprobs(model, before, target):
    """Return the float64 log-probabilities of some tokens after others."""
    logits = model(torch.tensor([[*before, *target]])).logits[0]
    chosen = torch.log_softmax(logits, dim=-1)[len(before) - 1 : -1]
    return chosen.gather(-1, torch.tensor(target)[:, None])[:, 0]


def _gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def _ours(worker, context, scored, estimator):
    """Take one update and return its loss and the gradient behind it, read from Adam's first moment."""
    advantages = compute_advantages(scored.intervals, estimator=estimator)
    batch = worker.batch(
        context.rollouts,
        advantages,
        max_tokens=MAX_TOKENS,
        trained_tokens=scored.trained_tokens_N,
        taught=scored.taught,
    )
    report = worker.update(batch)
    moments = [worker._trainer.optimizer.state[p]["exp_avg"] for p in worker.model.parameters()]
    return report.loss, torch.cat([item.flatten() for item in moments]).double() * 2


def _assert_same(loss, gradient, expected_loss, expected_gradient):
    """Compare to 1e-5, the gradient on the scale of its largest entry, so that small ones are compared too."""
    assert expected_loss == pytest.approx(loss, abs=1e-5, rel=1e-5)
    scale = expected_gradient.abs().max()
    assert scale > 0
    torch.testing.assert_close(gradient / scale, expected_gradient / scale, atol=1e-5, rtol=0)


@pytest.fixture
def case():
    """Give a worker, its context, and the same weights in float64."""
    worker, initial = byte_worker(betas=(0.5, 0.9))
    context = context_of(ROWS, COMPLETIONS, worker=worker, initial=initial)
    return worker, context, initial.double()


def _encode(worker, text):
    return worker.tokenizer.encode(text, add_special_tokens=False)


def test_rlpr_loss_is_the_papers(case):
    """GRPO's loss on clip(r - r', 0, 1), all by hand in float64, equals ours to 1e-5; so does its gradient."""
    worker, context, model = case
    rewards = []
    parts = [
        ("so 3 and 4\n#### ", "7"),
        ("hm\n#### ", "7"),
        None,
        ("five\n#### ", "12"),
        ("five and seven\n#### ", "12"),
    ]
    for i, part in enumerate([*parts, None]):
        if part is None:
            rewards.append(0.0)
            continue
        prompt, (before, reference) = context.rollouts.prompt_token_ids_N[i], part
        target = _encode(worker, reference)
        with torch.no_grad():
            r = _logprobs(model, [*prompt, *_encode(worker, before)], target).exp().mean()
            base = _logprobs(model, [*prompt, *_encode(worker, "#### ")], target).exp().mean()
        rewards.append(min(max(float(r - base), 0.0), 1.0))
    rewards = np.array(rewards)
    loss = torch.zeros((), dtype=torch.float64)
    for group in (slice(0, 3), slice(3, 6)):
        spread = rewards[group].std()
        for i in range(group.start, group.stop):
            advantage = 0.0 if spread == 0 else (rewards[i] - rewards[group].mean()) / spread
            logp = _logprobs(model, context.rollouts.prompt_token_ids_N[i], list(context.rollouts.token_ids_N[i]))
            loss = loss - (torch.exp(logp - logp.detach()) * advantage).sum() / (6 * MAX_TOKENS)
    loss.backward()
    scored = score_by_reference_probability(context)
    np.testing.assert_allclose(scored.intervals.center_N, rewards, atol=1e-6)
    actual, gradient = _ours(worker, context, scored, "grpo")
    _assert_same(actual, gradient, float(loss.detach()), _gradient(model))


def test_verifree_loss_is_the_methods(case):
    """RLOO on R over the reasoning, plus R times the reference's log-likelihood, equals ours to 1e-5."""
    worker, context, model = case
    cut = [("so 3 and 4\n#### ", "7"), ("hm\n#### ", "7"), None, ("five\n#### ", "12"), ("five and seven\n#### ", "12")]
    cut.append(None)  # a mark alone is no reasoning
    likelihood, pieces = [], []
    for i, part in enumerate(cut):
        prompt = list(context.rollouts.prompt_token_ids_N[i])
        z = list(context.rollouts.token_ids_N[i]) if part is None else _encode(worker, part[0])
        y = None if part is None else _logprobs(model, [*prompt, *z], _encode(worker, part[1]))
        likelihood.append(0.0 if y is None else float(y.detach().sum().exp()))
        pieces.append((_logprobs(model, prompt, z), y))
    reward = np.array(likelihood)
    loss = torch.zeros((), dtype=torch.float64)
    for i, (z, y) in enumerate(pieces):
        group = slice(0, 3) if i < 3 else slice(3, 6)
        advantage = reward[i] - (reward[group].sum() - reward[i]) / 2
        loss = loss - (torch.exp(z - z.detach()) * advantage).sum() / (6 * MAX_TOKENS)
        if y is not None:
            loss = loss - reward[i] * y.sum() / (6 * MAX_TOKENS)
    loss.backward()
    actual, gradient = _ours(worker, context, score_by_verifree(context), "rloo")
    _assert_same(actual, gradient, float(loss.detach()), _gradient(model))
