"""Statistics of methods that share their seeds: means with standard errors, paired differences, flips of credit.

Computes, over seeds, the mean of a result, and of the difference of two methods on the same seeds. Formula: the mean
of the per-seed values, its standard error s / sqrt(n), a bootstrap interval that resamples seeds, and the exact
two-sided p-value of flipping the signs of the differences.
Everything is divided by the number of seeds: rollouts of one seed share their data and start and are no evidence apart.
Left out: a correction for comparing many methods; the p-values stand one by one.

Shapes: S seeds, N rollouts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import permutation_test

from rangeline.errors import BadInputError
from rangeline.evaluation.sampling_metrics import clustered_interval
from rangeline.seeds import stream

_EXACT_SEEDS = 16
"""Up to here all 2^n sign patterns are tried; beyond, as many random ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMean:
    """Mean of one result over seeds."""

    mean: float | None
    """None without a seed."""
    standard_error: float | None
    """Sample standard deviation over sqrt(n); None with fewer than two seeds."""
    num_seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedDifference:
    """Mean of the reference method minus another over the seeds that both have; positive favours the reference."""

    mean: float
    lower: float | None
    upper: float | None
    """Bootstrap interval over seeds; None with one seed."""
    p_value: float
    """Exact two-sided sign-flip permutation test."""
    num_seeds: int
    num_wins: int
    """Seeds on which the reference is strictly better."""
    num_losses: int
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipCount:
    """Rollouts whose credit changed its sign against the midpoint, and which of both the truth agrees with."""

    num_credited: int
    """Rollouts where both advantages are not zero."""
    num_flips: int
    num_agree: int | None
    """Flips whose new sign is that of the true centered reward; None where the truth is not known."""
    num_disagree: int | None
    """Flips whose old sign was right; flips at a true centered reward of zero are in neither count."""

    @property
    def right_share(self) -> float | None:
        """Share of the turned signs that met a truth and whose new sign is right; None where none did."""
        if self.num_agree is None or self.num_disagree is None or not self.num_agree + self.num_disagree:
            return None
        return self.num_agree / (self.num_agree + self.num_disagree)

    def __add__(self, other: "FlipCount") -> "FlipCount":
        """Return the counts of both together; unknown where either is."""
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("num_agree", "num_disagree")]
        agree, disagree = (None if a is None or b is None else a + b for a, b in pairs)
        return FlipCount(
            num_credited=self.num_credited + other.num_credited,
            num_flips=self.num_flips + other.num_flips,
            num_agree=agree,
            num_disagree=disagree,
        )


def mean_over_seeds(values: Sequence[float | None]) -> SeedMean:
    """Return the mean over seeds and its standard error; None, for not known, is left out.

    >>> mean_over_seeds([1.0, 3.0, None])
    SeedMean(mean=2.0, standard_error=1.0, num_seeds=2)
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return SeedMean(mean=None, standard_error=None, num_seeds=0)
    mean, num = math.fsum(known) / len(known), len(known)
    if num == 1:
        return SeedMean(mean=mean, standard_error=None, num_seeds=1)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (num - 1))
    return SeedMean(mean=mean, standard_error=spread / math.sqrt(num), num_seeds=num)


def difference_over_seeds(
    reference_by_seed: Mapping[int, float],
    other_by_seed: Mapping[int, float],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> SeedDifference:
    """Return the paired difference, reference minus other, over the seeds that both hold.

    Parameters
    ----------
    reference_by_seed, other_by_seed
        Finite result of each seed.
    confidence
        Of the bootstrap interval, in (0, 1).
    seed
        Seed of the resampling.

    Returns
    -------
    SeedDifference
        Mean, interval, exact p-value and wins.

    Raises
    ------
    BadInputError
        No seed is shared, or a value is not finite.

    Examples
    --------
    >>> change = difference_over_seeds({0: 0.5, 1: 0.75, 2: 0.5}, {0: 0.25, 1: 0.5, 2: 0.25})
    >>> change.mean, change.p_value, change.num_wins
    (0.25, 0.25, 3)
    """
    shared = sorted(reference_by_seed.keys() & other_by_seed.keys())
    if not shared:
        msg = (
            "Methods must share a seed to be compared; got "
            f"{sorted(reference_by_seed)} and {sorted(other_by_seed)}. Run both on the same seeds."
        )
        raise BadInputError(msg)
    difference_S = np.array([reference_by_seed[s] - other_by_seed[s] for s in shared], dtype=np.float64)
    if not np.isfinite(difference_S).all():
        bad = shared[int(np.flatnonzero(~np.isfinite(difference_S))[0])]
        msg = f"Results must be finite; got {reference_by_seed[bad]} and {other_by_seed[bad]} (seed {bad})."
        raise BadInputError(msg)
    lower, upper = (
        clustered_interval(difference_S, confidence=confidence, seed=seed, support=None)
        if len(shared) > 1
        else (None, None)
    )
    if len(shared) > 1 and lower is None:
        # Equal differences: resampling them gives nothing but their value.
        lower = upper = float(difference_S[0])
    return SeedDifference(
        mean=math.fsum(difference_S) / len(shared),
        lower=lower,
        upper=upper,
        p_value=sign_flip_p_value(difference_S, seed=seed),
        num_seeds=len(shared),
        num_wins=int((difference_S > 0).sum()),
        num_losses=int((difference_S < 0).sum()),
        confidence=confidence,
    )


def sign_flip_p_value(difference_S: ArrayLike, *, seed: int = 0) -> float:
    """Return the two-sided p-value of the mean difference under flips of each seed's sign.

    Exact up to 16 seeds: twice the smaller share, at most 1, of the 2^n sign patterns whose mean is at least as far
    to that side. 1.0 for a single seed.

    >>> sign_flip_p_value([1.0, 2.0, 3.0])
    0.25
    """
    difference = np.asarray(difference_S, dtype=np.float64)
    if len(difference) < 2:
        return 1.0
    result = permutation_test(
        (difference,),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**_EXACT_SEEDS,
        rng=stream(seed, "sign_flips"),
    )
    return float(result.pvalue)


def count_flips(
    value_N: ArrayLike, midpoint_N: ArrayLike, truth_N: ArrayLike | None, prompt_id_N: Sequence[str]
) -> FlipCount:
    """Count the rollouts whose credit has the other sign than the midpoint gives, and who was right.

    Parameters
    ----------
    value_N, midpoint_N
        [N] advantages of the method and of the Dr.GRPO midpoint.
    truth_N
        [N] true rewards, NaN where not known; None where no truth is known at all. Read after the fact only.
    prompt_id_N
        [N] group of each rollout.

    Returns
    -------
    FlipCount
        The truth agrees where the sign of the true reward, centered in its group, is the method's.

    Notes
    -----
    Range-GRPO, Table 3. A group's truth is centered over its rollouts of known truth.
    """
    value, midpoint = np.sign(np.asarray(value_N)), np.sign(np.asarray(midpoint_N))
    flips_N = value * midpoint < 0
    agree = disagree = None
    if truth_N is not None:
        right_N = np.sign(_centered(np.asarray(truth_N, dtype=np.float64), prompt_id_N))
        agree = int((flips_N & (right_N == value) & (right_N != 0)).sum())
        disagree = int((flips_N & (right_N == midpoint) & (right_N != 0)).sum())
    return FlipCount(
        num_credited=int((value * midpoint != 0).sum()),
        num_flips=int(flips_N.sum()),
        num_agree=agree,
        num_disagree=disagree,
    )


def _centered(truth_N: np.ndarray, prompt_id_N: Sequence[str]) -> np.ndarray:
    """Return each truth minus its group's mean; 0 where the truth is not known, or equals the group's."""
    known_N = np.isfinite(truth_N)
    _, group_N = np.unique(np.asarray(prompt_id_N, dtype=object).astype(str), return_inverse=True)
    num_groups = int(group_N.max(initial=-1)) + 1
    total_P = np.bincount(group_N, weights=np.where(known_N, truth_N, 0.0), minlength=num_groups)
    count_P = np.bincount(group_N, weights=known_N, minlength=num_groups)
    # n * truth - sum, so that equal truths of a group give exactly 0 wherever their sum is exact.
    centered_N = np.where(known_N, truth_N, 0.0) * count_P[group_N] - total_P[group_N]
    noise_N = 1e-9 * np.maximum(count_P[group_N], 1)
    return np.where(known_N & (np.abs(centered_N) > noise_N), centered_N, 0.0)
