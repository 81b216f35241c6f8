"""Advantages: the signed credit of each rollout inside its group, from reward intervals.

Computes `A_i = (1/m) sum_j f(h_i + h_j) (c_i - c_j)` over the valid rollouts j of a group (Range-GRPO), and the
scalar comparators `dr_grpo`, `grpo`, `rloo` and `uarm` on one end or the middle of each interval.
Range and Dr.GRPO divide by m, the number of valid rollouts of the group (the paper's G when nothing is missing);
nothing here is divided by a length, which is the loss's affair.
Left out of the paper: its form of f, which its text does not give (four forms that meet its constraints are offered),
and the standard deviation for every estimator but `grpo` and `uarm`, as in Dr.GRPO. Added, and ours: pairs that compare
ends of intervals, and `range_root`, which divides a group by the square root of its spread.

Shapes: N rollouts flat, G the m valid rollouts of one group. Groups are made by prompt id, never by position. A missing
rollout leaves every mean, spread and pair, and its own advantage is exactly 0; so does a group of fewer than two valid.
"""

from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rangeline.errors import BadInputError, ConfigError
from rangeline.records import Advantages, FloatArray, RewardIntervals

Estimator = Literal["range", "range_root", "dr_grpo", "grpo", "rloo", "uarm"]
Form = Literal["reciprocal", "reciprocal_squared", "exponential", "gaussian"]
Reduction = Literal["lower", "middle", "upper"]

DEFAULT_FORM: Form = "gaussian"
"""Steep forms can ignore a rollout that the judge could not rate; flat ones hardly can."""
DEFAULT_REFERENCE_WIDTH = 0.25
_SPREAD_FLOOR = float(np.finfo(np.float32).eps)
"""Rewards come from float32 models: a spread below their resolution is rounding, not signal."""

_FORMS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "reciprocal": lambda ratio: 1 / (1 + ratio),
    "reciprocal_squared": lambda ratio: 1 / (1 + ratio**2),
    "exponential": lambda ratio: np.exp(-ratio),
    "gaussian": lambda ratio: np.exp(-(ratio**2) / 2),
}


def _require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        msg = f"'{name}' must be one of {', '.join(choices)}; got '{value}'. Correct the advantage settings."
        raise ConfigError(msg)


def _require_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        msg = f"'{name}' must be positive and finite; got {value}. Correct the advantage settings."
        raise ConfigError(msg)


def _groups(prompt_id_N: Sequence[Hashable], active_N: ArrayLike) -> list[NDArray[np.int64]]:
    active = np.asarray(active_N, dtype=bool)
    if len(active) != len(prompt_id_N):
        msg = f"'active_N' must have one value a rollout; got {len(active)} for {len(prompt_id_N)} prompt ids."
        raise BadInputError(msg)
    rows_of: dict[Hashable, list[int]] = {}
    for row in np.flatnonzero(active).tolist():
        rows_of.setdefault(prompt_id_N[row], []).append(row)
    return [np.array(rows) for rows in rows_of.values() if len(rows) > 1]


def _by_group(
    rule: Callable[..., FloatArray], prompt_id_N: Sequence[Hashable], active_N: ArrayLike, *columns: ArrayLike
) -> FloatArray:
    arrays, num = [np.asarray(column, dtype=np.float64) for column in columns], len(prompt_id_N)
    for array in arrays:
        if array.shape != (num,):
            msg = f"Rewards must have one value a rollout; got shape {array.shape} for {num} prompt ids."
            raise BadInputError(msg)
    value = np.zeros(num)
    for rows in _groups(prompt_id_N, active_N):
        parts = [array[rows] for array in arrays]
        bad = np.flatnonzero(~np.all(np.isfinite(parts), axis=0))
        if bad.size:
            row = int(rows[bad[0]])
            msg = (
                f"Rewards must be finite where active; got {[float(array[row]) for array in arrays]} "
                f"(row {row}, prompt '{prompt_id_N[row]}'). Mark the rollout as missing."
            )
            raise BadInputError(msg)
        value[rows] = rule(*parts)
    return value


def _pair_sums(reward_G: FloatArray, weight_GG: FloatArray | float = 1.0) -> FloatArray:
    # Terms are summed in sorted order, so that the order of the rollouts cannot change a bit of the result.
    term_GG = weight_GG * (reward_G[:, None] - reward_G[None, :])
    sum_G = np.asarray(np.sort(term_GG, axis=1).sum(axis=1), dtype=np.float64)
    # What rounding leaves of terms that cancel is no signal: it would count as a sign, and be trained on.
    noise_G = len(reward_G) * np.finfo(np.float64).eps * np.abs(term_GG).sum(axis=1)
    return np.where(np.abs(sum_G) <= noise_G, 0.0, sum_G)


def _centered(reward_G: FloatArray) -> FloatArray:
    # The mean of differences equals the difference from the mean, and is exactly 0 for equal rewards.
    return _pair_sums(reward_G) / len(reward_G)


def _mean(value_G: FloatArray) -> float:
    return float(np.sort(value_G).mean())


def pair_weights(form: Form, reference_width: float) -> Callable[[FloatArray], FloatArray]:
    """Return f as a function of the [G] half widths of a group, giving [G, G]; bad settings raise ConfigError."""
    _require_choice("form", form, tuple(_FORMS))
    _require_positive("reference_width", reference_width)

    def weights(half_width_G: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return _FORMS[form]((half_width_G[:, None] + half_width_G[None, :]) / reference_width)

    return weights


def range_advantages(
    lower_N: ArrayLike,
    upper_N: ArrayLike,
    prompt_id_N: Sequence[Hashable],
    active_N: ArrayLike,
    *,
    form: Form = DEFAULT_FORM,
    reference_width: float = DEFAULT_REFERENCE_WIDTH,
    reduction: Reduction = "middle",
) -> FloatArray:
    """Compute Range-GRPO advantages from pairwise relations among reward intervals.

    ``A_i = (1/m) sum_j f(h_i + h_j) (c_i - c_j)`` over the m valid rollouts of the group, with center c and half
    width h. Advantages of a group sum to 0 up to rounding.

    Parameters
    ----------
    lower_N, upper_N
        [N] interval ends, lower <= upper; ignored where not active (NaN allowed there).
    prompt_id_N, active_N
        [N] identity of each rollout's group, whose size may differ; [N] bool, False where the reward is missing.
    form
        Name of f: ``reciprocal`` 1/(1+u), ``reciprocal_squared`` 1/(1+u^2), ``exponential`` exp(-u), ``gaussian``
        exp(-u^2/2), with u = (h_i + h_j) / reference_width.
    reference_width
        Positive scale of the attenuation, the paper's lambda.
    reduction
        Point of the interval that stands for c; the paper's is ``middle``.

    Returns
    -------
    numpy.ndarray
        [N] float64; 0 where not active and in groups of fewer than two valid rollouts.

    Raises
    ------
    BadInputError
        Lengths differ, or an active row is not finite; as ConfigError, the form is unknown or the width not positive.

    Notes
    -----
    Range-GRPO eq. (2). The paper asks f(0) = 1, strictly decreasing, positive, one parameter; the forms are ours. With
    zero widths every weight is exactly 1 and the result equals `dr_grpo_advantages` to the last bit.

    Examples
    --------
    >>> wide_last = range_advantages([0.5, 0.4, 0.0], [0.5, 0.4, 1.0], ["q"] * 3, [True] * 3)
    >>> [round(float(a), 4) for a in wide_last]
    [0.0333, -0.0378, 0.0045]
    """
    rule = _range_rule(form, reference_width, reduction)
    return _by_group(rule, prompt_id_N, active_N, lower_N, upper_N)


def _range_rule(
    form: Form, reference_width: float, reduction: Reduction
) -> Callable[[FloatArray, FloatArray], FloatArray]:
    weights, point = pair_weights(form, reference_width), point_of(reduction)

    def rule(lower_G: FloatArray, upper_G: FloatArray) -> FloatArray:
        return _pair_sums(point(lower_G, upper_G), weights((upper_G - lower_G) / 2)) / len(lower_G)

    return rule


def range_root_advantages(
    lower_N: ArrayLike,
    upper_N: ArrayLike,
    prompt_id_N: Sequence[Hashable],
    active_N: ArrayLike,
    *,
    form: Form = DEFAULT_FORM,
    reference_width: float = DEFAULT_REFERENCE_WIDTH,
    reduction: Reduction = "middle",
) -> FloatArray:
    """Compute `range_advantages`, those of a group divided by the square root of their root mean square.

    Half-way from Dr.GRPO, which divides by nothing, to GRPO, which divides by the whole spread; ours. A spread at or
    below float32 resolution of the largest reward counts as 0, and so do its advantages.
    """
    plain = _range_rule(form, reference_width, reduction)

    def rule(lower_G: FloatArray, upper_G: FloatArray) -> FloatArray:
        value_G = plain(lower_G, upper_G)
        spread = np.sqrt(_mean(value_G**2))
        if spread <= _SPREAD_FLOOR * np.abs(upper_G).max():
            return np.zeros_like(value_G)
        return np.asarray(value_G / np.sqrt(spread), dtype=np.float64)

    return _by_group(rule, prompt_id_N, active_N, lower_N, upper_N)


def dr_grpo_advantages(reward_N: ArrayLike, prompt_id_N: Sequence[Hashable], active_N: ArrayLike) -> FloatArray:
    """Compute ``A_i = r_i - mean(r)`` in each group; no standard deviation; rows as in `range_advantages`."""
    return _by_group(_centered, prompt_id_N, active_N, reward_N)


def grpo_advantages(reward_N: ArrayLike, prompt_id_N: Sequence[Hashable], active_N: ArrayLike) -> FloatArray:
    """Compute ``A_i = (r_i - mean(r)) / std(r)`` in each group, 0 at zero spread; rows as in `range_advantages`.

    Notes
    -----
    Range-GRPO section 3.1. Ours: the population form of std, computed in two passes, and a spread at or below float32
    resolution of the largest reward counts as 0.
    """

    def rule(reward_G: FloatArray) -> FloatArray:
        centered_G = _centered(reward_G)
        std = np.sqrt(_mean(centered_G**2))
        if std <= _SPREAD_FLOOR * np.abs(reward_G).max():
            return np.zeros_like(reward_G)
        return centered_G / std

    return _by_group(rule, prompt_id_N, active_N, reward_N)


def rloo_advantages(reward_N: ArrayLike, prompt_id_N: Sequence[Hashable], active_N: ArrayLike) -> FloatArray:
    """Compute ``A_i = r_i - mean of the other valid rewards`` of the group; rows as in `range_advantages`."""
    return _by_group(lambda reward_G: _pair_sums(reward_G) / (len(reward_G) - 1), prompt_id_N, active_N, reward_N)


def uarm_advantages(
    lower_N: ArrayLike,
    upper_N: ArrayLike,
    prompt_id_N: Sequence[Hashable],
    active_N: ArrayLike,
    *,
    alpha: float = 0.1,
    zeta: float = 1e-6,
) -> FloatArray:
    """Compute UARM advantages: centered midpoints, each scaled by its own share of signal.

    ``A_i = S / (S + v_i) * (c_i - mean(c)) / sqrt(S)`` with noise ``v_i = ((U_i - L_i) / z_{1-alpha/2})^2`` and
    signal ``S = max(0, var(c) - mean(v)) + zeta``; full width, population variance.

    Arrays and missing rows are those of `range_advantages`; alpha is the miscoverage level of the intervals, in (0, 1),
    and zeta a positive floor of the signal variance. Other values raise ConfigError.

    Notes
    -----
    Pan et al. (2026), on the intervals and centers of Range-GRPO, as in its matched comparison. Every sign is that of
    `dr_grpo_advantages` on the midpoints.
    """
    _require_positive("zeta", zeta)
    if not 0 < alpha < 1:
        msg = f"'alpha' must lie in (0, 1); got {alpha}. Correct the advantage settings."
        raise ConfigError(msg)
    z = NormalDist().inv_cdf(1 - alpha / 2)

    def rule(lower_G: FloatArray, upper_G: FloatArray) -> FloatArray:
        noise_G = ((upper_G - lower_G) / z) ** 2
        centered_G = _centered((lower_G + upper_G) / 2)
        signal = max(0.0, _mean(centered_G**2) - _mean(noise_G)) + zeta
        return signal / (signal + noise_G) * centered_G / np.sqrt(signal)

    return _by_group(rule, prompt_id_N, active_N, lower_N, upper_N)


def point_of(reduction: Reduction) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """Return the function of lower and upper ends that gives the point; an unknown reduction raises ConfigError."""
    _require_choice("reduction", reduction, get_args(Reduction))
    return {
        "lower": lambda lower, upper: lower,
        "middle": lambda lower, upper: (lower + upper) / 2,
        "upper": lambda lower, upper: upper,
    }[reduction]


def point_reward(intervals: RewardIntervals, reduction: Reduction) -> FloatArray:
    """Return the lower end, the middle or the upper end of each interval; NaN where missing.

    ``xi L + (1 - xi) U`` with xi = 1, 1/2, 0 (Range-GRPO section 4.2). An unknown reduction raises ConfigError.
    """
    return point_of(reduction)(intervals.lower_N, intervals.upper_N)


def compute_advantages(
    intervals: RewardIntervals,
    *,
    estimator: Estimator,
    reduction: Reduction = "middle",
    form: Form = DEFAULT_FORM,
    reference_width: float = DEFAULT_REFERENCE_WIDTH,
    alpha: float = 0.1,
    zeta: float = 1e-6,
) -> Advantages:
    """Compute the advantages of one estimator from reward intervals.

    Parameters
    ----------
    intervals
        Rewards of N rollouts; missing rows leave every mean, spread and pair.
    estimator
        Name of the rule; ``form`` and ``reference_width`` belong to ``range`` and ``range_root``, ``alpha`` and
        ``zeta`` to ``uarm``.
    reduction
        Point of the interval that is compared; ``middle`` only for ``uarm``.

    Returns
    -------
    Advantages
        Finite everywhere; exactly 0 and not active where missing or in groups of fewer than two valid rollouts.

    Raises
    ------
    ConfigError
        A setting is unknown, out of range, or has no meaning for the estimator.
    """
    _require_choice("estimator", estimator, get_args(Estimator))
    reward_N = point_reward(intervals, reduction)
    if estimator == "uarm" and reduction != "middle":
        msg = (
            f"'reduction' must be 'middle' for estimator '{estimator}', which sees the whole interval; "
            f"got '{reduction}'. Choose another estimator to compare ends of intervals."
        )
        raise ConfigError(msg)
    ids, valid_N = intervals.prompt_id_N, ~intervals.missing_N
    lower_N, upper_N = intervals.lower_N, intervals.upper_N
    if estimator in ("range", "range_root"):
        paired = range_advantages if estimator == "range" else range_root_advantages
        value_N = paired(
            lower_N, upper_N, ids, valid_N, form=form, reference_width=reference_width, reduction=reduction
        )
    elif estimator == "uarm":
        value_N = uarm_advantages(lower_N, upper_N, ids, valid_N, alpha=alpha, zeta=zeta)
    else:
        scalar = {"dr_grpo": dr_grpo_advantages, "grpo": grpo_advantages, "rloo": rloo_advantages}
        value_N = scalar[estimator](reward_N, ids, valid_N)
    active_N = np.zeros(len(ids), dtype=bool)
    for rows in _groups(ids, valid_N):
        active_N[rows] = True
    return Advantages(prompt_id_N=ids, value_N=value_N, active_N=active_N, estimator=estimator)


def median_pair_weight(
    intervals: RewardIntervals, *, form: Form = DEFAULT_FORM, reference_width: float = DEFAULT_REFERENCE_WIDTH
) -> float | None:
    """Return the median weight over pairs of distinct valid rollouts of one group; None where there is no pair.

    A median near 0 (below .02) says that the reference width is too small for these intervals: the signal vanishes.
    """
    weights, half_width_N = pair_weights(form, reference_width), intervals.half_width_N
    parts = [
        weights(half_width_N[rows])[np.triu_indices(len(rows), k=1)]
        for rows in _groups(intervals.prompt_id_N, ~intervals.missing_N)
    ]
    return float(np.median(np.concatenate(parts))) if parts else None


def count_sign_flips(range_value_N: ArrayLike, midpoint_value_N: ArrayLike) -> int:
    """Return how many rollouts have opposite, non-zero signs under the two advantage vectors (paper, Table 3)."""
    return int((np.sign(range_value_N) * np.sign(midpoint_value_N) < 0).sum())
