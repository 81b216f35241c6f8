"""TraPO: trust an unlabelled prompt's vote where its pass rate has moved as those of labelled prompts do.

It computes the mean cosine of each unlabelled pass-rate trajectory to all labelled ones, and which prompts are kept.
similarity_u = mean_l cos(zscore(p_u), zscore(p_l)) over the visits both have had; kept iff among the batch's top share
or above a floor.
Cosines are averaged over the labelled trajectories that share at least two visits with the prompt.
Left out of the paper: nothing known; ours are that trajectories are compared over their common visits, that one that
never moved has similarity 0, that a prompt seen once is not kept, and that the top share is rounded up.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rangeline.records import FloatArray, RewardIntervals

Trajectories = Mapping[str, Sequence[float]]
"""Pass rates of each prompt, one a visit."""


def pass_rates(intervals: RewardIntervals) -> dict[str, float]:
    """Return each prompt's mean reward over its valid rollouts; prompts without any are left out."""
    values: dict[str, list[float]] = {}
    for prompt_id, reward, missing in zip(intervals.prompt_id_N, intervals.center_N, intervals.missing_N, strict=True):
        if not missing:
            values.setdefault(prompt_id, []).append(float(reward))
    return {prompt_id: float(np.mean(rewards)) for prompt_id, rewards in values.items()}


def extended(trajectories: Trajectories, rates: Mapping[str, float]) -> dict[str, list[float]]:
    """Return the trajectories with this visit's pass rates at their ends."""
    result = {prompt_id: list(values) for prompt_id, values in trajectories.items()}
    for prompt_id, rate in rates.items():
        result.setdefault(prompt_id, []).append(rate)
    return result


def similarity(trajectory: Sequence[float], labelled: Sequence[Sequence[float]]) -> float | None:
    """Return the mean cosine of one trajectory to the labelled ones.

    Parameters
    ----------
    trajectory
        Pass rates of an unlabelled prompt.
    labelled
        Pass rates of labelled prompts.

    Returns
    -------
    float or None
        In [-1, 1]; None where no labelled trajectory shares two visits with it.

    Examples
    --------
    >>> round(similarity([0.0, 0.5, 1.0], [[0.1, 0.2, 0.3]]), 6), similarity([0.5], [[0.1, 0.2]])
    (1.0, None)
    """
    cosines = []
    for other in labelled:
        visits = min(len(trajectory), len(other))
        if visits > 1:
            cosines.append(_cosine(_zscored(trajectory[:visits]), _zscored(other[:visits])))
    return float(np.mean(cosines)) if cosines else None


def select(similarities: Mapping[str, float | None], *, top_share: float, min_similarity: float) -> frozenset[str]:
    """Return the unlabelled prompts of a batch that are trained on.

    Parameters
    ----------
    similarities
        Of each unlabelled prompt of the batch; None is never kept.
    top_share
        Share of the batch's unlabelled prompts that is kept whatever their similarity, rounded up.
    min_similarity
        Above it a prompt is kept too.
    """
    known = sorted(((value, name) for name, value in similarities.items() if value is not None), reverse=True)
    # .28 * 25 is 7 and a rounding error: no eighth prompt for that.
    top = known[: math.ceil(top_share * len(similarities) - 1e-9)]
    return frozenset(name for _, name in top) | {name for value, name in known if value > min_similarity}


def _zscored(values: Sequence[float]) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    spread = array.std()
    return (array - array.mean()) / spread if spread > 1e-12 else np.zeros_like(array)


def _cosine(a: FloatArray, b: FloatArray) -> float:
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(a @ b / norm, -1.0, 1.0)) if norm > 0 else 0.0
