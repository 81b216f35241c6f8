"""How good a reward is: does it rank right answers above wrong ones, and does it follow length or entropy instead.

It computes the AUC of a reward against verified correctness, and rank correlations with length and entropy.
AUC = (#{right above wrong} + .5 #{ties}) / (#right #wrong); the correlation is Spearman's, inside each prompt.
AUC is divided by the pairs of all prompts of a suite together; correlations are averaged over prompts.
Nothing of the paper is left out; ours is that a prompt whose rewards or measures do not differ has no correlation.

Shapes: N rollouts flat. A missing reward is NaN and leaves every number; its share is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rangeline.records import FloatArray

_SIGNIFICANCE = 0.05
_MIN_ROLLOUTS = 4
"""Fewer rollouts of a prompt have no correlation worth a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardQuality:
    """What one reward is worth on some rollouts."""

    auc: float | None
    """None without a right and a wrong rollout that both have a reward."""
    num_right: int
    num_wrong: int
    missing_share: float
    """Of the verified rollouts, those without a reward."""
    length_correlation: float | None
    """Mean over prompts of Spearman's coefficient; None where no prompt has one."""
    entropy_correlation: float | None
    significant_length_share: float | None
    """Share of these prompts with p < .05."""
    significant_entropy_share: float | None


def area_under_curve(score_N: FloatArray, right_N: FloatArray) -> float | None:
    """Return how often a right rollout has the higher score than a wrong one; ties count half.

    Parameters
    ----------
    score_N
        Scores, NaN where missing.
    right_N
        1 right, 0 wrong, NaN unverified.

    Examples
    --------
    >>> area_under_curve(np.array([0.9, 0.5, 0.5, 0.1]), np.array([1.0, 1.0, 0.0, 0.0]))
    0.875
    """
    known = np.isfinite(score_N) & np.isfinite(right_N)
    score, is_right = score_N[known], right_N[known] >= 0.5
    num_right, num_wrong = int(is_right.sum()), int((~is_right).sum())
    if not num_right or not num_wrong:
        return None
    ranks = stats.rankdata(score)
    return float((ranks[is_right].sum() - num_right * (num_right + 1) / 2) / (num_right * num_wrong))


def reward_quality(
    score_N: FloatArray,
    right_N: FloatArray,
    *,
    length_N: FloatArray,
    entropy_N: FloatArray,
    prompt_id_N: Sequence[str],
) -> RewardQuality:
    """Measure one reward on rollouts of one suite.

    Parameters
    ----------
    score_N
        Rewards, NaN where missing; of an interval its middle.
    right_N
        1 right, 0 wrong, NaN unverified.
    length_N, entropy_N
        Tokens of each rollout, and its mean token entropy, NaN where unknown.
    prompt_id_N
        Prompt of each rollout.

    Returns
    -------
    RewardQuality
        Finite numbers or None.

    Notes
    -----
    RLPR section 3.3 and Figure 4.
    """
    verified = np.isfinite(right_N)
    valid = verified & np.isfinite(score_N)
    length, length_share = _correlation(score_N, length_N, prompt_id_N)
    entropy, entropy_share = _correlation(score_N, entropy_N, prompt_id_N)
    return RewardQuality(
        auc=area_under_curve(score_N, right_N),
        num_right=int((right_N[valid] >= 0.5).sum()),
        num_wrong=int((right_N[valid] < 0.5).sum()),
        missing_share=float(1 - valid.sum() / verified.sum()) if verified.any() else 1.0,
        length_correlation=length,
        entropy_correlation=entropy,
        significant_length_share=length_share,
        significant_entropy_share=entropy_share,
    )


def _correlation(
    score_N: FloatArray, other_N: FloatArray, prompt_id_N: Sequence[str]
) -> tuple[float | None, float | None]:
    rows_of: dict[str, list[int]] = {}
    for i in np.flatnonzero(np.isfinite(score_N) & np.isfinite(other_N)).tolist():
        rows_of.setdefault(prompt_id_N[i], []).append(i)
    found = []
    for rows in rows_of.values():
        score, other = score_N[rows], other_N[rows]
        if len(rows) >= _MIN_ROLLOUTS and np.ptp(score) > 0 and np.ptp(other) > 0:
            result = stats.spearmanr(score, other)
            found.append((float(result.statistic), float(result.pvalue)))
    if not found:
        return None, None
    values = np.array(found)
    return float(values[:, 0].mean()), float((values[:, 1] < _SIGNIFICANCE).mean())
