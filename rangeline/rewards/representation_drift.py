"""Measure how far rollouts have drifted from those the metric head was trained on.

Computes, prompt by prompt, the squared maximum mean discrepancy between the current rollouts' representations and
those of the initial policy's rollouts, and the cosine of their means; both are then averaged over prompts.
MMD^2 = mean k(x, x') + mean k(y, y') - 2 mean k(x, y), without the pairs of a row with itself; k a Gaussian kernel
whose squared width is the median squared distance inside prompts at the start.
Terms are divided by their numbers of pairs; dimensions by the start's scale inside prompts. All of it is ours: RRPO
names the drift as a limit, and measures nothing.

The model is frozen, so what drifts is the rollouts. Shapes: P prompts, N rollouts flat, M rollouts a prompt at the
start, G current rollouts of one prompt, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rangeline.errors import AnchorError
from rangeline.records import FloatArray
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rollout.representation import HiddenArray


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """How far the rollouts have moved."""

    mmd2: float | None
    """Mean squared discrepancy: about 0 without drift (it may be below), at most 2; None with nothing to compare."""
    cosine: float | None
    """Mean cosine between the prompts' mean representations now and at the start; 1 without drift."""
    num_prompts: int
    """Prompts that have anchors and two or more rollouts on both sides."""
    threshold: float
    alarm: bool
    """True where mmd2 is above the threshold: the head then scores rollouts unlike those it was trained on."""


def drift_report(
    hidden_NH: HiddenArray, prompt_id_N: Sequence[str], *, anchors: AnchorSet, threshold: float
) -> DriftReport:
    """Compare current rollouts with the initial policy's rollouts of the same prompts.

    Parameters
    ----------
    hidden_NH
        Representations of current rollouts under the frozen initial model; rows that are not finite are left out.
    prompt_id_N
        Prompt of each rollout.
    anchors
        Holds the initial rollouts (queries).
    threshold
        mmd2 above it is an alarm; positive.

    Raises
    ------
    AnchorError
        When the threshold is not positive.

    Notes
    -----
    Gretton et al. (2012), unbiased form, a prompt at a time: what differs between prompts is no drift.
    """
    if not threshold > 0:
        msg = f"'threshold' must be positive; got {threshold} (drift). Correct reward.max_drift."
        raise AnchorError(msg)
    place = {prompt_id: p for p, prompt_id in enumerate(anchors.prompt_id_P)}
    rows_of: dict[int, list[int]] = {}
    for i in np.flatnonzero(np.isfinite(hidden_NH).all(axis=1)).tolist():
        if prompt_id_N[i] in place:
            rows_of.setdefault(place[prompt_id_N[i]], []).append(i)
    pairs = [
        (hidden_NH[rows].astype(np.float64), anchors.query_PMH[p].astype(np.float64))
        for p, rows in rows_of.items()
        if len(rows) > 1 and anchors.query_PMH.shape[1] > 1
    ]
    if not pairs:
        return DriftReport(mmd2=None, cosine=None, num_prompts=0, threshold=threshold, alarm=False)
    scale_H = _scale_inside([start for _, start in pairs])
    pairs = [(now / scale_H, start / scale_H) for now, start in pairs]
    width = _width(pairs)
    mmd2 = float(np.mean([_mmd2(now, start, width) for now, start in pairs]))
    return DriftReport(
        mmd2=mmd2,
        cosine=float(np.mean([_cosine(now.mean(axis=0), start.mean(axis=0)) for now, start in pairs])),
        num_prompts=len(pairs),
        threshold=threshold,
        alarm=mmd2 > threshold,
    )


def _scale_inside(starts: Sequence[FloatArray]) -> FloatArray:
    scale_H = np.sqrt(np.mean([start.var(axis=0) for start in starts], axis=0))
    return np.where(scale_H > 0, scale_H, 1.0)


def _squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
    return np.asarray(np.maximum(squared, 0.0))


def _width(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    """Return the median squared distance between different rows of a prompt at the start; of all where these agree."""
    for parts in ([(start, start) for _, start in pairs], pairs):
        found = np.concatenate([_squared_distances(a, b).ravel() for a, b in parts])
        # Equal texts have distance 0 and say nothing about the scale.
        positive = found[found > np.finfo(np.float32).eps]
        if positive.size:
            return float(np.median(positive))
    return 1.0


def _mmd2(now: FloatArray, start: FloatArray, width: float) -> float:
    def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-_squared_distances(a, b) / (2 * width)))

    def among(a: FloatArray) -> float:
        matrix = kernel(a, a)
        return float((matrix.sum() - np.trace(matrix)) / (len(a) * (len(a) - 1)))

    return among(now) + among(start) - 2 * float(kernel(now, start).mean())


def _cosine(a: FloatArray, b: FloatArray) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms > 0 else 1.0
