"""Overlap of source and target states: whether the weights of an iteration can be trusted at all.

Computes the effective sample size, the largest share of one row, the shares clipped, how well a classifier tells the
pools apart, what the target shows that the source never did, and how heavy the tail of the weights is.
Effective sample size is ``(sum w)^2 / sum w^2``; the tail is the shape k of a generalised Pareto law of the largest
fifth of the weights; the mean weight of source rows is 1 for a true ratio.
Shares of weights are divided by calibration rows, shares of states by target rows.
Left out of the paper, which reports none of this: nothing; which of these numbers matter is our choice.

Shapes: S source rows, D target rows, C calibration rows, K coordinates, M rows of the tail.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from rangeline.conformal.density_ratio import DensityRatio, fit_density_ratio
from rangeline.conformal.domain_classifiers import state_counts
from rangeline.errors import CalibrationError
from rangeline.records import FloatArray, OverlapReport

_NUM_FOLDS = 5
_TAIL_SHARE = 0.2
_MIN_DISTINCT_EXCESSES = 5
"""Fewer distinct weights above the threshold do not tell one shape from another."""
_PRIOR_ROWS = 10
_PRIOR_SHAPE = 0.5


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


def pareto_shape(excess_M: ArrayLike) -> float:
    """Estimate the shape k of a generalised Pareto law from excesses over its threshold.

    The mean of k over a grid of ``b = -k / scale``, weighted by profile likelihood, as Zhang and Stephens do.

    Parameters
    ----------
    excess_M
        [M] positive finite excesses, at least two.

    Returns
    -------
    float
        Shape, positive for tails heavier than exponential.

    Raises
    ------
    CalibrationError
        An excess is not positive and finite, or there are fewer than two.

    Notes
    -----
    Zhang and Stephens (2009), equations 6 to 8; their k has the other sign.
    """
    excess = np.sort(np.asarray(excess_M, dtype=np.float64))
    if len(excess) < 2 or not (excess[0] > 0 and excess[-1] < np.inf):
        msg = f"'excess_M' must be 2 or more positive finite numbers; got {excess[:3].tolist()}. Drop the others."
        raise CalibrationError(msg)
    num = len(excess)
    num_grid = 30 + int(math.sqrt(num))
    quartile = excess[int(num / 4 + 0.5) - 1]
    steps = np.arange(1, num_grid + 1) - 0.5
    b_grid = 1 / excess[-1] + (1 - np.sqrt(num_grid / steps)) / (3 * quartile)
    with np.errstate(divide="ignore", invalid="ignore"):
        shape_grid = np.log1p(-b_grid[:, None] * excess).mean(axis=1)
        profile = num * (np.log(-b_grid / shape_grid) - shape_grid - 1)
    profile[~np.isfinite(profile)] = -np.inf
    weight = np.exp(profile - profile.max())
    b_mean = float((b_grid * weight).sum() / weight.sum())
    return float(np.log1p(-b_mean * excess).mean())


def pareto_k(log_weight_C: ArrayLike) -> float | None:
    """Compute the PSIS diagnostic: the Pareto shape of the largest fifth of the weights.

    Parameters
    ----------
    log_weight_C
        [C] log weights of any scale; -inf is weight 0.

    Returns
    -------
    float or None
        Above .7 the mean of weights is not to be trusted, above 1 it need not exist. None with fewer than five
        distinct weights in the tail, as among few judgment states: their tail has no shape.

    Raises
    ------
    CalibrationError
        A log weight is NaN or +inf.

    Notes
    -----
    Vehtari et al. (2024), with their prior of 10 rows at k = .5. Ours: a fifth of the rows whatever their number, and
    the guard on distinct weights.
    """
    weight = np.sort(_scaled_weights(log_weight_C))
    num_tail = math.ceil(_TAIL_SHARE * len(weight))
    if num_tail >= len(weight):
        return None
    excess = weight[-num_tail:] - weight[-num_tail - 1]
    excess = excess[excess > 0]
    # Weights of one state may differ in the last bits; they are one weight.
    distinct = 1 + int((np.diff(excess) > 1e-12 * weight[-1]).sum()) if len(excess) else 0
    if distinct < _MIN_DISTINCT_EXCESSES:
        return None
    shape, num = pareto_shape(excess), len(excess)
    return (num * shape + _PRIOR_ROWS * _PRIOR_SHAPE) / (num + _PRIOR_ROWS)


def overlap_report(
    ratio: DensityRatio,
    source_SK: ArrayLike,
    target_DK: ArrayLike,
    calibration_CK: ArrayLike,
    *,
    cross_validate: bool = True,
) -> OverlapReport:
    """Report how well source states cover target states.

    Parameters
    ----------
    ratio
        Ratio fitted on these pools.
    source_SK, target_DK, calibration_CK
        [S, K], [D, K] and [C, K] states; at least one row each. Weights are those of the calibration rows, clipped.
    cross_validate
        False leaves the AUC out: it takes five more fits.

    Returns
    -------
    OverlapReport
        The AUC is the mean over stratified folds of the ratio's own method, None where a pool has too few rows to
        leave some out; folds ignore prompts, so that it is a diagnostic, not a test.

    Raises
    ------
    CalibrationError
        A pool is empty, or a level is out of range.
    """
    source, target, calibration = (np.asarray(levels) for levels in (source_SK, target_DK, calibration_CK))
    if not len(calibration):
        msg = "'calibration_CK' must hold at least one state; got 0 rows. Judge the calibration pool first."
        raise CalibrationError(msg)
    _, count_U2 = state_counts(source, target, ratio.num_levels)
    log_weight_C = ratio.log_ratio(calibration)
    weight_C = _scaled_weights(log_weight_C)
    ess = effective_sample_size(log_weight_C)
    return OverlapReport(
        ess=ess,
        ess_share=ess / len(calibration),
        max_weight_share=float(weight_C.max() / weight_C.sum()),
        clipped_share=float(ratio.clipped_N(calibration).mean()),
        clipped_target_share=float(ratio.clipped_N(target).mean()),
        mean_source_weight=float(np.exp(ratio.log_ratio(source)).mean()),
        pareto_k=pareto_k(log_weight_C),
        classifier_auc=_cross_validated_auc(ratio, source, target) if cross_validate else None,
        unseen_target_share=float(count_U2[count_U2[:, 0] == 0, 1].sum() / len(target)),
        num_unseen_levels=num_unseen_levels(source, target),
        separable=not bool((count_U2 > 0).all(axis=1).any()),
        num_source=len(source),
        num_target=len(target),
    )


def num_unseen_levels(source_SK: ArrayLike, target_DK: ArrayLike) -> int:
    """Count the pairs of coordinate and level, UNKNOWN too, that target rows show and no source row does.

    >>> num_unseen_levels([[0, 1], [1, 1]], [[0, 2], [2, -1]])
    3
    """
    columns = zip(np.asarray(source_SK).T, np.asarray(target_DK).T, strict=True)
    return sum(len(np.setdiff1d(target_D, source_S)) for source_S, target_D in columns)


def _cross_validated_auc(ratio: DensityRatio, source_SK: NDArray[Any], target_DK: NDArray[Any]) -> float | None:
    smallest = min(len(source_SK), len(target_DK))
    if smallest < (3 if ratio.method == "boosting" else 2):  # boosting leaves rows out of what a fold has left
        return None
    levels = np.concatenate([source_SK, target_DK])
    is_target = np.repeat([0, 1], [len(source_SK), len(target_DK)])
    aucs = []
    folds = StratifiedKFold(min(_NUM_FOLDS, smallest), shuffle=True, random_state=0)
    for train, test in folds.split(levels, is_target):
        fold = fit_density_ratio(
            levels[train][is_target[train] == 0],
            levels[train][is_target[train] == 1],
            ratio.num_levels,
            method=ratio.method,
            regularisation=ratio.regularisation,
        )
        aucs.append(roc_auc_score(is_target[test], fold.raw_log_ratio(levels[test])))
    return float(np.mean(aucs))
