"""Unit tests of the overlap rules and of widened intervals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rangeline.conformal.overlap_rules import DIAGNOSTICS, concerned_N, judge_overlap, widen
from rangeline.errors import CalibrationError
from rangeline.records import OverlapReport, RewardIntervals

REPORT = OverlapReport(
    ess=60.0,
    ess_share=0.6,
    max_weight_share=0.02,
    clipped_share=0.0,
    clipped_target_share=0.0,
    mean_source_weight=1.0,
    pareto_k=None,
    classifier_auc=0.6,
    unseen_target_share=0.0,
    num_unseen_levels=0,
    separable=False,
    num_source=100,
    num_target=50,
)
LIMITS = {
    "ess_share": 0.1,
    "effective_rows": 50,
    "max_weight_share": 0.1,
    "clipped_share": 0.05,
    "clipped_target_share": 0.1,
    "classifier_auc": 0.9,
    "unseen_target_share": 0.2,
    "pareto_k": 0.7,
    "mean_source_weight": 1.5,
    "unbounded_share": 0.5,
    "separable": 0,
}
INTERVALS = RewardIntervals(
    prompt_id_N=("a", "a", "b", "b"),
    lower_N=[0.2, 0.0, 0.4, math.nan],
    upper_N=[0.6, 1.0, 0.5, math.nan],
    unbounded_N=[False, True, False, False],
    missing_N=[False, False, False, True],
    support=(0.0, 1.0),
    source="judge_interval",
)


def judged(consequence="warn", unbounded_share=0.0, **values):
    """Return the findings of a report with these values, all rules with one consequence."""
    rules = {name: (limit, consequence) for name, limit in LIMITS.items()}
    return judge_overlap(replace(REPORT, **values), unbounded_share=unbounded_share, rules=rules)


def broken(**values):
    """Return the names of the broken rules."""
    return [finding.diagnostic for finding in judged(**values) if finding.is_broken]


def test_every_diagnostic_is_judged_and_a_sound_report_breaks_none():
    """One finding a rule, in order; what is not defined breaks nothing."""
    assert list(DIAGNOSTICS) == [finding.diagnostic for finding in judged()]
    assert [] == broken()
    assert set(DIAGNOSTICS) == set(LIMITS)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"ess_share": 0.09}, "ess_share"),
        ({"ess": 49.0}, "effective_rows"),
        ({"max_weight_share": 0.11}, "max_weight_share"),
        ({"clipped_share": 0.06}, "clipped_share"),
        ({"clipped_target_share": 0.11}, "clipped_target_share"),
        ({"classifier_auc": 0.91}, "classifier_auc"),
        ({"unseen_target_share": 0.21}, "unseen_target_share"),
        ({"pareto_k": 0.71}, "pareto_k"),
        ({"mean_source_weight": 1.51}, "mean_source_weight"),
        ({"mean_source_weight": 1 / 1.51}, "mean_source_weight"),
        ({"unbounded_share": 0.51}, "unbounded_share"),
        ({"separable": True}, "separable"),
        ({"ess_share": math.nan}, "ess_share"),
    ],
)
def test_each_diagnostic_breaks_its_own_rule_and_no_other(values, name):
    """A value beyond its limit, or none that can be compared, breaks the rule of its name."""
    assert [name] == broken(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"ess_share": 0.1},
        {"ess": 50.0},
        {"max_weight_share": 0.1},
        {"mean_source_weight": 1.5},
        {"mean_source_weight": 1 / 1.5},
        {"unbounded_share": None},
        {"classifier_auc": None},
    ],
)
def test_a_value_at_its_limit_holds(values):
    """Limits are part of what is allowed."""
    assert [] == broken(**values)


def test_finding_says_limit_value_and_consequence():
    """One sentence holds what a person needs."""
    found = next(f for f in judged("stop", ess_share=0.05) if f.is_broken)
    assert "the effective sample share must be at least 0.1; got 0.05 (stop)." == found.sentence
    assert [True, True, False, False] == [
        any(f.is_critical for f in judged(name, ess_share=0.05)) for name in ("stop", "recalibrate", "widen", "warn")
    ]


def test_rule_for_nothing_known_is_refused():
    """A misspelt diagnostic is named."""
    with pytest.raises(CalibrationError, match=r"'rules' must be for one of ess_share, .*; got 'ess'"):
        judge_overlap(REPORT, unbounded_share=None, rules={"ess": (0.1, "warn")})


@pytest.mark.parametrize(
    ("consequence", "values", "expected"),
    [
        ("widen", {}, [False] * 4),
        ("warn", {"ess_share": 0.01}, [False] * 4),
        ("widen", {"ess_share": 0.01}, [True] * 4),
        ("widen", {"unseen_target_share": 0.5}, [False, False, True, True]),
        ("widen", {"clipped_target_share": 0.5}, [False, True, False, False]),
        ("widen", {"clipped_target_share": 0.5, "unseen_target_share": 0.5}, [False, True, True, True]),
    ],
)
def test_widening_concerns_the_states_that_a_diagnostic_names(consequence, values, expected):
    """Unseen states and clipped weights concern their own rollouts, all other diagnostics every rollout."""
    levels = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    actual = concerned_N(
        judged(consequence, **values),
        levels,
        source_SK=np.array([[0, 0], [1, 0]]),
        clipped_N=np.array([False, True, False, False]),
    )
    assert expected == actual.tolist()


def test_widened_intervals_hold_the_old_ones():
    """What was inside stays inside: no truth that was covered ceases to be, whatever is concerned."""
    for code in range(16):
        concerned = [bool(code >> i & 1) for i in range(4)]
        wide = widen(INTERVALS, concerned)
        valid = ~INTERVALS.missing_N
        assert (wide.lower_N[valid] <= INTERVALS.lower_N[valid]).all()
        assert (wide.upper_N[valid] >= INTERVALS.upper_N[valid]).all()
        assert INTERVALS.missing_N.tolist() == wide.missing_N.tolist()
        for i in np.flatnonzero(valid):
            if concerned[i]:
                assert (0.0, 1.0, True) == (wide.lower_N[i], wide.upper_N[i], bool(wide.unbounded_N[i]))
            else:
                assert INTERVALS.unbounded_N[i] == wide.unbounded_N[i]


def test_scores_without_a_support_cannot_be_widened():
    """There is no whole support of a score without bounds."""
    with pytest.raises(CalibrationError, match="must have a bounded support to be widened; got none"):
        widen(replace(INTERVALS, support=None), [True] * 4)
