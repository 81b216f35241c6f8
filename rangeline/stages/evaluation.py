"""Evaluation stage: how often a policy is right on held-out prompts, with clustered intervals.

By samples, which are verified; or, where the first word of a completion is the answer, by the exact probability that a
completion begins with the tokens of the reference, which has no sampling error.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.evaluation.comparison import PairedDifference, paired_difference
from rangeline.evaluation.sampling_metrics import evaluate_samples
from rangeline.lineage import MANIFEST_NAME, digest_json, read_manifest, write_json, write_manifest
from rangeline.policy.batch import pad_rows
from rangeline.policy.supervised import SupervisedRow
from rangeline.records import FloatArray, PromptRow, RolloutSet
from rangeline.rollout.pretrained import encode_prompt, encode_target
from rangeline.rollout.token_logprobs import token_logprobs
from rangeline.stages.data import read_pool
from rangeline.stages.judging import encode_rows, load_sampler, plan_of, verify_rollouts
from rangeline.stages.progress import Progress
from rangeline.stages.tables import read_table, write_table
from rangeline.stages.workspace import Workspace
from rangeline.suites.registry import get_suite

_ROWS_PER_PASS = 256
"""Prompts of one forward pass."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Where one evaluation lies, and its metrics by domain."""

    folder: Path
    metrics: dict[str, dict[str, Any]]


def evaluation_folder(workspace: Workspace, policy_folder: Path, config: PipelineConfig) -> Path:
    """Return the folder of one evaluation, by policy and settings, so that the same question is answered once."""
    settings = {name: getattr(config, name).model_dump(mode="json") for name in ("evaluate", "sampling")}
    pool = read_manifest(workspace.pools / MANIFEST_NAME).outputs
    key = digest_json(
        {
            "settings": settings,
            "seed": config.seed,
            "policy": _policy_key(policy_folder),
            "pools": [r.sha256 for r in pool],
        }
    )
    return workspace.root / "runs" / "_evaluations" / key[:16]


def _policy_key(policy_folder: Path) -> str:
    marker, manifest = policy_folder / "COMPLETE", policy_folder / MANIFEST_NAME
    return digest_json((marker if marker.is_file() else manifest).read_text(encoding="utf-8"))


def evaluate(
    workspace: Workspace, config: PipelineConfig, policy_folder: Path, progress: Progress, label: str
) -> EvaluationResult:
    """Sample n completions a held-out prompt, verify them, and write rows, metrics and a manifest.

    A finished evaluation of the same policy with the same settings is read, not repeated.
    """
    folder = evaluation_folder(workspace, policy_folder, config)
    if (folder / MANIFEST_NAME).is_file():
        return EvaluationResult(folder, json.loads((folder / "metrics.json").read_text(encoding="utf-8")))
    settings = config.evaluate
    rows = read_pool(workspace, "evaluation")[: settings.max_prompts]
    policy, engine = load_sampler(config, policy_folder / "policy")
    if settings.method == "probability":
        value_P = reference_probabilities(policy.model, reference_rows(policy.tokenizer, rows, config), config)
        table = _exact_table(rows, value_P)
        progress(f"evaluate {label}", len(rows), len(rows))
    else:
        rollouts = engine.generate(
            encode_rows(rows, policy.tokenizer),
            plan_of(config, group_size=settings.samples),
            run_seed=config.seed,
            iteration=0,
            purpose="evaluate",
            progress=partial(progress, f"evaluate {label}"),
        )
        table = _sampled_table(rows, rollouts)
    write_table(folder / "samples.parquet", table)
    metrics = _metrics(table, config)
    write_json(folder / "metrics.json", metrics)
    parent = (
        workspace.root / "runs" / policy_folder.parent.parent.name / "iterations" / policy_folder.name / MANIFEST_NAME
    )
    write_manifest(
        folder / MANIFEST_NAME,
        workspace.root,
        kind="evaluation",
        inputs=(workspace.pools / "evaluation.parquet",),
        outputs={folder / "samples.parquet": len(table["prompt_id"]), folder / "metrics.json": None},
        parents=[path for path in (workspace.pools / MANIFEST_NAME, parent) if path.is_file()],
        parameters={"evaluate": settings.model_dump(mode="json"), "seed": config.seed},
        facts={"policy": policy_folder.relative_to(workspace.root).as_posix(), "policy_sha256": policy.digest},
    )
    return EvaluationResult(folder, json.loads((folder / "metrics.json").read_text(encoding="utf-8")))


def _sampled_table(rows: Sequence[PromptRow], rollouts: RolloutSet) -> dict[str, list[Any]]:
    verdicts = verify_rollouts(rollouts, {row.prompt_id: row for row in rows})
    domain = {row.prompt_id: row.domain for row in rows}
    return {
        "prompt_id": list(rollouts.prompt_id_N),
        "sample": list(rollouts.sample_N),
        "domain": [domain[prompt_id] for prompt_id in rollouts.prompt_id_N],
        "completion": list(rollouts.completion_N),
        "extracted": list(verdicts.extracted_N),
        "reward": [None if np.isnan(v) else float(v) for v in verdicts.truth_N],
        "reason": list(verdicts.reason_N),
        "finish": list(rollouts.finish_reason_N),
    }


def _exact_table(rows: Sequence[PromptRow], value_P: FloatArray) -> dict[str, list[Any]]:
    return {
        "prompt_id": [row.prompt_id for row in rows],
        "domain": [row.domain for row in rows],
        "reward": value_P.tolist(),
    }


def reference_rows(tokenizer: Any, rows: Sequence[PromptRow], config: PipelineConfig) -> list[SupervisedRow]:
    """Encode labelled prompts with the tokens of their references, no longer than a completion may be.

    Raises
    ------
    ConfigError
        When a reference is longer than the completion cap, so that the policy could never write it.
    """
    cap, encoded = config.sampling.max_tokens, []
    for row in rows:
        suite = get_suite(row.suite)
        answer = encode_target(tokenizer, suite.render_reference(row))[:-1]
        if len(answer) > cap:
            msg = (
                f"'sampling.max_tokens' must be at least the {len(answer)} tokens of a reference to be evaluated by "
                f"probability; got {cap} (prompt '{row.prompt_id}'). Raise it, or evaluate by samples."
            )
            raise ConfigError(msg)
        encoded.append(SupervisedRow(prompt_ids=encode_prompt(tokenizer, suite.render(row)), target_ids=answer))
    return encoded


def reference_probabilities(model: Any, rows: Sequence[SupervisedRow], config: PipelineConfig) -> FloatArray:
    """Return, for each of P prompts, the probability that a completion begins with the tokens of its reference."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(rows), _ROWS_PER_PASS):
            some = rows[start : start + _ROWS_PER_PASS]
            arrays = pad_rows([row.prompt_ids for row in some], [row.target_ids for row in some], pad_id=0)
            ids, attention, keep = (torch.from_numpy(array).to(model.device) for array in arrays)
            logprob, _ = token_logprobs(model, ids, attention, keep, temperature=config.sampling.temperature)
            parts.append(logprob.double().sum(dim=1).exp().cpu().numpy())
    return np.concatenate(parts)


def _metrics(table: dict[str, list[Any]], config: PipelineConfig) -> dict[str, dict[str, Any]]:
    reward = np.array([np.nan if value is None else value for value in table["reward"]], dtype=np.float64)
    domain = np.array(table["domain"], dtype=object)
    prompt_ids = np.array(table["prompt_id"], dtype=object)
    settings = config.evaluate
    result = {}
    for name in ("all", *sorted(set(table["domain"]))):
        chosen = np.ones(len(domain), dtype=bool) if name == "all" else domain == name
        metrics = evaluate_samples(
            reward[chosen],
            tuple(prompt_ids[chosen]),
            # The chance of one right answer among k drawn ones has no meaning for a probability.
            ks=settings.pass_at if settings.method == "sample" else (),
            confidence=settings.confidence,
            seed=config.seed,
        )
        result[name] = asdict(metrics)
    return result


def _prompt_means(folder: Path, domain: str) -> dict[str, float]:
    sums: dict[str, list[float]] = {}
    for row in read_table(folder / "samples.parquet").to_pylist():
        if row["reward"] is not None and domain in ("all", row["domain"]):
            sums.setdefault(row["prompt_id"], []).append(row["reward"])
    return {prompt_id: float(np.mean(values)) for prompt_id, values in sums.items()}


def compare(before: EvaluationResult, after: EvaluationResult, config: PipelineConfig) -> dict[str, PairedDifference]:
    """Compare two evaluations prompt by prompt, for each domain that both hold."""
    return {
        domain: paired_difference(
            _prompt_means(before.folder, domain),
            _prompt_means(after.folder, domain),
            confidence=config.evaluate.confidence,
            seed=config.seed,
        )
        for domain in before.metrics
        if domain in after.metrics and _prompt_means(before.folder, domain) and _prompt_means(after.folder, domain)
    }
