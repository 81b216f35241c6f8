"""Bets against a mean and against uniform p-values, and the sharing of wealth that lets bets find a late change.

Computes the log wealth of a fixed grid of bets that a mean in [0, 1] is at most m, after the observations x.
``wealth_c = product of (1 + c (x / m - 1))`` for shares c below 1; the evidence is the mean of the wealth over c.
Wealth is divided by the wealth at the start, 1.
Left out of the paper: bets that learn from the past. A fixed grid does not depend on the order of observations.

Shapes: P observations, D distinct values, K bets on a mean, J bets on p-values, M candidate means.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from rangeline.records import FloatArray

_BETS_K = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 7 / 8)
"""Share of wealth risked; below 1, so that no observation can end a bet. The bet of 0 keeps a reserve."""
_NUM_CANDIDATES = 400
"""Candidate means of an interval lie this many to the unit; its ends are rounded outward to them."""
_SHARING_DELAY = 10
"""Update t moves 1 / (t + 10) of the wealth back to all bets: in all a factor (t + 10) / 10 is given up by update t."""

_SLOPES_J = (-1.8, -0.9, 0.0, 0.9, 1.8)
"""Bets 1 + slope (1/2 - p) on a p-value: positive slopes on small ones, negative on large ones; 0 is the reserve."""
_POWERS_J = (0.3, 0.6)
"""Bets power * p ** (power - 1), on p-values very near 0."""

NUM_BETS = len(_BETS_K)
NUM_P_VALUE_BETS = len(_SLOPES_J) + len(_POWERS_J)
EVEN_LOG_WEALTH_K = (-math.log(NUM_BETS),) * NUM_BETS
"""Wealth 1 at the start, spread over all bets alike."""


def share_wealth(log_wealth_K: ArrayLike, num_updates: int) -> FloatArray:
    """Move a share ``1 / (num_updates + 10)`` of the whole wealth back to all bets alike, keeping the total.

    Parameters
    ----------
    log_wealth_K
        [K] finite log wealth of each bet, of any grid.
    num_updates
        Updates made before, from 0.

    Returns
    -------
    numpy.ndarray
        [K] log wealth before the next update.

    Notes
    -----
    Sharing between experts after Herbster and Warmuth (1998); the sharing rate is ours. Done before an observation is
    seen, so that the total stays a supermartingale.

    Examples
    --------
    >>> np.exp(share_wealth(np.log([0.8, 0.2]), 0)).round(2).tolist()
    [0.77, 0.23]
    """
    log_K = np.asarray(log_wealth_K, dtype=np.float64)
    share = 1 / (num_updates + _SHARING_DELAY)
    given = float(np.logaddexp.reduce(log_K)) + math.log(share / len(log_K))
    return np.asarray(np.logaddexp(log_K + math.log1p(-share), given), dtype=np.float64)


def log_gain(value_P: ArrayLike, mean: float) -> FloatArray:
    """Return [K], the sum over observations in [0, 1] of ``log(1 + c (x / mean - 1))``, for each bet c of the grid.

    Parameters
    ----------
    value_P
        [P] observations in [0, 1].
    mean
        Largest mean under the hypothesis, in (0, 1).

    Returns
    -------
    numpy.ndarray
        [K] finite; the same, bit for bit, whatever the order of observations.

    Notes
    -----
    Waudby-Smith and Ramdas (2024), the capital process; source.
    """
    value_P = np.sort(np.asarray(value_P, dtype=np.float64))  # sums are then rounded alike for every order
    return np.asarray(np.log1p(np.outer(_BETS_K, value_P / mean - 1)).sum(axis=1), dtype=np.float64)


def lower_limit(value_D: ArrayLike, count_D: ArrayLike, *, log_threshold: float) -> float:
    """Compute the lower confidence limit of a mean: the largest candidate m that evidence refutes as its upper limit.

    Parameters
    ----------
    value_D, count_D
        [D] distinct values in [0, 1] and how often each was observed.
    log_threshold
        Log evidence from which on a candidate is refuted, log(1 / error probability).

    Returns
    -------
    float
        In [0, 1), below the mean of the observations; 0 where no candidate is refuted.

    Notes
    -----
    Waudby-Smith and Ramdas (2024), confidence sequence by inversion; valid at all sample sizes together. The grid of
    bets and of candidates is ours.
    """
    mean_M = np.arange(1, _NUM_CANDIDATES) / _NUM_CANDIDATES
    relative_MD = np.asarray(value_D, dtype=np.float64)[None, :] / mean_M[:, None] - 1
    factor_MKD = np.log1p(np.asarray(_BETS_K)[None, :, None] * relative_MD[:, None, :])
    evidence_M = np.logaddexp.reduce(factor_MKD @ np.asarray(count_D, dtype=np.float64), axis=1) - math.log(NUM_BETS)
    return float(mean_M[evidence_M >= log_threshold].max(initial=0.0))


def log_bets_on_p_value(p_value: float) -> FloatArray:
    """Return [J], the log gain of each bet that p-values are not uniform.

    Parameters
    ----------
    p_value
        In (0, 1].

    Returns
    -------
    numpy.ndarray
        [J] finite; each gain has mean 1 for a uniform p-value.

    Notes
    -----
    Linear bets are those of the simple jumper (Vovk et al., 2021), power bets those of Vovk et al. (2003); the grid is
    ours.
    """
    power = np.asarray(_POWERS_J)
    linear = np.log1p(np.asarray(_SLOPES_J) * (0.5 - p_value))
    return np.concatenate([linear, np.log(power) + (power - 1) * math.log(p_value)])
