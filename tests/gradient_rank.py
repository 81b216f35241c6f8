"""One process of the gradient comparison: `torchrun gradient_rank.py FOLDER no|bf16`; rank 0 writes whole gradients."""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from rangeline.policy.batch import TaughtRow, build_batch
from rangeline.policy.gathering import whole
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings
from rangeline.records import Advantages, RolloutSet

AGGREGATIONS = ("dr_grpo", "grpo", "dapo")


def batch_of(max_tokens=8):
    """Return three groups with prompts worth sharing, an empty completion, missing rows, and an unknown log-prob."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 50, 30 + 2 * p).tolist() for p in range(3)]
    rows = [
        (f"p{p}", sample, prompts[p], rng.integers(3, 50, length).tolist())
        for p, lengths in enumerate(((1, 7, 3), (0, 8, 2), (5, 1, 4)))
        for sample, length in enumerate(lengths)
    ]
    sampled = [[-1.5] * len(row[3]) for row in rows]
    sampled[1][0] = -float("inf")
    rollouts = RolloutSet(
        prompt_id_N=tuple(row[0] for row in rows),
        sample_N=tuple(row[1] for row in rows),
        completion_N=("",) * len(rows),
        prompt_token_ids_N=tuple(tuple(row[2]) for row in rows),
        token_ids_N=tuple(tuple(row[3]) for row in rows),
        sampled_logprobs_N=tuple(tuple(values) for values in sampled),
        finish_reason_N=("length",) * len(rows),
        policy_version=0,
    )
    value_N = rng.normal(size=len(rows))
    value_N[[2, 6]] = 0.0
    advantages = Advantages(
        prompt_id_N=rollouts.prompt_id_N, value_N=value_N, active_N=value_N != 0, estimator="dr_grpo"
    )
    taught = (TaughtRow(prompt_id="p1", prompt_ids=(5, 6, 7), target_ids=(8, 9), weight=0.3),)
    return build_batch(rollouts, advantages, pad_id=0, max_tokens=max_tokens, taught=taught)


def gradients(num_processes=1, *, mixed_precision="no"):
    """Return the whole gradient and the report of one step, by aggregation; float64 unless the pass is bfloat16."""
    found = {}
    for aggregation in AGGREGATIONS:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            initializer_range=0.2,
        )
        settings = UpdateSettings(
            aggregation=aggregation, micro_batch_tokens=160, entropy_coefficient=0.01, mixed_precision=mixed_precision
        )
        model = LlamaForCausalLM(config).eval()
        trainer = PolicyTrainer(
            model.double() if mixed_precision == "no" else model, settings, cpu=True, num_processes=num_processes
        )
        taken = {}
        trainer.world.step = lambda *_, trainer=trainer, taken=taken, **__: _keep(trainer, taken)
        report = trainer.update(batch_of())
        found[aggregation] = taken, report
    return found


def _keep(trainer, taken):
    taken.update({name: whole(value.grad).clone() for name, value in trainer.model.named_parameters()})
    return 1.0


if __name__ == "__main__":
    for aggregation, (taken, report) in gradients(int(os.environ["WORLD_SIZE"]), mixed_precision=sys.argv[2]).items():
        if os.environ["RANK"] == "0":
            numbers = {"loss": report.loss, "mismatch_mean": report.mismatch_mean, "entropy": report.entropy}
            facts = {name: torch.tensor([value], dtype=torch.float64) for name, value in numbers.items()}
            save_file({**taken, **facts}, Path(sys.argv[1]) / f"{aggregation}.safetensors")
