"""The labelled rollouts of calibration, judged anew by any judge: what a reliability report is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from rangeline.errors import CalibrationError
from rangeline.lineage import MANIFEST_NAME
from rangeline.records import FloatArray, JudgmentTable, RolloutSet
from rangeline.stages.calibration import read_truth
from rangeline.stages.calibration_rollouts import JUDGED_POOLS
from rangeline.stages.data import read_pool
from rangeline.stages.judging import FrozenJudge, judge_all, verify_rollouts
from rangeline.stages.progress import Progress
from rangeline.stages.tables import read_rollouts
from rangeline.stages.workspace import Workspace

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRollouts:
    """Rollouts with a truth, as a judge sees and judges them."""

    rollouts: RolloutSet
    table: JudgmentTable
    truth_N: FloatArray
    shown_N: list[tuple[str, str, str]]


def labelled_rollouts(workspace: Workspace, judge: FrozenJudge, progress: Progress, limit: int) -> LabelledRollouts:
    """Judge the labelled rollouts that calibration made, at most `limit` of them.

    Raises
    ------
    CalibrationError
        When there are none.
    """
    folder = workspace.calibration
    if not (folder / MANIFEST_NAME).is_file():
        msg = (
            f"Labelled rollouts must exist for a report; got no '{folder / MANIFEST_NAME}'. Run 'rangeline calibrate'."
        )
        raise CalibrationError(msg)
    parts = [
        (read_rollouts(folder / f"{pool}_rollouts.parquet"), read_truth(folder / f"{pool}_truth.parquet"))
        for pool in JUDGED_POOLS
    ]
    prompts = {row.prompt_id: row for pool in JUDGED_POOLS for row in read_pool(workspace, pool)}
    rollouts = _joined([part[0] for part in parts])
    truth_N = np.concatenate([part[1] for part in parts])
    keep = _whole_prompts(rollouts.prompt_id_N, limit)
    rollouts, truth_N = _rows(rollouts, keep), truth_N[keep]
    verdicts = verify_rollouts(rollouts, prompts)
    table = judge_all(judge, rollouts, prompts, verdicts, progress, "judge labelled rollouts")
    return LabelledRollouts(rollouts, table, truth_N, judge.shown(rollouts, prompts, verdicts))


def _joined(parts: Sequence[RolloutSet]) -> RolloutSet:
    names = [name for name in RolloutSet.__dataclass_fields__ if name.endswith("_N")]
    columns = {name: tuple(value for part in parts for value in getattr(part, name)) for name in names}
    return RolloutSet(**columns, policy_version=parts[0].policy_version)


def _rows(rollouts: RolloutSet, keep: Sequence[int]) -> RolloutSet:
    names = [name for name in RolloutSet.__dataclass_fields__ if name.endswith("_N")]
    columns: dict[str, Any] = {name: tuple(getattr(rollouts, name)[i] for i in keep) for name in names}
    return replace(rollouts, **columns)


def _whole_prompts(prompt_id_N: Sequence[str], limit: int) -> list[int]:
    """Return the rows of prompts, spread evenly over all of them, as long as they fit; one prompt always does."""
    rows_of: dict[str, list[int]] = {}
    for i, prompt_id in enumerate(prompt_id_N):
        rows_of.setdefault(prompt_id, []).append(i)
    largest = max(map(len, rows_of.values()), default=1)
    chosen = spread(list(rows_of), max(limit // largest, 1))
    return sorted(i for prompt_id in chosen for i in rows_of[prompt_id])


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Return up to `count` items, spread evenly."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]
