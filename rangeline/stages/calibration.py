"""Calibration stages: judge the source and calibration pools once, fit the scorer and scale."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.config import CalibrateConfig, PipelineConfig
from rangeline.conformal.adaptive import join_calibration
from rangeline.conformal.intervals import CalibrationSet, require_calibration_prompts
from rangeline.conformal.scorer import ResidualScale, StateScorer
from rangeline.errors import CalibrationError
from rangeline.lineage import MANIFEST_NAME, atomic_write, write_json, write_manifest
from rangeline.records import FloatArray, JudgmentTable, RolloutSet
from rangeline.rewards.judge_interval import ScoreScale
from rangeline.stages.calibration_rollouts import (
    JUDGED_POOLS,
    judge_pools,
    missing_note,
    require_checkable,
    sample_pools,
)
from rangeline.stages.judge_records import keep_judge
from rangeline.stages.judging import Verdicts, open_judge
from rangeline.stages.progress import Progress
from rangeline.stages.tables import (
    read_judgments,
    read_table,
    write_judgments,
    write_rollouts,
    write_table,
)
from rangeline.stages.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything frozen before training: scorer, scale, calibration set, and the source states for the ratio."""

    scorer: StateScorer
    scale: ScoreScale
    residual: ResidualScale
    calibration: CalibrationSet
    source: JudgmentTable
    """Class 0 of the density ratio; rows without a state or a truth are missing."""
    is_fresh: bool = False
    """True where the calibration rows are audited rollouts of the target itself, which need no density ratio."""
    audited: dict[Path, CalibrationSet] = field(default_factory=dict)
    """Audited rollouts of finished iterations as rows, by folder, once read: scorer and scale never change."""


def fresh_calibration(
    base: Calibration, judged: Sequence[tuple[JudgmentTable, FloatArray]], alpha: float
) -> Calibration:
    """Calibrate anew on audited rollouts of recent policies; scorer and scale stay as they are.

    Parameters
    ----------
    base
        What was frozen before training.
    judged
        Judgment states and true rewards of the audit share, an entry an iteration.
    alpha
        Miss rate that the new set must be able to serve.

    Returns
    -------
    Calibration
        With the audited rows as calibration set, used without a density ratio.

    Raises
    ------
    CalibrationError
        When the audited prompts are too few for alpha.

    Notes
    -----
    Ours. Rows of an earlier iteration came from a policy a little older than the one they calibrate.
    """
    parts = [calibration_rows(base.scorer, base.scale, judgments, truth) for judgments, truth in judged]
    require_calibration_prompts(len({prompt_id for part in parts for prompt_id in part.prompt_id_C}), alpha)
    return replace(base, calibration=join_calibration(parts), is_fresh=True)


def fit_calibration(
    source: tuple[JudgmentTable, FloatArray],
    calibration: tuple[JudgmentTable, FloatArray],
    settings: CalibrateConfig,
    seed: int,
) -> Calibration:
    """Fit scorer and scale on source rows with a truth, and score the calibration rows.

    Parameters
    ----------
    source, calibration
        Judgment states and true rewards; rows that miss either are left out.
    settings
        Scorer and scale.
    seed
        Seed of the scorer.

    Raises
    ------
    CalibrationError
        When no row of a pool has both a state and a truth.
    """
    for name, (judgments, truth) in (("source", source), ("calibration", calibration)):
        if not (~judgments.missing_N & np.isfinite(truth)).any():
            msg = f"Pool '{name}' must have rows with a state and a truth; got none of {len(truth)}."
            raise CalibrationError(msg)
    judgments, truth = source
    use = ~judgments.missing_N & np.isfinite(truth)
    levels = judgments.levels_NK[use]
    scorer = StateScorer.fit(
        levels,
        truth[use],
        judgments.num_levels,
        trees=settings.trees,
        depth=settings.depth,
        learning_rate=settings.learning_rate,
        seed=seed,
    )
    residual = ResidualScale.fit(
        levels, scorer.score(levels), truth[use], judgments.num_levels, sigma_min=settings.sigma_min
    )
    scale = _scale(settings, residual)
    return Calibration(scorer, scale, residual, calibration_rows(scorer, scale, *calibration), _with_truth(*source))


def _with_truth(judgments: JudgmentTable, truth_N: FloatArray) -> JudgmentTable:
    """Mark rows without a truth as missing: the ratio must start from the rows that calibration could use."""
    return replace(judgments, missing_N=judgments.missing_N | ~np.isfinite(truth_N))


def _scale(settings: CalibrateConfig, residual: ResidualScale) -> ScoreScale:
    fitted = residual if settings.sigma == "residual" else None
    return ScoreScale(kind=settings.sigma, sigma_min=settings.sigma_min, residual=fitted)


def calibration_rows(
    scorer: StateScorer, scale: ScoreScale, judgments: JudgmentTable, truth_N: FloatArray
) -> CalibrationSet:
    """Score the rows that have a state and a truth; the others are left out."""
    use = ~judgments.missing_N & np.isfinite(truth_N)
    levels = judgments.levels_NK[use]
    score = scorer.score(levels)
    sigma = scale.of(score, levels)
    return CalibrationSet(
        prompt_id_C=tuple(np.array(judgments.prompt_id_N, dtype=object)[use]),
        levels_CK=levels,
        score_C=score,
        scale_C=sigma,
        truth_C=truth_N[use],
        nonconformity_C=np.abs(score - truth_N[use]) / sigma,
    )


def _reliability(calibration: CalibrationSet) -> list[dict[str, Any]]:
    """Predicted against observed reward of the calibration rows, by distinct score."""
    rows = []
    for score in np.unique(calibration.score_C):
        inside = calibration.score_C == score
        rows.append(
            {
                "predicted": float(score),
                "observed": float(calibration.truth_C[inside].mean()),
                "count": int(inside.sum()),
            }
        )
    return rows


def calibrate(workspace: Workspace, config: PipelineConfig, progress: Progress) -> None:
    """Roll out the warmed-up policy on source and calibration prompts, judge, fit, freeze; write `data/calibration`."""
    judge = open_judge(workspace, config.judge, trust_remote_code=config.policy.trust_remote_code)
    sampled = sample_pools(workspace, config, progress)
    require_checkable(sampled["calibration"], config)
    if note := missing_note(sampled, config):
        logging.getLogger("rangeline").warning("note: %s", note)
    judged, asked, flips = judge_pools(sampled, judge, config, progress)
    judge_facts = {"model": config.judge.model, "rubric_sha256": judge.rubric.digest, "digest": judge.model_digest}
    pairs = {pool: (judgments, verdicts.truth_N) for pool, (_, judgments, verdicts) in judged.items()}
    result = fit_calibration(pairs["source"], pairs["calibration"], config.calibrate, config.seed)
    outputs = _write_calibration(workspace.calibration, judged, result)
    outputs |= keep_judge(workspace.calibration, judge, asked, config.judge.limits)
    write_manifest(
        workspace.calibration / MANIFEST_NAME,
        workspace.root,
        kind="calibration",
        inputs=(
            *(workspace.pools / f"{pool}.parquet" for pool in JUDGED_POOLS),
            workspace.root / config.judge.rubric,
        ),
        outputs=outputs,
        parents=(workspace.pools / MANIFEST_NAME, workspace.warmup / MANIFEST_NAME),
        parameters={
            "seed": config.seed,
            **{name: getattr(config, name).model_dump(mode="json") for name in ("sampling", "judge", "calibrate")},
        },
        facts={
            "judge": judge_facts,
            "judge_flips": flips,
            "scorer_sha256": result.scorer.digest,
            "rows": len(result.calibration.truth_C),
            "prompts": len(set(result.calibration.prompt_id_C)),
            "mean_truth": float(result.calibration.truth_C.mean()),
            "unknown_share": {pool: judged[pool][1].unknown_share for pool in JUDGED_POOLS},
            "missing_truth": {pool: int(np.isnan(judged[pool][2].truth_N).sum()) for pool in JUDGED_POOLS},
        },
    )


def _write_calibration(
    folder: Path,
    judged: dict[str, tuple[RolloutSet, JudgmentTable, Verdicts]],
    result: Calibration,
) -> dict[Path, int | None]:
    outputs: dict[Path, int | None] = {}
    for pool, (rollouts, judgments, verdicts) in judged.items():
        write_rollouts(folder / f"{pool}_rollouts.parquet", rollouts)
        write_judgments(folder / f"{pool}_judgments.parquet", judgments)
        write_table(
            folder / f"{pool}_truth.parquet",
            {
                "prompt_id": list(rollouts.prompt_id_N),
                "extracted": list(verdicts.extracted_N),
                "truth": [None if np.isnan(v) else float(v) for v in verdicts.truth_N],
                "reason": list(verdicts.reason_N),
            },
        )
        outputs |= {folder / f"{pool}_{name}.parquet": len(rollouts) for name in ("rollouts", "judgments", "truth")}
    atomic_write(folder / "scorer.ubj", result.scorer.to_bytes())
    write_json(folder / "scale.json", result.residual.to_json())
    write_json(folder / "reliability.json", _reliability(result.calibration))
    return outputs | {folder / name: None for name in ("scorer.ubj", "scale.json", "reliability.json")}


def read_truth(path: Path) -> FloatArray:
    """Read true rewards; NaN where there is none."""
    values = read_table(path)["truth"].to_pylist()
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def source_rows(workspace: Workspace, calibration: Calibration) -> CalibrationSet:
    """Return the source pool's rollouts as scored rows; their scorer has seen them, so they never set a cutoff."""
    truth = read_truth(workspace.calibration / "source_truth.parquet")
    return calibration_rows(calibration.scorer, calibration.scale, calibration.source, truth)


def load_calibration(workspace: Workspace, config: PipelineConfig) -> Calibration:
    """Load what `calibrate` froze.

    Raises
    ------
    CalibrationError
        When calibration has not been made.
    """
    folder = workspace.calibration
    if not (folder / MANIFEST_NAME).is_file():
        msg = f"Calibration must exist before training; got no '{folder / MANIFEST_NAME}'. Run 'rangeline calibrate'."
        raise CalibrationError(msg)
    settings = config.calibrate
    scorer = StateScorer.from_bytes((folder / "scorer.ubj").read_bytes())
    residual = ResidualScale.from_json(json.loads((folder / "scale.json").read_text(encoding="utf-8")))
    scale = _scale(settings, residual)
    judgments = {pool: read_judgments(folder / f"{pool}_judgments.parquet") for pool in JUDGED_POOLS}
    truth = read_truth(folder / "calibration_truth.parquet")
    calibration = calibration_rows(scorer, scale, judgments["calibration"], truth)
    source = _with_truth(judgments["source"], read_truth(folder / "source_truth.parquet"))
    return Calibration(scorer, scale, residual, calibration, source)
