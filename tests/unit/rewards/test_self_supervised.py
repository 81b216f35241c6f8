"""Measures that a policy reads off itself, against numbers worked by hand."""

import numpy as np
import pytest

from rangeline.errors import ConfigError
from rangeline.rewards.self_supervised import measure, self_supervised_intervals

STATISTICS = np.array([[-1.0, 0.5, 0.2], [-3.0, 0.1, 0.6]])


@pytest.mark.parametrize(
    ("what", "expected"), [("self_certainty", 0.4), ("token_entropy", -0.6), ("sequence_likelihood", -4.0)]
)
def test_measures(what, expected):
    """The mean distance from uniform, minus the sum of entropies, the sum of log-probabilities."""
    assert pytest.approx(expected) == measure(STATISTICS, what)


def test_unreadable_rollouts_are_missing():
    """None, no tokens and NaN are missing; scores have no support, so none is clipped."""
    made = self_supervised_intervals(
        ("p",) * 4, [STATISTICS, None, np.zeros((0, 3)), np.full((1, 3), np.nan)], "sequence_likelihood"
    )
    assert [False, True, True, True] == made.missing_N.tolist()
    assert (-4.0, None, "sequence_likelihood") == (made.lower_N[0], made.support, made.source)


def test_unknown_measure_is_refused():
    """Only the three measures exist."""
    with pytest.raises(ConfigError, match="sequence_likelihood; got 'length'"):
        measure(STATISTICS, "length")
