"""Evidence over the whole run: a sequential monitor of misses, and a martingale that sees drift of the truth itself.

Both take in a prompt once, when the run audits it for the first time: a prompt that comes back is no new evidence,
and would break the false-alarm rate that they promise. Their states lie in each iteration's `monitor.json`, so that a
resumed run goes on bit for bit. A recalibration starts them anew, since it makes another promise.
"""

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from rangeline.conformal.coverage import AlarmState, alarm_state, covered_N
from rangeline.conformal.drift import DriftState, start_drift, update_drift
from rangeline.conformal.misses import missed_by_prompt
from rangeline.conformal.monitor import MonitorState, start_monitor, update, verdict
from rangeline.lineage import write_json
from rangeline.records import CoverageReport
from rangeline.stages.calibration import Calibration, read_truth
from rangeline.stages.iteration import Iteration
from rangeline.stages.overlap import read_findings
from rangeline.stages.tables import read_intervals, read_judgments


def _before(iteration: Iteration, calibration: Calibration) -> tuple[MonitorState, DriftState, list[str]]:
    """Return the states that the iteration before left, or fresh ones at the start and after a recalibration."""
    former = iteration.run.iteration(iteration.number - 1)
    if (former / "monitor.json").is_file() and not (former / "recalibration.parquet").is_file():
        stored = json.loads((former / "monitor.json").read_text(encoding="utf-8"))
        return MonitorState.from_json(stored["monitor"]), DriftState.from_json(stored["drift"]), stored["seen"]
    gate = iteration.config.coverage
    return (
        start_monitor(alpha=iteration.config.intervals.alpha, delta=gate.false_alarm_rate, tolerance=gate.tolerance),
        start_drift(calibration.calibration, delta=gate.false_alarm_rate, seed=iteration.config.seed),
        # Fresh calibration rows are audits: their prompts are known, and no evidence when they come back.
        sorted(set(calibration.calibration.prompt_id_C)) if calibration.is_fresh else [],
    )


def watch(iteration: Iteration, calibration: Calibration, report: CoverageReport) -> AlarmState:
    """Take in the audit share of one iteration; write `monitor.json` and return the run's alarm state.

    Parameters
    ----------
    iteration
        With its audit share judged, bounded and compared with the truth.
    calibration
        What its intervals came from.
    report
        Its own coverage report.

    Returns
    -------
    AlarmState
        One of covered, under_coverage, over_coverage, no_overlap, concept_drift, too_little_evidence.
    """
    folder = iteration.folder
    intervals = read_intervals(folder / "audit_intervals.parquet")
    levels = read_judgments(folder / "audit_judgments.parquet").levels_NK
    truth = read_truth(folder / "audit_coverage.parquet")
    monitor, drift, seen = _before(iteration, calibration)
    known = set(seen)
    covered, valid = covered_N(intervals, truth)
    new_N = valid & np.array([prompt_id not in known for prompt_id in intervals.prompt_id_N], dtype=bool)
    missed, ids = missed_by_prompt(covered, new_N, intervals.prompt_id_N)
    if ids:
        monitor = update(monitor, missed, prompt_id_P=ids)
        rows = np.flatnonzero(new_N)
        score = calibration.scorer.score(levels[rows])
        drift = update_drift(
            drift,
            [intervals.prompt_id_N[i] for i in rows],
            iteration=iteration.number,
            levels_NK=levels[rows],
            nonconformity_N=np.abs(score - truth[rows]) / calibration.scale.of(score, levels[rows]),
        )
    said = verdict(monitor)
    state = alarm_state(
        report.status,
        said.status,
        drift_alarm=drift.alarm,
        no_overlap=any(finding.is_critical for finding in read_findings(folder)),
    )
    content: dict[str, Any] = {
        "alarm_state": state,
        "monitor": monitor.to_json(),
        "drift": drift.to_json(),
        "seen": sorted(known | set(ids)),
        "verdict": asdict(said),
        "drift_alarm": drift.alarm,
        "drift_log_wealth": drift.log_wealth,
    }
    write_json(folder / "monitor.json", content)
    return state
