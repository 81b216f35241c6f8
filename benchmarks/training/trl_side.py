"""TRL's side of the training benchmark: `GRPOTrainer` on one workload, in a process of its own.

`python -m benchmarks.training.trl_side WORKLOAD VARIANT MODEL_FOLDER OUT [BATCH]`; with BATCH the first step's rollouts
and advantages are kept there, and its loss and gradient norm are reported.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

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

VARIANTS: dict[str, dict[str, Any]] = {
    # What TRL does when nothing is said: bfloat16 autocast, gradient checkpointing, eight rows a pass.
    "defaults": {"bf16": True, "gradient_checkpointing": True, "rows": 8},
    "defaults, one pass": {"bf16": True, "gradient_checkpointing": True, "rows": None},
    "bf16, 32 rows a pass": {"bf16": True, "gradient_checkpointing": False, "rows": 32},
    "float32, 32 rows a pass": {"bf16": False, "gradient_checkpointing": False, "rows": 32},
    "float32, one pass": {"bf16": False, "gradient_checkpointing": False, "rows": None},
}
"""What to ask of TRL; the benchmark runs some of these (`benchmarks.training.run`)."""


class TimedTrainer(GRPOTrainer):
    """TRL's trainer with the times of its steps."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.marks: list[tuple[float, float]] = []
        """Wall and processor time at the start of each step."""
        self.sample_seconds: list[float] = []
        self.tokens: list[int] = []
        self.first: dict[str, Any] | None = None
        self.passes = self.args.gradient_accumulation_steps
        self._calls = 0

    def training_step(self, *args: Any, **options: Any) -> Any:
        """Mark the start of a step, which ends where the next one starts: the optimiser's step is in it."""
        if self._calls % self.passes == 0:
            self.mark()
        self._calls += 1
        return super().training_step(*args, **options)

    def mark(self) -> None:
        """Note the time."""
        self.marks.append((time.perf_counter(), time.process_time()))

    def _generate(self, prompts: list[Any]) -> Any:
        start = time.perf_counter()
        result = super()._generate(prompts)
        self.sample_seconds.append(time.perf_counter() - start)
        return result

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        self.tokens.append(sum(map(len, completion_ids_list)))
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def compute_loss(self, model: Any, inputs: Any, **options: Any) -> Any:
        """Compute TRL's loss, and keep the first with its batch."""
        loss = super().compute_loss(model, inputs, **options)
        if self.first is None:
            self.first = {"inputs": inputs, "loss": float(loss.detach())}
        return loss


def reward_of(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Reward completions by the rule of the workload."""
    return rewards(completion_ids)


def trainer_of(workload: Workload, variant: dict[str, Any], folder: str, scratch: str) -> TimedTrainer:
    """Return a trainer of one workload and variant."""
    per_pass = variant["rows"] or workload.rows
    settings = GRPOConfig(
        output_dir=scratch,
        per_device_train_batch_size=per_pass,
        gradient_accumulation_steps=workload.rows // per_pass,
        num_generations=workload.group_size,
        max_completion_length=workload.max_tokens,
        scale_rewards="none",
        loss_type="dr_grpo",
        beta=0.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        max_steps=workload.steps + 1,
        use_cpu=not torch.cuda.is_available(),
        bf16=variant["bf16"],
        gradient_checkpointing=variant["gradient_checkpointing"],
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=SEED,
    )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    return TimedTrainer(
        model=model,
        reward_funcs=reward_of,
        args=settings,
        # One text may stand for many prompts: the trainer parts groups by place.
        train_dataset=Dataset.from_dict({"prompt": prompt_texts(workload)}),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )


def keep_batch(first: dict[str, Any], path: Path) -> None:
    """Keep prompts, completions and advantages of a batch."""
    inputs = first["inputs"]
    np.savez(
        path, **{name: value.cpu().numpy() for name, value in inputs.items() if name.endswith(("_ids", "_mask", "ges"))}
    )


def main() -> None:
    """Train, and write what was measured."""
    workload, variant, folder, out = WORKLOADS[sys.argv[1]], VARIANTS[sys.argv[2]], sys.argv[3], Path(sys.argv[4])
    with tempfile.TemporaryDirectory() as scratch:
        trainer = trainer_of(workload, variant, folder, scratch)
        start_mib = peak_mib()
        trainer.train()
        trainer.mark()
    # The first step warms up.
    lasted = np.diff(np.array(trainer.marks), axis=0)[1:]
    checked: dict[str, float] = {}
    if len(sys.argv) > 5:
        if trainer.passes > 1 or trainer.first is None:
            sys.exit("The batch to compare must be one pass; choose a variant of one pass.")
        keep_batch(trainer.first, Path(sys.argv[5]))
        checked = {"loss": trainer.first["loss"], "grad_norm": float(trainer.state.log_history[0]["grad_norm"])}
    write_side(
        SideReport(
            side=f"TRL, {sys.argv[2]}",
            versions=versions("torch", "transformers", "trl", "accelerate"),
            threads=torch.get_num_threads(),
            step_seconds=tuple(lasted[:, 0].tolist()),
            cpu_seconds=tuple(lasted[:, 1].tolist()),
            sample_seconds=tuple(trainer.sample_seconds[1:]),
            tokens=tuple(trainer.tokens[1:]),
            peak_mib=peak_mib(),
            start_mib=start_mib,
            checked=checked,
        ),
        out,
    )


if __name__ == "__main__":
    main()
