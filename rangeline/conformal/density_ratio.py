"""Density ratio of judgment states: how much likelier a state is under the current policy than in the source pool.

Computes ``log w(z) = log p_target(z) - log p_source(z)`` without any reward.
By logistic classifier (source 0, target 1) it is the log-odds of z plus ``log(m_source / m_target)``; by counts it is
the log ratio of smoothed cell shares. Both are clipped in log space, and what was clipped is counted.
Class sizes are divided out, so that a larger pool is not a likelier one.
Left out of RoWCI: the random forest and the cap at a percentile of the weights; one fixed cap treats calibration and
test weights alike.

Shapes: S source rows, D target rows, C calibration rows, N rows to weigh, K coordinates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from rangeline.conformal.scorer import State, one_hot, one_hot_columns
from rangeline.errors import CalibrationError
from rangeline.records import BoolArray, FloatArray, OverlapReport

Method = Literal["logistic", "counts"]

_NUM_FOLDS = 5
_MAX_ITERATIONS = 1000
_SOLVER_TOLERANCE = 1e-8


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DensityRatio:
    """Frozen log density ratio, target over source, as a function of the judgment state."""

    method: Method
    num_levels: tuple[int, ...]
    regularisation: float
    log_cap: tuple[float, float]
    """Smallest and largest log-ratio that `log_ratio` gives."""
    base: float
    """Logistic: intercept plus log(m_source / m_target). Counts: log-ratio of a state seen in neither pool."""
    coefficients: tuple[float, ...] = ()
    """Logistic only: one per one-hot column."""
    by_state: dict[State, float]
    """Counts only: log-ratio of each seen state."""

    def raw_log_ratio(self, levels_NK: ArrayLike) -> FloatArray:
        """Return [N] log-ratios before clipping; levels out of range raise CalibrationError."""
        column_NK = one_hot_columns(levels_NK, self.num_levels)
        if self.method == "logistic":
            # A gather, not a matrix product: equal states get equal bits in whatever batch they come.
            return np.asarray(self.base + np.asarray(self.coefficients)[column_NK].sum(axis=1), dtype=np.float64)
        states = map(tuple, np.asarray(levels_NK).tolist())
        return np.array([self.by_state.get(state, self.base) for state in states], dtype=np.float64)

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


def fit_density_ratio(
    source_SK: ArrayLike,
    target_DK: ArrayLike,
    num_levels: Sequence[int],
    *,
    method: Method = "logistic",
    regularisation: float = 1.0,
    log_cap: tuple[float, float] = (-4.0, 4.0),
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
        of each whole state.
    regularisation
        Positive. Logistic: L2 strength, 1/C. Counts: Laplace pseudo-count of each seen state, and of all others as one.
    log_cap
        Finite ends of the clipped log-ratio.

    Returns
    -------
    DensityRatio
        The same, bit for bit, for the same rows in any order.

    Raises
    ------
    CalibrationError
        A pool is empty, a level is out of range, or a setting is.

    Notes
    -----
    Range-GRPO section 3.2, ``w(z) = (m_source / m_target) p(z) / (1 - p(z))``. Ours: log space, clipping, counts.
    """
    low, high = log_cap
    if method not in get_args(Method) or not 0 < regularisation < math.inf or not -math.inf < low < high < math.inf:
        msg = (
            "'method', 'regularisation' and 'log_cap' must be logistic or counts, positive, and finite and ascending; "
            f"got {method}, {regularisation}, {log_cap}. Correct the density-ratio settings."
        )
        raise CalibrationError(msg)
    # Equal states share one row with two counts: the same loss, and independent of the order of rows.
    state_UK, count_U2 = _state_counts(source_SK, target_DK, num_levels)
    coefficients: tuple[float, ...] = ()
    by_state: dict[State, float] = {}
    if method == "logistic":
        base, coefficients = _fit_logistic(one_hot(state_UK, num_levels), count_U2, regularisation)
    else:
        base, log_ratio_U = _fit_counts(count_U2, regularisation)
        by_state = dict(zip(map(tuple, state_UK.tolist()), log_ratio_U.tolist(), strict=True))
    return DensityRatio(
        method=method,
        num_levels=tuple(int(num) for num in num_levels),
        regularisation=float(regularisation),
        log_cap=(float(low), float(high)),
        base=base,
        coefficients=coefficients,
        by_state=by_state,
    )


def _state_counts(
    source_SK: ArrayLike, target_DK: ArrayLike, num_levels: Sequence[int]
) -> tuple[NDArray[np.int64], FloatArray]:
    pools = []
    for name, pool in (("source_SK", source_SK), ("target_DK", target_DK)):
        levels = np.asarray(pool)
        if not len(levels):
            msg = f"'{name}' must hold at least one state; got 0 rows. Roll out and judge that pool first."
            raise CalibrationError(msg)
        one_hot_columns(levels, num_levels)
        pools.append(levels.astype(np.int64))
    state_UK, row_of = np.unique(np.concatenate(pools), axis=0, return_inverse=True)
    parts = np.split(row_of.reshape(-1), [len(pools[0])])
    count_2U = [np.bincount(part, minlength=len(state_UK)) for part in parts]
    return state_UK, np.stack(count_2U, axis=1).astype(np.float64)


def _fit_logistic(
    encoded_UF: NDArray[np.float32], count_U2: FloatArray, regularisation: float
) -> tuple[float, tuple[float, ...]]:
    num = len(encoded_UF)
    classifier = LogisticRegression(C=1 / regularisation, max_iter=_MAX_ITERATIONS, tol=_SOLVER_TOLERANCE)
    features = np.concatenate([encoded_UF, encoded_UF]).astype(np.float64)
    classifier.fit(features, np.repeat([0, 1], num), sample_weight=count_U2.T.reshape(-1))
    # scikit-learn's coefficients speak for classes_[1]; the ratio speaks for the target, class 1.
    sign = 1.0 if classifier.classes_[1] == 1 else -1.0
    num_source, num_target = count_U2.sum(axis=0)
    base = sign * float(classifier.intercept_[0]) + math.log(num_source / num_target)
    return base, tuple((sign * classifier.coef_[0]).tolist())


def _fit_counts(count_U2: FloatArray, pseudo_count: float) -> tuple[float, FloatArray]:
    size_2 = count_U2.sum(axis=0)
    pseudo_2 = (
        pseudo_count * size_2 / size_2.max()
    )  # in proportion, or the smaller pool's rare states would be inflated
    smoothed_U2 = count_U2 + pseudo_2
    total_2 = smoothed_U2.sum(axis=0) + pseudo_2  # all states seen in neither pool are one more cell
    sizes = math.log(total_2[0] / total_2[1])
    unseen = math.log(pseudo_2[1] / pseudo_2[0]) + sizes
    return unseen, np.log(smoothed_U2[:, 1] / smoothed_U2[:, 0]) + sizes


def effective_sample_size(log_weight_C: ArrayLike) -> float:
    """Return ``(sum w)^2 / sum w^2`` from log weights, whatever their scale.

    -inf is weight 0; no row, or no row of positive weight, gives 0. NaN and +inf raise CalibrationError.

    >>> effective_sample_size([800.0, 800.0, -float("inf")])
    2.0
    """
    weight_C = _scaled_weights(log_weight_C)
    total = float(weight_C.sum())
    return total**2 / float((weight_C**2).sum()) if total > 0 else 0.0


def _scaled_weights(log_weight_C: ArrayLike) -> FloatArray:
    log_C = np.asarray(log_weight_C, dtype=np.float64)
    bad = np.flatnonzero(~(log_C < np.inf))
    if bad.size:
        i = int(bad[0])
        msg = f"'log_weight_C' must be below infinity and not NaN; got {log_C[i]} (row {i}). Correct or drop the row."
        raise CalibrationError(msg)
    top = log_C.max(initial=-np.inf)
    return np.exp(log_C - top) if top > -np.inf else np.zeros(len(log_C))


def overlap_report(
    ratio: DensityRatio, source_SK: ArrayLike, target_DK: ArrayLike, calibration_CK: ArrayLike
) -> OverlapReport:
    """Report how well source states cover target states.

    Weights are those of the calibration rows after clipping. The AUC is the mean over stratified folds of the ratio's
    own method, None where a pool has fewer than two rows; folds ignore prompts, so that it is a diagnostic, not a test.

    Raises
    ------
    CalibrationError
        A pool is empty, or a level is out of range.
    """
    source, target, calibration = (np.asarray(levels) for levels in (source_SK, target_DK, calibration_CK))
    if not len(calibration):
        msg = "'calibration_CK' must hold at least one state; got 0 rows. Judge the calibration pool first."
        raise CalibrationError(msg)
    _, count_U2 = _state_counts(source, target, ratio.num_levels)
    log_weight_C = ratio.log_ratio(calibration)
    weight_C = _scaled_weights(log_weight_C)
    ess = effective_sample_size(log_weight_C)
    return OverlapReport(
        ess=ess,
        ess_share=ess / len(calibration),
        max_weight_share=float(weight_C.max() / weight_C.sum()),
        clipped_share=float(ratio.clipped_N(calibration).mean()),
        classifier_auc=_cross_validated_auc(ratio, source, target),
        unseen_target_share=float(count_U2[count_U2[:, 0] == 0, 1].sum() / len(target)),
        num_source=len(source),
        num_target=len(target),
    )


def _cross_validated_auc(ratio: DensityRatio, source_SK: NDArray[Any], target_DK: NDArray[Any]) -> float | None:
    num_folds = min(_NUM_FOLDS, len(source_SK), len(target_DK))
    if num_folds < 2:
        return None
    levels = np.concatenate([source_SK, target_DK])
    is_target = np.repeat([0, 1], [len(source_SK), len(target_DK)])
    aucs = []
    for train, test in StratifiedKFold(num_folds, shuffle=True, random_state=0).split(levels, is_target):
        fold = fit_density_ratio(
            levels[train][is_target[train] == 0],
            levels[train][is_target[train] == 1],
            ratio.num_levels,
            method=ratio.method,
            regularisation=ratio.regularisation,
        )
        aucs.append(roc_auc_score(is_target[test], fold.raw_log_ratio(levels[test])))
    return float(np.mean(aucs))
