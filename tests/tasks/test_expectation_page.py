"""The page of a check: what is broken first, nothing of the data is markup."""

from dataclasses import replace

from tasks.expectation_page import PageRow, html_page, markdown_page

ROW = PageRow(
    table="valid rows",
    words="coverage must lie in its band",
    observed="0.9",
    limit="0.8 to 1",
    severity="critical",
    met=True,
    next_step="Recalibrate.",
)


def test_what_is_broken_comes_first_and_says_what_to_do():
    """Critical before warning before info before what is met; only what is broken names a step."""
    rows = [
        ROW,
        replace(ROW, met=False, severity="info", next_step="wait"),
        replace(ROW, met=False, severity="warning", next_step="look"),
        replace(ROW, met=False, next_step="mend"),
    ]
    page = html_page("coverage", rows, docs="data_docs/index.html")
    assert sorted(map(page.index, ("mend", "look", "wait", "✓ met"))) == [
        page.index(word) for word in ("mend", "look", "wait", "✓ met")
    ]
    assert "Recalibrate." not in page
    headline = "The gate is closed: 1 of 4 met; broken: 1 critical (closes the gate), 1 warning (marks the iteration)"
    assert headline in page
    assert headline in markdown_page(rows)


def test_open_gate_is_said_to_be_open():
    """With all met, the Markdown is the headline alone."""
    assert "**The gate is open: 2 of 2 met.**" == markdown_page([ROW, ROW])


def test_observed_values_are_no_markup():
    """A prompt id with tags, pipes and line ends is shown as it is, in one cell."""
    nasty = replace(ROW, met=False, observed="<script>alert(1)</script> | a\n| b [x](y)")
    page = html_page("<b>", [nasty], docs="d")
    assert "<script>" not in page
    assert "<title>&lt;b&gt;" in page
    line = markdown_page([nasty]).splitlines()[-1]
    assert "<script>" not in line
    assert 7 == line.replace("\\|", "").count("|")
