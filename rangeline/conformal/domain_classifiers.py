"""Domain classifiers: how much likelier each observed judgment state is in the target pool than in the source pool.

Computes the log-odds of target against source of a state, by logistic regression, smoothed counts, a random forest, or
gradient boosting whose log-odds are calibrated out of fold.
The log-ratio is ``log p(target | z) - log p(source | z) + log(m_source / m_target)``; it is finite for every state,
also for one that a single pool holds, because each fit is smoothed or penalised.
Class sizes are divided out, so that a larger pool is not a likelier one.
Left out of RoWCI: leaf shares of exactly 0 or 1, whose odds are no number; leaves are smoothed to the pools' share.

Shapes: S source rows, D target rows, N rows of both, U distinct states, K coordinates, F one-hot columns. The 2 columns
of counts are source and target. Rows are rebuilt from counts, so that no fit depends on their order.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from rangeline.conformal.scorer import one_hot, one_hot_columns
from rangeline.errors import CalibrationError
from rangeline.records import FloatArray

_MAX_ITERATIONS = 1000
_SOLVER_TOLERANCE = 1e-8
_NUM_FOLDS = 5
_TARGET = 1
"""Class number of the target; the source is 0."""


def state_counts(
    source_SK: ArrayLike, target_DK: ArrayLike, num_levels: Sequence[int]
) -> tuple[NDArray[np.int64], FloatArray]:
    """Count each distinct state in both pools.

    Parameters
    ----------
    source_SK, target_DK
        [S, K] and [D, K] states; at least one row each.
    num_levels
        [K] known levels of each coordinate; UNKNOWN is one more.

    Returns
    -------
    tuple of numpy.ndarray
        int64 [U, K] distinct states in ascending order; float64 [U, 2] rows of each in source and target.

    Raises
    ------
    CalibrationError
        A pool is empty, or a level is out of range.
    """
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


def _target_sign(classes: Sequence[int]) -> float:
    # scikit-learn's log-odds speak for classes_[1]; a ratio speaks for the target.
    return 1.0 if classes[1] == _TARGET else -1.0


def _weighted_rows(count_U2: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    """Return state number, class and count of every state that a pool holds: the same loss as one row a rollout."""
    class_of, state_of = np.nonzero(count_U2.T)
    return state_of, class_of, count_U2[state_of, class_of]


def fit_logistic(
    state_UK: ArrayLike, count_U2: FloatArray, num_levels: Sequence[int], strength: float
) -> tuple[float, tuple[float, ...]]:
    """Fit L2 logistic regression on one-hot states; return the base and one coefficient a one-hot column."""
    encoded_UF = one_hot(state_UK, num_levels).astype(np.float64)
    features = np.concatenate([encoded_UF, encoded_UF])
    classifier = LogisticRegression(C=1 / strength, max_iter=_MAX_ITERATIONS, tol=_SOLVER_TOLERANCE)
    classifier.fit(features, np.repeat([0, _TARGET], len(encoded_UF)), sample_weight=count_U2.T.reshape(-1))
    sign = _target_sign(classifier.classes_)
    num_source, num_target = count_U2.sum(axis=0)
    base = sign * float(classifier.intercept_[0]) + math.log(num_source / num_target)
    return base, tuple((sign * classifier.coef_[0]).tolist())


def fit_counts(count_U2: FloatArray, pseudo_count: float) -> tuple[float, FloatArray]:
    """Smooth the share of each state; return the log-ratio of a state seen in neither pool, and [U] log-ratios."""
    size_2 = count_U2.sum(axis=0)
    pseudo_2 = pseudo_count * size_2 / size_2.max()  # in proportion, or the smaller pool's rare states would inflate
    smoothed_U2 = count_U2 + pseudo_2
    total_2 = smoothed_U2.sum(axis=0) + pseudo_2  # all states seen in neither pool are one more cell
    sizes = math.log(total_2[0] / total_2[1])
    unseen = math.log(pseudo_2[1] / pseudo_2[0]) + sizes
    return unseen, np.log(smoothed_U2[:, 1] / smoothed_U2[:, 0]) + sizes


def fit_forest(
    state_UK: ArrayLike, count_U2: FloatArray, num_levels: Sequence[int], pseudo_count: float, *, seed: int
) -> FloatArray:
    """Fit a random forest of 200 trees, depth 8 and at least 5 rows a leaf; return [U] log-ratios.

    A leaf of n rows, share q of them target, says ``(n q + k pi) / (n + k)`` with k pseudo-counts and pi the target's
    share of all rows; trees are averaged before the log-odds are taken, so that odds of 0 or infinity cannot occur.

    Notes
    -----
    Size and depth are RoWCI's; the smoothing is ours.
    """
    encoded_UF = one_hot(state_UK, num_levels)
    state_of, class_of, times = _weighted_rows(count_U2)
    row_N = np.repeat(state_of, times.astype(np.int64))
    class_N = np.repeat(class_of, times.astype(np.int64))
    forest = RandomForestClassifier(n_estimators=200, max_depth=8, min_samples_leaf=5, random_state=seed)
    forest.fit(encoded_UF[row_N], class_N)
    column = forest.classes_.tolist().index(_TARGET)
    prior = float(count_U2[:, 1].sum() / count_U2.sum())
    leaf_TU = forest.apply(encoded_UF).T
    total_U = np.zeros(len(encoded_UF))
    for tree, leaf_U in zip(forest.estimators_, leaf_TU, strict=True):
        value_UC = tree.tree_.value[leaf_U, 0, :]
        share_U = value_UC[:, column] / value_UC.sum(axis=1)
        num_U = tree.tree_.weighted_n_node_samples[leaf_U]
        total_U += (share_U * num_U + pseudo_count * prior) / (num_U + pseudo_count)
    mean_U = total_U / len(forest.estimators_)
    return np.asarray(np.log(mean_U) - np.log1p(-mean_U) - (math.log(prior) - math.log1p(-prior)), dtype=np.float64)


def _boosted_log_odds(encoded_UF: NDArray[np.float32], count_U2: FloatArray, seed: int) -> FloatArray:
    state_of, class_of, times = _weighted_rows(count_U2)
    booster = GradientBoostingClassifier(n_estimators=60, max_depth=3, learning_rate=0.15, random_state=seed)
    booster.fit(encoded_UF[state_of], class_of, sample_weight=times)
    return np.asarray(_target_sign(booster.classes_) * booster.decision_function(encoded_UF), dtype=np.float64)


def fit_boosting(
    state_UK: ArrayLike, count_U2: FloatArray, num_levels: Sequence[int], strength: float, *, seed: int
) -> FloatArray:
    """Fit boosted trees and calibrate their log-odds by an L2 sigmoid on out-of-fold log-odds; return [U] log-ratios.

    The ratio is ``a f(z) + b + log(m_source / m_target)``, f the log-odds of trees fitted on all rows, a and b fitted
    on log-odds of rows that their trees did not see. A slope a that is not positive says that the pools cannot be told
    apart: the ratio is then 1 for every state.

    Raises
    ------
    CalibrationError
        A pool has fewer than two rows, so that nothing can be left out.
    """
    num_source, num_target = (int(num) for num in count_U2.sum(axis=0))
    if min(num_source, num_target) < 2:
        msg = (
            f"'source_SK' and 'target_DK' must have at least 2 rows for boosting; got {num_source} and {num_target}. "
            "Roll out more prompts, or choose another ratio method."
        )
        raise CalibrationError(msg)
    encoded_UF = one_hot(state_UK, num_levels)
    state_of, class_of, times = _weighted_rows(count_U2)
    row_N = np.repeat(state_of, times.astype(np.int64))
    class_N = np.repeat(class_of, times.astype(np.int64))
    held_out_N = np.zeros(len(row_N))
    folds = StratifiedKFold(min(_NUM_FOLDS, num_source, num_target), shuffle=True, random_state=seed)
    for train, test in folds.split(row_N, class_N):
        kept_2U = [np.bincount(row_N[train][class_N[train] == c], minlength=len(encoded_UF)) for c in (0, _TARGET)]
        held_out_N[test] = _boosted_log_odds(encoded_UF, np.stack(kept_2U, axis=1).astype(np.float64), seed)[
            row_N[test]
        ]
    sigmoid = LogisticRegression(C=1 / strength, max_iter=_MAX_ITERATIONS, tol=_SOLVER_TOLERANCE)
    sigmoid.fit(held_out_N[:, None], class_N)
    sign = _target_sign(sigmoid.classes_)
    slope = sign * float(sigmoid.coef_[0, 0])
    if slope <= 0:
        return np.zeros(len(encoded_UF))
    base = sign * float(sigmoid.intercept_[0]) + math.log(num_source / num_target)
    return slope * _boosted_log_odds(encoded_UF, count_U2, seed) + base
