"""Repair of coverage along a run: what the audits of earlier iterations say about the intervals of this one.

An iteration's intervals use audits of iterations before it, never its own, and a prompt that was audited before is
bounded without its own rows, so that coverage is measured on prompts that had no part in their intervals. Everything is
read from the folders of earlier iterations: a resumed run repeats every byte. A recalibration starts the repair anew,
since its calibration set is those very audits.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeline.config import IntervalConfig
from rangeline.conformal.adaptive import (
    AdaptiveLevel,
    BlendedCalibration,
    blend,
    leave_out,
    start_level,
    update_level,
    without_prompts,
)
from rangeline.conformal.density_ratio import DensityRatio
from rangeline.conformal.intervals import CalibrationSet
from rangeline.conformal.misses import missed_by_prompt
from rangeline.lineage import write_json
from rangeline.records import BoolArray, JudgmentTable, RewardIntervals
from rangeline.rewards.judge_interval import judge_intervals
from rangeline.rewards.source import assemble_intervals, take_intervals
from rangeline.stages.calibration import Calibration, calibration_rows, read_truth
from rangeline.stages.run import RunFolder
from rangeline.stages.tables import read_judgments

_FILE = "adaptation.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What the intervals of one iteration are made from."""

    level: AdaptiveLevel
    blended: BlendedCalibration

    @property
    def numbers(self) -> dict[str, Any]:
        """Numbers worth logging."""
        recent = self.blended.rows.prompt_id_C[len(self.blended.rows) - self.blended.num_recent :]
        return {
            "interval/level": self.level.alpha,
            "interval/window_rows": self.blended.num_recent,
            "interval/window_prompts": len(set(recent)),
        }


def _recalibrated(run: RunFolder, number: int) -> bool:
    return (run.iteration(number) / "recalibration.parquet").is_file()


def _level(run: RunFolder, number: int, alpha: float) -> AdaptiveLevel:
    former = run.iteration(number - 1) / _FILE
    if _recalibrated(run, number) or _recalibrated(run, number - 1) or not former.is_file():
        return start_level(alpha)
    return AdaptiveLevel.from_json(json.loads(former.read_text(encoding="utf-8"))["next"])


def _first_of_window(run: RunFolder, number: int, length: int) -> int:
    first = number
    if not _recalibrated(run, number):
        while first > max(1, number - length) and not _recalibrated(run, first - 1):
            first -= 1
    return first


def audited_rows(run: RunFolder, numbers: Iterable[int], calibration: Calibration) -> list[CalibrationSet]:
    """Return the audited rollouts of earlier, finished iterations as scored rows, a set an iteration."""
    parts: list[CalibrationSet] = []
    for earlier in numbers:
        folder = run.iteration(earlier)
        if folder not in calibration.audited:
            judgments, truth = (
                read_judgments(folder / "audit_judgments.parquet"),
                read_truth(folder / "audit_coverage.parquet"),
            )
            rows = calibration_rows(calibration.scorer, calibration.scale, judgments, truth)
            calibration.audited[folder] = rows
        parts.append(calibration.audited[folder])
    return parts


def repair_of(
    run: RunFolder,
    number: int,
    calibration: Calibration,
    ratio: DensityRatio | None,
    *,
    settings: IntervalConfig,
    audited: Collection[str],
) -> Repair:
    """Gather level and calibration rows of one iteration from the iterations before it.

    Parameters
    ----------
    run, number
        The run and the iteration whose intervals are to be made.
    calibration, ratio
        What was frozen, and the density ratio of this iteration's policy to it; None where the rows are its own.
    settings
        With `adapt` none, the promised level and the frozen rows alone.
    audited
        Prompts that this iteration audits; earlier rollouts of theirs are left out, so that none helps to bound itself.

    Returns
    -------
    Repair
        Of iterations since the last recalibration only.
    """
    if settings.adapt == "none":
        return Repair(
            level=start_level(settings.alpha), blended=blend(calibration.calibration, [], ratio=ratio, discount=1.0)
        )
    window = range(_first_of_window(run, number, settings.adapt_window), number)
    parts = [without_prompts(part, audited) for part in audited_rows(run, window, calibration)]
    return Repair(
        level=_level(run, number, settings.alpha),
        blended=blend(calibration.calibration, parts, ratio=ratio, discount=settings.adapt_discount),
    )


def bound_states(judgments: JudgmentTable, calibration: Calibration, repair: Repair) -> RewardIntervals:
    """Bound the reward of every judged rollout by the calibration rows of all prompts but its own.

    After a recalibration the calibration rows are audits, whose prompts may be audited again.
    """

    def bounded(blended: BlendedCalibration) -> RewardIntervals:
        return judge_intervals(
            judgments,
            scorer=calibration.scorer,
            scale=calibration.scale,
            ratio=blended.ratio,
            calibration=blended.rows,
            alpha=repair.level.alpha,
            log_discount_C=blended.log_discount_C,
        )

    whole, own = bounded(repair.blended), set(repair.blended.rows.prompt_id_C)
    rows_of: dict[str, list[int]] = {}
    for i, prompt_id in enumerate(judgments.prompt_id_N):
        rows_of.setdefault(prompt_id if prompt_id in own else "", []).append(i)
    parts = [
        (rows, take_intervals(bounded(leave_out(repair.blended, prompt_id)) if prompt_id else whole, rows))
        for prompt_id, rows in rows_of.items()
    ]
    return assemble_intervals(judgments.prompt_id_N, parts) if own & set(rows_of) else whole


def keep_repair(folder: Path, repair: Repair) -> None:
    """Write what an iteration's intervals were made from; `learn` adds what comes next."""
    write_json(folder / _FILE, {"used": repair.level.to_json(), "numbers": repair.numbers})


def learn(folder: Path, covered_N: BoolArray, valid_N: BoolArray, prompt_id_N: tuple[str, ...], *, rate: float) -> None:
    """Move the level by the misses of an iteration's own audit, measured on intervals that did not know it."""
    stored = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    missed, _ = missed_by_prompt(covered_N, valid_N, prompt_id_N)
    moved = update_level(AdaptiveLevel.from_json(stored["used"]), missed, rate=rate)
    write_json(folder / _FILE, {**stored, "next": moved.to_json()})


def repair_numbers(folder: Path) -> dict[str, Any]:
    """Return the logged numbers of an iteration; empty where nothing was adapted."""
    path = folder / _FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))["numbers"]) if path.is_file() else {}
