"""Paired comparison of two evaluations of the same prompts.

Computes how much the mean reward moved between two policies on the prompts that both answered. Formula: the mean
over shared prompts of (after - before), with an interval from resampling prompts, a sign-flip test of the mean and an
exact sign test, which for one completion a prompt is McNemar's.
The mean is divided by the number of shared prompts; both tests count only prompts that moved.
Pairing is by prompt id; a prompt that one side lacks is left out and counted, because it says nothing on change.

Shapes: P shared prompts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from rangeline.errors import BadInputError
from rangeline.evaluation.sampling_metrics import clustered_interval
from rangeline.seeds import stream

_MAX_EXACT = 16
"""Changes whose 65,536 sign patterns are all counted."""
_NUM_FLIPS = 20_000
"""Drawn patterns: a p-value of 0.05 is then known to within 0.003."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Change from before to after on shared prompts; positive means better after."""

    mean: float
    lower: float | None
    upper: float | None
    """None where equal differences of unbounded rewards allow no interval."""
    p_value: float
    """Two-sided exact sign test of the median; 1.0 when no prompt moved."""
    mean_p_value: float
    """Two-sided sign-flip test of the mean; 1.0 when no prompt moved."""
    num_shared: int
    num_better: int
    num_worse: int
    num_unshared: int
    """Prompts that only one side holds a value for."""
    confidence: float


def paired_difference(
    before_by_prompt: Mapping[str, float],
    after_by_prompt: Mapping[str, float],
    *,
    confidence: float = 0.95,
    seed: int,
) -> PairedDifference:
    """Return the mean change over the prompts that both sides answered.

    Parameters
    ----------
    before_by_prompt
        Mean reward of each prompt before; NaN or absent where missing.
    after_by_prompt
        The same, after.
    confidence
        Of the clustered interval, in (0, 1).
    seed
        Seed of the bootstrap.

    Returns
    -------
    PairedDifference
        Mean change, interval, sign-test p-value and counts.

    Raises
    ------
    BadInputError
        If no prompt is shared, or a value is infinite.

    Notes
    -----
    `p_value` is for the median, the interval and `mean_p_value` for the mean: with few prompts that moved far they
    may disagree.

    Examples
    --------
    >>> change = paired_difference({"p": 0.0, "q": 0.5}, {"p": 1.0, "q": 0.5, "r": 1.0}, seed=0)
    >>> change.mean, change.num_shared, change.num_better, change.p_value
    (0.5, 2, 1, 1.0)
    """
    before, after = _valid("before_by_prompt", before_by_prompt), _valid("after_by_prompt", after_by_prompt)
    shared = sorted(before.keys() & after.keys())
    if not shared:
        msg = (
            f"'before_by_prompt' and 'after_by_prompt' must share a prompt with a reward; got {len(before)} and "
            f"{len(after)} prompts, none shared. Evaluate both policies on the same prompts."
        )
        raise BadInputError(msg)
    changes = [after[name] - before[name] for name in shared]
    bounded = all(0 <= side[name] <= 1 for name in shared for side in (before, after))
    lower, upper = clustered_interval(
        np.array(changes, dtype=np.float64),
        confidence=confidence,
        seed=seed,
        support=(-1.0, 1.0) if bounded else None,
    )
    better, worse = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    return PairedDifference(
        mean=math.fsum(changes) / len(changes),
        lower=lower,
        upper=upper,
        p_value=float(binomtest(better, better + worse).pvalue) if better + worse else 1.0,
        mean_p_value=sign_flip_p_value(changes, seed=seed),
        num_shared=len(shared),
        num_better=better,
        num_worse=worse,
        num_unshared=len(before.keys() ^ after.keys()),
        confidence=confidence,
    )


def sign_flip_p_value(change_P: Sequence[float], *, seed: int) -> float:
    """Return the two-sided chance of a mean change this large, were the sides of every prompt exchangeable.

    The share of all sign patterns of the changes whose absolute sum reaches the observed one; changes of 0 leave it
    as it is. With more than 16 changes that differ from 0 the patterns are drawn, and the share is
    ``(1 + hits) / (1 + draws)``.

    Parameters
    ----------
    change_P
        Finite change of each prompt.
    seed
        Seed of the drawn patterns.

    Returns
    -------
    float
        In (0, 1]; 1.0 where nothing moved.

    Notes
    -----
    Fisher's paired randomisation test; the count of the observed pattern among the drawn: Phipson and Smyth 2010.

    Examples
    --------
    >>> sign_flip_p_value([1.0, 1.0, 0.5, 0.0], seed=0)
    0.25
    """
    # Sorted, so that the order of prompts does not enter a drawn p-value.
    moved = np.sort(np.array([change for change in change_P if change != 0], dtype=np.float64))
    if not moved.size:
        return 1.0
    # Sums that are equal on paper may differ by rounding.
    bar = abs(float(moved.sum())) - 1e-9 * float(np.abs(moved).sum())
    if moved.size <= _MAX_EXACT:
        patterns = (np.arange(2**moved.size)[:, None] >> np.arange(moved.size)) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ moved) >= bar))
    patterns = stream(seed, "sign_flips").integers(0, 2, size=(_NUM_FLIPS, moved.size))
    return float(1 + np.sum(np.abs((2 * patterns - 1) @ moved) >= bar)) / (1 + _NUM_FLIPS)


def _valid(name: str, value_by_prompt: Mapping[str, float]) -> dict[str, float]:
    for prompt_id, value in value_by_prompt.items():
        if math.isinf(value):
            msg = f"'{name}' must be finite, or NaN where missing; got {value} (prompt '{prompt_id}')."
            raise BadInputError(msg)
    return {prompt_id: value for prompt_id, value in value_by_prompt.items() if not math.isnan(value)}
