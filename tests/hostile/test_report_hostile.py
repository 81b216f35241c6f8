from html.parser import HTMLParser

import pytest

from rangeline.evaluation.report import render_report
from rangeline.evaluation.run_summary import (
    CalibrationRow,
    DomainEvaluation,
    ExpectationOutcome,
    LineageEntry,
    RunSummary,
    Transcript,
    TranscriptRollout,
)

ATTACKS = [
    "<script>alert(1)</script>",
    "</pre></details><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' autofocus onfocus='alert(1)",
    "{{ run.run_card }}{% for x in run %}",
    "</style><style>*{display:none}</style>",
    "<!-- ",
    "]]><iframe src='https://example.org'>",
    "&lt;script&gt;",
    "{0.__class__} %s {x}",
]


def rollout(text):
    """Return a rollout with one text in every field."""
    return TranscriptRollout(
        completion=text,
        state=text,
        lower=0.0,
        upper=1.0,
        advantage=0.1,
        midpoint_advantage=0.1,
        verdict="wrong",
        finish=text,
    )


def run_of(text, **changes):
    """Return a run with one text in every field."""
    fields = {
        "run_name": text,
        "description": text,
        "run_card": {text: text},
        "budget": {text: 1},
        "evaluations": (DomainEvaluation(domain=text, num_prompts=1, before=None, after=None, paired=None),),
        "iterations": ({"coverage/empirical": 0.9, "status": text, text: 1.0},),
        "calibration": (CalibrationRow(label=text, predicted=0.5, observed=0.5, count=1),),
        "expectations": (ExpectationOutcome(name=text, success=False, detail=text),),
        "transcripts": (Transcript(prompt=text, reference=text, iteration=0, rollouts=(rollout(text),)),),
        "lineage": (LineageEntry(kind=text, path=text, sha256=text),),
    }
    return RunSummary(**(fields | changes))


class Shape(HTMLParser):
    """Tags with the names of their attributes, and all text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        """Keep a tag with the names of its attributes."""
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data):
        """Keep a text."""
        self.words.append(data)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_adds_a_tag_or_an_attribute(attack):
    """A page with an attack in every field has the very tags and attributes of one with a plain word."""
    assert Shape(render_report(run_of("word"))).tags == Shape(render_report(run_of(attack))).tags


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_stays_readable_as_it_was_written(attack):
    """Escaping loses nothing: the reader sees the completion's own characters."""
    assert attack in "".join(Shape(render_report(run_of(attack))).words)


@pytest.mark.parametrize("letter", ["\u202e", "\u2066", "\u200b", "\x00", "\x08", "\x1b", "\x85", "\ud800", "\ufeff"])
def test_hidden_characters_reach_no_part_of_the_page(letter):
    """Bidirectional, zero-width and control characters are written out in every field, and the page encodes."""
    page = render_report(run_of(f"a{letter}b"))
    assert letter not in page
    assert f"a⟨U+{ord(letter):04X}⟩b" in page
    assert page.encode()


def test_page_stays_under_three_megabytes():
    """Endless completions, transcripts, iterations and lineage are cut, and the page says so."""
    text = "\u202e<&" * 20_000
    iteration = {"coverage/empirical": 0.123456, "policy/loss": -1e-7, "status": "covered"}
    page = render_report(
        run_of(
            "word",
            description=text,
            iterations=(iteration,) * 2000,
            transcripts=(Transcript(prompt=text, reference=text, iteration=0, rollouts=(rollout(text),) * 8),) * 50,
            lineage=(LineageEntry(kind="pool", path="p" * 200, sha256="a" * 64),) * 3000,
        )
    )
    assert len(page.encode()) < 3_000_000
    assert "more transcripts are not shown" in page
    assert "1600 more rows are not shown." in page
    assert "2600 more rows are not shown." in page
    assert "more characters not shown]" in page


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.9", None, True])
def test_unusable_metrics_leave_gaps(value):
    """A metric that is not a finite number is neither drawn nor averaged nor shown as 0."""
    row = dict.fromkeys(("coverage/empirical", "coverage/band_lower", "train/accuracy", "time/judge_s"), value)
    page = render_report(run_of("word", iterations=(row,)))
    assert "Coverage is unknown" in page
    assert "nan" not in "".join(Shape(page).words).split()


def test_intervals_outside_the_unit_range_are_written_but_not_drawn():
    """Contrast scores have no fixed range, so that no strip pretends one."""
    wide = TranscriptRollout(
        completion="c",
        state="",
        lower=-3.5,
        upper=7.25,
        advantage=None,
        midpoint_advantage=None,
        verdict="unlabelled",
        finish="stop",
    )
    page = render_report(
        run_of("word", transcripts=(Transcript(prompt="p", reference=None, iteration=0, rollouts=(wide,)),))
    )
    assert "[\N{MINUS SIGN}3.5, 7.25]" in page
    assert 'class="strip"' not in page
