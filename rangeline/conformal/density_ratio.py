"""Density ratio of judgment states: how much likelier a state is under the current policy than in the source pool.

Computes ``log w(z) = log p_target(z) - log p_source(z)`` without any reward, by one of four domain classifiers, and
clips it in log space, calibration and test rows alike; what was clipped is counted.
By logistic classifier it is the log-odds of z plus ``log(m_source / m_target)``, additive over coordinates; counts and
boosting correct that for the observed states; the forest is a table over the observed states.
Class sizes are divided out, so that a larger pool is not a likelier one.
Left out of RoWCI: the cap at a percentile of the weights; one fixed cap treats calibration and test weights alike, and
bounds states that separate the pools.

A state that neither pool holds: logistic adds up its coefficients, of which an unseen level's is 0, and counts and
boosting, which know nothing more of it, say the same; forest gives the largest ratio among the observed states that
differ from it in the fewest coordinates.

Shapes: S source rows, D target rows, N rows to weigh, K coordinates, U distinct states, V of them in no table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rangeline.conformal.domain_classifiers import (
    fit_boosting,
    fit_counts,
    fit_forest,
    fit_logistic,
    fold_counts,
    state_counts,
)
from rangeline.conformal.prompt_folds import PromptIds, ids_of_rows, prompt_folds
from rangeline.conformal.scorer import State, one_hot_columns
from rangeline.errors import CalibrationError
from rangeline.records import BoolArray, FloatArray
from rangeline.seeds import seed_of

Method = Literal["logistic", "counts", "forest", "boosting"]

_MAX_LOG_CAP = 700.0
"""exp(700) is finite and exp(710) is not; a weight is never infinite."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DensityRatio:
    """Frozen log density ratio, target over source, as a function of the judgment state."""

    method: Method
    num_levels: tuple[int, ...]
    regularisation: float
    log_cap: tuple[float, float]
    """Smallest and largest log-ratio that `log_ratio` gives."""
    base: float
    """Intercept of the logistic fit plus log(m_source / m_target); 0 for the forest."""
    coefficients: tuple[float, ...] = ()
    """Of the logistic fit, one per one-hot column; none for the forest."""
    by_state: dict[State, float]
    """Counts, forest and boosting: log-ratio of each state that a pool holds."""

    def raw_log_ratio(self, levels_NK: ArrayLike) -> FloatArray:
        """Return [N] log-ratios before clipping; levels out of range raise CalibrationError."""
        column_NK = one_hot_columns(levels_NK, self.num_levels)
        additive_N = np.zeros(len(column_NK))
        if self.coefficients:
            # A gather, not a matrix product: equal states get equal bits in whatever batch they come.
            additive_N = np.asarray(self.base + np.asarray(self.coefficients)[column_NK].sum(axis=1), dtype=np.float64)
        if self.method == "logistic":
            return additive_N
        state_UK, first_of, row_of = np.unique(
            np.asarray(levels_NK, dtype=np.int64), axis=0, return_index=True, return_inverse=True
        )
        known_U = [self.by_state.get(tuple(state)) for state in state_UK.tolist()]
        ratio_U = additive_N[first_of]
        unseen_U = np.array([value is None for value in known_U], dtype=bool)
        ratio_U[~unseen_U] = [value for value in known_U if value is not None]
        if self.method == "forest" and unseen_U.any():
            ratio_U[unseen_U] = self._largest_of_nearest(state_UK[unseen_U])
        return ratio_U[row_of.reshape(-1)]

    def _largest_of_nearest(self, state_VK: NDArray[np.int64]) -> FloatArray:
        known_UK = np.array(list(self.by_state), dtype=np.int64)
        ratio_U = np.array(list(self.by_state.values()), dtype=np.float64)
        nearest = np.empty(len(state_VK))
        for i, state_K in enumerate(state_VK):
            differing_U = (known_UK != state_K).sum(axis=1)
            nearest[i] = ratio_U[differing_U == differing_U.min()].max()
        return nearest

    def log_ratio(self, levels_NK: ArrayLike) -> FloatArray:
        """Return [N] log-ratios clipped to the cap; levels out of range raise CalibrationError."""
        return np.clip(self.raw_log_ratio(levels_NK), *self.log_cap)

    def clipped_N(self, levels_NK: ArrayLike) -> BoolArray:
        """Return [N] bool, True where clipping changed the log-ratio."""
        raw_N = self.raw_log_ratio(levels_NK)
        return (raw_N < self.log_cap[0]) | (raw_N > self.log_cap[1])

    def to_json(self) -> dict[str, Any]:
        """Return the ratio as plain values for JSON."""
        return {
            "method": self.method,
            "num_levels": list(self.num_levels),
            "regularisation": self.regularisation,
            "log_cap": list(self.log_cap),
            "base": self.base,
            "coefficients": list(self.coefficients),
            "by_state": [[list(state), value] for state, value in self.by_state.items()],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "DensityRatio":
        """Read what `to_json` gave; every log-ratio is reproduced exactly."""
        low, high = content["log_cap"]
        return cls(
            method=content["method"],
            num_levels=tuple(content["num_levels"]),
            regularisation=content["regularisation"],
            log_cap=(low, high),
            base=content["base"],
            coefficients=tuple(content["coefficients"]),
            by_state={tuple(state): value for state, value in content["by_state"]},
        )


def _require_settings(method: str, regularisation: float, log_cap: tuple[float, float]) -> None:
    low, high = log_cap
    caps = -_MAX_LOG_CAP <= low < high <= _MAX_LOG_CAP
    if method not in get_args(Method) or not 0 < regularisation < math.inf or not caps:
        msg = (
            f"'method', 'regularisation' and 'log_cap' must be one of {', '.join(get_args(Method))}, positive and "
            f"finite, and ascending in [-700, 700]; got {method}, {regularisation}, {log_cap}. "
            "Correct the density-ratio settings."
        )
        raise CalibrationError(msg)


def fit_density_ratio(  # noqa: PLR0913 - the prompts of the rows are the eighth; they belong to the rows
    source_SK: ArrayLike,
    target_DK: ArrayLike,
    num_levels: Sequence[int],
    *,
    method: Method = "logistic",
    regularisation: float = 1.0,
    log_cap: tuple[float, float] = (-4.0, 4.0),
    seed: int = 0,
    prompt_ids: PromptIds | None = None,
) -> DensityRatio:
    """Fit the log density ratio of states, target over source.

    Parameters
    ----------
    source_SK, target_DK
        [S, K] states of the source pool; [D, K] states of fresh rollouts of the current policy. At least one row each.
    num_levels
        [K] known levels of each coordinate; UNKNOWN is one more.
    method
        ``logistic``: L2 logistic regression on one-hot states, additive over coordinates. ``counts``: smoothed share
        of each whole state. ``forest``: random forest with smoothed leaves. ``boosting``: boosted trees that start from
        the logistic fit, as far as prompts left out bear them out.
    regularisation
        Positive. Logistic: L2 strength, 1/C. Boosting: the same, of its logistic start and of the share of the trees
        that it keeps. Counts: pseudo-count of each seen state, and L2 strength of the logistic fit that
        divides it between the pools. Forest: pseudo-count of a leaf.
    log_cap
        Ends of the clipped log-ratio, in [-700, 700].
    seed
        Seed of the forest's draws and of the folds of boosting.
    prompt_ids
        Ids of the source rows and of the target rows, by which boosting leaves rows out: rollouts of one prompt share
        states. None: each row is a prompt of its own.

    Returns
    -------
    DensityRatio
        The same, bit for bit, for the same rows in any order.

    Raises
    ------
    CalibrationError
        A pool is empty, or has rows of one prompt for boosting; a level or a setting is out of range; ids and rows
        differ in number.

    Notes
    -----
    Range-GRPO section 3.2, ``w(z) = (m_source / m_target) p(z) / (1 - p(z))``; the forest is RoWCI's. Ours: log space,
    clipping, counts, boosting, smoothing, and that counts and boosting correct the logistic ratio: what they do not
    know then leaves the additive ratio, where a plain table goes to 1 and under-covers.
    """
    _require_settings(method, regularisation, log_cap)
    # Equal states share one row with two counts: the same loss, and independent of the order of rows.
    state_UK, count_U2 = state_counts(source_SK, target_DK, num_levels)
    ids = ids_of_rows(source_SK, target_DK, prompt_ids)
    draw = seed_of(seed, "domain_classifier") % 2**32
    base = 0.0
    coefficients: tuple[float, ...] = ()
    table_U: FloatArray | None = None
    if method == "forest":
        table_U = fit_forest(state_UK, count_U2, num_levels, regularisation, seed=draw)
    else:
        base, coefficients = fit_logistic(state_UK, count_U2, num_levels, regularisation)
        additive_U = base + np.asarray(coefficients)[one_hot_columns(state_UK, num_levels)].sum(axis=1)
        if method == "counts":
            table_U = fit_counts(count_U2, additive_U, regularisation)
        elif method == "boosting":
            folds = _require_folds(ids, draw)
            count_HU2 = fold_counts(source_SK, target_DK, num_levels, folds)
            table_U = additive_U + fit_boosting(state_UK, count_HU2, num_levels, regularisation, seed=draw)
    table = {} if table_U is None else dict(zip(map(tuple, state_UK.tolist()), table_U.tolist(), strict=True))
    return DensityRatio(
        method=method,
        num_levels=tuple(int(num) for num in num_levels),
        regularisation=float(regularisation),
        log_cap=(float(log_cap[0]), float(log_cap[1])),
        base=base,
        coefficients=coefficients,
        by_state=table,
    )


def _require_folds(ids: PromptIds, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    folds = prompt_folds(ids, seed=seed)
    if folds is None:
        counts = [len(set(pool)) for pool in ids]
        msg = (
            f"'source_SK' and 'target_DK' must have rows of at least 2 prompts for boosting; got {counts[0]} and "
            f"{counts[1]}. Roll out more prompts, or choose another ratio method."
        )
        raise CalibrationError(msg)
    return folds
