"""Gather a comparison's runs into its page, tables, rows and curves; clock times lie in a file of their own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeline.errors import BadInputError
from rangeline.evaluation.comparison_curves import curves
from rangeline.evaluation.comparison_page import comparison_page
from rangeline.evaluation.comparison_summary import Run, summarise_design
from rangeline.evaluation.comparison_text import ComparisonSummary, finding, markdown, plain
from rangeline.lineage import atomic_write, write_json
from rangeline.stages.comparison_plan import ComparisonPlan, read_plan
from rangeline.stages.comparison_runs import TIMINGS
from rangeline.stages.tables import write_table


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """One reported run."""

    folder: Path
    result: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Where a comparison's results lie, and what they say in short."""

    page: Path
    table: str
    """Markdown."""
    findings: tuple[str, ...]
    failures: Mapping[str, str]


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def finished_runs(folder: Path) -> tuple[list[FinishedRun], list[str]]:
    """Return the reported runs of a comparison that are complete, and the labels of those that are not."""
    finished, missing = [], []
    for run in _json(folder / "runs.json")["runs"]:
        path = folder / run["result"]
        if path.is_file():
            finished.append(FinishedRun(folder=path.parent, result=_json(path)))
        else:
            missing.append(f"{run['design']}, {run['method']}, seed {run['seed']}")
    return finished, missing


def summarise(plan: ComparisonPlan, folder: Path) -> ComparisonSummary:
    """Summarise every design of a comparison that has a finished run.

    Raises
    ------
    BadInputError
        No run is finished, or the runs of a seed are not comparable.
    """
    finished, missing = finished_runs(folder)
    failures = _json(folder / "runs.json")["failures"]
    if not finished:
        said = "; ".join(f"{label}: {reason}" for label, reason in failures.items())
        msg = f"Comparison '{plan.name}' must have a finished run; got none ({said or 'nothing failed'})."
        raise BadInputError(msg)
    designs = []
    for name in plan.designs:
        runs = [item.result for item in finished if item.result["design"] == name]
        if runs:
            designs.append(
                summarise_design(
                    runs,
                    reference=plan.reference,
                    methods=[method.name for method in plan.methods],
                    missing=[label for label in missing if label.startswith(f"{name}, ")],
                    confidence=plan.confidence,
                    failures={label: why for label, why in failures.items() if label.startswith(f"{name}, ")},
                )
            )
    return ComparisonSummary(
        name=plan.name,
        description=plan.description,
        designs=tuple(designs),
        tuning=_json(folder / "tuning.json"),
        failures=failures,
        confidence=plan.confidence,
    )


def write_results(root: Path, plan_file: Path, *, copy_to: Path | None = None) -> Results:
    """Write `report/`: page, Markdown table, JSON, rows in Parquet, curves in SVG, and the timings apart.

    Parameters
    ----------
    root
        The workspace.
    plan_file
        Plan of a comparison that was conducted there.
    copy_to
        Folder that also gets table and curves, under the plan's name; None: no other.

    Raises
    ------
    BadInputError
        No run is finished, or the runs of a seed are not comparable.
    """
    plan, _ = read_plan(plan_file)
    folder = root.resolve() / "comparisons" / plan.name
    summary = summarise(plan, folder)
    target = folder / "report"
    table = markdown(summary)
    atomic_write(target / "index.html", comparison_page(summary))
    atomic_write(target / "table.md", table)
    write_json(target / "table.json", plain(summary))
    drawn = {design.design: curves(design) for design in summary.designs}
    for name, drawing in drawn.items():
        atomic_write(target / f"curves-{name}.svg", drawing)
    if copy_to is not None:
        atomic_write(copy_to / f"{plan.name}.md", table)
        write_json(copy_to / f"{plan.name}.json", plain(summary))
        for name, drawing in drawn.items():
            atomic_write(copy_to / f"{plan.name}-{name}.svg", drawing)
    finished, _ = finished_runs(folder)
    write_table(target / "rows.parquet", _columns(finished))
    write_json(target / "timings.json", _timings(finished))
    findings = tuple(f"{design.design}: {finding(design, plan.confidence)}" for design in summary.designs)
    return Results(page=target / "index.html", table=table, findings=findings, failures=summary.failures)


def _columns(finished: list[FinishedRun]) -> dict[str, list[Any]]:
    """Return one column a number and one entry a run and iteration; null where it was not measured."""
    rows = []
    for item in finished:
        keys = {name: item.result[name] for name in ("design", "method", "seed", "learning_rate")}
        for row in item.result["rows"]:
            rows.append({**keys, **dict(_flat(row))})
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _flat(row: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in row.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{before}{name}_")
        elif isinstance(value, list):
            pairs += [(f"{before}{name}_{end}", item) for end, item in zip(("lower", "upper"), value, strict=True)]
        else:
            pairs.append((f"{before}{name}", value))
    return pairs


def _timings(finished: list[FinishedRun]) -> list[dict[str, Any]]:
    result = []
    for item in finished:
        totals: dict[str, float] = {}
        for row in _json(item.folder / TIMINGS):
            for name, seconds in row.items():
                if name != "iteration":
                    totals[name] = totals.get(name, 0.0) + seconds
        keys = {name: item.result[name] for name in ("design", "method", "seed")}
        result.append({**keys, **totals, "total_s": sum(totals.values())})
    return result
