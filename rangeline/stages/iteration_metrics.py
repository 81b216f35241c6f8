"""The numbers of one iteration, gathered from its files; None where a number was not measured."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.stages.adaptation import repair_numbers
from rangeline.stages.overlap import read_findings
from rangeline.stages.quarantine import quarantined, read_silence
from rangeline.stages.tables import read_judgments, read_rollouts, read_table

MEASURED = ("oracle.json", "evaluation.json")
"""Measurements made after the update, which nothing but the metrics reads."""

_COVERAGE = {
    "coverage/empirical": "empirical",
    "coverage/band_lower": "band_lower",
    "coverage/band_upper": "band_upper",
    "coverage/target": "target",
    "interval/mean_width": "mean_width",
    "interval/unbounded_share": "unbounded_share",
}


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _watched(folder: Path) -> dict[str, Any]:
    stored = _read(folder / "monitor.json")
    if not stored:
        return {}
    said = stored["verdict"]
    return {
        "monitor/mean_miss": said["mean_miss"],
        "monitor/miss_lower": said["lower"],
        "monitor/miss_upper": said["upper"],
        "monitor/num_prompts": said["num_prompts"],
        "monitor/drift_log_wealth": stored["drift_log_wealth"],
    }


def _judged(folder: Path) -> dict[str, Any]:
    """Return coverage and overlap; without a judge every one of them is None, for nothing was promised or measured."""
    coverage = _read(folder / "coverage.json")
    numbers: dict[str, Any] = {name: coverage.get(key) for name, key in _COVERAGE.items()}
    if not coverage:
        return {**numbers, "judge/unknown_share": None}
    overlap = _read(folder / "ratio.json")["overlap"]
    numbers |= {f"ratio/{name}": overlap[name] for name in overlap if name not in ("num_source", "num_target")}
    numbers["ratio/broken_rules"] = sum(finding.is_broken for finding in read_findings(folder))
    unknown = read_judgments(folder / "policy_judgments.parquet").unknown_share
    silence = read_silence(folder)
    judged = {
        "judge/unknown_share": unknown,
        "judge/silent_prompts": len(silence),
        "judge/quarantined_prompts": len(quarantined(silence)),
    }
    return {**numbers, **repair_numbers(folder), **_watched(folder), **judged}


def gather_metrics(folder: Path, shares: tuple[str, ...]) -> dict[str, Any]:
    """Return every number of an iteration.

    Parameters
    ----------
    folder
        The iteration's folder, all steps but the manifest done.
    shares
        Shares of prompts that were sampled.
    """
    rollouts = [read_rollouts(folder / f"{share}_rollouts.parquet") for share in shares]
    truth = read_table(folder / "audit_coverage.parquet")["truth"].to_pylist()
    known = [value for value in truth if value is not None]
    update = _read(folder / "update.json")
    return {
        **_judged(folder),
        **_read(folder / "reward.json"),
        **_read(folder / "credit.json"),
        **{name: value for path in MEASURED for name, value in _read(folder / path).items()},
        **{f"policy/{name}": value for name, value in update.items() if name != "skipped"},
        "train/accuracy": float(np.mean(known)) if known else None,
        "budget/rollouts": sum(len(item) for item in rollouts),
        "budget/tokens": sum(len(ids) for item in rollouts for ids in item.token_ids_N),
    }
