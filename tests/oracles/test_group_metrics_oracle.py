import itertools
from collections import Counter

import pytest

from rangeline.evaluation.group_metrics import consensus_at_k, g_pass_at_k
from rangeline.evaluation.sampling_metrics import pass_at_k


def share_of_votes_won(answers, right):
    """Return 1, 0, or a share of a tie: what one draw says, by the words of the definition."""
    votes = Counter("right" if ok else answer for answer, ok in zip(answers, right, strict=True) if ok or answer)
    first = [answer for answer, count in votes.items() if count == max(votes.values())]
    return ("right" in first) / len(first) if first else 0.0


@pytest.mark.parametrize(
    ("answers", "right"),
    [
        ("7778", "YYYn"),
        ("7889", "Ynnn"),
        ("78899", "Ynnnn"),
        (["7", "7.0", "8", None, "8", "9"], "YYnnnn"),
        ([None, None, "8"], "nnn"),
        (["7", "7", "8", "8", "9", "9", None], "YYnnnnn"),
        ("777", "YYY"),
    ],
)
def test_consensus_equals_the_mean_over_all_draws(answers, right):
    """cons@k is the mean over all k-subsets of what each subset's vote says, for every k."""
    answers, right = list(answers), [mark == "Y" for mark in right]
    rows = list(zip(answers, right, strict=True))
    for k in range(1, len(rows) + 1):
        draws = [share_of_votes_won(*zip(*draw, strict=True)) for draw in itertools.combinations(rows, k)]
        assert pytest.approx(sum(draws) / len(draws), rel=1e-12) == consensus_at_k(answers, right, k)


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("threshold", [0.01, 0.25, 1 / 3, 0.5, 0.8, 1.0])
def test_g_pass_equals_counting_all_subsets(n, threshold):
    """G-Pass@k(tau) is the share of k-subsets whose right completions are at least tau * k."""
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
        held = sum(sum(draw) >= threshold * k - 1e-9 for draw in draws)
        assert pytest.approx(held / len(draws), rel=1e-12) == g_pass_at_k(n, c, k, threshold)


def test_g_pass_with_a_threshold_near_zero_is_pass_at_k():
    """At least one right completion is all that a threshold of 1 / k asks for."""
    for n, c, k in itertools.product((4, 9), (0, 1, 3), (1, 2, 4)):
        assert pytest.approx(pass_at_k(n, c, k), rel=1e-12) == g_pass_at_k(n, c, k, 1 / k)
