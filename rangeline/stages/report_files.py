"""The numbers of a run's report as files: JSON with its schema, and Parquet tables for whoever computes on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rangeline.evaluation.report_schema import SCHEMA_NAME, SCHEMA_VERSION, report_schema
from rangeline.evaluation.report_text import number_of
from rangeline.evaluation.run_summary import METRICS, RunSummary
from rangeline.lineage import write_json
from rangeline.stages.tables import write_table

ITERATIONS_NAME, CALIBRATION_NAME, EVALUATIONS_NAME = (
    f"report_{name}.parquet" for name in ("iterations", "calibration", "evaluations")
)

REPORT_FILES = ("report.json", "report.schema.json", ITERATIONS_NAME, CALIBRATION_NAME, EVALUATIONS_NAME)
"""What lies beside the page."""


def write_numbers(folder: Path, summary: RunSummary, table: Sequence[tuple[str, str]]) -> None:
    """Write `report.json`, `report.schema.json` and the `report_*.parquet` tables of a run.

    Parameters
    ----------
    folder
        Of the run.
    summary
        What its page shows.
    table
        The closing table.
    """
    write_json(folder / REPORT_FILES[0], report_numbers(summary, table))
    write_json(folder / REPORT_FILES[1], report_schema())
    about = {"schema": SCHEMA_NAME, "schema_version": str(SCHEMA_VERSION), "run": summary.run_name}
    names = list(dict.fromkeys(["iteration", "status", *(item.key for item in METRICS), *_numbers_of(summary)]))
    columns = {name: [_cell(row.get(name)) for row in summary.iterations] for name in names}
    write_table(folder / ITERATIONS_NAME, columns, about=about)
    points = [asdict(row) for row in summary.calibration]
    fields = ("pool", "label", "predicted", "observed", "lower", "upper", "count", "num_prompts")
    write_table(folder / CALIBRATION_NAME, {name: [row[name] for row in points] for name in fields}, about=about)
    flat = [_flat(asdict(item)) for item in summary.evaluations]
    keys = list(dict.fromkeys(name for row in flat for name in row)) or ["domain"]
    write_table(folder / EVALUATIONS_NAME, {name: [row.get(name) for row in flat] for name in keys}, about=about)


def report_numbers(summary: RunSummary, table: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the content of `report.json`; texts of rollouts are on the page alone."""
    return {
        "schema": SCHEMA_NAME,
        "schema_version": SCHEMA_VERSION,
        "run": summary.run_name,
        "description": summary.description,
        "notes": list(summary.notes),
        "table": dict(table),
        "evaluations": [asdict(item) for item in summary.evaluations],
        "iterations": [dict(row) for row in summary.iterations],
        "calibration": [asdict(item) for item in summary.calibration],
        "expectations": [asdict(item) for item in summary.expectations],
        "budget": dict(summary.budget),
        "run_card": dict(summary.key_card),
        "settings": dict(summary.run_card),
        "lineage": [asdict(item) for item in summary.lineage],
        "confidence": {"accuracy": summary.confidence, "coverage_band": summary.band_confidence},
    }


def _numbers_of(summary: RunSummary) -> list[str]:
    """Return the names of all numbers of any iteration, those without a place on the page included."""
    rows = summary.iterations
    return sorted({name for row in rows for name, value in row.items() if number_of(value) is not None})


def _cell(value: Any) -> Any:
    return value if isinstance(value, str) else number_of(value)


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= _flat(value, f"{before}{name}_") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return flat
