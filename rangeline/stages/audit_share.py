"""The audit share of an iteration: its intervals against the truth, which nothing but coverage is learned from."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from rangeline.config import PipelineConfig
from rangeline.conformal.coverage import coverage_report, covered_N
from rangeline.lineage import write_json
from rangeline.records import CoverageReport, PromptRow
from rangeline.stages.adaptation import learn
from rangeline.stages.judging import verify_rollouts
from rangeline.stages.tables import read_intervals, read_rollouts, read_table, write_table


def cover_audit(
    folder: Path, config: PipelineConfig, rows: Mapping[str, PromptRow], *, ess_share: float
) -> CoverageReport:
    """Compare the audit share's intervals with the truth; write `coverage.json` and a row a rollout.

    Parameters
    ----------
    folder
        The iteration's folder, its audit share bounded.
    config
        With the promised level and the gate's limits.
    rows
        The audited prompts by id, with references.
    ess_share
        Effective sample size over calibration rows, which the report carries.
    """
    rollouts = read_rollouts(folder / "audit_rollouts.parquet")
    intervals = read_intervals(folder / "audit_intervals.parquet")
    truth = verify_rollouts(rollouts, rows).truth_N
    gate = config.coverage
    report = coverage_report(
        intervals,
        truth,
        alpha=config.intervals.alpha,
        confidence=gate.confidence,
        ess_share=ess_share,
        min_rows=gate.min_rows,
        min_prompts=gate.min_prompts,
        seed=config.seed,
    )
    covered, valid = covered_N(intervals, truth)
    if config.intervals.adapt != "none":
        # A rule's wide interval misses nothing at any level: taken in, it would raise the level for nothing.
        table = read_table(folder / "audit_intervals.parquet")
        told = np.array(table["widened"].to_pylist() if "widened" in table.column_names else False)
        learn(folder, covered, valid & ~told, intervals.prompt_id_N, rate=config.intervals.adapt_rate)
    no_interval = intervals.missing_N
    write_table(
        folder / "audit_coverage.parquet",
        {
            "prompt_id": list(rollouts.prompt_id_N),
            "truth": [None if math.isnan(value) else float(value) for value in truth],
            "covered": [bool(c) if v else None for c, v in zip(covered, valid, strict=True)],
            "width": [None if m else float(2 * h) for m, h in zip(no_interval, intervals.half_width_N, strict=True)],
            "unbounded": [None if m else bool(u) for m, u in zip(no_interval, intervals.unbounded_N, strict=True)],
            "missing": [not bool(v) for v in valid],
        },
    )
    write_json(folder / "coverage.json", asdict(report))
    return report


def check_audit(folder: Path, rows: Mapping[str, PromptRow]) -> None:
    """Verify an audit share that has no intervals, and write its truth; no `coverage.json` is made then."""
    rollouts = read_rollouts(folder / "audit_rollouts.parquet")
    truth = verify_rollouts(rollouts, rows).truth_N
    columns = {
        "prompt_id": list(rollouts.prompt_id_N),
        "truth": [None if math.isnan(value) else float(value) for value in truth],
    }
    write_table(folder / "audit_coverage.parquet", columns)
