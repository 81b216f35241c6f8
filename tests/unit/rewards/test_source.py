"""Laws of merging reward sources."""

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.records import RewardIntervals
from rangeline.rewards.source import merge, missing_intervals
from rangeline.rewards.verifiable import verifier_intervals


def judged(lower=(0.1, 0.2, np.nan), upper=(0.5, 1.0, np.nan), **changes):
    """Make three judged rollouts: bounded, unbounded, missing."""
    return RewardIntervals(
        **{
            "prompt_id_N": ("p", "p", "q"),
            "lower_N": lower,
            "upper_N": upper,
            "unbounded_N": [False, True, False],
            "missing_N": np.isnan(lower),
            "support": (0.0, 1.0),
            "source": "judge_interval",
            **changes,
        }
    )


def test_override_wins_where_it_has_a_reward():
    """Rows of the override replace rows of the primary source whole; its missing rows change nothing."""
    merged = merge(judged(), verifier_intervals(("p", "p", "q"), (1.0, None, None)))
    np.testing.assert_array_equal([1.0, 0.2, np.nan], merged.lower_N)
    np.testing.assert_array_equal([1.0, 1.0, np.nan], merged.upper_N)
    assert merged.unbounded_N.tolist() == [False, True, False]
    assert merged.missing_N.tolist() == [False, False, True]
    assert merged.source == "judge_interval+verifier"


def test_override_takes_the_unbounded_flag_along():
    """A row that had no finite cutoff is not unbounded once a verifier gave its reward."""
    merged = merge(judged(), verifier_intervals(("p", "p", "q"), (None, 0.0, 1.0)))
    assert merged.unbounded_N.tolist() == [False, False, False]
    assert merged.missing_N.tolist() == [False, False, False]


def test_missing_everywhere_changes_nothing():
    """An override without rewards leaves every interval as it was."""
    merged = merge(judged(), missing_intervals(("p", "p", "q"), (0.0, 1.0), "verifier"))
    np.testing.assert_array_equal(judged().lower_N, merged.lower_N)
    np.testing.assert_array_equal(judged().missing_N, merged.missing_N)


def test_missing_intervals_have_no_bounds():
    """What no source could score has NaN bounds, and a support may be absent."""
    made = missing_intervals(("p", "q"), None, "anchor_contrast")
    assert made.missing_N.tolist() == [True, True]
    assert np.isnan(made.center_N).all()
    assert (made.support, made.source) == (None, "anchor_contrast")


def test_other_rollouts_are_refused():
    """Rows are compared by prompt id."""
    with pytest.raises(BadInputError, match=r"must follow the prompt ids of the primary source; got 'q' for 'p'"):
        merge(judged(), verifier_intervals(("p", "q", "p"), (None, None, 1.0)))


def test_other_number_of_rows_is_refused():
    """One row a rollout in both."""
    with pytest.raises(BadInputError, match="'override' must have 3 rows; got 1"):
        merge(judged(), verifier_intervals(("p",), (None,)))


def test_other_scale_is_refused():
    """A score without bounds is never mixed with rewards in [0, 1]."""
    with pytest.raises(BadInputError, match=r"'override' must have support \(0.0, 1.0\); got None"):
        merge(judged(), missing_intervals(("p", "p", "q"), None, "anchor_contrast"))


def test_rows_that_belong_to_the_override_stay_missing_where_it_is():
    """A labelled prompt without a verdict has no reward: it does not fall back to the judge."""
    verdicts = verifier_intervals(("p", "p", "q"), (1.0, None, 0.0))
    merged = merge(judged(), verdicts, override_N=np.array([True, True, False]))
    assert [False, True, True] == merged.missing_N.tolist()
    assert 1.0 == merged.lower_N[0]
