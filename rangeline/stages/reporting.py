"""Report stage: gather one run's files into a summary, and write its page and its numbers."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rangeline.evaluation.comparison import PairedDifference
from rangeline.evaluation.report import render_report
from rangeline.evaluation.report_words import summary_table
from rangeline.evaluation.run_summary import (
    CalibrationRow,
    DomainEvaluation,
    ExpectationOutcome,
    LineageEntry,
    RunSummary,
    Transcript,
    TranscriptRollout,
    Verdict,
)
from rangeline.evaluation.sampling_metrics import Estimate
from rangeline.lineage import MANIFEST_NAME, atomic_write, read_manifest, write_json
from rangeline.prompts.duplicates import text_of
from rangeline.records import UNKNOWN, JudgmentTable, PromptRow
from rangeline.stages.data import read_pool
from rangeline.stages.judging import verify_rollouts
from rangeline.stages.overlap import OVERLAP_NAME, read_findings
from rangeline.stages.run import RunFolder, last_complete, read_run
from rangeline.stages.tables import read_intervals, read_judgments, read_rollouts, read_table
from rangeline.stages.workspace import Workspace

_TRANSCRIPT_PROMPTS = 4
"""Prompts shown of an iteration: enough to browse, few enough for a small page."""


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _estimate(values: Mapping[str, Any]) -> Estimate:
    return Estimate(**values["average"])


def evaluations_of(
    before: Mapping[str, Any], after: Mapping[str, Any], paired: Mapping[str, PairedDifference]
) -> tuple[DomainEvaluation, ...]:
    """Put two evaluations side by side, domain by domain."""
    return tuple(
        DomainEvaluation(
            domain=domain,
            num_prompts=values["num_prompts"],
            before=_estimate(values),
            after=_estimate(after[domain]) if domain in after else None,
            paired=paired.get(domain),
        )
        for domain, values in before.items()
    )


def _state(judgments: JudgmentTable, row: int) -> str:
    if judgments.missing_N[row]:
        return "no judgment"
    levels = zip(judgments.coordinates, judgments.levels_NK[row], strict=True)
    return ", ".join(f"{name} {'UNKNOWN' if level == UNKNOWN else int(level)}" for name, level in levels)


def _transcripts(workspace: Workspace, folder: Path, number: int, rows: Mapping[str, PromptRow]) -> list[Transcript]:
    rollouts = read_rollouts(folder / "policy_rollouts.parquet")
    intervals = read_intervals(folder / "policy_intervals.parquet")
    judged = folder / "policy_judgments.parquet"
    judgments = read_judgments(judged) if judged.is_file() else None
    credit = read_table(folder / "advantages.parquet")
    advantage, midpoint = credit["advantage"].to_pylist(), credit["midpoint"].to_pylist()
    truth = verify_rollouts(rollouts, rows).truth_N
    # Problems that their owners keep private are in no page.
    known = dict.fromkeys(rollouts.prompt_id_N)
    shown = [prompt_id for prompt_id in known if not rows[prompt_id].metadata.get("private")][:_TRANSCRIPT_PROMPTS]
    result = []
    for prompt_id in shown:
        members = [i for i, owner in enumerate(rollouts.prompt_id_N) if owner == prompt_id]
        row = rows[prompt_id]
        result.append(
            Transcript(
                prompt=text_of(row),
                reference=row.reference,
                iteration=number,
                rollouts=tuple(
                    TranscriptRollout(
                        completion=rollouts.completion_N[i],
                        state="not judged" if judgments is None else _state(judgments, i),
                        lower=None if intervals.missing_N[i] else float(intervals.lower_N[i]),
                        upper=None if intervals.missing_N[i] else float(intervals.upper_N[i]),
                        advantage=advantage[i],
                        midpoint_advantage=midpoint[i],
                        verdict=_verdict(row, float(truth[i])),
                        finish=rollouts.finish_reason_N[i],
                    )
                    for i in members
                ),
            )
        )
    return result


def _verdict(row: PromptRow, truth: float) -> Verdict:
    if row.reference is None:
        return "unlabelled"
    if math.isnan(truth):
        return "missing"
    return "right" if truth == 1 else "wrong"


def _iterations(run: RunFolder, done: int) -> tuple[dict[str, Any], ...]:
    rows = []
    for number in range(1, done + 1):
        folder = run.iteration(number)
        timings = folder / "timings.json"
        rows.append(
            {
                "iteration": number,
                "status": _alarm_state(folder),
                **_json(folder / "metrics.json"),
                **(_json(timings) if timings.is_file() else {}),
            }
        )
    return tuple(rows)


def _alarm_state(folder: Path) -> str:
    """Return what the run said at an iteration; without a monitor, what the iteration said by itself."""
    if (path := folder / "monitor.json").is_file():
        return str(_json(path)["alarm_state"])
    path = folder / "coverage.json"
    return str(_json(path)["status"]) if path.is_file() else "not_measured"


def _expectations(run: RunFolder, done: int) -> tuple[ExpectationOutcome, ...]:
    outcomes = []
    for number in range(1, done + 1):
        path = run.iteration(number) / "expectations" / "result.json"
        if path.is_file():
            value = _json(path)
            broken = [*value["failed"], *value.get("warned", [])]
            outcomes.append(
                ExpectationOutcome(
                    name=f"coverage gate, iteration {number}",
                    success=bool(value["success"]),
                    detail="; ".join(broken) if broken else "every expectation met",
                )
            )
        outcomes += _overlap_outcomes(run.iteration(number), number)
    return tuple(outcomes)


def _overlap_outcomes(folder: Path, number: int) -> list[ExpectationOutcome]:
    """Return each broken overlap rule of an iteration with its value, limit and consequence, or that none is."""
    if not (folder / OVERLAP_NAME).is_file():
        return []
    stored = _json(folder / OVERLAP_NAME)
    name = f"overlap, iteration {number}"
    if not stored["weighted"]:
        return [ExpectationOutcome(name=name, success=None, detail="fresh labels: no density ratio is used")]
    broken = [finding for finding in read_findings(folder) if finding.is_broken]
    if not broken:
        return [ExpectationOutcome(name=name, success=True, detail="every overlap rule holds")]
    widened = sum(stored["widened"].values())
    end = f" {widened} intervals were widened to the whole support." if widened else ""
    return [
        ExpectationOutcome(
            name=name,
            success=not any(finding.is_critical for finding in broken),
            detail=" ".join(finding.sentence for finding in broken) + end,
        )
    ]


def _lineage(workspace: Workspace, run: RunFolder, done: int) -> tuple[LineageEntry, ...]:
    entries = []
    made = [name for name in ("calibration",) if (workspace.calibration / MANIFEST_NAME).is_file()]
    for name in ("prompts", "pools", "warmup", *made):
        manifest = read_manifest(getattr(workspace, name) / MANIFEST_NAME)
        entries += [LineageEntry(kind=name, path=ref.path, sha256=ref.sha256) for ref in manifest.outputs]
    if done:
        manifest = read_manifest(run.iteration(done) / MANIFEST_NAME)
        entries += [
            LineageEntry(kind=f"iteration {done}", path=ref.path, sha256=ref.sha256) for ref in manifest.outputs
        ]
    return tuple(entries)


def _rewards_text(config: Mapping[str, Any]) -> str:
    source = config.get("reward", {}).get("source", "judge_interval")
    if source == "judge_interval":
        return f"judge intervals at alpha {config['intervals']['alpha']}"
    return f"{source.replace('_', ' ')} rewards"


def _reliability(workspace: Workspace) -> list[dict[str, Any]]:
    path = workspace.calibration / "reliability.json"
    return list(_json(path)) if path.is_file() else []


def summarise(workspace: Workspace, run: RunFolder, evaluations: tuple[DomainEvaluation, ...]) -> RunSummary:
    """Gather what a run left into the record that its page shows."""
    done, _ = last_complete(run)
    started = read_run(run)
    config = started["config"]
    rows = {row.prompt_id: row for pool in ("policy", "warmup") for row in read_pool(workspace, pool)}
    iterations = _iterations(run, done)
    shown = sorted({1, done}) if done else []
    card = {
        f"{section}.{name}": value
        for section in (
            "policy",
            "sampling",
            "judge",
            "intervals",
            "reward",
            "advantages",
            "objective",
            "train",
            "coverage",
        )
        for name, value in config[section].items()
    }
    card |= {
        f"overlap.{name}": f"{rule['limit']:g}, else {rule['consequence']}"
        for name, rule in config.get("overlap", {}).items()
    }
    totals = ("budget/rollouts", "budget/tokens", "budget/judge_calls")
    return RunSummary(
        run_name=run.name,
        description=(
            f"{config['policy']['model']} trained for {done} iterations with {config['advantages']['estimator']} "
            f"advantages from {_rewards_text(config)}"
        ),
        run_card={"identity": started["identity"], "seed": config["seed"], **card},
        evaluations=evaluations,
        iterations=iterations,
        calibration=tuple(
            CalibrationRow(
                label=f"score {row['predicted']:.3f}",
                predicted=row["predicted"],
                observed=row["observed"],
                count=row["count"],
            )
            for row in _reliability(workspace)
        ),
        expectations=_expectations(run, done),
        transcripts=tuple(
            item for number in shown for item in _transcripts(workspace, run.iteration(number), number, rows)
        ),
        lineage=_lineage(workspace, run, done),
        budget={
            name.removeprefix("budget/"): sum(row[name] for row in iterations)
            for name in totals
            if all(name in r for r in iterations)
        },
        confidence=config["evaluate"]["confidence"],
        band_confidence=config["coverage"]["confidence"],
    )


def write_report(
    workspace: Workspace, run: RunFolder, evaluations: tuple[DomainEvaluation, ...]
) -> tuple[Path, list[tuple[str, str]]]:
    """Write `report.html` and `report.json` of a run; return the page's path and the closing table."""
    summary = summarise(workspace, run, evaluations)
    page = run.root / "report.html"
    atomic_write(page, render_report(summary))
    table = summary_table(summary)
    write_json(
        run.root / "report.json",
        {
            "run": run.name,
            "table": dict(table),
            "iterations": list(summary.iterations),
            "evaluations": [asdict(item) for item in summary.evaluations],
        },
    )
    return page, table
