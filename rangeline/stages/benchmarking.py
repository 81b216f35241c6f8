"""Evaluate a policy on named benchmarks, or fill a paper's table: rows, metrics, manifest and table as files.

Each benchmark has a folder of its own below `runs/_benchmarks`, named after what was asked of whom: `problems.parquet`,
`shards/`, `samples.parquet`, `metrics.json` and a manifest written last. Asking again reads what is there.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.evaluation.comparison import PairedDifference, paired_difference
from rangeline.evaluation.presets import VERDICT_MEASURES, BenchmarkPlan, get_preset
from rangeline.evaluation.sampling_metrics import prompt_means
from rangeline.evaluation.score_table import benchmark_markdown, fill_preset, preset_markdown
from rangeline.lineage import MANIFEST_NAME, atomic_write, digest_json, read_manifest, write_json, write_manifest
from rangeline.records import PromptRow
from rangeline.stages.benchmark_sampling import TOP_P, LoadedPolicy, sample_shards
from rangeline.stages.benchmark_source import Problems, Unavailable, read_problems
from rangeline.stages.bert_overlap import DEFAULT_MODEL
from rangeline.stages.data import read_prompts, write_prompts
from rangeline.stages.progress import Progress
from rangeline.stages.scoring import is_overlap, metrics_of, scored_columns
from rangeline.stages.tables import read_table, write_table
from rangeline.stages.workspace import Workspace

DEFAULT_PLAN = BenchmarkPlan(
    name="", samples=4, temperature=1.0, max_tokens=512, source="defaults of the evaluate command"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSettings:
    """What is asked; None leaves it to the preset, or to the defaults where there is no preset."""

    seed: int
    benchmarks: tuple[str, ...] = ()
    """Names; with a preset, those of its benchmarks that are run, all where none is named."""
    preset: str | None = None
    samples: int | None = None
    pass_at: tuple[int, ...] | None = None
    """None: the preset's, and powers of two up to n."""
    temperature: float | None = None
    max_tokens: int | None = None
    max_problems: int | None = None
    prompts_per_shard: int = 8
    confidence: float = 0.95
    bert_model: str = DEFAULT_MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """Where one benchmark's rows lie, and its metrics."""

    name: str
    folder: Path
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResults:
    """All benchmarks of one policy."""

    label: str
    results: dict[str, BenchmarkResult]
    unavailable: dict[str, str]
    """Reason of each benchmark that could not be run."""


def plans_of(settings: BenchmarkSettings) -> tuple[BenchmarkPlan, ...]:
    """Return how each benchmark is to be sampled.

    Raises
    ------
    ConfigError
        When nothing is asked, a name is not in the preset, or a k is above n.
    """
    if settings.preset is None:
        plans = tuple(replace(DEFAULT_PLAN, name=name) for name in dict.fromkeys(settings.benchmarks))
    else:
        plans = get_preset(settings.preset).benchmarks
        unknown = sorted(set(settings.benchmarks) - {plan.name for plan in plans})
        if unknown:
            known = ", ".join(plan.name for plan in plans)
            msg = f"'benchmarks' must be of the preset '{settings.preset}' ({known}); got '{unknown[0]}'. Leave it out."
            raise ConfigError(msg)
        plans = tuple(plan for plan in plans if not settings.benchmarks or plan.name in settings.benchmarks)
    if not plans:
        msg = "'benchmarks' must name a benchmark, or 'preset' a table; got neither. Give --benchmarks or --preset."
        raise ConfigError(msg)
    given = {name: getattr(settings, name) for name in ("samples", "temperature", "max_tokens")}
    over = {name: value for name, value in given.items() if value is not None}
    plans = tuple(
        replace(plan, **over, source=f"{plan.source}; by option: {sorted(over)}") if over else plan for plan in plans
    )
    for plan in plans:
        too_large = [k for k in settings.pass_at or () if k > plan.samples]
        if too_large:
            msg = f"'pass_at' must be at most n={plan.samples}; got {too_large[0]} ('{plan.name}'). Raise --n."
            raise ConfigError(msg)
    return plans


def ks_of(settings: BenchmarkSettings, plan: BenchmarkPlan) -> tuple[int, ...]:
    """Return the k of a benchmark: those asked for or the powers of two up to n, and those of the preset's columns."""
    ks = set(settings.pass_at or (2**i for i in range(plan.samples.bit_length())))
    if settings.preset is not None:
        columns = get_preset(settings.preset).columns
        ks |= {item.k for item in columns if item.benchmark == plan.name and item.measure in VERDICT_MEASURES}
    return tuple(sorted(k for k in ks if k <= plan.samples))


def run_benchmarks(
    workspace: Workspace,
    config: PipelineConfig,
    policy: LoadedPolicy,
    settings: BenchmarkSettings,
    progress: Progress,
) -> PolicyResults:
    """Run every benchmark that is at hand; a finished one is read, and of a broken-off one finished shards are kept."""
    results, unavailable = {}, {}
    for plan in plans_of(settings):
        found = read_problems(workspace, config, plan.name)
        if isinstance(found, Unavailable):
            unavailable[plan.name] = found.reason
            continue
        results[plan.name] = _run(workspace, policy, plan, found, settings, progress)
    return PolicyResults(label=policy.label, results=results, unavailable=unavailable)


def _run(
    workspace: Workspace,
    policy: LoadedPolicy,
    plan: BenchmarkPlan,
    found: Problems,
    settings: BenchmarkSettings,
    progress: Progress,
) -> BenchmarkResult:
    rows = found.rows[: settings.max_problems]
    facts = {
        "num_available": len(found.rows),
        "data": found.source,
        "remark": found.remark,
        "private": found.private,
        "settings": plan.source,
    }
    asked = {
        "benchmark": plan.name,
        "samples": plan.samples,
        "temperature": plan.temperature,
        "top_p": TOP_P,
        "max_tokens": plan.max_tokens,
        "seed": settings.seed,
        "prompts_per_shard": settings.prompts_per_shard,
        "dtype": policy.dtype,
        "policy_sha256": policy.digest,
    }
    key = digest_json({**asked, "problems": [asdict(row) for row in rows]})
    folder = workspace.root / "runs" / "_benchmarks" / f"{plan.name}-{key[:16]}"
    problems, samples = folder / "problems.parquet", folder / "samples.parquet"
    by_id = {row.prompt_id: row for row in rows}
    if not samples.is_file():
        write_prompts(problems, rows)
        table = sample_shards(
            folder / "shards",
            rows,
            policy,
            plan,
            seed=settings.seed,
            prompts_per_shard=settings.prompts_per_shard,
            progress=partial(progress, f"{plan.name} ({policy.label})"),
        )
        write_table(samples, scored_columns(table, by_id, bert_model=settings.bert_model))
    elif is_overlap(rows) and _scored_with(folder) != settings.bert_model:
        # Another model gives other scores; the completions stay.
        write_table(samples, scored_columns(read_table(samples), by_id, bert_model=settings.bert_model))
    reading: dict[str, Any] = {
        "ks": ks_of(settings, plan),
        "confidence": settings.confidence,
        "bert_model": settings.bert_model,
    }
    measured = metrics_of(read_table(samples), by_id, samples=plan.samples, seed=settings.seed, **reading)
    metrics = {**asked, **facts, **measured, "policy": policy.label}
    write_json(folder / "metrics.json", metrics)
    write_manifest(
        folder / MANIFEST_NAME,
        workspace.root,
        kind="benchmark",
        outputs={problems: len(rows), samples: len(rows) * plan.samples, folder / "metrics.json": None},
        parameters={**asked, **reading},
        facts={**facts, "policy": policy.label},
    )
    return BenchmarkResult(name=plan.name, folder=folder, metrics=metrics)


def _scored_with(folder: Path) -> str | None:
    """Return the BERTScore model of a folder's scores; None where the run broke off before it said."""
    path = folder / MANIFEST_NAME
    return str(read_manifest(path).parameters["bert_model"]) if path.is_file() else None


def write_score_table(workspace: Workspace, policies: Sequence[PolicyResults], settings: BenchmarkSettings) -> Path:
    """Write the table of all policies as Markdown and JSON; return the Markdown file."""
    named = {item.label: {name: result.metrics for name, result in item.results.items()} for item in policies}
    content: dict[str, Any] = {
        "preset": settings.preset,
        "policies": {item.label: {"metrics": named[item.label], "unavailable": item.unavailable} for item in policies},
    }
    text = "# Evaluation\n\n"
    if settings.preset is not None:
        preset = get_preset(settings.preset)
        cells = {item.label: fill_preset(preset, named[item.label], item.unavailable) for item in policies}
        content["table"] = {label: [asdict(cell) for cell in row] for label, row in cells.items()}
        text += preset_markdown(f"{preset.paper}: the same columns", cells) + "\n"
    for item in policies:
        text += f"# {item.label}\n\n{benchmark_markdown(named[item.label], item.unavailable)}\n"
    folders = [result.folder.name for item in policies for result in item.results.values()]
    key = digest_json({"folders": folders, "settings": asdict(settings), "labels": list(named)})
    target = workspace.root / "runs" / "_benchmarks" / "tables" / key[:16]
    write_json(target / "table.json", content)
    atomic_write(target / "table.md", text)
    return target / "table.md"


def compare_benchmarks(
    before: PolicyResults, after: PolicyResults, *, confidence: float, seed: int
) -> dict[str, PairedDifference]:
    """Compare two policies problem by problem on every benchmark that both have values of."""
    compared = {}
    for name in before.results.keys() & after.results.keys():
        means = [_means(item.results[name].folder) for item in (before, after)]
        if means[0].keys() & means[1].keys():
            compared[name] = paired_difference(means[0], means[1], confidence=confidence, seed=seed)
    return dict(sorted(compared.items()))


def _means(folder: Path) -> dict[str, float]:
    table = read_table(folder / "samples.parquet")
    return prompt_means(table["verdict"].to_numpy().astype(np.float64), table["prompt_id"].to_pylist())


def read_result(folder: Path) -> tuple[dict[str, PromptRow], dict[str, Any]]:
    """Return the problems and metrics of a benchmark's folder.

    Raises
    ------
    ConfigError
        When it is no such folder.
    """
    try:
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        msg = f"'{folder}' must be the folder of a finished benchmark; got no metrics.json. Name one that was printed."
        raise ConfigError(msg) from error
    return {row.prompt_id: row for row in read_prompts(folder / "problems.parquet")}, metrics
