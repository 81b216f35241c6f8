"""Laws of the choice of an estimator: what its scores must not depend on, and where they are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.advantage_choice import Candidate, alignment, auto_reference_width, choose, standard_candidates
from rangeline.records import RewardIntervals

UNIT = st.floats(0, 1)
ROWS = st.lists(st.tuples(st.sampled_from("abc"), UNIT, UNIT, UNIT), min_size=1, max_size=16)
PLAIN = Candidate(estimator="dr_grpo", reduction="middle", reference_width=0.25)


def intervals_of(rows, missing=None):
    """Make intervals and truths from rows of prompt, two ends and truth."""
    ids, first, second, truth = zip(*rows, strict=True)
    none = np.zeros(len(rows), dtype=bool)
    lower, upper = np.minimum(first, second), np.maximum(first, second)
    return (
        RewardIntervals(
            prompt_id_N=ids,
            lower_N=lower,
            upper_N=upper,
            unbounded_N=none,
            missing_N=none if missing is None else missing,
            support=(0.0, 1.0),
            source="judge_interval",
        ),
        np.array(truth),
    )


@given(rows=ROWS, tilt=st.floats(0, 8))
@settings(max_examples=80, deadline=None)
def test_scores_are_cosines(rows, tilt):
    """No candidate agrees with the truth by more than wholly, nor by less than not at all reversed."""
    intervals, truth = intervals_of(rows)
    for candidate in standard_candidates(0.25):
        assert -1 - 1e-9 <= alignment(intervals, truth, candidate, tilt=tilt) <= 1 + 1e-9


@given(rows=ROWS, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_order_of_rows_is_irrelevant_to_the_last_bit(rows, seed):
    """Labelled rollouts in any order give the same scores and the same choice."""
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    one, other = (choose(*intervals_of(part), standard_candidates(0.25)) for part in (rows, shuffled))
    assert one == other


@given(rows=ROWS, more=ROWS)
@settings(max_examples=60, deadline=None)
def test_rows_without_a_truth_have_no_say(rows, more):
    """Rollouts whose truth is unknown, or that have no interval, change no score."""
    candidates = standard_candidates(0.25)
    expected = choose(*intervals_of(rows), candidates)
    both = rows + more
    unknown, truth = intervals_of(both)
    truth[len(rows) :] = np.nan
    assert expected == choose(unknown, truth, candidates)
    missing, known = intervals_of(both, np.arange(len(both)) >= len(rows))
    assert expected == choose(missing, known, candidates)


@given(rows=ROWS, tilt=st.floats(0, 8))
@settings(max_examples=60, deadline=None)
def test_the_truth_agrees_with_itself(rows, tilt):
    """Points at the true rewards have a cosine of 1, and of 0 where no group has two of them."""
    exact = [(prompt, truth, truth, truth) for prompt, _, _, truth in rows]
    score = alignment(*intervals_of(exact), PLAIN, tilt=tilt)
    assert score == 0 or score == pytest.approx(1)


@given(rows=ROWS, width=st.floats(0.05, 2), tilt=st.floats(0, 8))
@settings(max_examples=60, deadline=None)
def test_even_widths_leave_nothing_to_choose(rows, width, tilt):
    """Where all intervals are equally wide, attenuation changes no direction: range and Dr.GRPO score the same."""
    even = [(prompt, 0.6 * first, 0.6 * first + 0.4, truth) for prompt, first, _, truth in rows]
    intervals, truth = intervals_of(even)
    ranged = Candidate(estimator="range", reduction="middle", reference_width=width)
    expected = alignment(intervals, truth, PLAIN, tilt=tilt)
    assert expected == pytest.approx(alignment(intervals, truth, ranged, tilt=tilt), abs=1e-6)


@given(rows=ROWS, factor=st.floats(0.1, 1))
@settings(max_examples=60, deadline=None)
def test_the_automatic_width_grows_with_the_intervals(rows, factor):
    """Intervals half as wide get half the reference width: it has the unit of rewards."""
    scaled = [(prompt, factor * a, factor * b, truth) for prompt, a, b, truth in rows]
    whole, part = (auto_reference_width(intervals_of(r)[0]) for r in (rows, scaled))
    assert part == pytest.approx(factor * whole) or {whole, part} <= {0.25, whole}
