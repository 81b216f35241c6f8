"""Laws of layout: how a batch is cut, padded, ordered and computed never changes its gradient.

One batch holds what goes wrong in practice: a missing reward, rows cut off at the cap, unequal lengths, an empty
completion, a padding id that is also the last token of completions, and NaN and -inf where nothing may be read. Its
gradient is taken off the old policy, so that ratios differ from 1 and both clips are in force.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from rangeline.policy.batch import build_batch
from rangeline.policy.losses import PartLosses
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings
from rangeline.records import Advantages, RolloutSet

END = 2
"""Closes completions, and fills the padding."""
MAX_TOKENS = 6
PROMPTS = {"a": (1, 7, 8), "b": (5,), "c": (1, 9, 4, 6)}
ROWS = [
    ("a", 0, (10, 11, 12, END), 1.5, "stop"),
    ("a", 1, (20, END), -0.5, "stop"),
    ("a", 2, (30, 31), 0.0, "stop"),  # its reward is missing
    ("b", 0, (40, 41, 42, 43, 44, 45), -1.0, "length"),  # cut off
    ("b", 1, (), 1.0, "stop"),  # nothing was written
    ("b", 2, (50, END), 0.75, "stop"),
    ("c", 0, (60, 61, 62, 63, 64), 0.25, "stop"),
    ("c", 1, (70, 71, 72, 73, 74, 75), 0.0, "length"),  # cut off, and without a reward
    ("c", 2, (END,), -0.8, "stop"),
]

AGGREGATIONS = ("dr_grpo", "grpo", "dapo")
TERMS = {
    "policy term alone": {},
    "every term": {
        "clip_low": 0.1,
        "clip_high": 0.3,
        "dual_clip": 1.5,
        "kl_coefficient": 0.2,
        "kl_form": "k3",
        "entropy_coefficient": 0.1,
        "correction": "token",
        "correction_cap": 1.5,
    },
    "sequence correction": {"correction": "sequence", "correction_cap": 3.0, "kl_coefficient": 0.1, "kl_form": "k2"},
}


def shifted_left(batch):
    """Move the padding of every row to its left."""

    def move(array_BL, fill):
        moved = np.full_like(array_BL, fill)
        for row, length in enumerate(batch.lengths_B):
            moved[row, array_BL.shape[1] - length :] = array_BL[row, :length]
        return moved

    return replace(
        batch,
        token_ids_BL=move(batch.token_ids_BL, END),
        attention_mask_BL=move(batch.attention_mask_BL, False),
        loss_mask_BL=move(batch.loss_mask_BL, False),
        sampled_logprobs_BL=move(batch.sampled_logprobs_BL, np.nan),
    )


def widened(batch):
    """Add columns of padding on both sides."""

    def wide(array_BL, fill):
        return np.pad(array_BL, ((0, 0), (3, 5)), constant_values=fill)

    return replace(
        batch,
        token_ids_BL=wide(batch.token_ids_BL, END),
        attention_mask_BL=wide(batch.attention_mask_BL, False),
        loss_mask_BL=wide(batch.loss_mask_BL, False),
        sampled_logprobs_BL=wide(batch.sampled_logprobs_BL, -np.inf),
    )


def poisoned(batch, value):
    """Write a broken number wherever no completion token stands."""
    return replace(batch, sampled_logprobs_BL=np.where(batch.loss_mask_BL, batch.sampled_logprobs_BL, value))


LAYOUTS = {
    "one row a micro-batch": (lambda batch: batch, {"micro_batch_tokens": 1}),
    "four micro-batches": (lambda batch: batch, {"micro_batch_tokens": 20}),
    "padding on the left": (shifted_left, {}),
    "padding on the left, in micro-batches": (shifted_left, {"micro_batch_tokens": 20}),
    "more padding": (widened, {}),
    "NaN outside the mask": (lambda batch: poisoned(batch, np.nan), {}),
    "-inf outside the mask": (lambda batch: poisoned(batch, -np.inf), {}),
    "one token a chunk": (lambda batch: batch, {"chunk_rows": 1}),
    "seven tokens a chunk": (lambda batch: batch, {"chunk_rows": 7}),
    "activation checkpointing": (lambda batch: batch, {"activation_checkpointing": True}),
    "all at once": (shifted_left, {"micro_batch_tokens": 20, "chunk_rows": 3, "activation_checkpointing": True}),
}
"""What may be done to a batch and to the settings; add a way to lay a batch out here."""


def llama(seed=0):
    """Make a random policy of two layers with rotary positions."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=80,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


def gpt2(seed=0):
    """Make a random policy of two layers with learned positions, and dropout that must stay off."""
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=80, n_layer=2, n_embd=32, n_head=4, n_positions=32, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval()


def batch_of(rows=None):
    """Make the batch of the rows above, in the order given."""
    rows = ROWS if rows is None else rows
    noise = {(row[0], row[1]): np.random.default_rng(i).normal(-4.0, 0.6, len(row[2])) for i, row in enumerate(ROWS)}
    rollouts = RolloutSet(
        prompt_id_N=tuple(row[0] for row in rows),
        sample_N=tuple(row[1] for row in rows),
        completion_N=("",) * len(rows),
        prompt_token_ids_N=tuple(PROMPTS[row[0]] for row in rows),
        token_ids_N=tuple(row[2] for row in rows),
        sampled_logprobs_N=tuple(tuple(noise[row[0], row[1]].tolist()) for row in rows),
        finish_reason_N=tuple(row[4] for row in rows),
        policy_version=0,
    )
    advantages = Advantages(
        prompt_id_N=rollouts.prompt_id_N,
        value_N=[row[3] for row in rows],
        active_N=[row[3] != 0 for row in rows],
        estimator="dr_grpo",
    )
    return build_batch(rollouts, advantages, pad_id=END, max_tokens=MAX_TOKENS)


def gradient(batch, *, make=llama, dtype=torch.float64, **settings):
    """Return loss and gradient of one step whose old log-probs are those of slightly other weights."""
    chosen = UpdateSettings(**{"max_grad_norm": math.inf, "micro_batch_tokens": 10_000, **settings})
    model = make().to(dtype)
    trainer = PolicyTrainer(model, chosen, reference=make(1).to(dtype) if chosen.kl_coefficient else None, cpu=True)
    part = PartLosses(trainer, batch)
    part.freeze_old()
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64).to(dtype)
    terms, total = [], 0.0
    for loss in part.losses(terms, []):
        loss.backward()
        total += loss.item()
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return flat.double(), total, terms


def assert_same(expected, actual, tolerance):
    """Check that two gradients agree relative to the norm of the first."""
    assert expected.norm() > 1e-3
    assert float((actual - expected).norm() / expected.norm()) <= tolerance


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_layout_changes_no_gradient(aggregation, terms, layout):
    """Whatever the layout, loss and gradient agree to 1e-6 in float64 under every aggregation and term."""
    change, settings = LAYOUTS[layout]
    whole = {"aggregation": aggregation, **TERMS[terms]}
    expected, loss, _ = gradient(batch_of(), **whole)
    actual, other, _ = gradient(change(batch_of()), **{**whole, **settings})
    assert_same(expected, actual, 1e-6)
    assert loss == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("order", [ROWS[::-1], [*ROWS[4:], *ROWS[:4]], ROWS[::2] + ROWS[1::2]])
def test_row_order_changes_no_gradient(aggregation, order):
    """Rows in another order, those of one prompt apart from each other, give the same gradient, bit for bit."""
    whole = {"aggregation": aggregation, "micro_batch_tokens": 20, **TERMS["every term"]}
    expected, _, _ = gradient(batch_of(), **whole)
    actual, _, _ = gradient(batch_of(order), **whole)
    assert torch.equal(expected, actual)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_changes_no_gradient_of_learned_positions(layout):
    """The same holds for a model whose positions are learned and whose dropout would act in training mode."""
    change, settings = LAYOUTS[layout]
    expected, _, _ = gradient(batch_of(), make=gpt2)
    actual, _, _ = gradient(change(batch_of()), make=gpt2, **settings)
    assert_same(expected, actual, 1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_layout_changes_little_in_bfloat16(aggregation, layout):
    """With the forward pass in bfloat16 gradients of two layouts agree to 3 % of their norm."""
    change, settings = LAYOUTS[layout]
    whole = {"aggregation": aggregation, "mixed_precision": "bf16", "dtype": torch.float32}
    expected, _, _ = gradient(batch_of(), **whole)
    actual, _, _ = gradient(change(batch_of()), **{**whole, **settings})
    assert_same(expected, actual, 0.03)


def test_batch_is_hard_enough():
    """Both clips, the dual clip and ratios away from 1 are in force in the batch that the laws run on."""
    _, _, (said,) = gradient(batch_of(), **TERMS["every term"])
    assert min(said.clip_low_share, said.clip_high_share) > 0
    assert said.ratio_min < 0.9 < 1.1 < said.ratio_max
    _, _, (said,) = gradient(batch_of(), clip_low=0.01, clip_high=0.01, dual_clip=1.02)
    assert said.dual_clip_share > 0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_missing_row_counts_and_adds_nothing(aggregation):
    """A row without a reward has no gradient of its own, and its place in the normaliser stays."""
    expected, _, _ = gradient(batch_of(), aggregation=aggregation)
    other = [(*row[:2], (33, 34), *row[3:]) if row[:2] == ("a", 2) else row for row in ROWS]
    actual, _, _ = gradient(batch_of(other), aggregation=aggregation)
    assert torch.equal(expected, actual)
    fewer, _, _ = gradient(batch_of([row for row in ROWS if row[:2] != ("a", 2)]), aggregation=aggregation)
    assert not torch.allclose(expected, fewer)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_mini_batches_take_every_row_once(count):
    """The parts of a pass are by prompt, hold every row once, and each divides by its own counts."""
    from rangeline.policy.losses import split_by_prompt

    parts = split_by_prompt(batch_of(), count)
    assert min(count, len(PROMPTS)) == len(parts)
    rows = [(p, s) for part in parts for p, s in zip(part.prompt_id_B, part.sample_B, strict=True)]
    assert sorted(row[:2] for row in ROWS) == sorted(rows)
    assert all(len(part) == sum(part.group_sizes.values()) for part in parts)
    turned = split_by_prompt(batch_of(ROWS[::-1]), count)
    assert [set(part.prompt_id_B) for part in parts] == [set(part.prompt_id_B) for part in turned]
