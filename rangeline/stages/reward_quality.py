"""Reward-quality stage: any set of sources on the same rollouts of held-out labelled prompts, by suite."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.evaluation.reward_quality import reward_quality
from rangeline.lineage import MANIFEST_NAME, digest_json, write_json, write_manifest
from rangeline.records import FloatArray, PromptRow, RewardIntervals, RolloutSet
from rangeline.rewards.judge_interval import judge_intervals
from rangeline.rewards.registry import source_facts
from rangeline.stages.calibration import load_calibration
from rangeline.stages.data import read_pool
from rangeline.stages.judging import Verdicts, encode_rows, judge_all, open_judge, plan_of
from rangeline.stages.progress import Progress
from rangeline.stages.rewarding import RewardContext, RewardModels
from rangeline.stages.scorers import SCORERS, completion_statistics
from rangeline.stages.tables import write_table
from rangeline.stages.warmup import load_worker
from rangeline.stages.workspace import Workspace

_NO_SCORE = frozenset({"trapo"})
"""Sources that select prompts over time and score nothing by themselves."""


@dataclass(frozen=True, slots=True)
class QualityResult:
    """Where the numbers lie, and a row a suite and source."""

    folder: Path
    rows: tuple[dict[str, Any], ...]


def require_scorable(names: Sequence[str]) -> None:
    """Check that every source scores rollouts.

    Raises
    ------
    ConfigError
        When one is unknown, learns texts, or only selects prompts; or when none is asked for.
    """
    bad = [name for name in names if source_facts(name).is_supervised or name in _NO_SCORE]
    if bad or not names:
        msg = f"'--sources' must be sources that score a rollout; got {bad[0] if bad else 'none'}. Leave it out."
        raise ConfigError(msg)


def measure_quality(
    workspace: Workspace, config: PipelineConfig, policy_folder: Path, names: Sequence[str], progress: Progress
) -> QualityResult:
    """Sample a policy on labelled evaluation prompts, score every rollout by every source, and compare with the truth.

    Judge intervals are those of the calibration as it is, without a density ratio; their middles are the scores.
    """
    require_scorable(names)
    rows = [row for row in read_pool(workspace, "evaluation") if row.reference is not None]
    rows = rows[: config.evaluate.max_prompts]
    worker = load_worker(config, str(policy_folder / "policy"))
    rollouts = worker.generate(
        encode_rows(rows, worker.tokenizer),
        plan_of(config),
        iteration=0,
        purpose="reward-quality",
        progress=partial(progress, "sample for reward quality"),
    )
    by_id = {row.prompt_id: row for row in rows}
    context = RewardContext(
        config=config,
        workspace=workspace,
        number=1,
        rollouts=rollouts,
        rows=by_id,
        models=RewardModels(workspace, config, worker),
        progress=progress,
    )
    verdicts = context.verdicts
    if any(source_facts(name).needs_judge for name in names):
        context = replace(context, judged=_judged(workspace, config, rollouts, by_id, verdicts, progress))
    scores: dict[str, FloatArray] = {}
    for i, name in enumerate(names):
        scores[name] = SCORERS[name](context).intervals.center_N
        progress("score", i + 1, len(names))
    statistics = completion_statistics(context)
    entropy_N = np.array([np.nan if item is None else float(item[:, 1].mean()) for item in statistics])
    worker.close()
    return _write(workspace, config, policy_folder, scores, context=context, entropy_N=entropy_N)


def _judged(
    workspace: Workspace,
    config: PipelineConfig,
    rollouts: RolloutSet,
    rows: dict[str, PromptRow],
    verdicts: Verdicts,
    progress: Progress,
) -> RewardIntervals:
    calibration = load_calibration(workspace, config)
    judge = open_judge(workspace, config.judge, trust_remote_code=config.policy.trust_remote_code)
    return judge_intervals(
        judge_all(judge, rollouts, rows, verdicts, progress, "judge"),
        scorer=calibration.scorer,
        scale=calibration.scale,
        ratio=None,
        calibration=calibration.calibration,
        alpha=config.intervals.alpha,
    )


def _write(
    workspace: Workspace,
    config: PipelineConfig,
    policy_folder: Path,
    scores: dict[str, FloatArray],
    *,
    context: RewardContext,
    entropy_N: FloatArray,
) -> QualityResult:
    rollouts, truth_N = context.rollouts, context.verdicts.truth_N
    suites = np.array([context.rows[prompt_id].suite for prompt_id in rollouts.prompt_id_N], dtype=object)
    length_N = np.array([len(ids) for ids in rollouts.token_ids_N], dtype=np.float64)
    table = []
    for suite in sorted(set(suites)):
        chosen = suites == suite
        ids = [p for p, use in zip(rollouts.prompt_id_N, chosen, strict=True) if use]
        for name, score_N in scores.items():
            quality = reward_quality(
                score_N[chosen],
                truth_N[chosen],
                length_N=length_N[chosen],
                entropy_N=entropy_N[chosen],
                prompt_id_N=ids,
            )
            table.append({"suite": suite, "source": name, "prompts": len(set(ids)), **asdict(quality)})
    settings = config.model_dump(mode="json", include={"seed", "sampling", "reward", "evaluate"})
    policy = policy_folder.relative_to(workspace.root).as_posix()
    key = digest_json({"settings": settings, "policy": policy, "sources": list(scores)})
    folder = workspace.root / "runs" / "_reward_quality" / key[:16]
    columns = {"prompt_id": list(rollouts.prompt_id_N), "suite": suites.tolist(), "truth": truth_N, "length": length_N}
    write_table(folder / "rewards.parquet", {**columns, "entropy": entropy_N, **scores})
    write_json(folder / "quality.json", {"policy": policy, "rows": table})
    write_manifest(
        folder / MANIFEST_NAME,
        workspace.root,
        kind="reward_quality",
        inputs=(workspace.pools / "evaluation.parquet",),
        outputs={folder / "rewards.parquet": len(rollouts), folder / "quality.json": None},
        parents=(workspace.pools / MANIFEST_NAME, workspace.warmup / MANIFEST_NAME),
        parameters=settings,
        facts={"policy": policy},
    )
    return QualityResult(folder, tuple(table))
