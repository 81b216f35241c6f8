"""Two other uses of an interval, for comparison: a penalised draw from it, and sides of Student-t intervals.

It computes a scalar reward a rollout from the judge's intervals of its group.
variance_aware: r = u - penalty * (U - L)^2 / 12 with u uniform in [L, U]. student_t: split the group's centers at
their median; r = 1 above the lower half's upper t-bound, 0 below the upper half's lower t-bound, else missing.
A t-interval is mean +- t_{n-1} * std / sqrt(n), std dividing by n - 1.
Left out of Variance-Aware PPO: its variance weighs a divergence from the initial policy, here a penalty on the reward;
and of IRPM-Interval: its chosen and rejected answers come from preference pairs, here from the halves of a group. Both
readings are ours.

Shapes: N rollouts flat.
"""

import numpy as np
from scipy import stats

from rangeline.records import FloatArray, RewardIntervals
from rangeline.rewards.source import point_intervals


def variance_aware_intervals(
    judged: RewardIntervals, uniform_N: FloatArray, *, penalty: float = 1.0
) -> RewardIntervals:
    """Draw a reward from each interval and take off its variance.

    Parameters
    ----------
    judged
        Intervals of N rollouts.
    uniform_N
        Draws in [0, 1), one a rollout.
    penalty
        Weight of the variance of a uniform reward, width^2 / 12; 0 leaves the plain draw.

    Returns
    -------
    RewardIntervals
        Source `variance_aware`; zero width, without support; missing where the interval is.

    Notes
    -----
    After Banerjee et al. (2025), as Range-GRPO describes it; the form of the regularisation is ours.
    """
    width_N = judged.upper_N - judged.lower_N
    reward_N = judged.lower_N + uniform_N * width_N - penalty * width_N**2 / 12
    return point_intervals(
        judged.prompt_id_N, reward_N, support=None, source="variance_aware", missing_N=judged.missing_N
    )


def t_bounds(values: FloatArray, confidence: float) -> tuple[float, float]:
    """Return the Student-t interval of a mean; a single value, or equal ones, have no width.

    Examples
    --------
    >>> low, high = t_bounds(np.array([1.0, 2.0, 3.0]), 0.95)
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    mean, num = float(values.mean()), len(values)
    if num < 2:
        return mean, mean
    half = float(stats.t.ppf((1 + confidence) / 2, num - 1) * values.std(ddof=1) / np.sqrt(num))
    return mean - half, mean + half


def student_t_intervals(judged: RewardIntervals, *, confidence: float = 0.95) -> RewardIntervals:
    """Make binary rewards from the two halves of each group.

    Parameters
    ----------
    judged
        Intervals of N rollouts; their centers are the scores.
    confidence
        Of both t-intervals, in (0, 1).

    Returns
    -------
    RewardIntervals
        Source `student_t`, support [0, 1]; missing where the interval is, where a half has fewer than two rollouts, and
        where a score is on neither side or on both.

    Notes
    -----
    After IRPM-Interval (Song et al., 2026), as Range-GRPO describes it; the halves are ours.
    """
    reward_N = np.full(len(judged), np.nan)
    rows_of: dict[str, list[int]] = {}
    for i in np.flatnonzero(~judged.missing_N).tolist():
        rows_of.setdefault(judged.prompt_id_N[i], []).append(i)
    for rows in rows_of.values():
        score_G = judged.center_N[rows]
        middle = float(np.median(score_G))
        chosen, rejected = score_G[score_G > middle], score_G[score_G < middle]
        if min(len(chosen), len(rejected)) < 2:
            continue
        low, high = t_bounds(chosen, confidence)[0], t_bounds(rejected, confidence)[1]
        right_G, wrong_G = score_G > high, score_G < low
        reward_N[rows] = np.where(right_G & ~wrong_G, 1.0, np.where(wrong_G & ~right_G, 0.0, np.nan))
    return point_intervals(judged.prompt_id_N, reward_N, support=(0.0, 1.0), source="student_t")
