"""Accuracy of sampled completions with intervals that respect prompts.

Computes avg@n, the mean over prompts of each prompt's mean reward, and pass@k, the chance that at least one of k
completions of a prompt is right. Formula of pass@k: 1 - C(n - c, k) / C(n, k) for n valid rows of which c are right.
Both are divided by the number of prompts that have enough valid rows: one for avg@n, k for pass@k.
The published estimator fills a prompt that has fewer than k completions; here such a prompt is left out and counted,
because a completion without a verdict is neither right nor wrong.

Shapes: N rollouts flat, P prompts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import norm, t

from rangeline.errors import BadInputError
from rangeline.records import FloatArray
from rangeline.seeds import stream

_NUM_RESAMPLES = 4000
"""Bootstrap draws: the error of a 2.5 % quantile's level is then about a quarter of a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over prompts with its interval."""

    value: float | None
    """None when no prompt could be used."""
    lower: float | None
    upper: float | None
    """None when there is no value, or when one prompt alone, of unbounded reward, allows no interval."""
    num_prompts: int
    """Prompts that the value is a mean of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingMetrics:
    """What one evaluation of sampled completions says."""

    average: Estimate
    """avg@n: mean of the prompt means over valid rows."""
    pass_at_k: Mapping[int, Estimate]
    """By k; `num_prompts` counts the prompts with at least k valid rows."""
    missing_share: float
    """Share of rows without a reward."""
    num_prompts: int
    """Prompts seen, those without a valid row included."""
    num_rows: int
    num_valid_rows: int
    confidence: float


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Return the unbiased chance that one of k completions is right.

    One minus the chance that k completions, drawn without replacement, are all wrong:
    ``1 - C(n - c, k) / C(n, k)``, in exact integers until the last division.

    Parameters
    ----------
    num_samples
        n, valid completions of the prompt, at least k.
    num_right
        c, right completions among them, in [0, n].
    k
        Completions that are allowed, at least 1.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    BadInputError
        If k is below 1, n is below k, or c is outside [0, n].

    Notes
    -----
    Chen et al. 2021, equation 1.

    Examples
    --------
    >>> pass_at_k(4, 1, 2)
    0.5
    >>> pass_at_k(4, 4, 1)
    1.0
    """
    if k < 1:
        msg = f"'k' must lie in [1, inf); got {k}. Ask for pass@1 or more."
        raise BadInputError(msg)
    if num_samples < k:
        msg = f"'num_samples' must lie in [{k}, inf) for pass@{k}; got {num_samples}. Sample more completions a prompt."
        raise BadInputError(msg)
    if not 0 <= num_right <= num_samples:
        msg = f"'num_right' must lie in [0, {num_samples}]; got {num_right}. Count right completions among the valid."
        raise BadInputError(msg)
    everything = math.comb(num_samples, k)
    return (everything - math.comb(num_samples - num_right, k)) / everything


def prompt_means(reward_N: FloatArray, prompt_id_N: Sequence[str]) -> dict[str, float]:
    """Return each prompt's mean reward over its valid rows.

    Parameters
    ----------
    reward_N
        Rewards, NaN where missing.
    prompt_id_N
        Prompt of each row, in any order.

    Returns
    -------
    dict[str, float]
        Prompts in order of first valid row; a prompt without a valid row is absent.

    Raises
    ------
    BadInputError
        If lengths differ or a reward is infinite.

    Examples
    --------
    >>> prompt_means(np.array([1.0, 0.0, np.nan, np.nan]), ["p", "p", "p", "q"])
    {'p': 0.5}
    """
    return {name: math.fsum(values) / len(values) for name, values in _valid_rows(reward_N, prompt_id_N).items()}


def clustered_interval(
    value_P: FloatArray, *, confidence: float, seed: int, support: tuple[float, float] | None
) -> tuple[float | None, float | None]:
    """Return an interval for the mean over prompts, by resampling whole prompts.

    Percentile interval of the means of P prompts drawn with replacement, at levels widened for small P. Where all
    prompts have one value, resampling sees no spread; the interval then allows that a share
    ``q = 1 - ((1 - confidence) / 2) ** (1 / P)`` of prompts, the largest that P draws may well have missed, lies at
    either end of the support.

    Parameters
    ----------
    value_P
        One finite value a prompt.
    confidence
        In (0, 1).
    seed
        Seed of the draws; same seed, same interval, whatever the order of prompts.
    support
        Range of possible values; None if there is none.

    Returns
    -------
    tuple[float | None, float | None]
        Lower and upper; None for no prompt, and for equal values without a support.

    Raises
    ------
    BadInputError
        If confidence is outside (0, 1).

    Notes
    -----
    Resampling clusters: Field and Welsh 2007. Levels: Hesterberg 2015, section 5.3, "expanded percentile".
    The rule for equal values is ours; for values of 1 in [0, 1] it is the Clopper-Pearson bound.
    """
    if not 0 < confidence < 1:
        msg = f"'confidence' must lie in (0, 1); got {confidence}. Use a value such as 0.95."
        raise BadInputError(msg)
    tail = (1 - confidence) / 2
    distinct, counts = np.unique(value_P, return_counts=True)
    num_prompts = int(counts.sum())
    if distinct.size == 0 or (distinct.size == 1 and support is None):
        return None, None
    if distinct.size == 1 and support is not None:
        value, unseen = float(distinct[0]), 1 - tail ** (1 / num_prompts)
        return value - unseen * (value - support[0]), value + unseen * (support[1] - value)
    # Counts of distinct values are the same draw as indices of prompts, and know no order of prompts.
    draws = stream(seed, "clustered_interval").multinomial(num_prompts, counts / num_prompts, size=_NUM_RESAMPLES)
    means = draws @ distinct / num_prompts
    level = float(norm.cdf(math.sqrt(num_prompts / (num_prompts - 1)) * t.ppf(tail, num_prompts - 1)))
    lower, upper = np.quantile(means, [level, 1 - level])
    return float(lower), float(upper)


def mean_estimate(
    value_P: Sequence[float], *, confidence: float, seed: int, support: tuple[float, float] | None
) -> Estimate:
    """Return the mean over prompts with its clustered interval; without a prompt there is no value.

    Parameters
    ----------
    value_P
        One finite value a prompt that could be used.
    confidence, seed, support
        As in `clustered_interval`.

    Examples
    --------
    >>> mean_estimate([], confidence=0.95, seed=0, support=(0, 1)).value is None
    True
    """
    lower, upper = clustered_interval(
        np.array(value_P, dtype=np.float64), confidence=confidence, seed=seed, support=support
    )
    mean = math.fsum(value_P) / len(value_P) if len(value_P) else None
    return Estimate(value=mean, lower=lower, upper=upper, num_prompts=len(value_P))


def evaluate_samples(
    reward_N: FloatArray, prompt_id_N: Sequence[str], *, ks: Sequence[int], confidence: float = 0.95, seed: int
) -> SamplingMetrics:
    """Return avg@n and pass@k over prompts, with clustered intervals.

    Parameters
    ----------
    reward_N
        Reward of each rollout; NaN where missing, which is neither right nor wrong.
    prompt_id_N
        Prompt of each rollout, in any order; group sizes may differ.
    ks
        Values of k; rewards must then be 0 or 1. Empty for graded rewards.
    confidence
        Of the intervals, in (0, 1).
    seed
        Seed of the bootstrap.

    Returns
    -------
    SamplingMetrics
        Values are None where no prompt could be used.

    Raises
    ------
    BadInputError
        If there is no row, lengths differ, a reward is infinite, or pass@k is asked for graded rewards.

    Examples
    --------
    >>> metrics = evaluate_samples(np.array([1.0, 0.0, np.nan, 1.0]), ["p", "p", "p", "q"], ks=(2,), seed=0)
    >>> metrics.average.value, metrics.pass_at_k[2].value, metrics.pass_at_k[2].num_prompts
    (0.75, 1.0, 1)
    """
    rows = _valid_rows(reward_N, prompt_id_N)
    if not len(prompt_id_N):
        msg = "'reward_N' must hold at least one row; got 0. Evaluate at least one prompt."
        raise BadInputError(msg)
    values = [value for group in rows.values() for value in group]
    graded = next((value for value in values if value not in (0.0, 1.0)), None)
    if len(ks) and graded is not None:
        msg = f"'reward_N' must be 0 or 1 for pass@k; got {graded}. Give no 'ks' for graded rewards."
        raise BadInputError(msg)
    support = (0.0, 1.0) if all(0 <= value <= 1 for value in values) else None

    estimate = partial(mean_estimate, confidence=confidence, seed=seed, support=support)
    return SamplingMetrics(
        average=estimate([math.fsum(group) / len(group) for group in rows.values()]),
        pass_at_k={
            k: estimate([pass_at_k(len(group), int(sum(group)), k) for group in rows.values() if len(group) >= k])
            for k in ks
        },
        missing_share=1 - len(values) / len(prompt_id_N),
        num_prompts=len(set(prompt_id_N)),
        num_rows=len(prompt_id_N),
        num_valid_rows=len(values),
        confidence=confidence,
    )


def _valid_rows(reward_N: FloatArray, prompt_id_N: Sequence[str]) -> dict[str, list[float]]:
    reward_N = np.asarray(reward_N, dtype=np.float64)
    if reward_N.shape != (len(prompt_id_N),):
        msg = f"'reward_N' must have one value a prompt id; got shape {reward_N.shape} for {len(prompt_id_N)} ids."
        raise BadInputError(msg)
    rows: dict[str, list[float]] = {}
    for i, (reward, name) in enumerate(zip(reward_N.tolist(), prompt_id_N, strict=True)):
        if math.isinf(reward):
            msg = f"'reward_N' must be finite, or NaN where missing; got {reward} (row {i}, prompt '{name}')."
            raise BadInputError(msg)
        if not math.isnan(reward):
            rows.setdefault(name, []).append(reward)
    return rows
