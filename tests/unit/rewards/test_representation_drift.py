"""Drift: nothing where rollouts come from where they came, more the further they go, and an alarm above a threshold."""

import numpy as np
import pytest

from rangeline.errors import AnchorError
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.representation_drift import drift_report

NUM, EACH, SIZE = 12, 8, 5
IDS = tuple(f"p{i}" for i in range(NUM) for _ in range(EACH))


def _world(shift, seed=0):
    rng = np.random.default_rng(seed)
    place = 20 * rng.normal(size=(NUM, 1, SIZE))
    start, now = (place + rng.normal(size=(NUM, EACH, SIZE)) for _ in range(2))
    anchors = AnchorSet(
        prompt_id_P=tuple(f"p{i}" for i in range(NUM)),
        positive_PKH=start[:, :2],
        negative_PKH=start[:, 2:4],
        query_PMH=start,
    )
    return (now + shift).reshape(-1, SIZE).astype(np.float32), anchors


def _report(shift, seed=0, threshold=0.1):
    hidden, anchors = _world(shift, seed)
    return drift_report(hidden, IDS, anchors=anchors, threshold=threshold)


@pytest.mark.parametrize("seed", range(4))
def test_rollouts_from_the_start_have_not_drifted(seed):
    """The unbiased discrepancy of equal distributions is about 0, and no alarm is raised."""
    report = _report(0.0, seed)
    assert abs(report.mmd2) < 0.06
    assert (False, NUM) == (report.alarm, report.num_prompts)
    assert report.cosine > 0.98


def test_drift_grows_with_the_distance():
    """Rollouts that lie further away have drifted more; far ones raise the alarm."""
    values = [_report(shift).mmd2 for shift in (0.0, 0.5, 1.0, 2.0)]
    assert values == sorted(values)
    assert _report(2.0).alarm


def test_the_threshold_decides():
    """The alarm is the discrepancy above the threshold, and nothing else."""
    drifted = _report(1.0)
    assert (True, False) == (_report(1.0, threshold=drifted.mmd2 * 0.99).alarm, _report(1.0, threshold=2.0).alarm)


def test_two_rows_by_hand():
    """Start (0, 2), now (10, 12) in one dimension of scale 1: no two sides are near, MMD^2 = 2 exp(-1/2) - 0."""
    start = np.array([[[0.0], [2.0]]])
    anchors = AnchorSet(prompt_id_P=("p",), positive_PKH=start, negative_PKH=start, query_PMH=start)
    report = drift_report(np.array([[10.0], [12.0]], dtype=np.float32), ("p", "p"), anchors=anchors, threshold=1.0)
    expected = 2 * np.exp(-0.5) - (2 * np.exp(-100 / 8) + np.exp(-144 / 8) + np.exp(-64 / 8)) / 2
    assert expected == pytest.approx(report.mmd2)
    assert 1.0 == pytest.approx(report.cosine)


def test_rows_without_states_and_prompts_without_anchors_are_left_out():
    """They change nothing."""
    hidden, anchors = _world(1.0)
    more = np.concatenate([hidden, np.full((1, SIZE), np.nan, dtype=np.float32), hidden[:2]])
    ids = (*IDS, "p0", "elsewhere", "elsewhere")
    assert drift_report(hidden, IDS, anchors=anchors, threshold=1.0) == drift_report(
        more, ids, anchors=anchors, threshold=1.0
    )


def test_nothing_to_compare_is_unknown_and_no_alarm():
    """Without a prompt in common nothing is measured."""
    hidden, anchors = _world(0.0)
    report = drift_report(hidden[:2], ("a", "a"), anchors=anchors, threshold=1.0)
    assert (None, None, 0, False) == (report.mmd2, report.cosine, report.num_prompts, report.alarm)


def test_rows_that_are_all_alike_can_still_drift():
    """A start without any spread is no division by zero: equal rows have not drifted, others have."""
    start = np.ones((1, 2, 2))
    anchors = AnchorSet(prompt_id_P=("p",), positive_PKH=start, negative_PKH=start, query_PMH=start)
    same, moved = (
        drift_report(np.full((2, 2), value, dtype=np.float32), ("p", "p"), anchors=anchors, threshold=0.5)
        for value in (1.0, 3.0)
    )
    assert (0.0, False) == (same.mmd2, same.alarm)
    assert moved.alarm


@pytest.mark.parametrize("threshold", [0.0, -1.0, float("nan")])
def test_threshold_must_be_positive(threshold):
    """A threshold that is always or never exceeded is refused."""
    with pytest.raises(AnchorError, match="'threshold' must be positive"):
        _report(0.0, threshold=threshold)
