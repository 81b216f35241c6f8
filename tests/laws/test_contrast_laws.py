"""Laws of the anchor contrast: sets have no order, sides are opposite, groups do not know each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rangeline.rewards.anchor_contrast import contrast_scores, standardised
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.metric_head import HeadShape, MetricHead

SCORES = arrays(np.float64, 6, elements=st.floats(-20, 20, allow_subnormal=False))


@pytest.fixture(scope="module")
def world():
    """Return a head, anchors of three prompts, and six rollouts."""
    rng = np.random.default_rng(0)
    anchors = AnchorSet(
        prompt_id_P=("p", "q", "r"),
        positive_PKH=rng.normal(size=(3, 4, 5)),
        negative_PKH=rng.normal(size=(3, 4, 5)),
        query_PMH=rng.normal(size=(3, 2, 5)),
    )
    head = MetricHead(HeadShape(hidden_size=5, width=6, dimension=4))
    return head, anchors, rng.normal(size=(6, 5)).astype(np.float32), tuple("pqrqpr")


def _with(anchors, **over):
    names = ("prompt_id_P", "positive_PKH", "negative_PKH", "query_PMH")
    return AnchorSet(**({name: getattr(anchors, name) for name in names} | over))


def test_order_of_anchors_changes_nothing(world):
    """A set has no order."""
    head, anchors, hidden, ids = world
    turned = _with(
        anchors, positive_PKH=anchors.positive_PKH[:, ::-1], negative_PKH=anchors.negative_PKH[:, [2, 0, 3, 1]]
    )
    np.testing.assert_allclose(
        contrast_scores(hidden, ids, head=head, anchors=anchors),
        contrast_scores(hidden, ids, head=head, anchors=turned),
        atol=1e-5,  # float32: how a product is blocked depends on where its rows lie in memory
    )


def test_order_of_prompts_and_of_rollouts_changes_nothing(world):
    """Anchors are found by prompt id, and each rollout has its own score."""
    head, anchors, hidden, ids = world
    order = [3, 5, 0, 2, 1, 4]
    np.testing.assert_allclose(
        contrast_scores(hidden, ids, head=head, anchors=anchors)[order],
        contrast_scores(hidden[order], tuple(ids[i] for i in order), head=head, anchors=anchors.select([2, 0, 1])),
        atol=1e-5,  # float32: how a product is blocked depends on where its rows lie in memory
    )


def test_exchanged_sides_turn_the_sign(world):
    """What was desirable becomes undesirable."""
    head, anchors, hidden, ids = world
    swapped = _with(anchors, positive_PKH=anchors.negative_PKH, negative_PKH=anchors.positive_PKH)
    np.testing.assert_array_equal(
        contrast_scores(hidden, ids, head=head, anchors=anchors),
        -contrast_scores(hidden, ids, head=head, anchors=swapped),
    )


def test_anchors_twice_over_change_nothing(world):
    """Twice as many of the same on both sides adds log 2 to both, and nothing to their difference."""
    head, anchors, hidden, ids = world
    doubled = _with(
        anchors,
        positive_PKH=np.repeat(anchors.positive_PKH, 2, axis=1),
        negative_PKH=np.repeat(anchors.negative_PKH, 2, axis=1),
    )
    np.testing.assert_allclose(
        contrast_scores(hidden, ids, head=head, anchors=anchors),
        contrast_scores(hidden, ids, head=head, anchors=doubled),
        atol=1e-5,  # float32: how a product is blocked depends on where its rows lie in memory
    )


def test_a_rollout_equal_to_a_positive_anchor_is_bounded(world):
    """No score leaves [-2/tau, 2/tau]."""
    head, anchors, _, _ = world
    scores = contrast_scores(anchors.positive_PKH[0], ("p",) * 4, head=head, anchors=anchors)
    assert (np.abs(scores) <= 2 / head.shape.temperature).all()


@settings(deadline=None)
@given(score=SCORES)
def test_standardised_groups_sum_to_zero_and_keep_their_order(score):
    """The mean is taken out, and a better score is never worse afterwards."""
    value = standardised(score, ("p",) * 6)
    assert abs(value.sum()) < 1e-9
    assert (np.diff(value[np.argsort(score)]) >= -1e-12).all()


@settings(deadline=None)
@given(score=SCORES, shift=st.floats(-5, 5))
def test_a_shift_of_a_whole_group_changes_nothing(score, shift):
    """Only differences inside the group count."""
    if np.std(score) > 1e-3:
        np.testing.assert_allclose(standardised(score, ("p",) * 6), standardised(score + shift, ("p",) * 6), atol=1e-8)


@settings(deadline=None)
@given(score=SCORES, seed=st.integers(0, 100))
def test_order_of_rollouts_changes_no_bit(score, seed):
    """A permutation of a group's rollouts permutes its values."""
    order = np.random.default_rng(seed).permutation(6)
    np.testing.assert_array_equal(standardised(score, ("p",) * 6)[order], standardised(score[order], ("p",) * 6))
