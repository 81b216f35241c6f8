"""What every page owes to those who read it by ear, by keyboard, without colour or in the dark."""

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from rangeline.evaluation.comparison_page import comparison_page
from rangeline.evaluation.comparison_statistics import FlipCount, SeedDifference, SeedMean
from rangeline.evaluation.comparison_summary import Curve, DesignSummary, MethodSummary
from rangeline.evaluation.comparison_tables import accuracy_table, flip_table
from rangeline.evaluation.comparison_text import ComparisonSummary
from rangeline.evaluation.report import render_report
from rangeline.evaluation.run_summary import (
    METRICS,
    CalibrationRow,
    ExpectationOutcome,
    LineageEntry,
    RunSummary,
    Transcript,
    TranscriptRollout,
)


def mean(value):
    """Return a mean over two seeds."""
    return SeedMean(mean=value, standard_error=0.01, num_seeds=2)


def method(name, difference=None, flips=0):
    """Return what one method did."""
    change = difference and SeedDifference(
        mean=difference,
        lower=difference - 0.05,
        upper=difference + 0.05,
        p_value=0.5,
        num_seeds=2,
        num_wins=1,
        num_losses=1,
        confidence=0.95,
    )
    numbers = ("accuracy", "reward", "coverage", "width", "unbounded", "ess", "rms", "midpoint_rms", "flips_right")
    return MethodSummary(
        method=name,
        is_scalar=True,
        learning_rate=0.1,
        seeds=(1, 2),
        difference=change,
        coverage_band=(0.8, 0.9),
        flips=FlipCount(num_credited=10, num_flips=flips, num_agree=flips, num_disagree=0),
        rollouts={"policy": 8},
        before={},
        accuracy_curve=Curve(iterations=(0, 1), points=(mean(0.1), mean(0.5))),
        coverage_curve=Curve(iterations=(1,), points=(mean(0.9),)),
        **{field: mean(0.5) for field in numbers},
    )


def design(name):
    """Return a design with a method that is told apart and one that is not."""
    return DesignSummary(
        design=name,
        reference="range",
        target=0.9,
        is_oracle=True,
        num_held_out=5,
        compares_sources=False,
        methods=(method("range", flips=4), method("apart", 0.2), method("alike", 0.01)),
        missing=(),
        absent={},
    )


def comparison():
    """Return the page of a comparison of two designs."""
    summary = ComparisonSummary(
        name="c", description="d", designs=(design("a"), design("b")), tuning={}, failures={}, confidence=0.95
    )
    return comparison_page(summary)


def report():
    """Return the page of a run that has something in every section."""
    rollout = TranscriptRollout(
        completion="43",
        state="s",
        lower=0.4,
        upper=0.7,
        advantage=0.1,
        midpoint_advantage=-0.1,
        verdict="right",
        finish="stop",
    )
    return render_report(
        RunSummary(
            run_name="r",
            description="d",
            run_card={"a": 1},
            key_card={"estimator": "range"},
            budget={"rollouts": 1},
            iterations=tuple({metric.key: 0.25 for metric in METRICS} | {"status": "covered"} for _ in range(3)),
            calibration=(CalibrationRow(label="0.1", predicted=0.1, observed=0.2, lower=0.0, upper=0.4, count=2),),
            expectations=tuple(ExpectationOutcome(name="e", success=success) for success in (True, False, None)),
            transcripts=(Transcript(prompt="q", reference=None, iteration=1, rollouts=(rollout,)),),
            lineage=(LineageEntry(kind="k", path="p", sha256="s"),),
        )
    )


PAGES = pytest.mark.parametrize("page", [report, comparison])


class Tags(HTMLParser):
    """Tags of a page in order, each with its attributes and the tags around it."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        """Keep a tag."""
        self.tags.append((tag, dict(attrs), tuple(self.open)))
        if tag not in ("meta", "link", "br"):
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        """Keep a tag that holds nothing."""
        self.tags.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        """Leave a tag."""
        while self.open and self.open.pop()[0] != tag:
            pass

    def named(self, *names):
        """Return attributes of the tags of some names."""
        return [attrs for tag, attrs, _ in self.tags if tag in names]


@PAGES
def test_page_has_a_language_a_title_and_landmarks(page):
    """One header, one main, a named navigation, and the language of the words."""
    tags = Tags(page())
    assert ["en"] == [attrs.get("lang") for attrs in tags.named("html")]
    assert (1, 1) == tuple(len(tags.named(name)) for name in ("main", "header"))
    assert 1 == len([around for tag, _, around in tags.tags if tag == "title" and "svg" not in dict(around)])
    assert all(attrs.get("aria-label") for attrs in tags.named("nav"))


@PAGES
def test_headings_never_skip_a_level(page):
    """One first heading, and each further one at most a level below the one before."""
    levels = [int(tag[1]) for tag, _, _ in Tags(page()).tags if re.fullmatch(r"h[1-6]", tag)]
    assert 1 == levels.count(1)
    assert 1 == levels[0]
    assert all(after <= before + 1 for before, after in pairwise(levels))


@PAGES
def test_every_table_names_its_columns_or_rows(page):
    """Each header cell has a scope, and each row of a body begins with one or stands under named columns."""
    tags = Tags(page())
    assert all(attrs.get("scope") in ("col", "row") for attrs in tags.named("th"))
    assert len(tags.named("table")) <= len(tags.named("th"))


@PAGES
def test_every_drawing_is_named_or_hidden(page):
    """An SVG is an image with words, or decoration that a screen reader passes over."""
    outer = [attrs for tag, attrs, around in Tags(page()).tags if tag == "svg" and "svg" not in dict(around)]
    assert outer
    for attrs in outer:
        assert attrs.get("aria-hidden") == "true" or (attrs["role"] == "img" and len(attrs["aria-label"]) > 10)


@PAGES
def test_what_scrolls_can_be_reached_by_keyboard(page):
    """Regions that scroll sideways take the focus and have a name."""
    scrolling = [attrs for _, attrs, _ in Tags(page()).tags if attrs.get("class") in ("scroll", "drawn")]
    assert scrolling
    assert all(attrs.get("tabindex") == "0" and attrs.get("aria-label") for attrs in scrolling)


@PAGES
def test_ids_are_unique(page):
    """Links and labels find one place; drawings of several designs share no names."""
    ids = [attrs["id"] for _, attrs, around in Tags(page()).tags if "id" in attrs and "svg" not in dict(around)]
    assert sorted(set(ids)) == sorted(ids)


def palettes(html):
    """Return the colours of the light and of the dark page."""
    light, dark = re.findall(r":root \{(.*?)\}", html, re.S)[:2]
    return [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in (light, dark)]


def luminance(colour):
    """Return the relative luminance of a colour, by WCAG 2.2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Return the contrast ratio of two colours, by WCAG 2.2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard():
    """Black on white is 21, a colour on itself is 1."""
    assert 21 == pytest.approx(contrast("#000", "#ffffff"))
    assert 1 == contrast("#1f5fa8", "#1f5fa8")


@PAGES
def test_text_and_lines_stand_out_in_light_and_dark(page):
    """Words have a contrast of 4.5 with page and panel, lines and marks of 3 (WCAG 2.2, AA)."""
    for colours in palettes(page()):
        for ground in (colours["page"], colours["panel"]):
            words = [colours[name] for name in ("text", "quiet", "link", "s0") if name in colours]
            assert all(contrast(colour, ground) >= 4.5 for colour in words)
            lines = [colour for name, colour in colours.items() if re.fullmatch(r"s\d|target|band", name)]
            assert all(contrast(colour, ground) >= 3 for colour in lines)


def test_difference_is_told_without_colour():
    """A method whose interval excludes 0 has a full mark, another a hollow one, and both their numbers in words."""
    page = comparison()
    assert (2, 2) == (page.count('class="told"'), page.count('class="untold"'))
    assert "apart: +20.0 [+15.0, +25.0]; alike: +1.0 [-4.0, +6.0]." in page


def test_accuracy_of_all_designs_is_one_table():
    """One row a method and one column a design; a method that a design lacks has a dash, and the best has a star."""
    header, rows = accuracy_table((design("a"), design("b")))
    assert ["method", "a", "b"] == header
    assert ["range", "50.0 ± 1.0 ★", "50.0 ± 1.0 ★"] == rows[0]


def test_turned_signs_are_of_methods_that_turn_any():
    """A method that turned no sign has no row; the others say how many went which way."""
    header, rows = flip_table(design("a"))
    assert [["range", "10", "4", "40.0 %", "4", "0", "50.0 ± 1.0"]] == rows
    assert len(header) == len(rows[0])
