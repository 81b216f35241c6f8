"""Unit tests of coverage, its clustered band and its verdict."""

import math

import numpy as np
import pytest

from rangeline.conformal.coverage import alarm_state, clustered_band, coverage_report, covered_N
from rangeline.conformal.intervals import reward_intervals
from rangeline.errors import CalibrationError
from rangeline.records import RewardIntervals


def half_open(num, *, missing=()):
    """Make `num` intervals [0, .5], two a prompt, with the rows of `missing` missing."""
    return RewardIntervals(
        prompt_id_N=tuple(f"q{i // 2}" for i in range(num)),
        lower_N=np.zeros(num),
        upper_N=np.full(num, 0.5),
        unbounded_N=np.zeros(num, dtype=bool),
        missing_N=np.isin(np.arange(num), missing),
        support=(0.0, 1.0),
        source="judge_interval",
    )


def report(intervals, truth, **changes):
    """Report with small floors of evidence."""
    settings = {"alpha": 0.1, "ess_share": 0.5, "min_rows": 4, "min_prompts": 2}
    return coverage_report(intervals, truth, **{**settings, **changes})


def test_covered_counts_closed_ends_and_leaves_missing_out():
    """Ends count as covered; missing rewards and unknown truths are not valid and not covered."""
    covered, valid = covered_N(half_open(5, missing=[3]), [0.0, 0.5, 0.6, 0.2, math.nan])
    assert [True, True, False, False, False] == covered.tolist()
    assert [True, True, True, False, False] == valid.tolist()


def test_the_row_that_sets_the_cutoff_is_covered_by_it():
    """Rounding in s +- tau * sigma never turns a truth on the edge into a miss."""
    rng = np.random.default_rng(0)
    score, scale, truth = rng.random(500), rng.uniform(0.05, 0.5, 500), rng.integers(0, 8, 500) / 7
    cutoff = np.abs(score - truth) / scale
    intervals = reward_intervals(score, scale, cutoff, prompt_id_N=["q"] * 500, missing_N=[False] * 500)
    assert covered_N(intervals, truth)[0].all()


def test_band_of_all_covered_rows_has_width():
    """Ten prompts without a miss leave Clopper-Pearson's lower end for ten rows, not 1."""
    low, high = clustered_band([True] * 40, [f"q{i % 10}" for i in range(40)], confidence=0.95)
    assert (0.025 ** (1 / 10), 1.0) == pytest.approx((low, high))


def test_band_of_one_prompt_says_next_to_nothing():
    """One prompt is one piece of evidence."""
    low, high = clustered_band([1, 1, 0, 1], ["q"] * 4, confidence=0.95)
    assert low < 0.05
    assert high > 0.95


def test_band_holds_the_mean_and_grows_with_confidence():
    """The band encloses the empirical share, and more confidence is wider."""
    values, ids = [1, 0, 1, 1, 1, 0, 1, 1], [f"q{i // 2}" for i in range(8)]
    narrow, wide = (clustered_band(values, ids, confidence=c) for c in (0.5, 0.95))
    assert wide[0] < narrow[0] < 0.75 < narrow[1] < wide[1]


def test_band_depends_on_the_seed_only_through_its_own_stream():
    """The same seed gives the same band and leaves numpy's global state alone."""
    values, ids = [0.2, 0.9, 0.4, 0.7], ["a", "b", "c", "d"]
    before = np.random.get_state()[1].tolist()
    assert clustered_band(values, ids, confidence=0.9, seed=3) == clustered_band(values, ids, confidence=0.9, seed=3)
    assert before == np.random.get_state()[1].tolist()


@pytest.mark.parametrize(
    ("truth", "status"),
    [
        ([0.2] * 36 + [0.9] * 4, "covered"),
        ([0.2] * 20 + [0.9] * 20, "under_coverage"),
        ([0.2] * 40, "covered"),
    ],
)
def test_verdict_compares_the_whole_band_with_the_target(truth, status):
    """36 of 40 is covered, 20 of 40 is not, and 40 of 40 in 20 prompts is not yet too much."""
    result = report(half_open(40), truth)
    assert status == result.status
    assert result.band_lower <= result.empirical <= result.band_upper


def test_two_hundred_prompts_without_a_miss_are_over_covered():
    """Enough evidence that the intervals are wider than asked."""
    assert "over_coverage" == report(half_open(400), [0.2] * 400).status


@pytest.mark.parametrize("floors", [{"min_rows": 41}, {"min_prompts": 21}])
def test_floors_of_evidence(floors):
    """Below either floor the verdict is withheld, and the numbers are still given."""
    result = report(half_open(40), [0.9] * 40, **floors)
    assert "too_little_evidence" == result.status
    assert 0.0 == result.empirical


def test_no_valid_row_has_no_number():
    """Without a valid row nothing is averaged and nothing is 0."""
    result = report(half_open(4, missing=[0, 1]), [0.1, 0.1, math.nan, math.nan], min_rows=0, min_prompts=0)
    assert "too_little_evidence" == result.status
    assert [None] * 5 == [
        result.empirical,
        result.band_lower,
        result.band_upper,
        result.mean_width,
        result.unbounded_share,
    ]
    assert (0, 0, 0.5) == (result.num_rows, result.num_prompts, result.missing_share)


def test_report_averages_valid_rows_only():
    """Width, unbounded share and coverage leave missing rows out of numerator and denominator."""
    result = report(half_open(6, missing=[0]), [0.9, 0.1, 0.1, 0.1, 0.1, 0.9])
    assert 0.8 == result.empirical
    assert (0.5, 0.0, 5, 3) == (result.mean_width, result.unbounded_share, result.num_rows, result.num_prompts)
    assert 1 / 6 == result.missing_share
    assert (0.9, 0.95, 0.5) == (result.target, result.band_confidence, result.ess_share)


@pytest.mark.parametrize(
    ("values", "ids", "confidence", "message"),
    [
        ([], [], 0.9, "1 or more rows"),
        ([1, 0], ["q"], 0.9, "one value for each of 1 or more rows"),
        ([1, math.nan], ["a", "b"], 0.9, r"'value_N' must lie in \[0, 1\]; got nan \(row 1, prompt 'b'\)"),
        ([1], ["a"], 1.0, r"'confidence' must lie in \(0, 1\); got 1.0"),
    ],
)
def test_band_refuses_what_it_cannot_average(values, ids, confidence, message):
    """Missing values and empty samples are refused, not skipped."""
    with pytest.raises(CalibrationError, match=message):
        clustered_band(values, ids, confidence=confidence)


def test_report_refuses_bad_truths_and_settings():
    """Infinite truths, wrong lengths and shares outside (0, 1) are named."""
    with pytest.raises(CalibrationError, match=r"'truth_N' must be finite or NaN; got inf \(row 1\)"):
        report(half_open(2), [0.1, math.inf])
    with pytest.raises(CalibrationError, match=r"'truth_N' must have shape \(2,\); got \(1,\)"):
        report(half_open(2), [0.1])
    with pytest.raises(CalibrationError, match=r"'alpha' must lie in \(0, 1\); got 0"):
        report(half_open(2), [0.1, 0.1], alpha=0)
    with pytest.raises(CalibrationError, match=r"'confidence' must lie in \(0, 1\); got 2"):
        report(half_open(2), [math.nan, math.nan], confidence=2)


@pytest.mark.parametrize("prompts_with_a_miss", [1, 2, 5])
def test_few_misses_do_not_make_rows_independent(prompts_with_a_miss):
    """Where misses are too few to show agreement within prompts, each prompt counts as one row."""
    prompt_ids = [f"q{i // 8}" for i in range(128)]
    value = np.ones(128)
    value[: 8 * prompts_with_a_miss : 8] = 0.0
    low, high = clustered_band(value, prompt_ids, confidence=0.99)
    one_row_each = clustered_band(np.ones(16), prompt_ids[::8], confidence=0.99)
    assert low <= one_row_each[0] + 1e-9
    assert high >= 0.9


@pytest.mark.parametrize("agreement", [0.0, 0.3, 0.6, 0.9])
def test_honest_coverage_seldom_closes_the_gate(agreement):
    """At a true coverage of .9 the band of 16 prompts x 8 rows misses it in at most 3 % of 200 draws."""
    random = np.random.default_rng(11)
    prompt_ids = [f"q{i // 8}" for i in range(128)]
    closed = 0
    for _ in range(200):
        own = random.random((16, 8)) < 0.9
        shared = random.random((16, 1)) < 0.9
        value = np.where(random.random((16, 8)) < agreement**0.5, shared, own).astype(float).reshape(-1)
        low, high = clustered_band(value, prompt_ids, confidence=0.99, num_resamples=500)
        closed += not low <= 0.9 <= high
    assert closed <= 6


@pytest.mark.parametrize(
    ("report_status", "monitor", "drift", "no_overlap", "state"),
    [
        ("under_coverage", "under_coverage", True, True, "concept_drift"),
        ("under_coverage", "over_coverage", False, True, "no_overlap"),
        ("covered", "under_coverage", False, False, "under_coverage"),
        ("under_coverage", "over_coverage", False, False, "under_coverage"),
        ("covered", "over_coverage", False, False, "over_coverage"),
        ("over_coverage", "too_little_evidence", False, False, "over_coverage"),
        ("too_little_evidence", "covered", False, False, "covered"),
        ("too_little_evidence", "too_little_evidence", False, False, "too_little_evidence"),
    ],
)
def test_alarm_state_says_what_to_do_first(report_status, monitor, drift, no_overlap, state):
    """Drift before overlap before under-coverage before over-coverage; too little evidence clears nothing."""
    assert state == alarm_state(report_status, monitor, drift_alarm=drift, no_overlap=no_overlap)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"report_status": "fine"}, "'report_status' must be one of covered, .*; got 'fine'"),
        ({"monitor_verdict": "no_overlap"}, "'monitor_verdict' must be one of covered, .*; got 'no_overlap'"),
    ],
)
def test_alarm_state_refuses_what_it_does_not_know(change, message):
    """An unknown verdict is never read as covered."""
    given = {"report_status": "covered", "monitor_verdict": "covered", "no_overlap": False}
    with pytest.raises(CalibrationError, match=message):
        alarm_state(**{**given, **change}, drift_alarm=False)
