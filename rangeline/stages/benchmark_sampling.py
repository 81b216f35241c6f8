"""Sample a policy on the problems of a benchmark, in shards that a killed run need not sample again.

A shard is one Parquet file of all completions of a few problems, written whole or not at all. The draws of a problem
depend on the seed and its id alone, so that a resumed run ends with the rows of an undisturbed one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from rangeline.config import PipelineConfig
from rangeline.errors import ModelLoadError
from rangeline.evaluation.presets import BenchmarkPlan
from rangeline.records import PromptRow, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.pretrained import resolve_dtype
from rangeline.rollout.transformers_engine import TransformersEngine, context_length
from rangeline.stages.judging import encode_rows, load_sampler
from rangeline.stages.run import resolve_checkpoint
from rangeline.stages.tables import read_table, write_table
from rangeline.stages.workspace import Workspace

TOP_P = 1.0
"""Whole distribution: the engine cuts no tail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPolicy:
    """A policy ready to be sampled."""

    label: str
    digest: str
    dtype: str
    tokenizer: Any
    engine: TransformersEngine
    context: int | None
    """Tokens that the model can read; None where it does not say."""


def load_policy(workspace: Workspace, config: PipelineConfig, name: str) -> LoadedPolicy:
    """Load a policy by name: `warmup`, a run, a checkpoint folder, a model folder, `package:<name>` or a Hub name.

    Raises
    ------
    ConfigError, CheckpointError, ModelLoadError
        When there is no such policy, or it cannot be loaded.
    """
    policy, engine = load_sampler(config, _policy_folder(workspace, name))
    return LoadedPolicy(
        label=name,
        digest=policy.digest,
        dtype=resolve_dtype(config.policy.sampler_dtype),
        tokenizer=policy.tokenizer,
        engine=engine,
        context=context_length(policy.model),
    )


def _policy_folder(workspace: Workspace, name: str) -> Path:
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder.resolve()
    is_checkpoint = (workspace.root / name / "policy").is_dir()
    if not is_checkpoint and (name.startswith("package:") or "/" in name):
        return folder
    found = resolve_checkpoint(workspace, name) / "policy"
    if not found.is_dir():
        msg = f"Policy '{name}' must exist; got no folder '{found}'. Run the stage that makes it, or name a model."
        raise ModelLoadError(msg)
    return found


def sample_shards(
    folder: Path,
    rows: Sequence[PromptRow],
    policy: LoadedPolicy,
    plan: BenchmarkPlan,
    *,
    seed: int,
    prompts_per_shard: int,
    progress: Callable[[int, int], None],
) -> pa.Table:
    """Sample what is not sampled yet and return all completions, problem by problem.

    Parameters
    ----------
    folder
        Where the shards lie.
    rows
        Problems in order; the same at every call for this folder.
    policy, plan, seed
        Who is sampled and how.
    prompts_per_shard
        Problems of one shard.
    progress
        Told of (completions done, completions wanted), shards of earlier calls included.

    Returns
    -------
    pyarrow.Table
        `prompt_id`, `sample`, `completion`, `finish`, `tokens`, `prompt_tokens`. A problem that leaves no room for
        `max_tokens` in the model has null completions and the finish `none`.
    """
    wanted = len(rows) * plan.samples
    tables = []
    for number, start in enumerate(range(0, len(rows), prompts_per_shard)):
        chunk, path = rows[start : start + prompts_per_shard], folder / f"{number:05d}.parquet"
        if path.is_file():
            progress(min(start + prompts_per_shard, len(rows)) * plan.samples, wanted)
        else:
            done = start * plan.samples

            def report(part: int, _: int, done: int = done) -> None:
                progress(done + part, wanted)

            write_table(path, _sample(chunk, policy, plan, seed, report))
        tables.append(read_table(path))
    return pa.concat_tables(tables)


def _sample(
    rows: Sequence[PromptRow],
    policy: LoadedPolicy,
    plan: BenchmarkPlan,
    seed: int,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    prompts = encode_rows(rows, policy.tokenizer)
    fitting = [prompt for prompt in prompts if _fits(prompt, policy.context, plan.max_tokens)]
    rollouts = policy.engine.generate(
        fitting,
        SamplingPlan(group_size=plan.samples, temperature=plan.temperature, max_tokens=plan.max_tokens),
        run_seed=seed,
        iteration=0,
        purpose=f"benchmark {plan.name}",
        progress=progress,
    )
    sampled: dict[str, list[tuple[str, str, int]]] = {}
    for prompt_id, text, finish, ids in zip(
        rollouts.prompt_id_N, rollouts.completion_N, rollouts.finish_reason_N, rollouts.token_ids_N, strict=True
    ):
        sampled.setdefault(prompt_id, []).append((text, finish, len(ids)))
    nothing = [(None, "none", 0)] * plan.samples
    flat = [
        (prompt.prompt_id, number, *sample, len(prompt.token_ids))
        for prompt in prompts
        for number, sample in enumerate(sampled.get(prompt.prompt_id, nothing))
    ]
    names = ("prompt_id", "sample", "completion", "finish", "tokens", "prompt_tokens")
    types = (pa.string(), pa.int64(), pa.string(), pa.string(), pa.int64(), pa.int64())
    columns = zip(*flat, strict=True)
    return {name: pa.array(values, kind) for name, kind, values in zip(names, types, columns, strict=True)}


def _fits(prompt: EncodedPrompt, context: int | None, max_tokens: int) -> bool:
    return context is None or len(prompt.token_ids) + max_tokens <= context
