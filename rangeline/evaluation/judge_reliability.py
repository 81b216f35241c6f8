"""How much a rubric coordinate says about the truth, and whether that is more than chance.

Computes the mutual information of a coordinate's level with the true reward, what chance alone gives, and a verdict.
I(Z; Y) = sum_zy p(z, y) log2 [p(z, y) / (p(z) p(y))], in bits, with UNKNOWN as a level of its own and Y cut at its own
quantiles (right or wrong where it is 0 or 1); excess = I - mean of I under permutations of the truth.
The permutations move whole prompts, and rollouts inside them, since rollouts of a prompt depend on each other; p is
(1 + permutations that reach I) / (1 + permutations). The share is divided by H(Y), so that 1 is a judge that knows.
Left out: information that only several coordinates carry together. Estimator and rule are ours.

Shapes: N rollouts flat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from rangeline.evaluation.reward_quality import area_under_curve
from rangeline.records import UNKNOWN, BoolArray, FloatArray, LevelArray
from rangeline.seeds import stream

_MAX_TRUTH_BINS = 4
_MIN_ROWS, _MIN_PROMPTS = 30, 8
"""Fewer say too little to call a coordinate informative or noise."""
_MIN_SHARE = 0.01
"""Of H(Y): less is of no use, however sure."""

Recommendation = Literal["informative", "noise", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinateInformation:
    """What one coordinate says about the truth."""

    num_rows: int
    """Rollouts with a state and a truth."""
    num_prompts: int
    missing_share: float
    """Of the rollouts with a truth, those without a state."""
    unknown_share: float | None
    """Of `num_rows`."""
    auc: float | None
    """How often a right rollout has the higher level than a wrong one, UNKNOWN left out; None without both kinds."""
    kappa: float | None
    """Cohen's, of the upper half of the levels with the upper half of the truth: agreement beyond chance."""
    information_bits: float | None
    chance_bits: float | None
    """What permuted truths give on average."""
    p_value: float | None
    information_share: float | None
    """Excess over chance as a share of H(Y), at least 0."""
    length_correlation: float | None
    """Spearman's coefficient of level and length, mean over right and wrong rollouts taken apart."""
    recommendation: Recommendation


def coordinate_information(  # noqa: PLR0913 - the permutations and their seed belong to this call alone
    level_N: LevelArray,
    truth_N: FloatArray,
    *,
    num_levels: int,
    missing_N: BoolArray,
    prompt_id_N: Sequence[str],
    length_N: FloatArray,
    num_tests: int = 1,
    permutations: int = 400,
    seed: int = 0,
) -> CoordinateInformation:
    """Measure one coordinate on labelled rollouts.

    Parameters
    ----------
    level_N
        Levels, UNKNOWN where the judge could not tell.
    truth_N
        True rewards in [0, 1]; NaN where there is none.
    num_levels
        Known levels of the coordinate.
    missing_N
        True where there is no state.
    prompt_id_N
        Prompt of each rollout.
    length_N
        Length of each completion.
    num_tests
        Coordinates that are tested together; p must lie below 0.05 over it.
    permutations, seed
        Of the chance level.

    Returns
    -------
    CoordinateInformation
        Finite numbers or None.
    """
    has_truth = np.isfinite(truth_N)
    use = has_truth & ~missing_N
    level, truth, length = level_N[use].astype(np.int64), truth_N[use], length_N[use]
    ids = np.array(prompt_id_N, dtype=object)[use]
    num_prompts = len(set(ids.tolist()))
    missing_share = float(1 - use.sum() / has_truth.sum()) if has_truth.any() else 1.0
    binned = _bin(truth)
    bits = chance = p_value = share = None
    if len(level) and len(set(binned.tolist())) > 1:
        bits = mutual_information(level, binned)
        draws = _permuted(level, binned, ids, permutations, seed)
        chance = float(draws.mean())
        p_value = float((1 + (draws >= bits - 1e-12).sum()) / (1 + permutations))
        share = max(bits - chance, 0.0) / _entropy(binned)
    known = level != UNKNOWN
    rating = np.where(known, level, np.nan).astype(np.float64)
    enough = len(level) >= _MIN_ROWS and num_prompts >= _MIN_PROMPTS
    return CoordinateInformation(
        num_rows=len(level),
        num_prompts=num_prompts,
        missing_share=missing_share,
        unknown_share=float((~known).mean()) if len(level) else None,
        auc=area_under_curve(rating, truth),
        kappa=_kappa(level[known] >= num_levels / 2, truth[known] >= 0.5),
        information_bits=bits,
        chance_bits=chance,
        p_value=p_value,
        information_share=share,
        length_correlation=_length_correlation(rating, length, truth),
        recommendation=_recommend(p_value if enough else None, share, num_tests),
    )


def mutual_information(a_N: np.ndarray, b_N: np.ndarray) -> float:
    """Return the mutual information of two labellings in bits, by their shares.

    Examples
    --------
    >>> mutual_information(np.array([0, 0, 1, 1]), np.array([5, 5, 7, 7]))
    1.0
    >>> mutual_information(np.array([0, 1, 0, 1]), np.array([5, 5, 7, 7]))
    0.0
    """
    _, a = np.unique(a_N, return_inverse=True)
    _, b = np.unique(b_N, return_inverse=True)
    counts = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(counts, (a, b), 1.0)
    joint = counts / len(a)
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    seen = joint > 0
    return max(float((joint[seen] * np.log2(joint[seen] / outer[seen])).sum()), 0.0)


def _bin(truth: FloatArray) -> np.ndarray:
    """Return the truth as few classes: its own values where they are few, else its quantiles."""
    values = np.unique(truth)
    if len(values) <= _MAX_TRUTH_BINS:
        return np.searchsorted(values, truth)
    cuts = np.unique(np.quantile(truth, np.linspace(0, 1, _MAX_TRUTH_BINS + 1)[1:-1]))
    return np.searchsorted(cuts, truth, side="right")


def _entropy(binned: np.ndarray) -> float:
    share = np.bincount(binned) / len(binned)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


def _permuted(level: np.ndarray, binned: np.ndarray, ids: np.ndarray, permutations: int, seed: int) -> FloatArray:
    """Return the information of truths whose prompts, and rollouts inside them, changed places."""
    rng = stream(seed, "judge-reliability")
    order = np.argsort(ids.astype(str), kind="stable")
    level, ids = level[order], ids[order]
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    blocks = np.split(binned[order], starts[1:])
    draws = np.empty(permutations)
    for i in range(permutations):
        moved = np.concatenate([rng.permutation(blocks[j]) for j in rng.permutation(len(blocks))])
        draws[i] = mutual_information(level, moved)
    return draws


def _kappa(first: BoolArray, second: BoolArray) -> float | None:
    if not len(first):
        return None
    agree = float((first == second).mean())
    by_chance = float(first.mean() * second.mean() + (1 - first.mean()) * (1 - second.mean()))
    return None if by_chance >= 1 else (agree - by_chance) / (1 - by_chance)


def _length_correlation(rating: FloatArray, length: FloatArray, truth: FloatArray) -> float | None:
    found = []
    for side in (truth >= 0.5, truth < 0.5):
        use = side & np.isfinite(rating)
        if use.sum() >= 5 and np.ptp(rating[use]) > 0 and np.ptp(length[use]) > 0:
            found.append(float(stats.spearmanr(rating[use], length[use]).statistic))
    return float(np.mean(found)) if found else None


def _recommend(p_value: float | None, share: float | None, num_tests: int) -> Recommendation:
    if p_value is None or share is None:
        return "undecided"
    return "informative" if p_value <= 0.05 / num_tests and share >= _MIN_SHARE else "noise"
