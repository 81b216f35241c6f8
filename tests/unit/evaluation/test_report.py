import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rangeline.evaluation.comparison import PairedDifference
from rangeline.evaluation.report import render_report, summary_table
from rangeline.evaluation.report_words import accuracy_finding, change_text, coverage_finding, estimate_text
from rangeline.evaluation.run_summary import (
    METRICS,
    CalibrationRow,
    DomainEvaluation,
    ExpectationOutcome,
    LineageEntry,
    RunSummary,
    Transcript,
    TranscriptRollout,
)
from rangeline.evaluation.sampling_metrics import Estimate

ITERATION = {metric.key: 0.25 for metric in METRICS} | {
    "coverage/empirical": 0.92,
    "coverage/band_lower": 0.87,
    "coverage/band_upper": 0.96,
    "coverage/target": 0.9,
    "status": "covered",
}


def paired(mean=0.1, lower=0.05, upper=0.15):
    """Return a change with a given interval."""
    return PairedDifference(
        mean=mean,
        lower=lower,
        upper=upper,
        p_value=0.02,
        mean_p_value=0.03,
        num_shared=40,
        num_better=9,
        num_worse=2,
        num_unshared=0,
        confidence=0.95,
    )


def domain(change):
    """Return a domain that went from 30 to 40 %."""
    before = Estimate(value=0.3, lower=0.2, upper=0.4, num_prompts=40)
    after = Estimate(value=0.4, lower=0.3, upper=0.5, num_prompts=40)
    return DomainEvaluation(domain="maths", num_prompts=40, before=before, after=after, paired=change)


def summary(**changes):
    """Return a run of one iteration, with some fields changed."""
    fields = {
        "run_name": "run-7",
        "description": "A tiny policy.",
        "run_card": {"estimator": "range", "kl": None},
        "iterations": (ITERATION,),
        "budget": {"rollouts": 12288, "GPU hours": None},
    }
    return RunSummary(**(fields | changes))


class Page(HTMLParser):
    """Tags, attributes and text of one page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        """Keep a text."""
        self.words.append(data)

    @property
    def text(self):
        """All text, with single spaces."""
        return re.sub(r"\s+", " ", " ".join(self.words))

    def values(self, name):
        """Return each value of an attribute."""
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def test_page_stands_alone():
    """No script, no outside style, font or image, and every link stays on the page."""
    page = Page(render_report(summary()))
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in page.tags}
    assert page.values("src") == []
    assert all(link.startswith("#") for link in page.values("href"))
    assert "default-src 'none'" in " ".join(page.values("content"))


def test_contents_lead_to_sections_with_unique_ids():
    """Every entry of the contents names an id that exists once."""
    page = Page(render_report(summary()))
    ids = page.values("id")
    assert sorted(set(ids)) == sorted(ids)
    assert {link[1:] for link in page.values("href")} == {attrs["id"] for tag, attrs in page.tags if tag == "section"}


def test_page_fits_phones_print_and_dark_screens():
    """The page carries a viewport, a dark palette and print rules."""
    html = render_report(summary())
    assert 'name="viewport"' in html
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_every_chart_has_a_text_alternative_with_its_key_numbers():
    """A reader who sees no drawing gets its title and numbers."""
    page = Page(render_report(summary()))
    charts = [attrs for tag, attrs in page.tags if tag == "svg" and attrs.get("class") == "chart"]
    assert all(attrs["role"] == "img" for attrs in charts)
    labels = [attrs["aria-label"] for attrs in charts]
    assert "Coverage of the truth by iteration. coverage: first 92.0%, last 92.0%" in labels[0]
    assert all(label for label in labels)


def test_every_metric_of_an_iteration_is_shown():
    """A value of each metric reaches its table under its label."""
    row = {metric.key: (100.0 + i) / 1000 for i, metric in enumerate(METRICS)}
    text = Page(render_report(summary(iterations=(row,)))).text
    tables = text[text.index("All numbers by iteration") :]
    for i, metric in enumerate(METRICS):
        assert metric.label in tables
        assert (f"{(100 + i) / 10:.1f}%" if metric.kind == "share" else f"{(100.0 + i) / 1000:.3g}") in tables


def test_unknown_shows_as_a_dash_and_never_as_zero():
    """A run that knows nothing holds no number but its own position."""
    rows = summary_table(summary(iterations=({"coverage/empirical": None, "reward/missing_share": float("nan")},)))
    assert {value for _, value in rows} == {"\N{EN DASH}"}


def test_an_empty_run_renders():
    """Without iterations, evaluations or transcripts the page says so in words."""
    page = Page(render_report(RunSummary(run_name="r", description="d", run_card={}, budget={})))
    assert "Coverage is unknown" in page.text
    assert "No transcripts are shown." in page.text


@pytest.mark.parametrize(
    ("status", "mark", "headline"),
    [
        ("covered", "✓", "Coverage stands"),
        ("under_coverage", "✗", "Coverage does not stand"),
        ("over_coverage", "▲", "Coverage stands, with room"),
        ("too_little_evidence", "?", "Coverage is undecided"),
        (None, "?", "Coverage has no verdict"),
    ],
)
def test_coverage_headline_follows_the_status(status, mark, headline):
    """The words of the headline are those of the coverage report, and a missing status is no success."""
    finding = coverage_finding(summary(iterations=(ITERATION | {"status": status},)))
    assert (mark, headline) == (finding.mark, finding.headline)
    assert finding.numbers == "92.0% (band 87.0% to 96.0%; target 90.0%; iteration 0)"


def test_headline_uses_the_last_iteration_that_measured_coverage():
    """An unmeasured last iteration does not pass for a covered one."""
    rows = (ITERATION | {"status": "under_coverage"}, ITERATION | {"coverage/empirical": None, "status": "covered"})
    finding = coverage_finding(summary(iterations=rows))
    assert finding.headline == "Coverage does not stand"
    assert "iteration 0" in finding.numbers


def test_iteration_numbers_come_from_the_rows_where_they_are_given():
    """A resumed run keeps its own numbering."""
    run = summary(iterations=(ITERATION | {"iteration": 30}, ITERATION | {"iteration": 31}))
    assert run.iteration_numbers == [30.0, 31.0]
    assert dict(summary_table(run))["mean interval width"] == "0.25 (iteration 31)"


@pytest.mark.parametrize(
    ("change", "mark", "words"),
    [
        (paired(), "▲", "rose"),
        (paired(-0.1, -0.15, -0.05), "▼", "fell"),
        (paired(0.01, -0.03, 0.05), "≈", "did not move clearly"),
        (paired(0.1, None, None), "≈", "did not move clearly"),
        (None, "?", "no comparison"),
    ],
)
def test_accuracy_moved_only_if_its_interval_excludes_zero(change, mark, words):
    """Better means before and after alone decide nothing."""
    finding = accuracy_finding(domain(change))
    assert finding.mark == mark
    assert words in finding.headline
    assert finding.numbers == "30.0% → 40.0%"


def test_closing_table_holds_accuracy_change_and_coverage():
    """The rows are those that the command line prints."""
    rows = dict(summary_table(summary(evaluations=(domain(paired()),))))
    assert rows["accuracy before, maths"] == "30.0% (20.0% to 40.0%; 40 prompts)"
    assert rows["change, maths"] == "+10.0 points (+5.0 to +15.0; 40 shared prompts, sign test p = 0.02)"
    assert rows["coverage"] == "92.0% (band 87.0% to 96.0%; target 90.0%; iteration 0)"
    assert rows["missing rewards"] == "25.0% (iteration 0)"


def test_closing_table_tells_the_coverage_of_the_whole_run_where_it_is_watched():
    """Misses of all audited prompts become coverage, the interval turned over; without a monitor there is no row."""
    row = {"monitor/mean_miss": 0.1, "monitor/miss_lower": 0.05, "monitor/miss_upper": 0.25, "monitor/num_prompts": 72}
    watched = dict(summary_table(summary(iterations=(row,))))
    assert watched["coverage over the run"] == "90.0% (75.0% to 95.0% at every look; 72 audited prompts)"
    assert "coverage over the run" not in dict(summary_table(summary(iterations=({"coverage/empirical": 0.9},))))


def test_unknown_estimates_are_dashes():
    """An estimate without a value, or none at all, is a dash."""
    empty = Estimate(value=None, lower=None, upper=None, num_prompts=0)
    assert [estimate_text(empty), estimate_text(None), change_text(None)] == [
        "\N{EN DASH}",
        "\N{EN DASH}",
        "\N{EN DASH}",
    ]


def test_transcripts_show_interval_credit_and_flip():
    """A rollout whose sign differs from the midpoint's is marked in words."""
    rollout = TranscriptRollout(
        completion="43",
        state="agreement: high",
        lower=0.4,
        upper=0.68,
        advantage=0.0055,
        midpoint_advantage=-0.005,
        verdict="right",
        finish="stop",
    )
    shown = Transcript(prompt="17 + 26?", reference=None, iteration=3, rollouts=(rollout,))
    text = Page(render_report(summary(transcripts=(shown,)))).text
    for words in (
        "Iteration 3, trained on",
        "1 ✓ right",
        "[0.4, 0.68]",
        "+0.0055",
        "\N{MINUS SIGN}0.005 ⇄ sign turned",
        "agreement: high",
    ):
        assert words in text


def test_missing_reward_has_no_interval():
    """A rollout without a reward shows a dash and no strip."""
    rollout = TranscriptRollout(
        completion="?",
        state="",
        lower=None,
        upper=None,
        advantage=None,
        midpoint_advantage=None,
        verdict="missing",
        finish="length",
    )
    page = Page(
        render_report(summary(transcripts=(Transcript(prompt="q", reference="a", iteration=0, rollouts=(rollout,)),)))
    )
    assert (
        "interval \N{EN DASH} advantage \N{EN DASH} by midpoint alone \N{EN DASH} state \N{EN DASH} finish length"
        in page.text
    )
    assert "strip" not in page.values("class")


def test_checks_calibration_budget_and_lineage_are_shown():
    """Outcomes carry a mark and a word, and an undefined check is not a success."""
    run = summary(
        expectations=tuple(
            ExpectationOutcome(name=name, success=success)
            for name, success in (("rows", True), ("nulls", False), ("band", None))
        ),
        calibration=(CalibrationRow(label="0.2 to 0.3", predicted=0.25, observed=None, count=1234),),
        lineage=(LineageEntry(kind="pool", path="data/p.parquet", sha256="ab12"),),
    )
    text = Page(render_report(run)).text
    for words in (
        "✓ met rows",
        "✗ not met nulls",
        "? undefined band",
        "0.2 to 0.3 calibration 25.0% \N{EN DASH} \N{EN DASH} 1,234",
    ):
        assert words in text
    for words in (
        "pool data/p.parquet ab12",
        "rollouts 12,288",
        "GPU hours \N{EN DASH}",
        "estimator range",
        "kl \N{EN DASH}",
    ):
        assert words in text


def test_the_page_says_the_share_of_orchestration_over_measured_iterations():
    """Two iterations of 8 and 2 seconds with 0.3 and 0.2 outside the library are 5 %; one unmeasured is left out."""
    known = [{**ITERATION, "time/iteration_s": a, "time/orchestration_s": b} for a, b in ((8.0, 0.3), (2.0, 0.2))]
    unknown = {key: value for key, value in ITERATION.items() if not key.startswith("time/")}
    assert "expectations) took 5.0% of 2 iterations" in render_report(summary(iterations=(*known, unknown)))
    assert "orchestration was not measured" in render_report(summary(iterations=(unknown,)))


@pytest.mark.parametrize(("names", "told"), [(["all", "maths"], ["maths"]), (["all", "a", "b"], ["all", "a", "b"])])
def test_accuracy_is_told_once_where_there_is_one_domain(names, told):
    """Of a single domain, the numbers over all of them would say the same again, on the page and in the table."""
    run = summary(evaluations=tuple(replace(domain(paired()), domain=name) for name in names))
    rows = [name for name, _ in summary_table(run) if name.startswith("change, ")]
    assert [f"change, {name}" for name in told] == rows
    page = render_report(run)
    assert told == [name for name in names if f"Accuracy on {name} rose" in page]
