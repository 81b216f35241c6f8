"""Measure one and two processes at the same work: `python -m benchmarks.scaling.run`.

Every case samples, updates and exports the same random policy, the same prompts and the same number of rollouts, so
that only the number of processes and how they share the weights differ. Writes `benchmarks/results/scaling.json` and
`scaling.md`. The first iteration is not counted: it fills caches and makes the optimiser's state.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rangeline.policy.adapter import LoraSettings
from rangeline.policy.processes import PolicyProcesses
from rangeline.policy.settings import UpdateSettings
from rangeline.policy.worker import Placement
from rangeline.records import Advantages, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FSDP2 = ROOT / "deploy" / "accelerate" / "fsdp2.yaml"
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to share the work."""

    name: str
    processes: int
    accelerate_config: Path | None = None
    lora_rank: int = 0


CASES = (
    Case(name="1 process", processes=1),
    Case(name="2 processes, DDP", processes=2),
    Case(name="2 processes, FSDP2", processes=2, accelerate_config=FSDP2),
    Case(name="2 processes, DDP, LoRA 8", processes=2, lora_rank=8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every case does."""

    layers: int = 4
    width: int = 256
    vocabulary: int = 8192
    prompts: int = 16
    group_size: int = 8
    prompt_tokens: int = 16
    max_tokens: int = 16
    micro_batch_tokens: int = 1024
    iterations: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Medians over the counted iterations, and the largest memory of any rank."""

    case: str
    processes: int
    start_s: float
    """From nothing to loaded processes: imports, launch, weights."""
    sample_s: float
    update_s: float
    export_s: float
    """Gathering and writing the weights, as a checkpoint and the run's own copy do."""
    tokens_per_s: float
    """Completion tokens sampled and trained on, a second of both."""
    rank_peak_mib: float
    loss: float


def make_policy(folder: Path, work: Work) -> int:
    """Write a random policy; return its number of weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=work.vocabulary,
        hidden_size=work.width,
        intermediate_size=4 * work.width,
        num_hidden_layers=work.layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    vocabulary = {f"t{i}": i for i in range(work.vocabulary)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="t1"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t2").save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def peak_mib(pids: Sequence[int]) -> float:
    """Return the largest resident memory that any of the processes has had."""
    peaks = []
    for pid in pids:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        peaks.append(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024)
    return max(peaks)


def measure(case: Case, folder: Path, work: Work) -> Measured:
    """Run one case from the start of its processes to their end."""
    started = time.perf_counter()
    policy = PolicyProcesses.load(
        str(folder),
        settings=UpdateSettings(micro_batch_tokens=work.micro_batch_tokens),
        placement=Placement(
            num_processes=case.processes,
            cpu=True,
            lora=LoraSettings(rank=case.lora_rank, alpha=16.0) if case.lora_rank else None,
        ),
        accelerate_config=case.accelerate_config,
        cache_dir=folder / "cache",
    )
    start_s = time.perf_counter() - started
    rng = np.random.default_rng(0)
    prompts = [
        EncodedPrompt(prompt_id=f"p{i}", token_ids=tuple(rng.integers(3, work.vocabulary, work.prompt_tokens).tolist()))
        for i in range(work.prompts)
    ]
    plan = SamplingPlan(group_size=work.group_size, max_tokens=work.max_tokens)
    value_N = rng.normal(size=work.prompts * work.group_size)
    seconds: dict[str, list[float]] = {"sample": [], "update": [], "export": []}
    tokens = 0
    try:
        for iteration in range(work.iterations):
            marks = [time.perf_counter()]
            rollouts = policy.generate(prompts, plan, iteration=iteration, purpose="policy")
            marks.append(time.perf_counter())
            advantages = Advantages(
                prompt_id_N=rollouts.prompt_id_N, value_N=value_N, active_N=value_N != 0, estimator="dr_grpo"
            )
            report = policy.update(policy.batch(rollouts, advantages, max_tokens=work.max_tokens))
            marks.append(time.perf_counter())
            _ = policy.model
            marks.append(time.perf_counter())
            for name, begin, end in zip(seconds, marks, marks[1:], strict=False):
                seconds[name].append(end - begin)
            tokens = sum(len(ids) for ids in rollouts.token_ids_N)
        peak = peak_mib(policy.pids[1:])
    finally:
        policy.close()
    sample_s, update_s, export_s = (median(values[1:]) for values in seconds.values())
    return Measured(
        case=case.name,
        processes=case.processes,
        start_s=start_s,
        sample_s=sample_s,
        update_s=update_s,
        export_s=export_s,
        tokens_per_s=tokens / (sample_s + update_s),
        rank_peak_mib=peak,
        loss=report.loss,
    )


def table(rows: Sequence[Measured]) -> str:
    """Return the results as a Markdown table."""
    head = (
        "| case | start s | sample s | update s | export s | tokens/s | against 1 process | peak MiB a rank |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    alone = rows[0].tokens_per_s
    return head + "".join(
        f"| {row.case} | {row.start_s:.1f} | {row.sample_s:.2f} | {row.update_s:.2f} | {row.export_s:.2f} | "
        f"{row.tokens_per_s:.0f} | {row.tokens_per_s / alone:.2f} | {row.rank_peak_mib:.0f} |\n"
        for row in rows
    )


def main() -> None:
    """Measure every case, or the named ones, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=3, help="One is not counted")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    work = Work(iterations=options.iterations)
    # One thread a process: two processes of two threads on two cores would measure the cores, not the processes.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="rangeline-scaling-") as place:
        num_weights = make_policy(Path(place), work)
        rows = [measure(case, Path(place), work) for case in CASES]
    machine: dict[str, object] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[1],
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "accelerate", "transformers", "peft")},
    }
    facts = {
        "machine": machine,
        "work": {**asdict(work), "weights": num_weights},
        "cases": [asdict(row) for row in rows],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "scaling.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    named = ", ".join(f"{name} {value}" for name, value in machine.items())
    text = (
        f"# One and two processes\n\n`python -m benchmarks.scaling.run` on: {named}.\n\n"
        f"{num_weights:,} weights in float32, {work.prompts} prompts x {work.group_size} rollouts x {work.max_tokens} "
        f"tokens, one thread a process, medians of {work.iterations - 1} iterations.\n\n{table(rows)}"
    )
    (options.out / "scaling.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
