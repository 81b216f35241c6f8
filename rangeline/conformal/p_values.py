"""The smoothed weighted conformal p-value of one row among others.

Computes the place of a score among the scores of kept rows, large scores first, ties broken by a given uniform u.
``p = (sum of w_j over E_j > E + u (sum of w_j over E_j = E + w)) / (sum of all w_j + w)``.
Weights are divided by their sum, the row's own weight included.
Left out of the papers: nothing.

Shapes: B other rows.
"""

import math

import numpy as np
from numpy.typing import ArrayLike


def conformal_p_value(
    nonconformity: float, log_weight: float, *, score_B: ArrayLike, log_weight_B: ArrayLike, uniform: float
) -> float:
    """Compute the smoothed weighted conformal p-value of one row among B others; small means a large score.

    Parameters
    ----------
    nonconformity, log_weight
        Score of the row and log weight of its state.
    score_B, log_weight_B
        [B] scores and log weights of the other rows; -inf leaves a row out.
    uniform
        Breaks ties, in (0, 1].

    Returns
    -------
    float
        In (0, 1]; uniform where the row and the others differ by their weights only.

    Notes
    -----
    Tibshirani et al. (2019) for the weights; Vovk et al. (2005) for smoothing.

    Examples
    --------
    >>> conformal_p_value(0.5, 0.0, score_B=[0.1, 0.5, 0.9], log_weight_B=[0.0, 0.0, 0.0], uniform=0.5)
    0.5
    """
    score, log_B = np.asarray(score_B, dtype=np.float64), np.asarray(log_weight_B, dtype=np.float64)
    top = max(float(log_B.max(initial=-math.inf)), log_weight)
    weight_B, own = np.exp(log_B - top), math.exp(log_weight - top)
    above = float(weight_B[score > nonconformity].sum())
    tied = float(weight_B[score == nonconformity].sum()) + own
    p_value = (above + uniform * tied) / (float(weight_B.sum()) + own)
    return min(max(p_value, float(np.finfo(np.float64).tiny)), 1.0)  # a bet may take its logarithm
