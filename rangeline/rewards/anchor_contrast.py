"""Reward rollouts by their contrast with anchors (RRPO): nearer to the desirable side than to the other.

Computes R = S+ - S- of each rollout with the frozen metric head, standardised in its group.
A_i = (R_i - mean(R)) / (std(R) + delta) over the valid rollouts of the group, in float64 and two passes.
It is divided by the group's standard deviation plus delta; the population form, since RRPO's eq. 8 gives no other.
Nothing of RRPO 3.3 is left out. Ours: delta = 1e-4, a group without spread is all 0, a rollout without a finite
representation or a prompt without anchors is missing, never 0.

As rewards these have zero width and no support; Dr.GRPO's advantages, which subtract the group's mean again, are then
those of equation 8. Shapes: N rollouts flat, G the valid rollouts of one group, H hidden size.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rangeline.errors import AnchorError
from rangeline.records import BoolArray, FloatArray, RewardIntervals
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.metric_head import MetricHead, contrast
from rangeline.rollout.representation import HiddenArray

SOURCE = "anchor_contrast"
_SPREAD_FLOOR = float(np.finfo(np.float32).eps)
"""Scores come from a float32 head: a spread below its resolution of the largest score is rounding, not signal."""
_SATURATED = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastReport:
    """How the scores of one set of rollouts lie."""

    mean_score: float | None
    """Mean of R; None when every rollout is missing."""
    mean_spread: float | None
    """Mean of the groups' standard deviations of R; None without a group of two."""
    silent_share: float | None
    """Share of groups of two or more whose spread is zero: they teach nothing."""
    saturated_share: float | None
    """Share of rollouts with sigma(R) above .99 or below .01: the head was not trained to tell those apart further."""
    missing_share: float
    """Share of rollouts without a score."""


def contrast_scores(
    hidden_NH: HiddenArray, prompt_id_N: Sequence[str], *, head: MetricHead, anchors: AnchorSet
) -> FloatArray:
    """Return R of each rollout; NaN where its representation is not finite or its prompt has no anchors.

    Parameters
    ----------
    hidden_NH
        Representations under the frozen initial model that made the anchors.
    prompt_id_N
        Prompt of each rollout.
    head
        Frozen head.
    anchors
        Anchors of the prompts, in any order.

    Returns
    -------
    FloatArray
        float64 of shape (N,), between -2/tau and 2/tau.

    Raises
    ------
    AnchorError
        When lengths or hidden sizes differ.

    Notes
    -----
    RRPO equation 5 and section 3.3.
    """
    if len(hidden_NH) != len(prompt_id_N) or hidden_NH.shape[1:] != anchors.positive_PKH.shape[2:]:
        msg = (
            f"'hidden_NH' must have shape ({len(prompt_id_N)}, {anchors.positive_PKH.shape[2]}); got "
            f"{hidden_NH.shape} (anchor contrast). Represent these rollouts with the model of the anchors."
        )
        raise AnchorError(msg)
    place: dict[Hashable, int] = {prompt_id: p for p, prompt_id in enumerate(anchors.prompt_id_P)}
    finite_N: BoolArray = np.asarray(np.isfinite(hidden_NH).all(axis=1))
    score_N = np.full(len(prompt_id_N), np.nan)
    for prompt_id, rows in _rows_of(prompt_id_N, finite_N).items():
        p = place.get(prompt_id)
        if p is None:
            continue
        # In float64: R is a difference of two near numbers.
        query, positive, negative = (
            head.project(part).double() for part in (hidden_NH[rows], anchors.positive_PKH[p], anchors.negative_PKH[p])
        )
        score_N[rows] = contrast(query, positive, negative, head.shape.temperature).numpy()
    # Two sides of equal anchors give R = 0 but for rounding.
    score_N[np.isin(np.array(prompt_id_N), np.array(anchors.prompt_id_P)[anchors.equal_P]) & finite_N] = 0.0
    return score_N


def standardised(score_N: FloatArray, prompt_id_N: Sequence[Hashable], *, delta: float = 1e-4) -> FloatArray:
    """Return ``(R - mean) / (std + delta)`` in each group; NaN stays NaN and counts nowhere.

    Parameters
    ----------
    score_N
        Scores; NaN is missing.
    prompt_id_N
        Group of each rollout.
    delta
        Non-negative; keeps groups of tiny spread from blowing up.

    Returns
    -------
    FloatArray
        float64; 0 in a group of one, and in a group whose spread is rounding.

    Notes
    -----
    RRPO equation 8. Population standard deviation: the paper does not say which.
    """
    if not (np.isfinite(delta) and delta >= 0):
        msg = f"'delta' must be at least 0 and finite; got {delta} (anchor contrast). Correct the reward settings."
        raise AnchorError(msg)
    result = np.where(np.isfinite(score_N), 0.0, np.nan)
    for rows in _rows_of(prompt_id_N, np.isfinite(score_N)).values():
        spread, centered_G = _spread(score_N[rows])
        if spread > 0:
            result[rows] = centered_G / (spread + delta)
    return result


def anchor_contrast_intervals(
    score_N: FloatArray, prompt_id_N: Sequence[str], *, delta: float = 1e-4
) -> RewardIntervals:
    """Make zero-width rewards of contrast scores, standardised in their groups.

    Parameters
    ----------
    score_N
        R of each rollout; NaN is missing.
    prompt_id_N
        Prompt of each rollout.
    delta
        Of equation 8.

    Returns
    -------
    RewardIntervals
        Source `anchor_contrast`, no support, missing where the score is NaN.
    """
    value_N = standardised(score_N, prompt_id_N, delta=delta)
    return RewardIntervals(
        prompt_id_N=tuple(prompt_id_N),
        lower_N=value_N,
        upper_N=value_N,
        unbounded_N=np.zeros(len(value_N), dtype=bool),
        missing_N=np.isnan(value_N),
        support=None,
        source=SOURCE,
    )


def contrast_report(score_N: FloatArray, prompt_id_N: Sequence[str]) -> ContrastReport:
    """Say how scores lie: their mean, the spread inside groups, silent groups, saturation, what is missing."""
    valid_N: BoolArray = np.isfinite(score_N)
    spreads = [_spread(score_N[rows])[0] for rows in _rows_of(prompt_id_N, valid_N).values() if len(rows) > 1]
    known = score_N[valid_N]
    edge = float(np.log(_SATURATED / (1 - _SATURATED)))
    return ContrastReport(
        mean_score=float(known.mean()) if known.size else None,
        mean_spread=float(np.mean(spreads)) if spreads else None,
        silent_share=float(np.mean(np.array(spreads) == 0)) if spreads else None,
        saturated_share=float((np.abs(known) > edge).mean()) if known.size else None,
        missing_share=float((~valid_N).mean()) if len(valid_N) else 0.0,
    )


def _rows_of(prompt_id_N: Sequence[Hashable], valid_N: BoolArray) -> dict[Hashable, NDArray[np.int64]]:
    rows: dict[Hashable, list[int]] = {}
    for i in np.flatnonzero(valid_N).tolist():
        rows.setdefault(prompt_id_N[i], []).append(i)
    return {prompt_id: np.array(found) for prompt_id, found in rows.items()}


def _spread(score_G: FloatArray) -> tuple[float, FloatArray]:
    """Return the population standard deviation, 0 where it is rounding, and the centred scores."""
    # Sorted sums, so that the order of the rollouts changes no bit.
    centered_G = score_G - np.sort(score_G).mean()
    spread = float(np.sqrt(np.sort(centered_G**2).mean()))
    return (spread if spread > _SPREAD_FLOOR * float(np.abs(score_G).max()) else 0.0), centered_G
