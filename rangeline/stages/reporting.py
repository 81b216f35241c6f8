"""Report stage: gather one run's files into a summary, and write its page and its numbers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeline.config import PipelineConfig, build_config
from rangeline.errors import ConfigError
from rangeline.evaluation.comparison import PairedDifference
from rangeline.evaluation.report import render_report
from rangeline.evaluation.report_words import summary_table
from rangeline.evaluation.run_summary import (
    CalibrationRow,
    DomainEvaluation,
    ExpectationOutcome,
    LineageEntry,
    RunSummary,
)
from rangeline.evaluation.sampling_metrics import Estimate
from rangeline.lineage import MANIFEST_NAME, atomic_write, read_manifest
from rangeline.stages.data import read_pool
from rangeline.stages.overlap import OVERLAP_NAME, read_findings
from rangeline.stages.report_card import key_card
from rangeline.stages.report_files import write_numbers
from rangeline.stages.report_measures import Judged, calibration_points, judged_by, measure
from rangeline.stages.report_transcripts import shown_iterations, transcripts_of
from rangeline.stages.run import RunFolder, last_complete, read_run
from rangeline.stages.tables import read_table
from rangeline.stages.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    numbers: tuple[dict[str, float | None], ...] = ()
    """Of each iteration."""
    points: tuple[CalibrationRow, ...] = ()
    notes: tuple[str, ...] = ()


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


def _settings(started: Mapping[str, Any], run: RunFolder) -> PipelineConfig | None:
    """Return a run's settings; None where a setting of then is none any more, which must not cost the report."""
    try:
        return build_config(started["config"], source=str(run.root / "run.json"))
    except ConfigError:
        return None


def _measured(workspace: Workspace, run: RunFolder, done: int, config: PipelineConfig | None) -> _Measured:
    """Measure after the fact what the run's files still allow; say what they do not."""
    if config is None:
        return _Measured(notes=("Settings of this run are no settings any more: nothing was measured after it.",))
    if not (done and (run.iteration(1) / "policy_judgments.parquet").is_file()):
        judged = Judged(scorer=None, rubric=None)
        return _Measured(numbers=tuple(measure(run.iteration(i), config, judged) for i in range(1, done + 1)))
    judged, confidence = judged_by(workspace, run, config), config.coverage.confidence
    note = "Calibration was made anew since this run: nothing is known here of how its scorer did."
    return _Measured(
        numbers=tuple(measure(run.iteration(i), config, judged) for i in range(1, done + 1)),
        points=calibration_points(workspace, run, done, scorer=judged.scorer, confidence=confidence),
        notes=() if judged.scorer else (note,),
    )


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


def summarise(workspace: Workspace, run: RunFolder, evaluations: tuple[DomainEvaluation, ...]) -> RunSummary:
    """Gather what a run left into the record that its page shows."""
    done, _ = last_complete(run)
    started = read_run(run)
    config = started["config"]
    rows = {row.prompt_id: row for pool in ("policy", "warmup", "audit") for row in read_pool(workspace, pool)}
    measured = _measured(workspace, run, done, _settings(started, run))
    stored, after = _iterations(run, done), measured.numbers or ({},) * done
    iterations = tuple({**more, **row} for row, more in zip(stored, after, strict=True))
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
        key_card=key_card(run, done, started, rows.values()),
        notes=measured.notes,
        run_card={"identity": started["identity"], "seed": config["seed"], **card},
        evaluations=evaluations,
        iterations=iterations,
        calibration=measured.points,
        expectations=_expectations(run, done),
        transcripts=tuple(
            item for number in shown_iterations(done) for item in transcripts_of(run.iteration(number), number, rows)
        ),
        num_groups=_num_groups(run, done),
        lineage=_lineage(workspace, run, done),
        budget={
            name.removeprefix("budget/").replace("_", " "): sum(row[name] for row in iterations)
            for name in totals
            if all(row.get(name) is not None for row in iterations)
        },
        confidence=config["evaluate"]["confidence"],
        band_confidence=config["coverage"]["confidence"],
    )


def _num_groups(run: RunFolder, done: int) -> int:
    """Count the groups that were credited, iteration by iteration."""
    owners = [read_table(run.iteration(i) / "advantages.parquet")["prompt_id"].to_pylist() for i in range(1, done + 1)]
    return sum(len(set(names)) for names in owners)


def write_report(
    workspace: Workspace, run: RunFolder, evaluations: tuple[DomainEvaluation, ...]
) -> tuple[Path, list[tuple[str, str]]]:
    """Write `report.html` of a run and its numbers beside it; return the page's path and the closing table."""
    summary = summarise(workspace, run, evaluations)
    page = run.root / "report.html"
    atomic_write(page, render_report(summary))
    table = summary_table(summary)
    write_numbers(run.root, summary, table)
    return page, table
