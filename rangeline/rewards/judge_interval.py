"""Turn judgment states into calibrated reward intervals.

It computes, for each judged rollout, an interval that holds its true reward with probability 1 - alpha.
Interval = [s - tau sigma, s + tau sigma] within [0, 1], with scorer's reward s, scale sigma and weighted cutoff tau.
Weights of the cutoff are divided by their sum, the rollout's own weight included, in `conformal.intervals`.
Nothing of the paper is left out; that a rollout without a state stays missing, and is never the whole support, is ours.

Shapes: N rollouts flat, K coordinates, C calibration rows.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rangeline.conformal.adaptive import BlendedRatio
from rangeline.conformal.density_ratio import DensityRatio
from rangeline.conformal.intervals import CalibrationSet, reward_intervals, weighted_cutoffs
from rangeline.conformal.scorer import ResidualScale, StateScorer, bernoulli_scale
from rangeline.errors import ConfigError
from rangeline.records import FloatArray, JudgmentTable, LevelArray, RewardIntervals


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreScale:
    """How sure a score is: one rule for calibration rows and for rollouts."""

    kind: Literal["plain", "bernoulli", "residual"]
    """plain: 1 everywhere. bernoulli: sqrt(s (1 - s)), floored. residual: fitted on the source pool."""
    sigma_min: float = 0.05
    """Floor of the bernoulli scale."""
    residual: ResidualScale | None = None
    """Needed for the residual kind, and only there."""

    def __post_init__(self) -> None:
        """Check that the parts fit the kind."""
        if self.kind not in ("plain", "bernoulli", "residual"):
            msg = f"'kind' must be plain, bernoulli or residual; got '{self.kind}' (score scale). Correct the setting."
            raise ConfigError(msg)
        if (self.kind == "residual") != (self.residual is not None):
            msg = f"'residual' must be given exactly for the residual kind; got '{self.kind}' (score scale). Fit it."
            raise ConfigError(msg)
        if self.sigma_min <= 0:
            msg = f"'sigma_min' must be positive; got {self.sigma_min} (score scale). Raise it."
            raise ConfigError(msg)

    def of(self, score_N: FloatArray, levels_NK: LevelArray) -> FloatArray:
        """Return the positive scale of each row.

        Parameters
        ----------
        score_N
            Scores in [0, 1].
        levels_NK
            Judgment states of the same rows.

        Returns
        -------
        FloatArray
            float64 of shape (N,).
        """
        if self.residual is not None:
            return self.residual.scale(levels_NK)
        if self.kind == "bernoulli":
            return bernoulli_scale(score_N, self.sigma_min)
        return np.ones(len(score_N))


def judge_intervals(
    judgments: JudgmentTable,
    *,
    scorer: StateScorer,
    scale: ScoreScale,
    ratio: DensityRatio | BlendedRatio | None,
    calibration: CalibrationSet,
    alpha: float,
    log_discount_C: FloatArray | None = None,
) -> RewardIntervals:
    """Bound the reward of every judged rollout.

    Parameters
    ----------
    judgments
        N judgment states; rows where the judge failed are missing.
    scorer
        Frozen expected reward of a state.
    scale
        The rule that made the calibration set's scales.
    ratio
        Density ratio of the current policy to the calibration rows; None weighs all rows alike.
    calibration
        C labelled rows.
    alpha
        Miscoverage level in (0, 1).
    log_discount_C
        [C] added to the log weights of the calibration rows, which rollouts do not share; None adds nothing.

    Returns
    -------
    RewardIntervals
        Source `judge_interval`; missing exactly where the judge failed; unbounded where the cutoff is infinite.

    Raises
    ------
    CalibrationError
        When alpha, scores or weights are not usable.

    Notes
    -----
    Range-GRPO section 3.2, after weighted conformal prediction (Tibshirani et al., 2019).
    """
    valid_N = ~judgments.missing_N
    levels_VK = judgments.levels_NK[valid_N]
    score_V = scorer.score(levels_VK)
    log_weight_C, log_weight_V = np.zeros(len(calibration)), np.zeros(len(levels_VK))
    if ratio is not None:
        log_weight_C, log_weight_V = ratio.log_ratio(calibration.levels_CK), ratio.log_ratio(levels_VK)
    if log_discount_C is not None:
        log_weight_C = log_weight_C + log_discount_C

    def spread(values_V: FloatArray) -> FloatArray:
        values_N = np.full(len(valid_N), np.nan)
        values_N[valid_N] = values_V
        return values_N

    return reward_intervals(
        spread(score_V),
        spread(scale.of(score_V, levels_VK)),
        spread(weighted_cutoffs(calibration.nonconformity_C, log_weight_C, log_weight_V, alpha)),
        prompt_id_N=judgments.prompt_id_N,
        missing_N=judgments.missing_N,
    )
