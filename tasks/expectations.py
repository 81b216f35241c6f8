"""Refuse data and coverage that break what was promised: what is expected of pools, coverage and overlap, how severely.

What is judged, and the wanted bounds, are columns of small tables. Most expectations pass on a table without rows, so
each table has a floor of rows, each column that counts must be filled, and what is undefined fails. A broken critical
expectation closes the gate, a broken warning marks, a broken info is told.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from rangeline.errors import BadInputError, ConfigError
from rangeline.records import CoverageReport, OverlapFinding
from tasks.validation import ExpectationOutcome, Table, expect, expect_coverage, validate

Columns: TypeAlias = pd.DataFrame | Mapping[str, Sequence[Any]]
LABELLED_POOLS = frozenset({"source", "calibration", "warmup", "audit", "evaluation"})
ALARMS = ("under_coverage", "no_overlap", "concept_drift")
"""Alarm states that close the gate; over-coverage is the band's to judge, since coarse scores often cover too much."""
UNLABELLED_POOLS = frozenset({"policy", "ratio"})
MAY_BE_EMPTY = frozenset({"warmup"})
"""A warm-up that teaches the form of an answer alone needs no labelled prompts."""

_POOL_COLUMNS = ("prompt_id", "prompt_text", "suite", "reference", "cluster")
_COVERAGE_COLUMNS = ("prompt_id", "covered", "width", "unbounded", "missing")
_ROUNDING = 1e-9  # room for the last bits of a mean at a bound; far below one row's share
_REPORT = "Compute the report from these very rows; a column was changed or lost."
_NARROWER = "Add calibration prompts, improve the judge's rubric, or raise alpha."


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageThresholds:
    """Bounds that a coverage report must keep beside its band."""

    min_rows: int
    """Valid rows needed, at least 1."""
    min_prompts: int
    """Prompts among the valid rows needed, at least 1."""
    max_mean_width: float
    """Intervals this wide on average say nothing; positive."""
    max_unbounded_share: float
    """Share of valid rows, in [0, 1]."""
    max_missing_share: float
    """Share of all rows, in [0, 1]."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for item in fields(self):
            value = getattr(self, item.name)
            is_share, is_count = item.name.endswith("_share"), item.name in ("min_rows", "min_prompts")
            if not (0 <= value <= 1 if is_share else value >= 1 if is_count else value > 0):
                rule = "lie in [0, 1]" if is_share else "be at least 1" if is_count else "be positive"
                msg = f"'{item.name}' must {rule}; got {value} (coverage thresholds). Correct the setting."
                raise ConfigError(msg)


def check_pools(pool_rows: Mapping[str, Sequence[Mapping[str, Any]]], *, output: Path) -> ExpectationOutcome:
    """Check that every pool keeps the data contract and that no prompt or cluster lies in two pools.

    Parameters
    ----------
    pool_rows
        Rows by pool name, each with `prompt_id`, `prompt_text`, `suite`, `reference` and `cluster`. References must
        be there in the labelled pools and absent in the unlabelled ones, so that no update can see them.
    output
        Folder for `result.json`, `index.html` and `data_docs/`.

    Raises
    ------
    BadInputError
        If a pool has an unknown name or a row lacks a column.
    """
    frames = {pool: _pool_frame(pool, rows) for pool, rows in pool_rows.items()}
    together = pd.concat([frame.assign(pool=pool) for pool, frame in frames.items()] or [_pool_frame("source", [])])
    clusters = together.reindex(columns=[*_POOL_COLUMNS, "pool"]).groupby("cluster")["pool"].nunique()
    apart: dict[str, str] = {"limit": "one pool", "step": "Split anew: rangeline prepare."}
    rule = "a cluster must be in one pool only"
    one_pool = expect("ColumnValuesToBeBetween", rule, **apart, column="num_pools", min_value=1, max_value=1)
    own_id = expect("ColumnValuesToBeUnique", "'prompt_id' must be in one pool only", **apart, column="prompt_id")
    tables = [
        *(_pool_table(pool, frame) for pool, frame in frames.items()),
        Table("all pools together", together, [_row_floor(1), own_id]),
        Table("clusters", clusters.rename("num_pools").reset_index(), [_row_floor(1), one_pool], key="cluster"),
    ]
    return validate("pools", tables, output)


def check_coverage(
    rows: Columns,
    report: CoverageReport,
    alarm_state: str,
    *,
    thresholds: CoverageThresholds,
    overlap: Sequence[OverlapFinding] = (),
    output: Path,
) -> ExpectationOutcome:
    """Check that intervals cover the truth as often as promised, neither less nor more, and still say something.

    The coverage of the rows must lie in [target - (band_upper - empirical), target + (empirical - band_lower)]: the
    report's band, clustered by prompt, turned over so that it lies around the target. That holds exactly where the
    target lies inside the report's own band. It is two-sided, since intervals that are all [0, 1] cover too.

    Parameters
    ----------
    rows
        Held-out labelled rollouts by column: `prompt_id`, `missing`, and `covered`, `width`, `unbounded`, each None
        where missing. Missing rows count in the missing share and nowhere else.
    report
        Coverage report of the same rows; an undefined value in it fails.
    alarm_state
        What the run as a whole says: under_coverage, no_overlap and concept_drift fail.
    thresholds
        Bounds on evidence, width and missing rows.
    overlap
        Outcome of each overlap rule: critical if it says recalibrate or stop, a warning if it says warn or widen. None
        where the intervals use no density ratio.
    output
        Folder for `result.json`, `index.html` and `data_docs/`.

    Raises
    ------
    BadInputError
        If a column is absent.
    """
    frame = pd.DataFrame({name: _column(rows, name) for name in _COVERAGE_COLUMNS})
    frame = frame.astype(dict.fromkeys(_COVERAGE_COLUMNS[1:], float))
    # A row that does not say whether it is missing counts as valid here, and fails in the table of all rows.
    valid = frame[frame["missing"] != 1]
    step = "Look at the judge's replies and at rollouts that were cut off; coverage.max_missing_share is the limit."
    missing_share = _mean_between("missing", "missing share", thresholds.max_missing_share, step=step)
    expectations = [_row_floor(1), _filled("prompt_id"), _filled("missing"), missing_share]
    tables = [
        Table("all rows", frame[["prompt_id", "missing"]], expectations),
        _valid_rows_table(valid, report, thresholds),
        _report_table(report, float(valid["covered"].mean())),
        *([_overlap_table(overlap)] if overlap else []),
        _run_state_table(alarm_state),
    ]
    return validate("coverage", tables, output)


def _pool_frame(pool: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    if pool not in LABELLED_POOLS | UNLABELLED_POOLS:
        msg = f"'pool' must be one of {sorted(LABELLED_POOLS | UNLABELLED_POOLS)}; got '{pool}'. Rename the pool."
        raise BadInputError(msg)
    for i, row in enumerate(rows):
        if absent := [name for name in _POOL_COLUMNS if name not in row]:
            msg = f"'{absent[0]}' must be a column of every row; got {sorted(row)} (pool '{pool}', row {i}). Add it."
            raise BadInputError(msg)
    values = [[row[name] for name in _POOL_COLUMNS] for row in rows]
    return pd.DataFrame(values, columns=list(_POOL_COLUMNS), dtype=object)


def _pool_table(pool: str, frame: pd.DataFrame) -> Table:
    absent = "'reference' must be absent in an unlabelled pool"
    unlabelled: dict[str, str] = {"limit": "none", "step": "Remove the references, or label the prompts as such."}
    mend: dict[str, str] = {"step": "Correct the rows that are named; see rangeline prepare."}
    expectations = [
        _row_floor(0 if pool in MAY_BE_EMPTY else 1),
        *(_filled(name) for name in ("prompt_id", "prompt_text", "suite", "cluster")),
        expect("ColumnValuesToBeUnique", "'prompt_id' must be unique", limit="no repeat", **mend, column="prompt_id"),
        expect(
            "ColumnValuesToMatchRegex",
            "'prompt_text' must not be blank",
            limit="a character",
            **mend,
            column="prompt_text",
            regex=r"\S",
        ),
        _filled("reference")
        if pool in LABELLED_POOLS
        else expect("ColumnValuesToBeNull", absent, **unlabelled, column="reference"),
    ]
    return Table(f"pool {pool}", frame, expectations)


def _valid_rows_table(frame: pd.DataFrame, report: CoverageReport, thresholds: CoverageThresholds) -> Table:
    low, high = _band_around_target(report)
    prompts = f"the number of prompts must be at least {thresholds.min_prompts}"
    more: dict[str, str] = {"step": "Audit more prompts: train.audit_prompts."}
    expectations = [
        _row_floor(thresholds.min_rows, step=more["step"]),
        expect(
            "ColumnUniqueValueCountToBeBetween",
            prompts,
            limit=f"at least {thresholds.min_prompts}",
            **more,
            column="prompt_id",
            min_value=thresholds.min_prompts,
        ),
        *(_filled(name) for name in ("covered", "width", "unbounded")),
        expect(
            "ColumnValuesToBeInSet",
            "'covered' must be true or false",
            limit="true or false",
            step=_REPORT,
            column="covered",
            value_set=[0.0, 1.0],
        ),
        expect_coverage("covered", low=low, high=high, target=report.target),
        _mean_between("width", "mean width", thresholds.max_mean_width, step=_NARROWER),
        _mean_between("unbounded", "unbounded share", thresholds.max_unbounded_share, step=_NARROWER),
    ]
    return Table("valid rows", frame, expectations)


def _report_table(report: CoverageReport, row_mean: float) -> Table:
    names = ("empirical", "band_lower", "band_upper", "ess_share")
    gap = math.nan if report.empirical is None else abs(report.empirical - row_mean)
    values = {**{name: [getattr(report, name)] for name in names}, "gap_to_rows": [gap]}
    expectations = [
        _row_floor(1),
        *(_filled(name) for name in names),
        _mean_between("gap_to_rows", "gap between the coverage of report and rows", 0.0, step=_REPORT),
    ]
    return Table("report", pd.DataFrame(values).astype(float), expectations, key="empirical")


def _overlap_table(findings: Sequence[OverlapFinding]) -> Table:
    frame = pd.DataFrame({finding.diagnostic: [finding.value] for finding in findings}).astype(float)
    expectations = [_row_floor(1), *map(_overlap_expectation, findings)]
    return Table("overlap", frame, expectations, key=findings[0].diagnostic)


def _overlap_expectation(finding: OverlapFinding) -> Any:
    if finding.value is None:
        step = "Nothing: too few prompts, or too few distinct weights, to have one."
        words = f"'{finding.diagnostic}' should be defined"
        return expect(
            "ColumnValuesToNotBeNull", words, limit="-", step=step, severity="info", column=finding.diagnostic
        )
    limits = [f"at least {finding.low:.4g}"] if finding.low is not None else []
    limits += [f"at most {finding.high:.4g}"] if finding.high is not None else []
    return expect(
        "ColumnMeanToBeBetween",
        f"{finding.words}, else {finding.consequence}",
        limit=", ".join(limits),
        step=finding.next_step,
        severity="critical" if finding.consequence in ("recalibrate", "stop") else "warning",
        column=finding.diagnostic,
        min_value=finding.low,
        max_value=finding.high,
    )


def _run_state_table(alarm_state: str) -> Table:
    def none_of(states: Sequence[str], severity: str, step: str) -> Any:
        return expect(
            "ColumnValuesToNotBeInSet",
            f"the evidence of the run must be none of {', '.join(states)}",
            limit="none of them",
            step=step,
            severity=severity,
            column="alarm_state",
            value_set=list(states),
        )

    expectations = [
        _row_floor(1),
        _filled("alarm_state"),
        none_of(ALARMS, "critical", "Recalibrate on fresh labels; train.on_alarm says what the run does meanwhile."),
        none_of(["over_coverage"], "warning", "Intervals are wider than asked: calibrate anew, or lower alpha."),
        none_of(["too_little_evidence"], "info", "Wait: the monitor needs more audited prompts."),
    ]
    return Table("run", pd.DataFrame({"alarm_state": [alarm_state]}), expectations, key="alarm_state")


def _band_around_target(report: CoverageReport) -> tuple[float, float]:
    if report.empirical is None or report.band_lower is None or report.band_upper is None:
        # The undefined field fails by name in the report's own table; no band is invented here.
        return report.target, report.target
    below, above = report.band_upper - report.empirical, report.empirical - report.band_lower
    return report.target - below - _ROUNDING, report.target + above + _ROUNDING


def _column(rows: Columns, name: str) -> pd.Series:
    if name not in rows:
        msg = f"'{name}' must be a column of the rows; got {sorted(map(str, rows))} (coverage check). Add it."
        raise BadInputError(msg)
    return pd.Series(list(rows[name]), dtype=object)


def _row_floor(minimum: int, *, step: str = "Add rows; an empty table shows nothing.") -> Any:
    words = f"the number of rows must be at least {minimum}"
    return expect("TableRowCountToBeBetween", words, limit=f"at least {minimum}", step=step, min_value=minimum)


def _filled(column: str) -> Any:
    step = "Fill the column, or leave the row out."
    words = f"'{column}' must be there in every row"
    return expect("ColumnValuesToNotBeNull", words, limit="no empty row", step=step, column=column)


def _mean_between(column: str, words: str, high: float, *, step: str) -> Any:
    bound = f"at most {high:.4g}"
    words = f"the {words} must be {bound}"
    return expect("ColumnMeanToBeBetween", words, limit=bound, step=step, column=column, max_value=high + _ROUNDING)
