"""Evaluation tasks: sample a policy on held-out prompts, and compare two policies prompt by prompt."""

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.config import PipelineConfig
from rangeline.stages.evaluation import EvaluationResult, compare, evaluate
from rangeline.stages.reward_quality import QualityResult, measure_quality
from rangeline.stages.run import resolve_checkpoint
from rangeline.stages.workspace import Workspace
from tasks.reporting import flow_progress


@task(name="evaluate policy", cache_policy=NO_CACHE)
def evaluate_policy(workspace_root: str, config: PipelineConfig, policy: str) -> EvaluationResult:
    """Evaluate `warmup`, a run's last checkpoint, or a checkpoint folder."""
    place = Workspace(Path(workspace_root))
    with flow_progress(f"evaluate-{policy}") as progress:
        return evaluate(place, config, resolve_checkpoint(place, policy), progress, policy)


@task(name="compare policies", cache_policy=NO_CACHE)
def compare_policies(before: EvaluationResult, after: EvaluationResult, config: PipelineConfig) -> dict[str, Any]:
    """Return the paired difference of each domain."""
    return dict(compare(before, after, config))


@task(name="measure reward quality", cache_policy=NO_CACHE)
def measure_reward_quality(
    workspace_root: str, config: PipelineConfig, policy: str, sources: tuple[str, ...]
) -> QualityResult:
    """Score the same rollouts of a policy by every source, and compare each with the truth."""
    place = Workspace(Path(workspace_root))
    with flow_progress("reward-quality") as progress:
        return measure_quality(place, config, resolve_checkpoint(place, policy), sources, progress)
