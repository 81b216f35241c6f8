"""Domain classifiers: how much likelier each observed judgment state is in the target pool than in the source pool.

Computes the log-odds of target against source of a state, by logistic regression, counts smoothed towards it, a random
forest, or gradient boosting that corrects it as far as prompts held out bear out.
The log-ratio is ``log p(target | z) - log p(source | z) + log(m_source / m_target)``; it is finite for every state,
also for one that a single pool holds, because each fit is smoothed or penalised.
Class sizes are divided out, so that a larger pool is not a likelier one.
Left out of RoWCI: leaf shares of exactly 0 or 1, whose odds are no number; leaves are smoothed to the pools' share.

Shapes: S source rows, D target rows, N rows of both, U distinct states, K coordinates, F one-hot columns, H folds. The
2 columns of counts are source and target. Fits see counts alone, so that none depends on the order of rows.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from rangeline.conformal.scorer import one_hot, one_hot_columns
from rangeline.errors import CalibrationError
from rangeline.records import FloatArray

_MAX_ITERATIONS = 1000
_SOLVER_TOLERANCE = 1e-8
_PSEUDO_ROWS = 2.0
"""Rows of the larger pool in a cell's pseudo-count of 1. One leaves weights at 512 states so noisy that coverage is up
to .02 above that of the true ratio, two .01; with five, interactions are smoothed away."""
_MAX_CORRECTION = 2.0
"""More of the trees' correction than this is never taken."""
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
    state_UK, row_S, row_D = _numbered(source_SK, target_DK, num_levels)
    return state_UK, _counts(row_S, row_D, len(state_UK))


def fold_counts(
    source_SK: ArrayLike,
    target_DK: ArrayLike,
    num_levels: Sequence[int],
    folds: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> FloatArray:
    """Return float64 [H, U, 2] counts of `state_counts` by the fold of each source and target row."""
    state_UK, row_S, row_D = _numbered(source_SK, target_DK, num_levels)
    parts = [(row_S[folds[0] == h], row_D[folds[1] == h]) for h in range(int(folds[0].max()) + 1)]
    return np.stack([_counts(*part, len(state_UK)) for part in parts])


def _numbered(
    source_SK: ArrayLike, target_DK: ArrayLike, num_levels: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    pools = []
    for name, pool in (("source_SK", source_SK), ("target_DK", target_DK)):
        levels = np.asarray(pool)
        if not len(levels):
            msg = f"'{name}' must hold at least one state; got 0 rows. Roll out and judge that pool first."
            raise CalibrationError(msg)
        one_hot_columns(levels, num_levels)
        pools.append(levels.astype(np.int64))
    state_UK, row_of = np.unique(np.concatenate(pools), axis=0, return_inverse=True)
    row_S, row_D = np.split(row_of.reshape(-1), [len(pools[0])])
    return state_UK, row_S, row_D


def _counts(row_S: NDArray[np.int64], row_D: NDArray[np.int64], num_states: int) -> FloatArray:
    count_2U = [np.bincount(rows, minlength=num_states) for rows in (row_S, row_D)]
    return np.stack(count_2U, axis=1).astype(np.float64)


def _target_sign(classes: Sequence[int]) -> float:
    # scikit-learn's log-odds speak for classes_[1]; a ratio speaks for the target.
    return 1.0 if classes[1] == _TARGET else -1.0


def _weighted_rows(count_U2: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    """Return state number, class and count of every state that a pool holds: the same loss as one row a rollout."""
    class_of, state_of = np.nonzero(count_U2.T)
    return state_of, class_of, count_U2[state_of, class_of]


def _penalised(strength: float) -> LogisticRegression:
    return LogisticRegression(C=1 / strength, max_iter=_MAX_ITERATIONS, tol=_SOLVER_TOLERANCE)


def fit_logistic(
    state_UK: ArrayLike, count_U2: FloatArray, num_levels: Sequence[int], strength: float
) -> tuple[float, tuple[float, ...]]:
    """Fit L2 logistic regression on one-hot states; return the base and one coefficient a one-hot column."""
    encoded_UF = one_hot(state_UK, num_levels).astype(np.float64)
    features = np.concatenate([encoded_UF, encoded_UF])
    classifier = _penalised(strength)
    classifier.fit(features, np.repeat([0, _TARGET], len(encoded_UF)), sample_weight=count_U2.T.reshape(-1))
    sign = _target_sign(classifier.classes_)
    num_source, num_target = count_U2.sum(axis=0)
    base = sign * float(classifier.intercept_[0]) + math.log(num_source / num_target)
    return base, tuple((sign * classifier.coef_[0]).tolist())


def fit_counts(count_U2: FloatArray, additive_U: FloatArray, pseudo_count: float) -> FloatArray:
    """Smooth the counts of each state by additive pseudo-counts; return [U] log-ratios.

    A cell gets twice ``pseudo_count`` rows of the larger pool, and those of the smaller one in proportion, divided
    between the pools as the logistic fit expects of its state: an empty cell says what logistic says, a full one what
    it holds.

    Notes
    -----
    Laplace's smoothing is the case of a logistic ratio of 1. That pseudo-counts follow the logistic fit is ours: even
    ones pull the ratio towards 1, and coverage below nominal, wherever states are many for the pools.
    """
    size_2 = count_U2.sum(axis=0)
    sizes = math.log(size_2[0] / size_2[1])
    share_U = expit(additive_U - sizes)
    total = _PSEUDO_ROWS * pseudo_count * float(size_2.sum() / size_2.max())
    return np.asarray(
        np.log(count_U2[:, 1] + total * share_U) - np.log(count_U2[:, 0] + total * expit(sizes - additive_U)) + sizes
    )


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


def _log_odds_of(
    encoded_UF: NDArray[np.float32], count_U2: FloatArray, strength: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return [U] log-odds of the logistic fit, and [U] what trees that start from it add."""
    state_of, class_of, times = _weighted_rows(count_U2)
    booster = GradientBoostingClassifier(
        init=_penalised(strength), n_estimators=60, max_depth=3, learning_rate=0.15, random_state=seed
    )
    booster.fit(encoded_UF[state_of], class_of, sample_weight=times)
    sign = _target_sign(booster.classes_)
    start_U = sign * np.asarray(booster.init_.decision_function(encoded_UF), dtype=np.float64)
    return start_U, sign * np.asarray(booster.decision_function(encoded_UF), dtype=np.float64) - start_U


def fit_boosting(
    state_UK: ArrayLike, count_HU2: FloatArray, num_levels: Sequence[int], strength: float, *, seed: int
) -> FloatArray:
    """Correct the logistic log-odds by boosted trees, as far as rows left out bear out; return [U] corrections.

    The log-ratio is ``l(z) + a t(z)`` with l the logistic one and t what trees add that start from it, both fitted on
    all rows. The slope a in [0, 2] minimises ``sum log(1 + exp(-y (l + a t))) + strength a^2 / 2`` over the rows of
    each fold, with l and t fitted on the others. Trees that only learnt noise get a = 0: the additive ratio is left.

    Parameters
    ----------
    state_UK
        [U, K] distinct states.
    count_HU2
        [H, U, 2] rows of each state in source and target, by fold; two folds or more, each with rows of both pools.
    num_levels
        [K] known levels of each coordinate.
    strength
        L2 strength of the logistic fit and of the slope.
    seed
        Seed of the trees.

    Notes
    -----
    Ours. Folds part prompts: a fold of rows would let states that one prompt repeats pass for a shift.
    """
    encoded_UF = one_hot(state_UK, num_levels)
    count_U2 = count_HU2.sum(axis=0)
    left_out = [(*_log_odds_of(encoded_UF, count_U2 - part_U2, strength, seed), part_U2) for part_U2 in count_HU2]

    def loss(slope: float) -> float:
        total = strength * slope**2 / 2
        for start_U, added_U, part_U2 in left_out:
            odds_U = start_U + slope * added_U
            total += float(part_U2[:, 1] @ np.logaddexp(0, -odds_U) + part_U2[:, 0] @ np.logaddexp(0, odds_U))
        return total

    slope = float(minimize_scalar(loss, bounds=(0.0, _MAX_CORRECTION), method="bounded").x)
    return slope * _log_odds_of(encoded_UF, count_U2, strength, seed)[1]
