"""Refuse data and coverage that break what was promised; the only module that imports great_expectations.

What is judged, and the wanted bounds, are columns of small tables; each table is validated in an in-memory context
that leaves a `result.json` and a site of Data Docs behind. Most expectations pass on a table without rows, so each
table has a floor of rows, each column that counts must be filled, and what is undefined fails. The import is slow.
"""

import functools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from rangeline.errors import BadInputError, ConfigError
from rangeline.lineage import write_json
from rangeline.records import CoverageReport
from tasks.processes import silence_telemetry

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationOutcome:
    """What a check found, and where it wrote it down."""

    success: bool
    failed: tuple[str, ...]
    """One sentence for each broken expectation: table, what is wanted, name of the expectation, what was observed."""
    result_path: Path
    """`result.json`, every expectation with what was observed."""
    docs_path: Path
    """`index.html` of the Data Docs."""


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
    min_ess_share: float
    """Effective sample size over calibration rows, in [0, 1]."""
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


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    name: str
    frame: pd.DataFrame
    expectations: Sequence[Any]
    key: str = "prompt_id"  # column whose values name the offending rows


def check_pools(pool_rows: Mapping[str, Sequence[Mapping[str, Any]]], *, output: Path) -> ExpectationOutcome:
    """Check that every pool keeps the data contract and that no prompt or cluster lies in two pools.

    Parameters
    ----------
    pool_rows
        Rows by pool name, each with `prompt_id`, `prompt_text`, `suite`, `reference` and `cluster`. References must
        be there in the labelled pools and absent in the unlabelled ones, so that no update can see them.
    output
        Folder for `result.json` and `data_docs/`.

    Raises
    ------
    BadInputError
        If a pool has an unknown name or a row lacks a column.
    """
    frames = {pool: _pool_frame(pool, rows) for pool, rows in pool_rows.items()}
    together = pd.concat([frame.assign(pool=pool) for pool, frame in frames.items()] or [_pool_frame("source", [])])
    clusters = together.reindex(columns=[*_POOL_COLUMNS, "pool"]).groupby("cluster")["pool"].nunique()
    rule = "a cluster must be in one pool only"
    one_pool = _expect("ColumnValuesToBeBetween", rule, column="num_pools", min_value=1, max_value=1)
    own_id = _expect("ColumnValuesToBeUnique", "'prompt_id' must be in one pool only", column="prompt_id")
    tables = [
        *(_pool_table(pool, frame) for pool, frame in frames.items()),
        _Table("all pools together", together, [_row_floor(1), own_id]),
        _Table("clusters", clusters.rename("num_pools").reset_index(), [_row_floor(1), one_pool], key="cluster"),
    ]
    return _validate("pools", tables, output)


def check_coverage(
    rows: Columns, report: CoverageReport, alarm_state: str, *, thresholds: CoverageThresholds, output: Path
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
        Bounds on evidence, width, overlap and missing rows.
    output
        Folder for `result.json` and `data_docs/`.

    Raises
    ------
    BadInputError
        If a column is absent.
    """
    frame = pd.DataFrame({name: _column(rows, name) for name in _COVERAGE_COLUMNS})
    frame = frame.astype(dict.fromkeys(_COVERAGE_COLUMNS[1:], float))
    # A row that does not say whether it is missing counts as valid here, and fails in the table of all rows.
    valid = frame[frame["missing"] != 1]
    missing_share = _mean_between("missing", "missing share", high=thresholds.max_missing_share)
    expectations = [_row_floor(1), _filled("prompt_id"), _filled("missing"), missing_share]
    tables = [
        _Table("all rows", frame[["prompt_id", "missing"]], expectations),
        _valid_rows_table(valid, report, thresholds),
        _report_table(report, float(valid["covered"].mean()), thresholds),
        _run_state_table(alarm_state),
    ]
    return _validate("coverage", tables, output)


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


def _pool_table(pool: str, frame: pd.DataFrame) -> _Table:
    absent = "'reference' must be absent in an unlabelled pool"
    expectations = [
        _row_floor(0 if pool in MAY_BE_EMPTY else 1),
        *(_filled(name) for name in ("prompt_id", "prompt_text", "suite", "cluster")),
        _expect("ColumnValuesToBeUnique", "'prompt_id' must be unique", column="prompt_id"),
        _expect("ColumnValuesToMatchRegex", "'prompt_text' must not be blank", column="prompt_text", regex=r"\S"),
        _filled("reference") if pool in LABELLED_POOLS else _expect("ColumnValuesToBeNull", absent, column="reference"),
    ]
    return _Table(f"pool {pool}", frame, expectations)


def _valid_rows_table(frame: pd.DataFrame, report: CoverageReport, thresholds: CoverageThresholds) -> _Table:
    low, high = _band_around_target(report)
    wanted = f"coverage must lie in [{low:.4g}, {high:.4g}], the band around {report.target:.4g}"
    prompts = f"the number of prompts must be at least {thresholds.min_prompts}"
    expectations = [
        _row_floor(thresholds.min_rows),
        _expect("ColumnUniqueValueCountToBeBetween", prompts, column="prompt_id", min_value=thresholds.min_prompts),
        *(_filled(name) for name in ("covered", "width", "unbounded")),
        _expect("ColumnValuesToBeInSet", "'covered' must be true or false", column="covered", value_set=[0.0, 1.0]),
        _coverage_expectation()(column="covered", min_value=low, max_value=high, description=wanted),
        _mean_between("width", "mean width", high=thresholds.max_mean_width),
        _mean_between("unbounded", "unbounded share", high=thresholds.max_unbounded_share),
    ]
    return _Table("valid rows", frame, expectations)


def _report_table(report: CoverageReport, row_mean: float, thresholds: CoverageThresholds) -> _Table:
    names = ("empirical", "band_lower", "band_upper", "ess_share")
    gap = math.nan if report.empirical is None else abs(report.empirical - row_mean)
    values = {**{name: [getattr(report, name)] for name in names}, "gap_to_rows": [gap]}
    expectations = [
        _row_floor(1),
        *(_filled(name) for name in names),
        _mean_between("gap_to_rows", "gap between the coverage of report and rows", high=0.0),
        _mean_between("ess_share", "effective sample share", low=thresholds.min_ess_share),
    ]
    return _Table("report", pd.DataFrame(values).astype(float), expectations, key="empirical")


def _run_state_table(alarm_state: str) -> _Table:
    words = f"the evidence of the run must be none of {', '.join(ALARMS)}"
    calm = _expect("ColumnValuesToNotBeInSet", words, column="alarm_state", value_set=list(ALARMS))
    frame = pd.DataFrame({"alarm_state": [alarm_state]})
    return _Table("run", frame, [_row_floor(1), _filled("alarm_state"), calm], key="alarm_state")


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


def _gx() -> Any:
    silence_telemetry()
    import great_expectations

    # It sets its own level, and reports each temporary folder.
    logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)
    return great_expectations


def _expect(kind: str, description: str, **arguments: Any) -> Any:
    return getattr(_gx().expectations, f"Expect{kind}")(description=description, **arguments)


@functools.cache
def _coverage_expectation() -> Any:
    class ExpectIntervalCoverageNearTarget(_gx().expectations.ExpectColumnMeanToBeBetween):  # type: ignore[misc]
        description: str | None = "Intervals must cover the truth as often as promised: neither less nor more."

    return ExpectIntervalCoverageNearTarget


def _row_floor(minimum: int) -> Any:
    return _expect("TableRowCountToBeBetween", f"the number of rows must be at least {minimum}", min_value=minimum)


def _filled(column: str) -> Any:
    return _expect("ColumnValuesToNotBeNull", f"'{column}' must be there in every row", column=column)


def _mean_between(column: str, words: str, *, low: float = 0.0, high: float | None = None) -> Any:
    bound = f"at most {high:.4g}" if high is not None else f"at least {low:.4g}"
    limits = {"max_value": high + _ROUNDING} if high is not None else {"min_value": low - _ROUNDING}
    return _expect("ColumnMeanToBeBetween", f"the {words} must be {bound}", column=column, **limits)


def _validate(name: str, tables: Sequence[_Table], output: Path) -> ExpectationOutcome:
    docs, result_path = output.resolve() / "data_docs", output.resolve() / "result.json"
    docs.mkdir(parents=True, exist_ok=True)
    context = _context(docs)
    source = context.data_sources.add_pandas(name)
    results = {table.name: _run_table(context, source, table) for table in tables}
    context.build_data_docs()
    broken = [(table, row) for table, result in results.items() for row in result["results"] if not row["success"]]
    failed = tuple(_sentence(table, row) for table, row in broken)
    success = not failed and all(result["success"] for result in results.values())
    content = json.dumps({"success": success, "failed": failed, "tables": results})
    write_json(result_path, json.loads(content, parse_constant=str))  # non-finite numbers become words
    return ExpectationOutcome(success=success, failed=failed, result_path=result_path, docs_path=docs / "index.html")


def _context(docs: Path) -> Any:
    context = _gx().get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    for name, site in list(context.list_data_docs_sites().items()):
        context.delete_data_docs_site(name)
        with suppress(OSError):  # the empty folder that was made for the default site
            Path(site["store_backend"]["base_directory"]).rmdir()
    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "site_section_builders": {"expectations": "none", "profiling": "none"},  # validations show their suite
    }
    context.add_data_docs_site("rangeline", site)
    return context


def _run_table(context: Any, source: Any, table: _Table) -> dict[str, Any]:
    gx, name = _gx(), table.name
    batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)
    suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=list(table.expectations)))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
    shown = {"result_format": "SUMMARY", "unexpected_index_column_names": [table.key]}
    frame = table.frame.reset_index(drop=True)
    return dict(validation.run(batch_parameters={"dataframe": frame}, result_format=shown).to_json_dict())


def _sentence(table: str, row: Mapping[str, Any]) -> str:
    config, result = row["expectation_config"], row["result"]
    value = result.get("observed_value")
    observed = "nothing that could be computed" if value is None else f"{value:.4g}"
    if "unexpected_count" in result:
        # The last entry of a place is the key column; before it stands the judged value.
        keys = [repr(list(place.values())[-1]) for place in result.get("partial_unexpected_index_list") or []]
        first = f", first {', '.join(keys[:3])}" if keys else ""
        observed = f"{result['unexpected_count']} of {result['element_count']} rows that break this{first}"
    return f"{table}: {config['description']} ({config['type']}); got {observed}."
