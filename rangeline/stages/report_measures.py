"""What a report measures of a run after the fact: from finished iterations' files, for no iteration to read.

The truth of the audit share says whether the judge orders rollouts as the truth does, whether the scorer's promises
hold, and whether the signs that the intervals would turn against their midpoint are turned rightly.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.advantages import compute_advantages
from rangeline.config import PipelineConfig
from rangeline.conformal.scorer import StateScorer
from rangeline.errors import ModelLoadError
from rangeline.evaluation.comparison_statistics import count_flips
from rangeline.evaluation.reliability import pair_agreement, reliability_bins
from rangeline.evaluation.run_summary import CalibrationRow
from rangeline.judge.rubric import Rubric
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.records import FloatArray, JudgmentTable
from rangeline.stages.calibration import read_truth
from rangeline.stages.estimate import questions_of
from rangeline.stages.iteration import SHARES
from rangeline.stages.judge_clients import read_rubric
from rangeline.stages.run import RunFolder
from rangeline.stages.tables import read_intervals, read_judgments, read_table
from rangeline.stages.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What it takes to read an iteration's judgments again."""

    scorer: StateScorer | None
    """None where calibration was made anew since: its scorer is not the run's."""
    rubric: Rubric | None
    """What the judge is asked; None where it cannot be read any more, and of a judge that is asked nothing."""
    is_asked: bool = True
    """False for a synthetic judge, which looks the truth up."""

    def questions(self, rollouts: int, group_size: int) -> int | None:
        """Return how many questions so many rollouts take, each order of replies counted; None where not known."""
        if not self.is_asked:
            return 0
        return None if self.rubric is None else questions_of(self.rubric, rollouts, group_size)[0]


def judged_by(workspace: Workspace, run: RunFolder, config: PipelineConfig) -> Judged:
    """Return the scorer of a run and the number of its judge's questions, as far as both are still there."""
    is_asked = not config.judge.is_synthetic
    rubric = _rubric(workspace, config) if is_asked else None
    return Judged(scorer=_scorer(workspace, run), rubric=rubric, is_asked=is_asked)


def _scorer(workspace: Workspace, run: RunFolder) -> StateScorer | None:
    manifest, first = workspace.calibration / MANIFEST_NAME, run.iteration(1) / MANIFEST_NAME
    if not (manifest.is_file() and first.is_file()):
        return None
    name = manifest.relative_to(workspace.root).as_posix()
    named = [ref.sha256 for ref in read_manifest(first).parents if ref.path == name]
    if named != [digest_file(manifest)]:
        return None
    return StateScorer.from_bytes((workspace.calibration / "scorer.ubj").read_bytes())


def _rubric(workspace: Workspace, config: PipelineConfig) -> Rubric | None:
    try:
        return read_rubric(workspace.root / config.judge.rubric, config.judge.rubric)
    except ModelLoadError:
        return None


def measure(folder: Path, config: PipelineConfig, judged: Judged) -> dict[str, float | None]:
    """Return the numbers of one finished iteration that only its report needs.

    Parameters
    ----------
    folder
        The iteration's folder.
    config
        Settings of the run.
    judged
        Scorer and questions.

    Returns
    -------
    dict
        None where a number cannot be had; only the rollouts with credit where no judge was asked.
    """
    numbers: dict[str, float | None] = {"advantage/credited": _credited(folder)}
    if not (folder / "policy_judgments.parquet").is_file():
        return numbers
    tables = [read_judgments(folder / f"{share}_judgments.parquet") for share in SHARES]
    policy, _, audit = tables
    rows = sum(len(table.prompt_id_N) for table in tables)
    numbers["budget/judge_calls"] = judged.questions(rows, config.sampling.group_size)
    numbers["judge/missing_share"] = float(policy.missing_N.mean()) if len(policy.missing_N) else None
    numbers["judge/alike_share"] = _alike_share(policy)
    truth_N = read_truth(folder / "audit_coverage.parquet")
    if judged.scorer is not None:
        score_N = _scores(judged.scorer, audit)
        numbers["judge/agreement"], numbers["judge/pairs"] = pair_agreement(score_N, truth_N, audit.prompt_id_N)
    return numbers | _audit_flips(folder, config, truth_N)


def _credited(folder: Path) -> int:
    """Count the rollouts whose credit has a sign to compare with that of the midpoint."""
    credit = read_table(folder / "advantages.parquet")
    return int((credit["advantage"].to_numpy() * credit["midpoint"].to_numpy() != 0).sum())


def _alike_share(judgments: JudgmentTable) -> float | None:
    """Return the share of groups whose judged rollouts all have one state: the judge tells nothing apart there."""
    states: dict[str, list[tuple[int, ...]]] = {}
    for i in np.flatnonzero(~judgments.missing_N).tolist():
        states.setdefault(judgments.prompt_id_N[i], []).append(tuple(judgments.levels_NK[i].tolist()))
    groups = [group for group in states.values() if len(group) > 1]
    return sum(len(set(group)) == 1 for group in groups) / len(groups) if groups else None


def _scores(scorer: StateScorer, judgments: JudgmentTable) -> FloatArray:
    score_N = np.full(len(judgments.missing_N), np.nan)
    present_N = ~judgments.missing_N
    if present_N.any():
        score_N[present_N] = scorer.score(judgments.levels_NK[present_N])
    return score_N


def _audit_flips(folder: Path, config: PipelineConfig, truth_N: FloatArray) -> dict[str, float | None]:
    """Credit the audited rollouts, which train nothing, as the iteration credited its own, and ask the truth."""
    intervals = read_intervals(folder / "audit_intervals.parquet")
    settings = chosen_estimator(folder, config)
    ours = compute_advantages(intervals, form=config.advantages.form, alpha=config.intervals.alpha, **settings)
    midpoint = compute_advantages(intervals, estimator="dr_grpo", reduction="middle")
    flips = count_flips(ours.value_N, midpoint.value_N, truth_N, intervals.prompt_id_N)
    return {
        "audit/credited": flips.num_credited,
        "audit/flips": flips.num_flips,
        "audit/flips_right": flips.num_agree,
        "audit/flips_wrong": flips.num_disagree,
    }


def chosen_estimator(folder: Path, config: PipelineConfig) -> dict[str, Any]:
    """Return estimator, reduction and reference width of an iteration, as they were chosen or set."""
    path, settings = folder / "choice.json", config.advantages
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    default = {
        "estimator": "range" if settings.estimator == "auto" else settings.estimator,
        "reduction": "middle" if settings.estimator == "auto" else settings.reduction,
    }
    width = record.get("reference_width", settings.reference_width)
    if width != "auto":
        default["reference_width"] = width
    return default | record.get("chosen", {})


def calibration_points(
    workspace: Workspace, run: RunFolder, done: int, *, scorer: StateScorer | None, confidence: float
) -> tuple[CalibrationRow, ...]:
    """Return what the scorer promised and what was true: of the calibration pool, and of the audits of the run.

    Parameters
    ----------
    workspace, run, done
        Whose rollouts, and how many iterations are complete.
    scorer
        Of the run; None, where it is there no more, gives no rows.
    confidence
        Of the bands.
    """
    if scorer is None:
        return ()
    pool = [
        (
            read_judgments(workspace.calibration / "calibration_judgments.parquet"),
            read_truth(workspace.calibration / "calibration_truth.parquet"),
        )
    ]
    audits = [
        (read_judgments(folder / "audit_judgments.parquet"), read_truth(folder / "audit_coverage.parquet"))
        for folder in map(run.iteration, range(1, done + 1))
        if (folder / "audit_judgments.parquet").is_file()
    ]
    return (*_rows(scorer, pool, "calibration", confidence), *_rows(scorer, audits, "audit", confidence))


def _rows(
    scorer: StateScorer, judged: Sequence[tuple[JudgmentTable, FloatArray]], pool: Any, confidence: float
) -> list[CalibrationRow]:
    if not judged:
        return []
    score_N = np.concatenate([_scores(scorer, table) for table, _ in judged])
    truth_N = np.concatenate([truth for _, truth in judged])
    ids = [name for table, _ in judged for name in table.prompt_id_N]
    return [
        CalibrationRow(
            label=f"{item.lowest:.3f}" if item.lowest == item.highest else f"{item.lowest:.3f} to {item.highest:.3f}",
            pool=pool,
            predicted=item.predicted,
            observed=item.observed,
            lower=item.lower,
            upper=item.upper,
            count=item.num_rows,
            num_prompts=item.num_prompts,
        )
        for item in reliability_bins(score_N, truth_N, ids, confidence=confidence)
    ]
