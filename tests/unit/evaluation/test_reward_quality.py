"""AUC and correlations of rewards, worked by hand."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from rangeline.evaluation.reward_quality import area_under_curve, reward_quality

NAN = float("nan")


@pytest.mark.parametrize(
    ("score", "right", "expected"),
    [
        ([0.9, 0.8, 0.1], [1, 1, 0], 1.0),
        ([0.1, 0.9], [1, 0], 0.0),
        ([0.5, 0.5], [1, 0], 0.5),
        ([0.9, 0.5, 0.5, 0.1], [1, 1, 0, 0], 0.875),
        ([0.9, NAN, 0.1], [1, 1, 0], 1.0),
        ([0.9, 0.5, 0.1], [1, NAN, 0], 1.0),
        ([0.9, 0.8], [1, 1], None),
        ([NAN, 0.8], [1, 0], None),
    ],
)
def test_auc_counts_pairs(score, right, expected):
    """Right above wrong counts one, a tie half; what is missing or unverified is in no pair; no pair has no AUC."""
    assert expected == area_under_curve(np.array(score, dtype=float), np.array(right, dtype=float))


def test_auc_equals_a_peers():
    """On random scores with ties it is scikit-learn's."""
    draw = np.random.default_rng(0)
    score, right = draw.integers(0, 5, 60).astype(float), draw.integers(0, 2, 60).astype(float)
    assert roc_auc_score(right, score) == pytest.approx(area_under_curve(score, right))


def _quality(score, right, length):
    num = len(score)
    return reward_quality(
        np.array(score, dtype=float),
        np.array(right, dtype=float),
        length_N=np.array(length, dtype=float),
        entropy_N=np.full(num, NAN),
        prompt_id_N=["p"] * 4 + ["q"] * (num - 4),
    )


def test_correlation_is_taken_inside_prompts():
    """Two prompts of which one rises with length and one falls have a mean of 0, whatever pooling would say."""
    made = _quality([1, 2, 3, 4, 40, 30, 20, 10], [1, 0] * 4, [1, 2, 3, 4, 10, 20, 30, 40])
    assert (0.0, 1.0) == (made.length_correlation, made.significant_length_share)
    assert (None, None) == (made.entropy_correlation, made.significant_entropy_share)


def test_missing_rewards_are_told():
    """A missing reward is in no count and in the share of missing ones; an unverified rollout is in neither."""
    made = _quality([1, NAN, 0, 0, 1, 1], [1, 1, 0, NAN, 0, 1], [1] * 6)
    assert (2, 2, pytest.approx(0.2)) == (made.num_right, made.num_wrong, made.missing_share)
    assert made.length_correlation is None
