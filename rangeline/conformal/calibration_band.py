"""How far the coverage of one calibration set may lie from the target by luck of its labels alone.

Computes bands of the coverage given the calibration set, and of the number covered among m fresh rollouts.
With n calibration rows and rank ``k = ceil((n + 1)(1 - alpha))`` the coverage is Beta(k, n + 1 - k) distributed, and
the number covered among m is beta-binomial with the same parameters.
Nothing is divided: quantiles come from the exact distribution functions.
Left out of the papers: weights, for which no exact law is known. Give an effective sample size, rounded down, and
read the band as approximate; rows of one prompt count once, because they depend on each other (both ours).
"""

import math

from scipy.special import betaincinv  # type: ignore[import-untyped]
from scipy.stats import betabinom  # type: ignore[import-untyped]

from rangeline.errors import CalibrationError

_RELATIVE_TOLERANCE = 1e-12
"""The slack of the weighted cutoff, so that both agree on the rank where (n + 1) alpha is a whole number."""


def _require(num: int, name: str, alpha: float, confidence: float) -> None:
    if num < 1:
        msg = f"'{name}' must be 1 or more; got {num}. Add labelled rows."
        raise CalibrationError(msg)
    for label, share in (("alpha", alpha), ("confidence", confidence)):
        if not 0 < share < 1:
            msg = f"'{label}' must lie in (0, 1); got {share}. Correct the coverage settings."
            raise CalibrationError(msg)


def calibration_rank(num_calibration: int, alpha: float) -> int:
    """Return the rank k of the split-conformal cutoff among n scores, ``ceil((n + 1)(1 - alpha))``.

    Parameters
    ----------
    num_calibration
        n, 1 or more.
    alpha
        Miscoverage level in (0, 1).

    Returns
    -------
    int
        From 1 to n + 1; n + 1 means that the cutoff is infinite.

    Raises
    ------
    CalibrationError
        A number is out of range.

    Examples
    --------
    >>> calibration_rank(9, 0.1), calibration_rank(8, 0.1), calibration_rank(74, 0.32)
    (9, 9, 51)
    """
    _require(num_calibration, "num_calibration", alpha, 0.5)
    return num_calibration + 1 - math.floor((num_calibration + 1) * alpha * (1 + _RELATIVE_TOLERANCE))


def coverage_band(num_calibration: int, alpha: float, *, confidence: float = 0.95) -> tuple[float, float]:
    """Compute the two-sided band of the coverage given the calibration set: quantiles of Beta(k, n + 1 - k).

    Parameters
    ----------
    num_calibration
        n exchangeable calibration rows, one a prompt.
    alpha
        Miscoverage level in (0, 1).
    confidence
        Share of calibration sets whose coverage lies inside, in (0, 1).

    Returns
    -------
    tuple of float
        Lower and upper end; (1, 1) where the cutoff is infinite.

    Raises
    ------
    CalibrationError
        A number is out of range.

    Notes
    -----
    Vovk (2012), conditional validity; Angelopoulos and Bates (2023), section 3.2. Exact for scores without ties; with
    ties the coverage can only be larger.

    Examples
    --------
    >>> low, high = coverage_band(1000, 0.1, confidence=0.9)
    >>> round(low, 3), round(high, 3)
    (0.884, 0.915)
    """
    _require(num_calibration, "num_calibration", alpha, confidence)
    rank = calibration_rank(num_calibration, alpha)
    if rank > num_calibration:
        return 1.0, 1.0
    tail, above = (1 - confidence) / 2, num_calibration + 1 - rank
    return float(betaincinv(rank, above, tail)), float(betaincinv(rank, above, 1 - tail))


def covered_count_band(
    num_calibration: int, num_fresh: int, *, alpha: float, confidence: float = 0.95
) -> tuple[int, int]:
    """Compute the two-sided band of the number covered among m fresh rollouts: beta-binomial quantiles.

    Parameters
    ----------
    num_calibration
        n exchangeable calibration rows, one a prompt.
    num_fresh
        m fresh rollouts, one a prompt.
    alpha
        Miscoverage level in (0, 1).
    confidence
        Least probability that the number lies inside, ends included; in (0, 1).

    Returns
    -------
    tuple of int
        Smallest and largest number; (m, m) where the cutoff is infinite.

    Raises
    ------
    CalibrationError
        A number is out of range.

    Notes
    -----
    Angelopoulos and Bates (2023), section 3.2 and appendix C: calibration set and fresh rollouts are both random.

    Examples
    --------
    >>> covered_count_band(99, 100, alpha=0.1)
    (81, 97)
    """
    _require(num_calibration, "num_calibration", alpha, confidence)
    _require(num_fresh, "num_fresh", alpha, confidence)
    rank = calibration_rank(num_calibration, alpha)
    if rank > num_calibration:
        return num_fresh, num_fresh
    law, tail = betabinom(num_fresh, rank, num_calibration + 1 - rank), (1 - confidence) / 2
    return int(law.ppf(tail)), int(law.ppf(1 - tail))
