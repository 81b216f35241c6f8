"""Laws of judge intervals, with a real scorer on a handful of states."""

import numpy as np
import pytest

from rangeline.conformal.density_ratio import fit_density_ratio
from rangeline.conformal.intervals import CalibrationSet
from rangeline.conformal.scorer import ResidualScale, StateScorer, bernoulli_scale
from rangeline.errors import CalibrationError, ConfigError
from rangeline.records import JudgmentTable
from rangeline.rewards.judge_interval import ScoreScale, judge_intervals

LEVELS = np.array([[0], [0], [0], [1], [1], [1], [1], [0]], dtype=np.int8)
TRUTH = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0])
SCORER = StateScorer.fit(LEVELS, TRUTH, (2,))
PLAIN = ScoreScale(kind="plain")


def calibration(scale=PLAIN):
    """Make the calibration set of a scale."""
    score = SCORER.score(LEVELS)
    return CalibrationSet.build(
        [f"c{i}" for i in range(8)], LEVELS, score_C=score, scale_C=scale.of(score, LEVELS), truth_C=TRUTH
    )


def judgments(levels=((0,), (1,), (-1,)), missing=(False, False, True)):
    """Make judgments of three rollouts, the last one failed."""
    return JudgmentTable(
        prompt_id_N=("p", "p", "q")[: len(levels)],
        levels_NK=np.array(levels).reshape(-1, 1),
        missing_N=missing,
        coordinates=("right",),
        num_levels=(2,),
        judge_digest="d",
    )


def bound(table=None, *, scale=PLAIN, ratio=None, alpha=0.25):
    """Bound the judgments with everything else fixed."""
    return judge_intervals(
        table or judgments(),
        scorer=SCORER,
        scale=scale,
        ratio=ratio,
        calibration=calibration(scale),
        alpha=alpha,
    )


def test_interval_is_score_plus_minus_cutoff_inside_the_support():
    """With unit weights the half width is the split-conformal quantile of the nonconformity scores."""
    made, score = bound(), SCORER.score([[0], [1]])
    cutoff = np.sort(calibration().nonconformity_C)[int(np.ceil(0.75 * 9)) - 1]
    np.testing.assert_allclose(np.clip(score - cutoff, 0, 1), made.lower_N[:2])
    np.testing.assert_allclose(np.clip(score + cutoff, 0, 1), made.upper_N[:2])
    assert (made.source, made.support) == ("judge_interval", (0.0, 1.0))


def test_failed_judge_is_missing_and_not_the_whole_support():
    """A rollout without a state has no interval; one whose state is UNKNOWN has one."""
    assert bound().missing_N.tolist() == [False, False, True]
    assert bound(judgments(missing=(False,) * 3)).missing_N.tolist() == [False, False, False]


def test_missing_rows_change_no_other_row():
    """Intervals are those without the missing rollouts."""
    alone = bound(judgments(((0,), (1,)), (False, False)))
    np.testing.assert_array_equal(alone.lower_N, bound().lower_N[:2])


def test_small_alpha_is_unbounded():
    """Too few rows for the promise give the whole support, flagged."""
    made = bound(alpha=0.01)
    assert made.unbounded_N.tolist() == [True, True, False]
    assert (made.lower_N[:2].tolist(), made.upper_N[:2].tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_equal_source_and_target_weigh_like_no_ratio():
    """A ratio fitted on equal tables changes nothing."""
    np.testing.assert_allclose(
        bound().lower_N, bound(ratio=fit_density_ratio(LEVELS, LEVELS, (2,), method="counts")).lower_N
    )


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (PLAIN, [1.0, 1.0]),
        (ScoreScale(kind="bernoulli", sigma_min=0.4), bernoulli_scale([0.5, 0.0], 0.4)),
        (
            ScoreScale(kind="residual", residual=ResidualScale(num_levels=(2,), by_state={(1,): 0.3}, overall=0.2)),
            [0.2, 0.3],
        ),
    ],
)
def test_scale_follows_its_kind(scale, expected):
    """Plain is 1, bernoulli follows the score, residual the state."""
    np.testing.assert_allclose(expected, scale.of(np.array([0.5, 0.0]), np.array([[0], [1]], dtype=np.int8)))


def test_every_rollout_missing_is_all_missing():
    """A judge that failed everywhere gives intervals without one bound."""
    assert bound(judgments(missing=(True,) * 3)).missing_N.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "gauss"}, "'kind' must be plain, bernoulli or residual; got 'gauss'"),
        ({"kind": "residual"}, "'residual' must be given exactly for the residual kind; got 'residual'"),
        ({"kind": "bernoulli", "sigma_min": 0.0}, "'sigma_min' must be positive; got 0.0"),
    ],
)
def test_unusable_scale_is_refused(settings, message):
    """Kind and parts must fit."""
    with pytest.raises(ConfigError, match=message):
        ScoreScale(**settings)


def test_alpha_outside_its_range_is_refused():
    """The miscoverage level is a probability strictly inside (0, 1)."""
    with pytest.raises(CalibrationError, match=r"'alpha' must lie in \(0, 1\); got 1.0"):
        bound(alpha=1.0)
