"""Weighted conformal cutoffs and the reward intervals that they give.

Computes, for each test rollout, the weighted quantile of calibration scores with the test point's own mass at infinity.
The cutoff is the smallest score E_i with ``w_test + sum of w_j over E_j > E_i <= alpha (sum of all w_j + w_test)``, and
the interval is ``[s - cutoff * sigma, s + cutoff * sigma]`` inside the support.
Weights are divided by the largest calibration weight: only ratios of weights matter, never their scale.
Left out of the paper: nothing; the tail form and its tolerance are ours, because a plain cumulative sum of weights
answers ties of the quantile wrongly.

Shapes: C calibration rows, N test rollouts, K coordinates of a state.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rangeline.conformal.checks import require_alpha, require_rows, vector
from rangeline.errors import CalibrationError
from rangeline.records import FloatArray, LevelArray, RewardIntervals

_RELATIVE_TOLERANCE = 1e-12
"""Slack of the quantile's inequality: far above rounding of the sums, far below one row's share of any real set."""
_MAX_LOG_RATIO = 700.0
"""exp(700) is finite; a test weight this much above every calibration weight has an infinite cutoff anyway."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CalibrationSet:
    """Labelled, judged rollouts that set the cutoff; frozen for a whole run.

    Make it with `CalibrationSet.build`, which computes the nonconformity scores.
    """

    prompt_id_C: tuple[str, ...]
    levels_CK: LevelArray
    """int8, judgment state of each row; UNKNOWN (-1) is a level."""
    score_C: FloatArray
    """Expected reward of the state scorer, in [0, 1]."""
    scale_C: FloatArray
    """Positive scale sigma of the scores; all ones for plain scores."""
    truth_C: FloatArray
    """Known reward, in [0, 1]; never missing."""
    nonconformity_C: FloatArray
    """|score - truth| / scale."""

    def __post_init__(self) -> None:
        """Freeze the arrays; check lengths, ranges and the nonconformity scores."""
        levels = np.array(self.levels_CK, dtype=np.int8)
        if levels.ndim != 2 or len(levels) != len(self.prompt_id_C):
            msg = f"'levels_CK' must have {len(self.prompt_id_C)} rows and two axes; got shape {levels.shape}."
            raise CalibrationError(msg)
        levels.flags.writeable = False
        object.__setattr__(self, "levels_CK", levels)
        for name in ("score_C", "scale_C", "truth_C", "nonconformity_C"):
            array = vector(getattr(self, name), name, len(self.prompt_id_C)).copy()
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        for name in ("score_C", "truth_C"):
            values = getattr(self, name)
            require_rows((values >= 0) & (values <= 1), name, "lie in [0, 1]", values)
        require_rows(np.isfinite(self.scale_C) & (self.scale_C > 0), "scale_C", "be positive and finite", self.scale_C)
        wanted = np.abs(self.score_C - self.truth_C) / self.scale_C
        close = np.isclose(self.nonconformity_C, wanted, rtol=1e-9, atol=1e-12)
        require_rows(close, "nonconformity_C", "equal |score - truth| / scale", self.nonconformity_C)

    def __len__(self) -> int:
        """Return C."""
        return len(self.prompt_id_C)

    @classmethod
    def build(
        cls,
        prompt_id_C: Sequence[str],
        levels_CK: ArrayLike,
        *,
        score_C: ArrayLike,
        scale_C: ArrayLike,
        truth_C: ArrayLike,
    ) -> "CalibrationSet":
        """Make the record, computing ``|score - truth| / scale``; bad rows raise CalibrationError."""
        num = len(prompt_id_C)
        score, scale = vector(score_C, "score_C", num), vector(scale_C, "scale_C", num)
        truth = vector(truth_C, "truth_C", num)
        require_rows(np.isfinite(scale) & (scale > 0), "scale_C", "be positive and finite", scale)
        return cls(
            prompt_id_C=tuple(prompt_id_C),
            levels_CK=np.asarray(levels_CK, dtype=np.int8),
            score_C=score,
            scale_C=scale,
            truth_C=truth,
            nonconformity_C=np.abs(score - truth) / scale,
        )


def minimum_calibration_rows(alpha: float) -> int:
    """Return the smallest number of equally weighted rows that gives a finite cutoff: n >= 1/alpha - 1.

    >>> minimum_calibration_rows(0.1)
    9
    """
    require_alpha(alpha)
    return max(1, math.ceil(1 / (alpha * (1 + _RELATIVE_TOLERANCE)) - 1))


def require_calibration_prompts(num_prompts: int, alpha: float) -> None:
    """Raise CalibrationError where so few prompts, of which each counts once, can only give infinite cutoffs."""
    needed = minimum_calibration_rows(alpha)
    if num_prompts < needed:
        msg = (
            f"Calibration must have at least {needed} usable prompts for alpha={alpha}; got {num_prompts}. Add "
            f"references to its pool, raise intervals.alpha, or sampling.max_tokens where rollouts are cut off."
        )
        raise CalibrationError(msg)


def weighted_cutoffs(
    nonconformity_C: ArrayLike, log_weight_C: ArrayLike, log_weight_N: ArrayLike, alpha: float
) -> FloatArray:
    """Compute the weighted conformal cutoff of each test rollout.

    The smallest score E_i, among rows of positive weight, with
    ``w_n + sum_{E_j > E_i} w_j <= alpha (sum_j w_j + w_n) (1 + 1e-12)``; infinite where there is none. One sort, one
    cumulative sum and one search answer all test rollouts: O((C + N) log C).

    Parameters
    ----------
    nonconformity_C
        [C] finite scores >= 0. Empty: every cutoff is infinite.
    log_weight_C
        [C] log of target over source density; -inf is weight 0, the same as leaving the row out.
    log_weight_N
        [N] same scale as the calibration weights; +inf gives an infinite cutoff.
    alpha
        Miscoverage level in (0, 1).

    Returns
    -------
    numpy.ndarray
        [N] float64 cutoffs, each one of the scores or +inf.

    Raises
    ------
    CalibrationError
        A score is negative or not finite, a log weight is NaN, a calibration log weight is +inf, lengths differ, or
        alpha lies outside (0, 1). The message names the row.

    Notes
    -----
    Tibshirani et al. (2019), as used in Range-GRPO section 3.2. Ours: the tail form and its relative tolerance.

    Examples
    --------
    >>> weighted_cutoffs([0.1, 0.2, 0.4], [0.0, 0.0, 0.0], [0.0, 9.0], 0.5).tolist()
    [0.2, inf]
    """
    return _cutoffs(*_checked(nonconformity_C, log_weight_C, log_weight_N, alpha), alpha)


def _checked(
    nonconformity_C: ArrayLike, log_weight_C: ArrayLike, log_weight_N: ArrayLike, alpha: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    require_alpha(alpha)
    score_C = vector(nonconformity_C, "nonconformity_C")
    log_C = vector(log_weight_C, "log_weight_C", len(score_C))
    log_N = vector(log_weight_N, "log_weight_N")
    require_rows(np.isfinite(score_C) & (score_C >= 0), "nonconformity_C", "be finite and at least 0", score_C)
    require_rows(log_C < np.inf, "log_weight_C", "be below infinity and not NaN", log_C)
    require_rows(~np.isnan(log_N), "log_weight_N", "not be NaN", log_N)
    return score_C, log_C, log_N


def _cutoffs(score_C: FloatArray, log_C: FloatArray, log_N: FloatArray, alpha: float) -> FloatArray:
    top = log_C.max(initial=-np.inf)
    if top == -np.inf:
        return np.full(len(log_N), np.inf)
    # Scaled by the calibration rows alone, so that one test rollout's weight cannot change another's cutoff.
    weight_C = np.exp(log_C - top)
    weight_N = np.exp(np.minimum(log_N - top, _MAX_LOG_RATIO))
    keep = weight_C > 0
    score_U, row_of = np.unique(score_C[keep], return_inverse=True)
    weight_U = np.bincount(row_of, weights=weight_C[keep])
    upward_U = np.cumsum(weight_U[::-1])
    tail_U = np.concatenate(([0.0], upward_U[:-1]))  # from the largest score down: weight of all larger scores
    budget_N = alpha * (1 + _RELATIVE_TOLERANCE) * (upward_U[-1] + weight_N) - weight_N
    num_within_N = np.searchsorted(tail_U, budget_N, side="right")
    cutoff_U = np.concatenate(([np.inf], score_U[::-1]))
    return np.asarray(cutoff_U[num_within_N], dtype=np.float64)


def weighted_cutoffs_by_group(
    nonconformity_C: ArrayLike,
    log_weight_C: ArrayLike,
    log_weight_N: ArrayLike,
    alpha: float,
    *,
    group_C: Sequence[Hashable],
    group_N: Sequence[Hashable],
) -> FloatArray:
    """Compute `weighted_cutoffs` inside each group (Mondrian): a test rollout is answered by rows of its own group.

    Groups are labels such as suites or the levels of one coordinate; one without calibration rows has infinite cutoffs.
    Coverage then holds in each group, at the price of fewer rows a cutoff. Parameters, result and errors are those of
    `weighted_cutoffs`; CalibrationError as well where labels and rows differ in number.

    >>> weighted_cutoffs_by_group([0.1, 0.2, 0.9], [0.0] * 3, [0.0] * 3, 0.5, group_C="aab", group_N="abc").tolist()
    [0.2, 0.9, inf]
    """
    score_C, log_C, log_N = _checked(nonconformity_C, log_weight_C, log_weight_N, alpha)
    for name, labels, num in (("group_C", group_C, len(score_C)), ("group_N", group_N, len(log_N))):
        if len(labels) != num:
            msg = f"'{name}' must have one label for each of {num} rows; got {len(labels)}. Give one label a row."
            raise CalibrationError(msg)
    code_of: dict[Hashable, int] = {}
    code_C, code_N = (np.array([code_of.setdefault(label, len(code_of)) for label in g]) for g in (group_C, group_N))
    cutoff_N = np.full(len(log_N), np.inf)
    for code in range(len(code_of)):
        of_C, of_N = code_C == code, code_N == code
        cutoff_N[of_N] = _cutoffs(score_C[of_C], log_C[of_C], log_N[of_N], alpha)
    return cutoff_N


def reward_intervals(
    score_N: ArrayLike,
    scale_N: ArrayLike,
    cutoff_N: ArrayLike,
    *,
    prompt_id_N: Sequence[str],
    missing_N: ArrayLike,
    support: tuple[float, float] = (0.0, 1.0),
) -> RewardIntervals:
    """Make reward intervals ``[s - cutoff * sigma, s + cutoff * sigma]`` inside the support.

    Parameters
    ----------
    score_N
        [N] expected rewards inside the support; ignored where missing.
    scale_N
        [N] positive scales sigma; ignored where missing.
    cutoff_N
        [N] cutoffs >= 0; +inf gives exactly the support, flagged unbounded. Ignored where missing.
    prompt_id_N
        [N] prompt of each rollout.
    missing_N
        [N] bool, True where the judge gave no state.
    support
        Smallest and largest possible reward.

    Returns
    -------
    RewardIntervals
        Source ``judge_interval``; bounds are NaN where missing and nowhere else.

    Raises
    ------
    CalibrationError
        A valid row has a score outside the support, a scale that is not positive, or a negative or NaN cutoff.
    """
    low, high = support
    num = len(prompt_id_N)
    missing = np.asarray(missing_N, dtype=bool)
    score, scale = vector(score_N, "score_N", num), vector(scale_N, "scale_N", num)
    cutoff = vector(cutoff_N, "cutoff_N", num)
    if missing.shape != (num,):
        msg = f"'missing_N' must have shape ({num},); got {missing.shape}. Give one value a row."
        raise CalibrationError(msg)
    require_rows(missing | ((score >= low) & (score <= high)), "score_N", f"lie in [{low}, {high}]", score)
    require_rows(missing | (np.isfinite(scale) & (scale > 0)), "scale_N", "be positive and finite", scale)
    require_rows(missing | (cutoff >= 0), "cutoff_N", "be at least 0", cutoff)
    score, scale, cutoff = (np.where(missing, plain, x) for plain, x in ((low, score), (1.0, scale), (0.0, cutoff)))
    unbounded = np.isinf(cutoff)
    half = np.where(unbounded, np.inf, cutoff * scale)
    return RewardIntervals(
        prompt_id_N=tuple(prompt_id_N),
        lower_N=np.maximum(score - half, low),
        upper_N=np.minimum(score + half, high),
        unbounded_N=unbounded,
        missing_N=missing,
        support=(low, high),
        source="judge_interval",
    )
