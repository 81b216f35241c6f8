"""Overlap of one iteration held against the rules of the configuration: what was found, and what was widened.

The outcome lies in the iteration's `overlap.json`. Intervals of a fresh calibration use no density ratio; for them
nothing of overlap can break, and the file says so.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.config import OverlapConfig
from rangeline.conformal.density_ratio import DensityRatio
from rangeline.conformal.overlap_rules import concerned_N, judge_overlap, widen
from rangeline.lineage import write_json
from rangeline.records import JudgmentTable, OverlapFinding, OverlapReport, RewardIntervals
from rangeline.stages.tables import read_judgments

OVERLAP_NAME = "overlap.json"


def _write(folder: Path, findings: tuple[OverlapFinding, ...], widened: Mapping[str, int], *, weighted: bool) -> None:
    content: dict[str, Any] = {
        "weighted": weighted,
        "findings": [{**asdict(finding), "is_broken": finding.is_broken} for finding in findings],
        "widened": dict(widened),
    }
    write_json(folder / OVERLAP_NAME, content)


def write_unweighted(folder: Path) -> None:
    """Write down that the iteration's intervals use no density ratio."""
    _write(folder, (), {}, weighted=False)


def apply_rules(
    folder: Path, settings: OverlapConfig, source: JudgmentTable, intervals: Mapping[str, RewardIntervals]
) -> dict[str, RewardIntervals]:
    """Hold the iteration's overlap against the rules; write `overlap.json` and return the intervals that follow.

    Parameters
    ----------
    folder
        Of the iteration, with its `ratio.json` and judgments.
    settings
        Limits and consequences.
    source
        Source states of the ratio.
    intervals
        By share of prompts; those of `policy` give the unbounded share.

    Returns
    -------
    dict
        The intervals, widened where a broken rule says so.
    """
    stored = json.loads((folder / "ratio.json").read_text(encoding="utf-8"))
    ratio, policy = DensityRatio.from_json(stored["ratio"]), intervals["policy"]
    unbounded = policy.unbounded_N[~policy.missing_N]
    findings = judge_overlap(
        OverlapReport(**stored["overlap"]),
        unbounded_share=float(unbounded.mean()) if len(unbounded) else None,
        rules={name: (rule.limit, rule.consequence) for name, rule in settings},
    )
    source_SK = source.levels_NK[~source.missing_N]
    result, widened = {}, {}
    for share, given in intervals.items():
        levels = read_judgments(folder / f"{share}_judgments.parquet").levels_NK
        concerned = concerned_N(findings, levels, source_SK=source_SK, clipped_N=ratio.clipped_N(levels))
        result[share] = widen(given, concerned)
        widened[share] = int(np.count_nonzero(concerned & ~given.missing_N))
    _write(folder, findings, widened, weighted=True)
    return result


def read_findings(folder: Path) -> tuple[OverlapFinding, ...]:
    """Read what the rules of an iteration found; empty where its intervals use no density ratio."""
    stored = json.loads((folder / OVERLAP_NAME).read_text(encoding="utf-8"))
    known = OverlapFinding.__dataclass_fields__
    return tuple(OverlapFinding(**{name: row[name] for name in known}) for row in stored["findings"])
