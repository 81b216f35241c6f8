"""TraPO: pass rates, similarity of trajectories, and which prompts are kept."""

import numpy as np
import pytest

from rangeline.rewards.source import point_intervals
from rangeline.rewards.trajectory_selection import extended, pass_rates, select, similarity


def test_pass_rate_is_the_mean_of_valid_rewards():
    """Missing rewards leave the mean; a prompt without any has no pass rate."""
    made = point_intervals(("p", "p", "p", "q"), np.array([1.0, 0.0, np.nan, np.nan]), support=(0, 1), source="s")
    assert {"p": 0.5} == pass_rates(made)


def test_trajectories_grow_by_a_visit():
    """A visit adds one pass rate to the prompts it saw and leaves the others; the former record stays as it was."""
    former = {"p": [0.1], "q": [0.2]}
    assert {"p": [0.1, 0.3], "q": [0.2], "r": [0.4]} == extended(former, {"p": 0.3, "r": 0.4})
    assert {"p": [0.1], "q": [0.2]} == former


@pytest.mark.parametrize(
    ("trajectory", "labelled", "expected"),
    [
        ([0.0, 1.0], [[0.4, 0.6]], 1.0),
        ([0.0, 1.0], [[0.6, 0.4]], -1.0),
        ([0.0, 1.0], [[0.4, 0.6], [0.6, 0.4]], 0.0),
        ([0.5, 0.5], [[0.4, 0.6]], 0.0),
        ([0.0, 1.0, 0.0], [[0.1, 0.2]], 1.0),
        ([0.0], [[0.4, 0.6]], None),
        ([0.0, 1.0], [], None),
    ],
)
def test_similarity_is_the_mean_cosine_of_zscores(trajectory, labelled, expected):
    """Scale and level do not count, only movement; what never moved is like nothing; one visit tells nothing."""
    actual = similarity(trajectory, labelled)
    assert actual is None if expected is None else actual == pytest.approx(expected)


def test_top_share_and_floor_are_both_kept():
    """Of ten prompts the best is kept in any case, and every one above the floor; unknown ones never."""
    values = {f"p{i}": 0.03 * i for i in range(9)} | {"new": None}
    assert {"p8"} == select(values, top_share=0.1, min_similarity=0.4)
    assert {"p7", "p8"} == select(values, top_share=0.1, min_similarity=0.2)
    assert frozenset() == select({"new": None}, top_share=1.0, min_similarity=-1.0)


@pytest.mark.parametrize(("share", "num", "expected"), [(0.28, 25, 7), (0.07, 100, 7), (0.1, 30, 3), (0.1, 31, 4)])
def test_top_share_is_rounded_up_from_the_number_that_is_meant(share, num, expected):
    """A product that is a whole number but for rounding keeps that many prompts, not one more."""
    below = {f"p{i}": -0.01 * i for i in range(num)}
    assert expected == len(select(below, top_share=share, min_similarity=0.4))
