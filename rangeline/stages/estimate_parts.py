"""Formulas of an estimate: bytes and floating-point operations of one run, from the sizes of its models and settings.

Computes memory as weights, gradients and AdamW's moments in float32 (4, 4 and 8 bytes), the sampler's copy, a reference
policy, the judge, and the larger of one micro-batch and one batch of sampling; time as 2 operations a weight and token
read or written, 6 a token trained on (8 with activation checkpointing).
Time is divided by what one matrix product reaches on this machine, times a share.
Left out: fragmentation, caches of libraries, data loading, tracking: read every number as a rough one.
"""

import time

import torch

from rangeline.config import PipelineConfig
from rangeline.rollout.model_shape import ModelShape
from rangeline.rollout.pretrained import resolve_dtype

LIBRARIES = 0.9 * 2**30
"""Bytes of the interpreter and libraries of a run on a CPU, Prefect and MLflow included. A guess on the safe side."""
_LOGIT_ROWS = 256
"""Rows that go through the head at once."""
SAMPLING_SHARE, READING_SHARE, TRAINING_SHARE = 0.1, 0.4, 0.4
"""Of the matrix product's speed: one token at a time is bound by memory. Ours, from the demo on two CPU cores."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def memory_parts(
    policy: ModelShape, judge: ModelShape | None, config: PipelineConfig, *, prompt_tokens: int, on_gpu: bool
) -> dict[str, float]:
    """Return bytes by part, on the machine that runs everything or on the first of its GPUs.

    Parameters
    ----------
    policy, judge
        Sizes; judge is None where it is asked at a server, or synthetic.
    config
        Settings.
    prompt_tokens
        Longest prompt.
    on_gpu
        Whether the models lie in a GPU's memory: then libraries do not count, and a process has a GPU of its own.

    Raises
    ------
    ModelLoadError
        For an unknown precision.
    """
    dtype = resolve_dtype(config.policy.sampler_dtype)
    served = config.rollout.engine == "vllm"
    processes, sharded = config.processes.count, bool(config.processes.accelerate_config)
    copies = 1 if on_gpu or sharded else processes
    shards = processes if on_gpu and sharded else 1
    trained = policy.weights
    if config.lora.rank:
        trained = policy.layers * config.lora.rank * 22 * policy.width  # four square and three wide layers a block
    rows = config.policy.prompts_per_batch * config.sampling.group_size
    length = prompt_tokens + config.sampling.max_tokens
    own_copy = dtype != "float32" or bool(config.lora.rank) or sharded
    update = _activations(policy, config, max(config.objective.micro_batch_tokens, length))
    update += 8 * _LOGIT_ROWS * policy.vocabulary
    cache = 2 * _BYTES[dtype] * policy.layers * policy.kv_width * rows * length
    parts = {
        "policy weights": 4.0 * policy.weights * copies / shards,
        "gradients": 4.0 * trained * copies / shards,
        "optimiser": 8.0 * trained * copies / shards,
        "sampler's copy": 0.0 if served or not own_copy else float(_BYTES[dtype]) * policy.weights * copies,
        "reference policy": 4.0 * policy.weights * copies
        if config.objective.kl_coefficient and not config.lora.rank
        else 0.0,
        "update or sampling": float(max(update, 0 if served else cache)) * copies,
        "judge weights": _BYTES[resolve_dtype(config.judge.dtype)] * judge.weights if judge else 0.0,
        "libraries": 0.0 if on_gpu else LIBRARIES * copies,
    }
    return {name: value for name, value in parts.items() if value}


def _activations(policy: ModelShape, config: PipelineConfig, tokens: int) -> float:
    """Return bytes: about 34 a token, width and layer in bfloat16; one vector a layer where layers are done again."""
    wide = _BYTES[resolve_dtype(config.policy.precision)] / 2
    inside = 34.0 * tokens * policy.width * wide
    if config.objective.activation_checkpointing:
        return inside + 2 * wide * tokens * policy.width * policy.layers
    return inside * policy.layers


def checkpoint_bytes(policy: ModelShape, config: PipelineConfig) -> float:
    """Return the room that a run's checkpoints take at most: those kept, the best, one in the making, and the start."""
    each = 12.0 * policy.weights
    return each * (config.train.keep_checkpoints + 2) + 4.0 * policy.weights


def work_parts(
    policy: ModelShape,
    judge: ModelShape | None,
    config: PipelineConfig,
    *,
    sampled: tuple[int, int],
    trained: int,
    judged: int,
) -> dict[str, tuple[float, float]]:
    """Return operations and the share of the machine's speed that they reach, by part.

    Parameters
    ----------
    sampled
        Tokens read before sampling, and tokens written.
    trained
        Tokens of prompts and completions that updates pass over.
    judged
        Tokens that the judge reads.
    """
    prompts, written = sampled
    each = 8 if config.objective.activation_checkpointing else 6
    parts = {
        "sample: read prompts": (2.0 * policy.weights * prompts, READING_SHARE),
        "sample: write": (2.0 * policy.weights * written, SAMPLING_SHARE),
        "update": (float(each) * policy.weights * trained * config.objective.updates_per_batch, TRAINING_SHARE),
    }
    if judge:
        parts["judge"] = (2.0 * judge.weights * judged, READING_SHARE)
    return parts


def measure_speed(dtype: str, *, size: int = 512, repeats: int = 6) -> float:
    """Return operations a second of one matrix product in a precision, on the device that torch computes on."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    left = torch.ones(size, size, device=device, dtype=getattr(torch, resolve_dtype(dtype)))
    best = 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        float((left @ left)[0, 0])  # reading a value waits for the device
        best = max(best, 2.0 * size**3 / (time.perf_counter() - start))
    return best
