"""How well scores agree with the truth: mean truth by score with a clustered band, and order inside each group.

Shapes: N rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rangeline.conformal.coverage import clustered_band
from rangeline.errors import BadInputError
from rangeline.records import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Rows of like scores: what was predicted of them and what was true."""

    lowest: float
    """Smallest score of the bin."""
    highest: float
    predicted: float
    """Mean score."""
    observed: float
    """Mean truth."""
    lower: float
    """Of a band of `observed` that counts prompts, not rows."""
    upper: float
    num_rows: int
    num_prompts: int


def reliability_bins(
    score_N: ArrayLike, truth_N: ArrayLike, prompt_id_N: Sequence[str], *, confidence: float, max_bins: int = 10
) -> list[ReliabilityBin]:
    """Return mean truth against mean score, by bins of like scores.

    Few distinct scores are bins of their own; more are joined to at most ``max_bins`` of about equally many rows, and
    equal scores are never parted.

    Parameters
    ----------
    score_N, truth_N
        [N] in [0, 1]; NaN where either is not known, which leaves the row out.
    prompt_id_N
        [N] prompt of each row.
    confidence
        Of the band, in (0, 1).
    max_bins
        At least 1.

    Returns
    -------
    list[ReliabilityBin]
        By rising score; empty where nothing is known.

    Raises
    ------
    BadInputError
        When lengths differ.
    """
    score, truth, known = _aligned(score_N, truth_N, prompt_id_N)
    ids = np.asarray(prompt_id_N, dtype=object)[known]
    score, truth = score[known], truth[known]
    bins = []
    for low, high in _edges(score, max_bins):
        inside = (score >= low) & (score <= high)
        owners = [str(name) for name in ids[inside]]
        lower, upper = clustered_band(truth[inside], owners, confidence=confidence)
        bins.append(
            ReliabilityBin(
                lowest=low,
                highest=high,
                predicted=float(score[inside].mean()),
                observed=float(truth[inside].mean()),
                lower=lower,
                upper=upper,
                num_rows=int(inside.sum()),
                num_prompts=len(set(owners)),
            )
        )
    return bins


def pair_agreement(score_N: ArrayLike, truth_N: ArrayLike, prompt_id_N: Sequence[str]) -> tuple[float | None, int]:
    """Return how often scores order two rollouts of one prompt as the truth does, and over how many pairs.

    The share of pairs of one prompt with different truths whose better one has the higher score, equal scores half.
    It is divided by the number of those pairs.

    Parameters
    ----------
    score_N, truth_N
        [N] finite, or NaN where not known, which leaves the row out.
    prompt_id_N
        [N] prompt of each row.

    Returns
    -------
    tuple[float | None, int]
        The share, 0.5 for scores that know nothing, None without a pair; and the number of pairs.

    Raises
    ------
    BadInputError
        When lengths differ.

    Examples
    --------
    >>> pair_agreement([0.9, 0.1, 0.1], [1.0, 0.0, 1.0], ["a", "a", "a"])
    (0.75, 2)
    """
    score, truth, known = _aligned(score_N, truth_N, prompt_id_N)
    rows_of: dict[str, list[int]] = {}
    for i in np.flatnonzero(known).tolist():
        rows_of.setdefault(prompt_id_N[i], []).append(i)
    points, pairs = 0.0, 0
    for rows in rows_of.values():
        better = truth[rows][:, None] > truth[rows][None, :]
        gap = score[rows][:, None] - score[rows][None, :]
        pairs += int(better.sum())
        points += float((better & (gap > 0)).sum()) + float((better & (gap == 0)).sum()) / 2
    return (points / pairs if pairs else None), pairs


def _aligned(
    score_N: ArrayLike, truth_N: ArrayLike, prompt_id_N: Sequence[str]
) -> tuple[FloatArray, FloatArray, BoolArray]:
    score, truth = np.asarray(score_N, dtype=np.float64), np.asarray(truth_N, dtype=np.float64)
    if not len(score) == len(truth) == len(prompt_id_N):
        msg = (
            f"'score_N' must have a truth and a prompt for each row; got {len(score)} scores, {len(truth)} truths and "
            f"{len(prompt_id_N)} prompts. Give all three row for row."
        )
        raise BadInputError(msg)
    return score, truth, np.isfinite(score) & np.isfinite(truth)


def _edges(score: FloatArray, max_bins: int) -> list[tuple[float, float]]:
    """Return lowest and highest score of each bin."""
    distinct, counts = np.unique(score, return_counts=True)
    if len(distinct) <= max_bins:
        return [(float(value), float(value)) for value in distinct]
    # The bin of a score goes by the rows below it, so that equal scores stay together.
    below = np.cumsum(counts) - counts
    bin_of = np.minimum(below * max_bins // counts.sum(), max_bins - 1)
    return [(float(distinct[bin_of == b].min()), float(distinct[bin_of == b].max())) for b in np.unique(bin_of)]
