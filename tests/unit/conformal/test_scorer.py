"""Unit tests of one-hot states, the state scorer and the score scales."""

import json
import math

import numpy as np
import pytest

from rangeline.conformal.scorer import ResidualScale, StateScorer, bernoulli_scale, one_hot
from rangeline.errors import CalibrationError, ModelLoadError

LEVELS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 10, dtype=np.int8)
CROSSED = np.array([0.0, 0.5, 1.0, 0.5] * 10)
"""The first coordinate rates; the second says whether that rating means anything."""


def test_unknown_has_its_own_column():
    """UNKNOWN is neither level 0 nor a row of zeros."""
    expected = [[0, 1, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 1]]
    actual = one_hot(np.array([[0, -1], [-1, 2]], dtype=np.int8), [2, 3])
    assert expected == actual.tolist()
    assert np.float32 == actual.dtype


def test_the_largest_int8_level_has_a_column():
    """Level 127 does not overflow its type."""
    encoded = one_hot(np.array([[127]], dtype=np.int8), [128])
    assert (1, 129) == encoded.shape
    assert 1 == encoded[0, 128]


def test_scorer_learns_an_interaction():
    """Trees of depth 3 see that one coordinate decides what the other means; stumps cannot."""
    deep, flat = (StateScorer.fit(LEVELS, CROSSED, [2, 2], depth=depth).score(LEVELS[:4]) for depth in (3, 1))
    assert [0.0, 0.5, 1.0, 0.5] == pytest.approx(deep.tolist(), abs=0.05)
    assert flat[0] > 0.2


def test_scores_lie_in_the_unit_interval():
    """Predictions are clipped, also for states never seen."""
    scorer = StateScorer.fit(LEVELS, CROSSED, [2, 2], trees=200, learning_rate=1.0, l2=0.0)
    score = scorer.score([[a, b] for a in (-1, 0, 1) for b in (-1, 0, 1)])
    assert 0 <= score.min() <= score.max() <= 1
    assert np.float64 == score.dtype


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_constant_reward_is_its_own_score(value):
    """A source pool of one reward gives that reward for every state."""
    scorer = StateScorer.fit(LEVELS, np.full(40, value), [2, 2])
    assert [value, value] == pytest.approx(scorer.score([[0, 1], [-1, -1]]).tolist(), abs=1e-6)


def test_scorer_is_deterministic_and_survives_a_round_trip():
    """Same rows, same bytes; reading them back gives the same digest and the same bits of score."""
    first, again = (StateScorer.fit(LEVELS, CROSSED, [2, 2]) for _ in range(2))
    read = StateScorer.from_bytes(first.to_bytes())
    assert first.digest == again.digest == read.digest
    assert (2, 2) == read.num_levels
    assert first.score(LEVELS).tolist() == read.score(LEVELS).tolist()


def test_digest_changes_with_the_rewards():
    """Another source pool is another scorer."""
    assert StateScorer.fit(LEVELS, CROSSED, [2, 2]).digest != StateScorer.fit(LEVELS, 1 - CROSSED, [2, 2]).digest


def test_no_row_gives_no_score():
    """An empty batch gives an empty answer."""
    scorer = StateScorer.fit(LEVELS, CROSSED, [2, 2], trees=2)
    assert [] == scorer.score(np.zeros((0, 2), dtype=np.int8)).tolist()


@pytest.mark.parametrize("damage", [lambda d: d[:-9], lambda d: d[5:], lambda d: b"", lambda d: b"[1]\n" + d])
def test_damaged_scorer_is_refused(damage):
    """Bytes that are not a whole scorer never reach XGBoost, which would end the process."""
    data = StateScorer.fit(LEVELS, CROSSED, [2, 2], trees=2).to_bytes()
    with pytest.raises(ModelLoadError, match="'data' must be a whole state scorer"):
        StateScorer.from_bytes(damage(data))


def test_missing_reward_is_refused_by_row():
    """A NaN reward is named, never averaged."""
    with pytest.raises(CalibrationError, match=r"'reward_S' must lie in \[0, 1\]; got nan \(row 1\)"):
        StateScorer.fit([[0], [1], [0]], [0.1, math.nan, 0.2], [2])


def test_empty_source_is_refused():
    """A scorer needs at least one row."""
    with pytest.raises(CalibrationError, match="1 or more rows"):
        StateScorer.fit(np.zeros((0, 1), dtype=np.int8), [], [2])


def test_bernoulli_scale_by_hand():
    """The scale is sqrt(s(1-s)) with a floor."""
    assert [0.05, 0.5, 0.4, 0.05] == pytest.approx(bernoulli_scale([0.0, 0.5, 0.2, 1.0]).tolist())
    assert [0.2] == bernoulli_scale([0.0], sigma_min=0.2).tolist()


def test_residual_scale_by_hand():
    """Residuals .4,.4 | .0 | overall .8/3: state means are shrunk by five rows of the overall mean."""
    scale = ResidualScale.fit([[0], [0], [1]], [0.5, 0.5, 0.5], [0.9, 0.1, 0.5], [2])
    overall = 0.8 / 3
    expected = [(0.8 + 5 * overall) / 7, 5 * overall / 6, overall]
    assert expected == pytest.approx(scale.scale([[0], [1], [-1]]).tolist())


def test_residual_scale_has_a_floor():
    """A perfect scorer still has a positive scale."""
    scale = ResidualScale.fit([[0], [1]], [0.0, 1.0], [0.0, 1.0], [2])
    assert [0.05, 0.05, 0.05] == scale.scale([[0], [1], [-1]]).tolist()


def test_residual_scale_survives_json():
    """Every scale is reproduced exactly through text."""
    rng = np.random.default_rng(0)
    levels = rng.integers(-1, 2, (20, 2))
    scale = ResidualScale.fit(levels, rng.random(20), rng.random(20), [2, 2])
    read = ResidualScale.from_json(json.loads(json.dumps(scale.to_json())))
    assert scale.scale(levels).tolist() == read.scale(levels).tolist()
    assert scale.overall == read.overall
