"""Validate small tables and write down what came out; the only module that imports great_expectations.

Each table is validated in an in-memory context that leaves behind a `result.json`, a page for people (`index.html`) and
a site of Data Docs. The import is slow, and is made when the first expectation is.
"""

import functools
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from rangeline.lineage import atomic_write, write_json
from tasks.expectation_page import PageRow, html_page, markdown_page
from tasks.processes import silence_telemetry

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationOutcome:
    """What a check found, and where it wrote it down."""

    success: bool
    """Whether every critical expectation was met."""
    failed: tuple[str, ...]
    """One sentence for each broken critical expectation: table, what is wanted, its name, what was observed."""
    warned: tuple[str, ...]
    """The same for broken warnings."""
    result_path: Path
    """`result.json`, every expectation with what was observed."""
    page_path: Path
    """`index.html`, the same for people."""
    docs_path: Path
    """`index.html` of the Data Docs."""
    markdown: str
    """The page as Markdown."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows to judge, and what is expected of them."""

    name: str
    frame: pd.DataFrame
    expectations: Sequence[Any]
    key: str = "prompt_id"
    """Column whose values name the offending rows."""


def load_expectations() -> Any:
    """Import Great Expectations, quietly, and return it."""
    silence_telemetry()
    import great_expectations

    # It sets its own level, and reports each temporary folder.
    logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)
    return great_expectations


def expect(
    kind: str, words: str, *, limit: str, step: str, severity: Severity | str = "critical", **arguments: Any
) -> Any:
    """Make an expectation.

    Parameters
    ----------
    kind
        Its name in Great Expectations, without "Expect".
    words
        What is wanted, as a sentence.
    limit, step
        The bound, and what to do when it is broken, both for the page.
    severity
        critical closes the gate, warning marks, info is told.
    **arguments
        Those of the expectation.
    """
    meta = {"limit": limit, "next_step": step}
    made = getattr(load_expectations().expectations, f"Expect{kind}")
    return made(description=words, severity=severity, meta=meta, **arguments)


def expect_coverage(column: str, *, low: float, high: float, target: float) -> Any:
    """Make the named expectation that the mean of a column of true and false lies in the band around the target."""
    step = "Recalibrate on fresh labels where coverage is low; where it is high, intervals are wider than asked."
    return _coverage_expectation()(
        column=column,
        min_value=low,
        max_value=high,
        severity="critical",
        description=f"coverage must lie in [{low:.4g}, {high:.4g}], the band around {target:.4g}",
        meta={"limit": f"{low:.4g} to {high:.4g}", "next_step": step},
    )


@functools.cache
def _coverage_expectation() -> Any:
    class ExpectIntervalCoverageNearTarget(load_expectations().expectations.ExpectColumnMeanToBeBetween):  # type: ignore[misc]
        description: str | None = "Intervals must cover the truth as often as promised: neither less nor more."

    return ExpectIntervalCoverageNearTarget


def validate(name: str, tables: Sequence[Table], output: Path) -> ExpectationOutcome:
    """Validate tables; write `result.json`, `index.html` and `data_docs/` below a folder."""
    folder = output.resolve()
    docs = folder / "data_docs"
    docs.mkdir(parents=True, exist_ok=True)
    context = _context(docs)
    source = context.data_sources.add_pandas(name)
    results = {table.name: _run_table(context, source, table) for table in tables}
    context.build_data_docs()
    found = [(table, row) for table, result in results.items() for row in result["results"]]
    broken = {
        severity: tuple(
            _sentence(table, row) for table, row in found if not row["success"] and _severity(row) == severity
        )
        for severity in ("critical", "warning", "info")
    }
    success = not broken["critical"]
    content = {
        "success": success,
        "failed": broken["critical"],
        "warned": broken["warning"],
        "noted": broken["info"],
        "tables": results,
    }
    write_json(folder / "result.json", json.loads(json.dumps(content), parse_constant=str))  # non-finite become words
    rows = [_page_row(table, row) for table, row in found]
    page = html_page(name, rows, docs="data_docs/index.html")
    atomic_write(folder / "index.html", page.encode())
    return ExpectationOutcome(
        success=success,
        failed=broken["critical"],
        warned=broken["warning"],
        result_path=folder / "result.json",
        page_path=folder / "index.html",
        docs_path=docs / "index.html",
        markdown=markdown_page(rows),
    )


def _severity(row: Mapping[str, Any]) -> str:
    return str(row["expectation_config"]["severity"])


def _context(docs: Path) -> Any:
    context = load_expectations().get_context(mode="ephemeral")
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


def _run_table(context: Any, source: Any, table: Table) -> dict[str, Any]:
    gx, name = load_expectations(), table.name
    batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)
    suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=list(table.expectations)))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
    shown = {"result_format": "SUMMARY", "unexpected_index_column_names": [table.key]}
    frame = table.frame.reset_index(drop=True)
    return dict(validation.run(batch_parameters={"dataframe": frame}, result_format=shown).to_json_dict())


def _observed(row: Mapping[str, Any]) -> str:
    result = row["result"]
    value = result.get("observed_value")
    if "unexpected_count" not in result:
        return "nothing that could be computed" if value is None else f"{value:.4g}"
    # The last entry of a place is the key column; before it stands the judged value.
    places = result.get("partial_unexpected_index_list") or []
    keys = [repr(_plain(list(place.values())[-1])) for place in places]
    first = f", first {', '.join(keys[:3])}" if keys else ""
    return f"{result['unexpected_count']} of {result['element_count']} rows that break this{first}"


def _plain(value: Any) -> Any:
    """Return a number of numpy as Python's own, which is written as a number."""
    return value.item() if isinstance(value, np.generic) else value


def _sentence(table: str, row: Mapping[str, Any]) -> str:
    config = row["expectation_config"]
    return f"{table}: {config['description']} ({config['type']}); got {_observed(row)}."


def _page_row(table: str, row: Mapping[str, Any]) -> PageRow:
    config = row["expectation_config"]
    return PageRow(
        table=table,
        words=config["description"],
        observed=_observed(row),
        limit=config["meta"]["limit"],
        severity=_severity(row),
        met=bool(row["success"]),
        next_step=config["meta"]["next_step"],
    )
