"""Rangeline's side of the training benchmark: `PolicyWorker.generate` and `.update`, in a process of its own.

`python -m benchmarks.training.rangeline_side WORKLOAD VARIANT MODEL_FOLDER OUT [BATCH]`; with BATCH the other side's
rollouts and advantages go through one update first, and its loss and gradient norm are reported.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training.workload import (
    LEARNING_RATE,
    SEED,
    WORKLOADS,
    SideReport,
    Workload,
    peak_mib,
    prompt_texts,
    rewards,
    versions,
    write_side,
)
from rangeline.advantages import compute_advantages
from rangeline.policy.trainer import UpdateSettings
from rangeline.policy.worker import PolicyWorker
from rangeline.records import Advantages, FinishReason, RewardIntervals, RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt

VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {"mixed_precision": "no", "sampler_dtype": "float32"},
    "bf16": {"mixed_precision": "bf16", "sampler_dtype": "bfloat16"},
}
"""Precisions; weights, optimiser, log-probs and loss are float32 in both."""
_FINISHED: FinishReason = "length"


def worker_of(variant: dict[str, Any], folder: str) -> PolicyWorker:
    """Return the resident policy of one variant, with the settings of `params.yaml` but for the learning rate."""
    return PolicyWorker.load(
        folder,
        settings=UpdateSettings(
            learning_rate=LEARNING_RATE, micro_batch_tokens=2048, mixed_precision=variant["mixed_precision"]
        ),
        sampler_dtype=variant["sampler_dtype"],
        prompts_per_batch=16,
        cache_dir=Path(folder),
        seed=SEED,
    )


def credit(rollouts: RolloutSet) -> Advantages:
    """Reward rollouts by the rule of the workload, and compare each group's."""
    value_N = np.array(rewards(rollouts.token_ids_N))
    intervals = RewardIntervals(
        prompt_id_N=rollouts.prompt_id_N,
        lower_N=value_N,
        upper_N=value_N,
        unbounded_N=np.zeros(len(value_N), dtype=bool),
        missing_N=np.zeros(len(value_N), dtype=bool),
        support=(0.0, 1.0),
        source="even",
    )
    return compute_advantages(intervals, estimator="dr_grpo")


def compare(worker: PolicyWorker, workload: Workload, path: Path) -> dict[str, float]:
    """Put the other side's batch through one update; return loss and gradient norm."""
    batch = np.load(path)
    prompts, completions = (
        [
            tuple(row[mask.astype(bool)].tolist())
            for row, mask in zip(batch[f"{name}_ids"], batch[f"{name}_mask"], strict=True)
        ]
        for name in ("prompt", "completion")
    )
    num = len(prompts)
    ids = tuple(str(prompts.index(prompt)) for prompt in prompts)
    rollouts = RolloutSet(
        prompt_id_N=ids,
        sample_N=tuple(range(num)),
        completion_N=("",) * num,
        prompt_token_ids_N=tuple(prompts),
        token_ids_N=tuple(completions),
        sampled_logprobs_N=tuple((-1.0,) * len(row) for row in completions),
        finish_reason_N=(_FINISHED,) * num,
        policy_version=worker.policy_version,
    )
    advantages = Advantages(
        prompt_id_N=ids,
        value_N=batch["advantages"].astype(np.float64),
        active_N=np.ones(num, dtype=bool),
        estimator="dr_grpo",
    )
    report = worker.update(worker.batch(rollouts, advantages, max_tokens=workload.max_tokens))
    return {"loss": report.loss, "grad_norm": report.grad_norm}


def main() -> None:
    """Train, and write what was measured."""
    workload, variant, folder, out = WORKLOADS[sys.argv[1]], VARIANTS[sys.argv[2]], sys.argv[3], Path(sys.argv[4])
    worker = worker_of(variant, folder)
    prompts = [
        EncodedPrompt(prompt_id=str(i), token_ids=tuple(worker.tokenizer(text)["input_ids"]))
        for i, text in enumerate(prompt_texts(workload))
    ]
    plan = SamplingPlan(group_size=workload.group_size, temperature=1.0, max_tokens=workload.max_tokens)
    start_mib = peak_mib()
    checked = compare(worker, workload, Path(sys.argv[5])) if len(sys.argv) > 5 else {}
    step_seconds, cpu_seconds, sample_seconds, tokens = [], [], [], []
    for iteration in range(workload.steps + 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        rollouts = worker.generate(prompts, plan, iteration=iteration, purpose="policy")
        sampled = time.perf_counter()
        worker.update(worker.batch(rollouts, credit(rollouts), max_tokens=workload.max_tokens))
        step_seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
        sample_seconds.append(sampled - start)
        tokens.append(sum(map(len, rollouts.token_ids_N)))
    write_side(
        SideReport(
            side=f"Rangeline, {sys.argv[2]}",
            versions=versions("torch", "transformers", "accelerate"),
            threads=torch.get_num_threads(),
            step_seconds=tuple(step_seconds[1:]),
            cpu_seconds=tuple(cpu_seconds[1:]),
            sample_seconds=tuple(sample_seconds[1:]),
            tokens=tuple(tokens[1:]),
            peak_mib=peak_mib(),
            start_mib=start_mib,
            checked=checked,
        ),
        out,
    )


if __name__ == "__main__":
    main()
