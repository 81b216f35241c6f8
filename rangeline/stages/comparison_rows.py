"""The numbers that a comparison keeps of one iteration: those that its own files hold, put side by side."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rangeline.conformal.coverage import covered_N
from rangeline.lineage import digest_file, digest_json
from rangeline.records import FloatArray, RewardIntervals
from rangeline.stages.calibration import read_truth
from rangeline.stages.iteration import SHARES, Iteration
from rangeline.stages.iteration_manifest import JUDGED
from rangeline.stages.tables import read_intervals, read_table

_UNPROMISED = dict.fromkeys(("num_covered", "num_judged", "mean_width", "unbounded_share"))


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
    """Return the numbers of one closed iteration.

    Those of the truth of policy rollouts are what the oracle left; None where there is no oracle. Where no judge is
    asked nothing is promised: coverage, widths and overlap are None, and the ratio share drew no rollouts.
    """
    folder, metrics = iteration.folder, iteration.metrics()
    row: dict[str, Any] = {
        **_promised(iteration, metrics),
        "audit_reward": metrics["train/accuracy"],
        "rms": metrics["advantage/rms"],
        "midpoint_rms": metrics["advantage/midpoint_rms"],
        "scale": metrics["advantage/scale"],
        "pair_weight": metrics["advantage/median_pair_weight"],
        "flips": {
            "num_credited": _num_credited(folder),
            "num_flips": metrics["advantage/sign_flips"],
            "num_agree": metrics.get("oracle/flips_right"),
            "num_disagree": metrics.get("oracle/flips_wrong"),
        },
        "rollouts": {
            share: pq.read_metadata(folder / f"{share}_rollouts.parquet").num_rows if share in iteration.shares else 0
            for share in SHARES
        },
    }
    if iteration.number == 1:
        drawn = [digest_file(folder / f"{share}_rollouts.parquet") for share in iteration.shares]
        row["rollouts_sha256"] = digest_json(drawn)
    return row


def _promised(iteration: Iteration, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return what calibrated intervals alone have; all of it None without a judge."""
    if not iteration.plan.needs_judge:
        return {"audit": dict(_UNPROMISED), "audit_band": [None, None], "policy": dict(_UNPROMISED), "ess_share": None}
    folder = iteration.folder
    judged = folder / JUDGED
    intervals = read_intervals(judged if judged.is_file() else folder / "policy_intervals.parquet")
    policy = coverage_counts(intervals, None)
    policy |= {name: metrics.get(f"oracle/{name}") for name in ("num_covered", "num_judged")}
    audit = read_intervals(folder / "audit_intervals.parquet")
    return {
        "audit": coverage_counts(audit, read_truth(folder / "audit_coverage.parquet")),
        "audit_band": [metrics["coverage/band_lower"], metrics["coverage/band_upper"]],
        "policy": policy,
        "ess_share": metrics["ratio/ess_share"],
    }


def _num_credited(folder: Path) -> int:
    credit = read_table(folder / "advantages.parquet")
    both = np.asarray(credit["advantage"].to_numpy()) * np.asarray(credit["midpoint"].to_numpy())
    return int((both != 0).sum())
