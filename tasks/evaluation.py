"""Evaluation tasks: sample a policy on held-out prompts, and compare two policies prompt by prompt."""

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.config import PipelineConfig
from rangeline.stages.benchmark_sampling import load_policy
from rangeline.stages.benchmarking import (
    BenchmarkSettings,
    PolicyResults,
    compare_benchmarks,
    run_benchmarks,
    write_score_table,
)
from rangeline.stages.evaluation import EvaluationResult, compare, evaluate
from rangeline.stages.rescoring import Rescored, rescore
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


@task(name="run benchmarks", cache_policy=NO_CACHE)
def benchmark_policy(workspace_root: str, config: PipelineConfig, policy: str, asked: dict[str, Any]) -> PolicyResults:
    """Run every benchmark that is at hand on one policy; `asked` holds the fields of `BenchmarkSettings`."""
    place = Workspace(Path(workspace_root))
    with flow_progress(f"benchmarks-{policy}") as progress:
        return run_benchmarks(place, config, load_policy(place, config, policy), BenchmarkSettings(**asked), progress)


@task(name="write score table", cache_policy=NO_CACHE)
def score_table(workspace_root: str, results: list[PolicyResults], asked: dict[str, Any]) -> Path:
    """Write the table of all policies; return its Markdown file."""
    return write_score_table(Workspace(Path(workspace_root)), results, BenchmarkSettings(**asked))


@task(name="compare benchmarks", cache_policy=NO_CACHE)
def compare_on_benchmarks(before: PolicyResults, after: PolicyResults, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the paired difference of each benchmark that both policies have values of."""
    settings = BenchmarkSettings(**asked)
    return dict(compare_benchmarks(before, after, confidence=settings.confidence, seed=settings.seed))


@task(name="rescore benchmark", cache_policy=NO_CACHE)
def rescore_benchmark(workspace_root: str, folder: str) -> Rescored:
    """Score the completions of a finished benchmark with the present checkers."""
    return rescore(Workspace(Path(workspace_root)), Path(folder))
