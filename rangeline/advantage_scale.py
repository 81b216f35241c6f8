"""Advantage scale: give one estimator's advantages the size of the midpoint's, so that only directions are compared.

Computes `c A_i` with `c = rms(M) / rms(A)`, where M are the Dr.GRPO advantages of the interval midpoints.
Formula of the size: the root of the mean of squares over all rollouts of the batch, those without credit included.
It divides by the number of rollouts, which cancels: the factor c is the same over any set that holds all nonzero rows.
Left out of the paper: everything; it compares estimators at one learning rate, and their sizes differ (ours).
"""

import numpy as np
from numpy.typing import ArrayLike

from rangeline.errors import BadInputError
from rangeline.records import Advantages


def root_mean_square(value_N: ArrayLike) -> float:
    """Return the root of the mean square; 0.0 for no values.

    >>> root_mean_square([3.0, -4.0, 0.0, 0.0])
    2.5
    """
    value = np.asarray(value_N, dtype=np.float64)
    return float(np.sqrt(np.mean(np.sort(value**2)))) if value.size else 0.0


def matching_factor(value_N: ArrayLike, wanted_N: ArrayLike) -> float | None:
    """Return the factor that gives `value_N` the root mean square of `wanted_N`.

    Parameters
    ----------
    value_N, wanted_N
        [N] advantages of the same rollouts, 0 where there is no credit.

    Returns
    -------
    float or None
        Positive; None where either side is all zero, because no factor can match them.

    Raises
    ------
    BadInputError
        Lengths differ.

    Examples
    --------
    >>> matching_factor([0.5, -0.5], [1.0, -1.0])
    2.0
    """
    value, wanted = np.asarray(value_N, dtype=np.float64), np.asarray(wanted_N, dtype=np.float64)
    if value.shape != wanted.shape:
        msg = f"'wanted_N' must have one value a rollout; got shape {wanted.shape} for {value.shape}."
        raise BadInputError(msg)
    size, goal = root_mean_square(value), root_mean_square(wanted)
    return goal / size if size > 0 and goal > 0 else None


def scaled(advantages: Advantages, factor: float | None) -> Advantages:
    """Return the advantages times a factor; None, for no factor, gives them as they are."""
    if factor is None:
        return advantages
    return Advantages(
        prompt_id_N=advantages.prompt_id_N,
        value_N=advantages.value_N * factor,
        active_N=advantages.active_N,
        estimator=advantages.estimator,
    )
