"""Texts to learn beside the policy gradient, and completions of which only the first tokens are trained."""

import numpy as np
import pytest
import torch

from rangeline.policy.batch import TaughtRow, build_batch, taught_weights
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings
from rangeline.records import Advantages, RolloutSet


def _batch(values=(0.0, 0.0), trained=None, taught=()):
    rollouts = RolloutSet(
        prompt_id_N=("p", "p"),
        sample_N=(0, 1),
        completion_N=("", ""),
        prompt_token_ids_N=((3, 4), (3, 4)),
        token_ids_N=((5, 6, 7), (8,)),
        sampled_logprobs_N=((-1.0,) * 3, (-1.0,)),
        finish_reason_N=("stop", "stop"),
        policy_version=0,
    )
    advantages = Advantages(prompt_id_N=("p", "p"), value_N=values, active_N=[True] * 2, estimator="rloo")
    return build_batch(rollouts, advantages, pad_id=0, max_tokens=4, trained_tokens=trained, taught=taught)


ROW = TaughtRow(prompt_id="p", prompt_ids=(3, 4, 5), target_ids=(9, 10), weight=0.5)


@pytest.mark.parametrize(("aggregation", "expected"), [("dr_grpo", 0.5 / 8), ("grpo", 0.5 / 4), ("dapo", 0.5 / 4)])
def test_weight_shares_the_batchs_normaliser(aggregation, expected):
    """A target token weighs the text's factor over N times the cap, N times its length, or all completion tokens."""
    assert [expected] == taught_weights(_batch(taught=[ROW]), aggregation).tolist()


def test_only_leading_tokens_are_trained():
    """The rest of a completion is read but carries no gradient, and does not count in its length."""
    batch = _batch(trained=[1, 0])
    assert [1, 0] == batch.completion_lengths_B.tolist()
    assert [[False, False, True, False, False], [False] * 5] == batch.loss_mask_BL.tolist()
    assert batch.attention_mask_BL[0].all()


def test_text_alone_is_learned(tiny_model):
    """Without any advantage the text still moves the policy, by its weighted log-likelihood."""
    model = tiny_model()
    with torch.no_grad():
        logits = model(torch.tensor([[3, 4, 5, 9, 10]])).logits[0, 2:4].double()
    expected = -0.5 / 8 * torch.log_softmax(logits, dim=-1)[[0, 1], [9, 10]].sum()
    report = PolicyTrainer(model, UpdateSettings(), cpu=True).update(_batch(taught=[ROW]))
    assert not report.skipped
    assert float(expected) == pytest.approx(report.loss, rel=1e-5)


def test_text_of_weight_zero_changes_nothing(tiny_model):
    """A reward of 0 teaches nothing: no step is taken."""
    row = TaughtRow(prompt_id="p", prompt_ids=(3,), target_ids=(9,), weight=0.0)
    assert PolicyTrainer(tiny_model(), UpdateSettings(), cpu=True).update(_batch(taught=[row])).skipped


def test_order_of_texts_changes_nothing(tiny_model):
    """Texts in another order and in other micro-batches give the same loss."""
    rows = [ROW, TaughtRow(prompt_id="p", prompt_ids=(3,), target_ids=(11, 12, 13), weight=0.25)]
    losses = [
        PolicyTrainer(tiny_model(), UpdateSettings(micro_batch_tokens=budget), cpu=True)
        .update(_batch(taught=texts))
        .loss
        for budget, texts in ((1, rows), (8192, rows[::-1]))
    ]
    np.testing.assert_allclose(*losses, rtol=1e-6)
