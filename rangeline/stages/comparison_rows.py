"""The numbers that a comparison keeps of one iteration, some of them from the truth, read after the fact."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.conformal.coverage import covered_N
from rangeline.evaluation.comparison_statistics import count_flips
from rangeline.lineage import digest_file, digest_json
from rangeline.records import FloatArray, RewardIntervals, RolloutSet
from rangeline.stages.calibration import read_truth
from rangeline.stages.data import read_world
from rangeline.stages.iteration import SHARES, Iteration
from rangeline.stages.judging import verify_rollouts
from rangeline.stages.oracle import true_rewards
from rangeline.stages.tables import read_intervals, read_rollouts, read_table

JUDGED = "judged_intervals.parquet"
"""Where the judge's intervals of the policy share lie when a method trains on other rewards."""


def policy_truth(iteration: Iteration, rollouts: RolloutSet) -> FloatArray | None:
    """Return the true reward of every policy rollout, NaN where not known; None where none is known.

    A word world knows all of them; elsewhere only the labelled prompts that the settings mix in have one.
    """
    if iteration.workspace.world.is_file():
        return true_rewards(read_world(iteration.workspace), iteration, "policy", rollouts)
    truth = verify_rollouts(rollouts, {row.prompt_id: row for row in iteration.rows["policy"]}).truth_N
    return truth if np.isfinite(truth).any() else None


def coverage_counts(intervals: RewardIntervals, truth_N: FloatArray | None) -> dict[str, float | int | None]:
    """Return how many rollouts had an interval and a truth, and how many of these were covered; widths over all.

    Returns
    -------
    dict
        `num_covered`, `num_judged` (both None where no truth is known), `mean_width` and `unbounded_share` over the
        rollouts that have an interval (None where none has).
    """
    present = ~intervals.missing_N
    counts: dict[str, float | int | None] = {
        "num_covered": None,
        "num_judged": None,
        "mean_width": float(2 * intervals.half_width_N[present].mean()) if present.any() else None,
        "unbounded_share": float(intervals.unbounded_N[present].mean()) if present.any() else None,
    }
    if truth_N is not None:
        covered, valid = covered_N(intervals, truth_N)
        counts |= {"num_covered": int(covered.sum()), "num_judged": int(valid.sum())}
    return counts


def row_of(iteration: Iteration) -> dict[str, Any]:
    """Return the numbers of one iteration: those it measured itself, and, after the fact, those of the truth."""
    folder, metrics = iteration.folder, iteration.metrics()
    rollouts = read_rollouts(folder / "policy_rollouts.parquet")
    truth = policy_truth(iteration, rollouts)
    judged = folder / JUDGED
    intervals = read_intervals(judged if judged.is_file() else folder / "policy_intervals.parquet")
    row: dict[str, Any] = {
        "audit": coverage_counts(
            read_intervals(folder / "audit_intervals.parquet"), read_truth(folder / "audit_coverage.parquet")
        ),
        "audit_band": [metrics["coverage/band_lower"], metrics["coverage/band_upper"]],
        "audit_reward": metrics["train/accuracy"],
        "policy": coverage_counts(intervals, truth),
        "ess_share": metrics["ratio/ess_share"],
        "rms": metrics["advantage/rms"],
        "midpoint_rms": metrics["advantage/midpoint_rms"],
        "scale": metrics["advantage/scale"],
        "pair_weight": metrics["advantage/median_pair_weight"],
        "flips": _flips(folder, truth, rollouts),
        "rollouts": {share: read_table(folder / f"{share}_rollouts.parquet").num_rows for share in SHARES},
    }
    if iteration.number == 1:
        row["rollouts_sha256"] = digest_json([digest_file(folder / f"{share}_rollouts.parquet") for share in SHARES])
    return row


def _flips(folder: Path, truth: FloatArray | None, rollouts: RolloutSet) -> dict[str, int | None]:
    credit = read_table(folder / "advantages.parquet")
    value, midpoint = (np.asarray(credit[name].to_numpy(), dtype=np.float64) for name in ("advantage", "midpoint"))
    return asdict(count_flips(value, midpoint, truth, rollouts.prompt_id_N))
