"""Laws of the data and coverage checks: each violation alone fails and is named; nothing undefined passes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from rangeline.errors import BadInputError, ConfigError
from rangeline.records import CoverageReport, OverlapFinding
from tasks.expectations import CoverageThresholds, check_coverage, check_pools

THRESHOLDS = CoverageThresholds(
    min_rows=10, min_prompts=5, max_mean_width=0.8, max_unbounded_share=0.2, max_missing_share=0.2
)
REPORT = CoverageReport(
    empirical=0.9,
    band_lower=0.75,
    band_upper=1.0,
    band_confidence=0.95,
    target=0.9,
    num_rows=10,
    num_prompts=5,
    missing_share=1 / 11,
    mean_width=0.4,
    unbounded_share=0.0,
    ess_share=0.6,
    status="covered",
)


def row(prompt_id, *, reference="4", text="2 + 2 = ?", cluster=None):
    """Return a pool row."""
    return {
        "prompt_id": prompt_id,
        "prompt_text": text,
        "suite": "math",
        "reference": reference,
        "cluster": prompt_id if cluster is None else cluster,
    }


def good_pools():
    """Return pools that keep every rule."""
    labelled = {pool: [row(f"{pool}-{i}") for i in range(2)] for pool in ("source", "calibration", "audit")}
    return {
        **labelled,
        **{pool: [row(f"{pool}-{i}", reference=None) for i in range(2)] for pool in ("policy", "ratio")},
    }


def good_rows():
    """Return ten valid rows of five prompts, nine of them covered, and one missing row."""
    return {
        "prompt_id": [f"p{i % 5}" for i in range(11)],
        "covered": [True] * 9 + [False, None],
        "width": [0.4] * 10 + [None],
        "unbounded": [False] * 10 + [None],
        "missing": [False] * 10 + [True],
    }


def failures(outcome):
    """Return the failed sentences as one text, after the outcome was found to be a failure."""
    assert not outcome.success
    return "\n".join(outcome.failed)


def test_importing_loads_no_great_expectations():
    """Importing the module costs nothing."""
    code = "import sys; import tasks.expectations; raise SystemExit('great_expectations' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0


def test_good_pools_pass_and_are_written_down(tmp_path):
    """Pools that keep every rule pass; the result is JSON and the docs have an index and a page a table."""
    outcome = check_pools(good_pools(), output=tmp_path)
    assert (outcome.success, outcome.failed) == (True, ())
    stored = json.loads(outcome.result_path.read_text())
    assert stored["success"]
    assert {"pool source", "pool policy", "all pools together", "clusters"} <= stored["tables"].keys()
    assert outcome.docs_path == tmp_path / "data_docs" / "index.html"
    assert outcome.docs_path.is_file()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    pages = {
        path.relative_to(outcome.docs_path.parent).parts[1]
        for path in outcome.docs_path.parent.rglob("validations/**/*.html")
    }
    assert len(pages) == len(stored["tables"])


def keys(outcome):
    """Return table and rule of each failed sentence, after the outcome was found to be a failure."""
    assert not outcome.success
    assert list(outcome.failed) == json.loads(outcome.result_path.read_text())["failed"]
    return {sentence.split(" (expect_")[0] for sentence in outcome.failed}


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        (
            {
                "source": [row("a"), row(None, cluster="c")],
                "calibration": [row("b"), row("b")],
                "audit": [row("c", text=" \n")],
                "policy": [row("d", reference=None), row("e")],
                "ratio": [row("f")],
            },
            {
                "pool source: 'prompt_id' must be there in every row",
                "pool calibration: 'prompt_id' must be unique",
                "pool audit: 'prompt_text' must not be blank",
                "pool policy: 'reference' must be absent in an unlabelled pool",
                "pool ratio: 'reference' must be absent in an unlabelled pool",
                "all pools together: 'prompt_id' must be in one pool only",
                "clusters: a cluster must be in one pool only",
            },
        ),
        (
            {
                "source": [],
                "calibration": [row("a"), row("b", reference=None)],
                "audit": [{**row("c"), "cluster": None}],
                "evaluation": [row("d", text=None)],
                "warmup": [{**row("e"), "suite": None}],
            },
            {
                "pool source: the number of rows must be at least 1",
                "pool calibration: 'reference' must be there in every row",
                "pool audit: 'cluster' must be there in every row",
                "pool evaluation: 'prompt_text' must be there in every row",
                "pool warmup: 'suite' must be there in every row",
            },
        ),
        (
            {"audit": [row("source-0", cluster="other")]},
            {"all pools together: 'prompt_id' must be in one pool only"},
        ),
    ],
)
def test_each_broken_pool_rule_fails_by_name_and_no_other(tmp_path, pools, expected):
    """Each violation fails the check with a sentence of its own, and what is in order is not named."""
    assert expected == keys(check_pools({**good_pools(), **pools}, output=tmp_path))


def test_sentence_names_the_offending_rows(tmp_path):
    """A failure says which cluster and how many rows break the rule."""
    outcome = check_pools({**good_pools(), "audit": [row("a", cluster="source-0")]}, output=tmp_path)
    assert outcome.failed == (
        "clusters: a cluster must be in one pool only (expect_column_values_to_be_between); "
        "got 1 of 8 rows that break this, first 'source-0'.",
    )


def test_no_pools_at_all_fail(tmp_path):
    """A check of nothing is no success."""
    assert "all pools together: the number of rows must be at least 1" in failures(check_pools({}, output=tmp_path))


def test_unknown_pools_and_incomplete_rows_are_refused(tmp_path):
    """A pool without rules and a row without a column are errors, not failures."""
    with pytest.raises(BadInputError, match=r"'pool' must be one of .*; got 'polcy'"):
        check_pools({"polcy": []}, output=tmp_path)
    with pytest.raises(BadInputError, match=r"'suite' must be a column of every row; got .*pool 'source', row 0"):
        check_pools({"source": [{k: v for k, v in row("a").items() if k != "suite"}]}, output=tmp_path)


def test_good_coverage_passes_as_columns_and_as_frame(tmp_path):
    """Rows inside the band pass in either form, and the named expectation is among the results."""
    assert check_coverage(pd.DataFrame(good_rows()), REPORT, "covered", thresholds=THRESHOLDS, output=tmp_path).success
    outcome = check_coverage(good_rows(), REPORT, "covered", thresholds=THRESHOLDS, output=tmp_path)
    assert (outcome.success, outcome.failed) == (True, ())
    assert "expect_interval_coverage_near_target" in outcome.result_path.read_text()
    assert outcome.docs_path.is_file()


def test_target_on_the_edge_of_the_band_still_passes(tmp_path):
    """The band is closed, whatever the last bits of a mean say."""
    report = replace(REPORT, band_lower=0.9, band_upper=0.9)
    assert check_coverage(good_rows(), report, "covered", thresholds=THRESHOLDS, output=tmp_path).success


@pytest.mark.parametrize(
    ("columns", "report", "expected"),
    [
        (
            {"covered": [True] * 5 + [False] * 5 + [None], "missing": [False] * 9 + [None, True]},
            {"empirical": 0.5, "band_lower": 0.3, "band_upper": 0.7},
            {
                "valid rows: coverage must lie in [0.7, 1.1], the band around 0.9",
                "all rows: 'missing' must be there in every row",
            },
        ),
        (
            {"covered": [True] * 10 + [None], "width": [0.9] * 10 + [None]},
            {"empirical": 1.0, "band_lower": 0.95, "band_upper": 1.0},
            {
                "valid rows: coverage must lie in [0.9, 0.95], the band around 0.9",
                "valid rows: the mean width must be at most 0.8",
            },
        ),
        (
            {"width": [float("inf")] + [0.1] * 9 + [None], "unbounded": [True] * 3 + [False] * 7 + [None]},
            {},
            {
                "valid rows: the mean width must be at most 0.8",
                "valid rows: the unbounded share must be at most 0.2",
            },
        ),
        (
            {"width": [None] + [0.1] * 9 + [None], "unbounded": [None] + [False] * 9 + [None]},
            {"empirical": 0.8},
            {
                "valid rows: 'width' must be there in every row",
                "valid rows: 'unbounded' must be there in every row",
                "report: the gap between the coverage of report and rows must be at most 0",
            },
        ),
        (
            {"covered": [None] + [True] * 9 + [None], "prompt_id": ["p"] * 11},
            {"empirical": 1.0, "ess_share": float("nan")},
            {
                "valid rows: 'covered' must be there in every row",
                "valid rows: the number of prompts must be at least 5",
                "report: 'ess_share' must be there in every row",
            },
        ),
        (
            {"covered": [0.9] * 10 + [None], "prompt_id": [f"p{i}" for i in range(10)] + [None]},
            {},
            {"valid rows: 'covered' must be true or false", "all rows: 'prompt_id' must be there in every row"},
        ),
        (
            {"missing": [True] * 2 + [False] * 8 + [True]},
            {"empirical": 7 / 8},
            {
                "all rows: the missing share must be at most 0.2",
                "valid rows: the number of rows must be at least 10",
            },
        ),
        (
            {},
            {"band_lower": None, "band_upper": None},
            {"report: 'band_lower' must be there in every row", "report: 'band_upper' must be there in every row"},
        ),
    ],
)
def test_each_broken_coverage_rule_fails_by_name_and_no_other(tmp_path, columns, report, expected):
    """Each violation fails the check with a sentence of its own, and what is in order is not named."""
    rows = {**good_rows(), **columns}
    assert expected == keys(
        check_coverage(rows, replace(REPORT, **report), "covered", thresholds=THRESHOLDS, output=tmp_path)
    )


def test_intervals_of_the_whole_support_fail_twice(tmp_path):
    """Intervals that are all [0, 1] cover always: too much, and too wide."""
    rows = {**good_rows(), "covered": [True] * 10 + [None], "width": [1.0] * 10 + [None]}
    report = replace(REPORT, empirical=1.0, band_lower=0.92, band_upper=1.0)
    text = failures(check_coverage(rows, report, "covered", thresholds=THRESHOLDS, output=tmp_path))
    assert "expect_interval_coverage_near_target" in text
    assert "the mean width must be at most 0.8" in text


@pytest.mark.parametrize("num_missing", [0, 4])
def test_empty_and_all_missing_tables_fail(tmp_path, num_missing):
    """Without a valid row nothing is shown, and what is undefined fails, even where a report claims otherwise."""
    rows = {name: [None] * num_missing for name in good_rows()}
    rows |= {"prompt_id": list("abcd")[:num_missing], "missing": [True] * num_missing}
    lenient = replace(THRESHOLDS, min_rows=1, min_prompts=1, max_missing_share=1.0)
    text = failures(check_coverage(rows, REPORT, "covered", thresholds=lenient, output=tmp_path / "claimed"))
    assert "valid rows: the number of rows must be at least 1" in text
    assert "(expect_interval_coverage_near_target); got nothing that could be computed" in text
    assert ("all rows: the number of rows" in text) == (num_missing == 0)
    undefined = replace(REPORT, empirical=None, band_lower=None, band_upper=None, mean_width=None)
    assert "report: 'empirical' must be there" in failures(
        check_coverage(rows, undefined, "covered", thresholds=lenient, output=tmp_path / "undefined")
    )


def test_absent_columns_are_refused(tmp_path):
    """Rows without a column are an error that names it."""
    rows = {name: values for name, values in good_rows().items() if name != "width"}
    with pytest.raises(BadInputError, match=r"'width' must be a column of the rows; got"):
        check_coverage(rows, REPORT, "covered", thresholds=THRESHOLDS, output=tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_rows", 0),
        ("min_prompts", 0),
        ("max_mean_width", 0.0),
        ("max_unbounded_share", 1.1),
        ("max_missing_share", float("nan")),
    ],
)
def test_thresholds_out_of_range_are_refused(name, value):
    """A threshold that could not be meant is refused by name."""
    with pytest.raises(ConfigError, match=rf"'{name}' must .*; got {value}"):
        replace(THRESHOLDS, **{name: value})


@pytest.mark.parametrize("state", ["under_coverage", "no_overlap", "concept_drift"])
def test_evidence_of_the_run_closes_the_gate(state, tmp_path):
    """A good iteration does not pass while the run as a whole is alarmed; the alarm is named."""
    outcome = check_coverage(good_rows(), REPORT, state, thresholds=THRESHOLDS, output=tmp_path)
    assert not outcome.success
    assert "the evidence of the run must be none of" in outcome.failed[0]
    assert state in outcome.failed[0]


@pytest.mark.parametrize("state", ["covered", "over_coverage", "too_little_evidence"])
def test_states_without_alarm_leave_the_gate_open(state, tmp_path):
    """Coarse scores often cover too much, and early evidence is little: neither is an alarm of the run."""
    assert check_coverage(good_rows(), REPORT, state, thresholds=THRESHOLDS, output=tmp_path).success


def finding(consequence, *, value=0.05, diagnostic="ess_share"):
    """Return the outcome of a rule that asks for .1 or more."""
    return OverlapFinding(
        diagnostic=diagnostic,
        words="the effective sample share must be at least 0.1",
        value=value,
        low=0.1,
        high=None,
        consequence=consequence,
        next_step="Recalibrate.",
    )


def stored_severities(outcome):
    """Return the severities of the overlap table, by expectation."""
    table = json.loads(outcome.result_path.read_text())["tables"]["overlap"]
    return [row["expectation_config"]["severity"] for row in table["results"]][1:]


@pytest.mark.parametrize(
    ("consequence", "severity", "open_gate"),
    [
        ("warn", "warning", True),
        ("widen", "warning", True),
        ("recalibrate", "critical", False),
        ("stop", "critical", False),
    ],
)
def test_consequence_of_an_overlap_rule_is_its_severity(tmp_path, consequence, severity, open_gate):
    """A broken rule that says recalibrate or stop closes the gate; one that says warn or widen marks."""
    outcome = check_coverage(
        good_rows(), REPORT, "covered", thresholds=THRESHOLDS, overlap=[finding(consequence)], output=tmp_path
    )
    assert open_gate == outcome.success
    sentences = outcome.warned if open_gate else outcome.failed
    assert "overlap: the effective sample share must be at least 0.1, else " + consequence in sentences[0]
    assert "got 0.05" in sentences[0]
    assert [severity] == stored_severities(outcome)
    assert list(outcome.warned) == json.loads(outcome.result_path.read_text())["warned"]


def test_what_is_not_defined_is_told_and_what_is_not_a_number_fails(tmp_path):
    """A diagnostic without a value is an info; one that is NaN is a broken rule; an unbroken one is met."""
    overlap = [finding("stop", value=None), finding("stop", value=0.1, diagnostic="effective_rows")]
    outcome = check_coverage(
        good_rows(), REPORT, "covered", thresholds=THRESHOLDS, overlap=overlap, output=tmp_path / "none"
    )
    assert (outcome.success, outcome.warned) == (True, ())
    assert "'ess_share' should be defined" in json.loads(outcome.result_path.read_text())["noted"][0]
    undefined = [finding("stop", value=float("nan"))]
    outcome = check_coverage(
        good_rows(), REPORT, "covered", thresholds=THRESHOLDS, overlap=undefined, output=tmp_path / "nan"
    )
    assert not outcome.success


def test_over_coverage_of_the_run_is_a_warning(tmp_path):
    """Wide intervals are marked, and do not close the gate; too little evidence is only told."""
    over = check_coverage(good_rows(), REPORT, "over_coverage", thresholds=THRESHOLDS, output=tmp_path / "over")
    assert over.success
    assert "none of over_coverage" in over.warned[0]
    little = check_coverage(good_rows(), REPORT, "too_little_evidence", thresholds=THRESHOLDS, output=tmp_path / "few")
    assert (little.success, little.warned) == (True, ())
    assert json.loads(little.result_path.read_text())["noted"]


def test_every_expectation_is_on_the_page_with_what_to_do(tmp_path):
    """The page holds each expectation, its limit and severity; a broken one comes first and says what to do."""
    outcome = check_coverage(
        good_rows(), REPORT, "covered", thresholds=THRESHOLDS, overlap=[finding("stop")], output=tmp_path
    )
    page = outcome.page_path.read_text(encoding="utf-8")
    tables = json.loads(outcome.result_path.read_text())["tables"].values()
    rows = [row for table in tables for row in table["results"]]
    assert outcome.page_path == tmp_path / "index.html"
    assert len(rows) == page.count("<tr class=")
    assert {row["expectation_config"]["severity"] for row in rows} == {"critical", "warning", "info"}
    assert all({"limit", "next_step"} == set(row["expectation_config"]["meta"]) for row in rows)
    assert "<tr class='critical'>" in page.split("<tbody>")[1].splitlines()[1]
    assert "Recalibrate." in page
    assert "href='data_docs/index.html'" in page
    assert "The gate is closed" in page
    assert "Recalibrate" in outcome.markdown
