"""What the report says of turned signs and of the judge."""

import pytest

from rangeline.evaluation.report_findings import flip_finding, judge_finding
from rangeline.evaluation.run_summary import RunSummary


def run_of(*rows):
    """Return a run of some iterations."""
    return RunSummary(run_name="r", description="d", run_card={}, budget={}, iterations=rows)


def turned(right, wrong, whose="oracle"):
    """Return an iteration with signs turned each way, of a hundred that were credited."""
    numbers = {"advantage/sign_flips": right + wrong, "advantage/credited": 100}
    return numbers | {f"{whose}/flips_right": right, f"{whose}/flips_wrong": wrong}


@pytest.mark.parametrize(
    ("right", "wrong", "mark", "words"),
    [(9, 1, "▲", "mostly rightly"), (1, 9, "▼", "mostly wrongly"), (5, 5, "≈", "no clear gain")],
)
def test_verdict_on_turned_signs_follows_the_interval(right, wrong, mark, words):
    """Signs were turned rightly or wrongly only if the interval of the share excludes one half."""
    finding = flip_finding(run_of(*[turned(right, wrong)] * 12))
    assert (mark, True) == (finding.mark, words in finding.headline)
    assert "120 of 1,200 credited rollouts (10.0%)" == finding.numbers


def test_few_iterations_give_no_verdict_on_turned_signs():
    """Four iterations, however one-sided, tell nothing: rollouts of one iteration stand and fall together."""
    assert "too few to tell" in flip_finding(run_of(*[turned(50, 0)] * 4)).headline


def test_audits_speak_where_there_is_no_oracle():
    """Without an oracle the truth of audited rollouts is used, and the page says so."""
    finding = flip_finding(run_of(*[turned(9, 1, "audit")] * 12))
    assert "Of audited rollouts, credited alike: 108 turned towards the truth, 12 away from it" in finding.detail


def test_unknown_turns_are_not_zero():
    """A run that counted none has no finding; turned signs without any truth have no verdict."""
    assert flip_finding(run_of({"advantage/sign_flips": None})) is None
    finding = flip_finding(run_of({"advantage/sign_flips": 3, "advantage/credited": 10}))
    assert ("?", True) == (finding.mark, "truth not known" in finding.headline)
    assert "No sign was turned" in flip_finding(run_of({"advantage/sign_flips": 0})).headline


@pytest.mark.parametrize(
    ("agreement", "mark"), [([0.7, 0.8, 0.75] * 3, "✓"), ([0.2, 0.3, 0.25] * 3, "✗"), ([0.3, 0.7] * 4, "≈")]
)
def test_judge_is_held_against_a_coin(agreement, mark):
    """A judge agrees or disagrees only if the interval over iterations excludes one half."""
    rows = [{"judge/agreement": value, "judge/unknown_share": 0.25, "judge/missing_share": None} for value in agreement]
    finding = judge_finding(run_of(*rows))
    assert mark == finding.mark
    assert "UNKNOWN 25.0%, missing \N{EN DASH}" in finding.detail


def test_judge_that_was_not_asked_has_no_finding():
    """Rewards without a judge say nothing of one; a judge without audited pairs is not known to agree."""
    assert judge_finding(run_of({"judge/unknown_share": None})) is None
    assert "not known" in judge_finding(run_of({"judge/unknown_share": 0.1})).headline
