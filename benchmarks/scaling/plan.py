"""Plan memory and speed on paper: `python -m benchmarks.scaling.plan` prints the tables of `docs/scale.md`.

Nothing here was measured on a GPU. Every number follows from the constants and formulas below; replace the constants by
measured ones before money is spent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Shape of a dense decoder."""

    name: str
    weights: float
    """N, parameters."""
    layers: int
    width: int
    kv_width: int
    """Key and value heads times their size."""
    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Constants of one GPU: data-sheet numbers times the shares that good kernels reach."""

    name: str = "80 GB class (H100 SXM)"
    memory_gib: float = 80.0
    flops: float = 989e12
    """bfloat16, dense."""
    bandwidth: float = 3.35e12
    """Bytes a second from its memory."""
    link: float = 450e9
    """Bytes a second to the other GPUs of the machine, one way."""
    network: float = 50e9
    """Bytes a second a GPU to other machines (400 Gbit/s)."""
    train_share: float = 0.4
    """Of `flops`, in forward and backward passes."""
    read_share: float = 0.5
    """Of `bandwidth`, while sampling with a static cache and fused kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to train one model."""

    model: Model
    gpus: int
    gpus_a_machine: int = 8
    strategy: str
    """ddp, fsdp2 or lora (adapters under DDP)."""
    prompts: int
    group_size: int = 8
    prompt_tokens: int = 512
    max_tokens: int = 2048
    micro_batch_tokens: int = 16384
    chunk_rows: int = 512
    sampled_rows: int = 64
    """Rows that one GPU samples at once."""
    lora_rank: int = 32
    judge_weights: float = 7.6e9
    """In bfloat16, in the run's own process, which shares the first GPU."""


QWEN_1B = Model(name="1.5 B", weights=1.54e9, layers=28, width=1536, kv_width=256, vocabulary=151936)
QWEN_7B = Model(name="7.6 B", weights=7.6e9, layers=28, width=3584, kv_width=512, vocabulary=152064)
QWEN_32B = Model(name="32.8 B", weights=32.8e9, layers=64, width=5120, kv_width=1024, vocabulary=152064)

PLANS = (
    Plan(model=QWEN_1B, gpus=8, strategy="ddp", prompts=128),
    Plan(model=QWEN_7B, gpus=8, strategy="lora", prompts=128),
    Plan(model=QWEN_7B, gpus=8, strategy="fsdp2", prompts=128),
    Plan(model=QWEN_7B, gpus=64, strategy="fsdp2", prompts=1024),
    Plan(model=QWEN_32B, gpus=64, strategy="fsdp2", prompts=1024),
)


def memory_gib(plan: Plan) -> dict[str, float]:
    """Return the memory of one GPU by part, in GiB.

    Weights, gradients and AdamW's two moments are float32 (4, 4 and 8 bytes a weight), whole under DDP and 1/W under
    FSDP2, which also holds one gathered block in flight. Activations are with activation checkpointing: one bfloat16
    vector a layer and token, and one layer's inside (about 34 bytes a token and width). A chunk of logits is float32
    twice (values and softmax). The sampler is a bfloat16 copy of all weights with its cache of 2 layers x kv_width x 2
    bytes a token.
    """
    model, shards = plan.model, plan.gpus if plan.strategy == "fsdp2" else 1
    trained = model.weights
    if plan.strategy == "lora":
        # Four square and three wide layers a block, each with rank times its two sides.
        trained = model.layers * plan.lora_rank * 22 * model.width
    tokens, length = plan.micro_batch_tokens, plan.prompt_tokens + plan.max_tokens
    block = model.weights / model.layers
    parts = {
        "weights": 4 * model.weights / shards + (8 * block if shards > 1 else 0),
        "gradients": 4 * trained / shards,
        "optimiser": 8 * trained / shards,
        "activations": 2 * tokens * model.width * model.layers + 34 * tokens * model.width,
        "logit chunk": 8 * plan.chunk_rows * model.vocabulary,
        "sampler weights": 2 * model.weights,
        "KV cache": 4 * model.layers * model.kv_width * plan.sampled_rows * length,
    }
    return {name: value / GIB for name, value in parts.items()}


def seconds(plan: Plan, device: Device) -> dict[str, float]:
    """Return the seconds of one iteration by part, with completions of full length.

    Sampling reads all weights and the cache for every token of `sampled_rows` rows. An update costs 6 N operations a
    token, 8 N with activation checkpointing. FSDP2 gathers 4 N bytes twice and scatters as many once a micro-batch, DDP
    adds up 4 bytes a trained weight once a step; both at the slower of link and network, as a ring does.
    """
    model, length = plan.model, plan.prompt_tokens + plan.max_tokens
    rows = plan.prompts * plan.group_size / plan.gpus
    cache = 4 * model.layers * model.kv_width * plan.sampled_rows * (plan.prompt_tokens + plan.max_tokens / 2)
    token_s = (2 * model.weights + cache) / (device.bandwidth * device.read_share)
    waves = -(-rows // plan.sampled_rows)
    tokens = rows * length
    wire = device.link if plan.gpus <= plan.gpus_a_machine else min(device.network, device.link)
    ring = (plan.gpus - 1) / plan.gpus
    if plan.strategy == "fsdp2":
        exchanged = 12 * model.weights * ring * -(-tokens // plan.micro_batch_tokens)
    else:
        trained = model.weights if plan.strategy == "ddp" else model.layers * plan.lora_rank * 22 * model.width
        exchanged = 8 * trained * ring
    return {
        "sampling": waves * plan.max_tokens * token_s,
        "update": 8 * model.weights * tokens / (device.flops * device.train_share),
        "exchange": exchanged / wire,
        "sampler refresh": (4 * model.weights * ring / wire if plan.strategy == "fsdp2" else 0.0)
        + 6 * model.weights / device.bandwidth,
    }


def tables(plans: Sequence[Plan], device: Device) -> str:
    """Return memory and time of every plan as two Markdown tables."""
    names = [f"{plan.model.name}, {plan.gpus} GPUs, {plan.strategy}" for plan in plans]
    memory, times = [memory_gib(plan) for plan in plans], [seconds(plan, device) for plan in plans]
    lines = ["| GiB a GPU | " + " | ".join(names) + " |", "|---|" + "---|" * len(plans)]
    lines += [f"| {part} | " + " | ".join(f"{found[part]:.1f}" for found in memory) + " |" for part in memory[0]]
    extra = [f"{2 * plan.judge_weights / GIB:.1f}" for plan in plans]
    reference = ["0" if plan.strategy == "lora" else f"{4 * plan.model.weights / GIB:.1f}" for plan in plans]
    lines += ["| **sum** | " + " | ".join(f"**{sum(found.values()):.1f}**" for found in memory) + " |"]
    lines += ["| judge, on the first GPU alone | " + " | ".join(extra) + " |"]
    lines += ["| reference, where kl_coefficient > 0 | " + " | ".join(reference) + " |", ""]
    lines += ["| seconds an iteration | " + " | ".join(names) + " |", "|---|" + "---|" * len(plans)]
    lines += [f"| {part} | " + " | ".join(f"{found[part]:.1f}" for found in times) + " |" for part in times[0]]
    rates = [
        plan.prompts * plan.group_size * plan.max_tokens / sum(found.values())
        for plan, found in zip(plans, times, strict=True)
    ]
    lines += ["| completion tokens/s, all GPUs | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |"]
    slowest = [max(found, key=lambda name: found[name]) for found in times]
    lines += ["| bottleneck | " + " | ".join(slowest) + " |"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(tables(PLANS, Device()))
