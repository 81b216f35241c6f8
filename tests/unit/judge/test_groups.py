"""What a rollout is among the others of its group."""

import numpy as np

from rangeline.judge.groups import majority_levels, rank_shares, tallies


def test_a_tie_has_no_majority():
    """Two answers that lead together make nobody the majority; no answer is UNKNOWN and takes no vote."""
    assert [-1, -1, -1, -1] == majority_levels(["p"] * 4, ["7", "8", None, None])
    assert [1, 1, 0, -1] == majority_levels(["p"] * 4, ["7", "7", "8", None])
    assert [1] == majority_levels(["p"], ["7"])


def test_ranks_count_the_others_of_the_group():
    """Groups are apart, in any order; equal ratings share their place; the unrated are no others."""
    rating = np.array([0.2, 0.9, 0.4, 0.4, np.nan, 0.1])
    assert [0.0, None, 0.75, 0.75, None, None] == rank_shares(["p", "q", "p", "p", "p", "r"], rating)


def test_ranks_are_the_same_in_any_order():
    """Rows may come in any order."""
    rating, ids = np.array([0.3, 0.1, 0.2, 0.3]), ["p"] * 4
    order = [2, 0, 3, 1]
    straight = rank_shares(ids, rating)
    assert [straight[i] for i in order] == rank_shares(ids, rating[order])


def test_tallies_say_what_the_group_answered():
    """The most frequent answer first; what has no answer is told too."""
    assert "7 (2 of 4)\nno answer (1 of 4)\n8 (1 of 4)" == tallies(["p"] * 4, ["8", "7", None, "7"])[0]
