"""Votes: the unique most frequent answer wins, silence never does, a tie decides nothing."""

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.rewards.majority import majority_intervals, vote


def _rewards(answers, missing=None, ids=None):
    ids = ids or ["p"] * len(answers)
    lost = np.array(missing or [False] * len(answers))
    made = majority_intervals(ids, answers, lost)
    return [None if m else v for v, m in zip(made.center_N.tolist(), made.missing_N, strict=True)]


def test_majority_earns_one():
    """Those that agree with the most frequent answer earn 1, the others 0."""
    assert [1.0, 1.0, 0.0] == _rewards(["7", "7", "8"])


def test_tie_is_missing():
    """Two answers of two votes each: nobody earns anything, and nobody 0."""
    assert [None] * 4 == _rewards(["7", "7", "8", "8"])


def test_silence_has_no_vote():
    """Three rollouts without an answer lose to one with; they earn 0."""
    assert [0.0, 0.0, 0.0, 1.0] == _rewards([None, None, None, "7"])


def test_nothing_read_is_missing():
    """A group in which no answer could be read has no winner."""
    assert [None, None] == _rewards([None, None])


def test_unreadable_rollouts_neither_vote_nor_earn():
    """A cut-off rollout is missing and its answer does not count."""
    assert [None, None, 1.0] == _rewards(["8", "8", "7"], [True, True, False])


def test_groups_vote_apart_in_any_order():
    """A group is what shares a prompt id, wherever its rows stand."""
    assert [1.0, 1.0, 1.0, 0.0] == _rewards(["7", "8", "7", "9"], ids=["p", "q", "p", "p"])


def test_group_of_one_agrees_with_itself():
    """A single answer is its own majority; the estimator gives a group of one no advantage."""
    assert [1.0] == _rewards(["7"])
    assert vote([]) is None


def test_other_lengths_are_refused():
    """One answer a rollout."""
    with pytest.raises(BadInputError, match="one value a rollout; got 1 for 2"):
        majority_intervals(("p", "p"), ("7",), np.zeros(2, dtype=bool))
