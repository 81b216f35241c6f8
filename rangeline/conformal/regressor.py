"""Weighted conformal regressor: scorer, density ratio and cutoffs as one estimator in scikit-learn's habit.

Computes reward intervals of judgment states without the pipeline: `fit` on source rows, `calibrate` on other labelled
rows, `predict_interval` for new ones.
The interval is ``[s(z) - tau(z) sigma(z), s(z) + tau(z) sigma(z)]`` inside [0, 1], tau the weighted cutoff.
Scores are divided by sigma, which never sees a calibration row; weights are target over source density of a state.
Left out of the paper: nothing; the Mondrian option is ours.

Shapes: S source rows, C calibration rows, D target rows, N rows to bound, K coordinates.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from rangeline.conformal.density_ratio import Method, fit_density_ratio
from rangeline.conformal.intervals import CalibrationSet, reward_intervals, weighted_cutoffs_by_group
from rangeline.conformal.overlap import overlap_report
from rangeline.conformal.scorer import ResidualScale, StateScorer, bernoulli_scale
from rangeline.errors import CalibrationError
from rangeline.records import FloatArray, RewardIntervals

Labels = Sequence[Hashable]
Sigma = Literal["residual", "bernoulli", "plain"]

_MOST_LEVELS = 127
"""Levels are kept as int8."""


def _whole_levels(X: ArrayLike) -> NDArray[Any]:
    levels = np.asarray(X)
    if levels.dtype.kind == "f" and (levels == np.round(levels)).all() and np.isfinite(levels).all():
        levels = levels.astype(np.int64)  # tables often keep whole numbers as floats
    if levels.ndim != 2 or levels.shape[1] == 0 or levels.dtype.kind not in "iu":
        msg = (
            f"'X' must be whole numbers with two axes; got {levels.dtype} of shape {levels.shape}. Give level numbers."
        )
        raise CalibrationError(msg)
    return levels


class WeightedConformalRegressor(BaseEstimator):
    """Intervals of rewards in [0, 1] that stay valid while the distribution of judgment states moves.

    Parameters
    ----------
    alpha
        Miscoverage level in (0, 1).
    sigma
        Scale of the scores: ``residual`` (mean absolute residual of the source rows of a state), ``bernoulli``
        (``sqrt(s (1 - s))``) or ``plain`` (1).
    sigma_min
        Floor of the first two scales.
    ratio, regularisation, log_cap
        Method, penalty and cap of the density ratio; log-ratios are clipped to [-log_cap, log_cap].
    group_by
        Mondrian option. None: one cutoff for all. A number: the coordinate, column of X, whose levels each have their
        own cutoffs. ``"labels"``: the labels given as `groups` do.
    num_levels
        [K] known levels of each coordinate. None: one more than the largest level of the source rows, so that a larger
        one later is refused; give it where the target may show levels that the source does not.

    Attributes
    ----------
    scorer_, residual_, num_levels_, source_SK_
        What `fit` learned; the scale is None but for ``residual``. Targets are weighed against the source states.
    calibration_, ratio_, overlap_
        What `calibrate` learned; ratio and overlap report are None where no target was given.
    unbounded_ : numpy.ndarray
        [N] bool of the last `predict_interval`, True where the interval is [0, 1] because the cutoff is infinite.

    Notes
    -----
    Range-GRPO section 3.2, after Tibshirani et al. (2019). The promise is ``P(Y in interval) >= 1 - alpha`` over target
    rows when P(Y | z) is that of the calibration rows and the ratio is right; a ratio from data makes it approximate.

    Examples
    --------
    >>> X, y = [[0], [0], [1], [1]] * 5, [0.0, 0.1, 0.8, 1.0] * 5
    >>> model = WeightedConformalRegressor(alpha=0.2, sigma="plain").fit(X, y).calibrate(X, y, target=[[1]] * 15)
    >>> lower, upper = model.predict_interval([[0], [1]])
    >>> bool(lower[0] <= 0.05 <= upper[0] < lower[1] <= 0.9 <= upper[1])
    True
    >>> model.unbounded_.tolist()
    [False, False]
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        alpha: float = 0.1,
        sigma: Sigma = "residual",
        sigma_min: float = 0.05,
        ratio: Method = "logistic",
        regularisation: float = 1.0,
        log_cap: float = 4.0,
        group_by: int | Literal["labels"] | None = None,
        num_levels: Sequence[int] | None = None,
    ) -> None:
        self.alpha = alpha
        self.sigma = sigma
        self.sigma_min = sigma_min
        self.ratio = ratio
        self.regularisation = regularisation
        self.log_cap = log_cap
        self.group_by = group_by
        self.num_levels = num_levels

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit scorer and scale on source rows; an earlier calibration is dropped.

        Parameters
        ----------
        X
            [S, K] levels, UNKNOWN is -1; at least one row.
        y
            [S] rewards in [0, 1], none missing.

        Returns
        -------
        WeightedConformalRegressor
            This estimator.

        Raises
        ------
        CalibrationError
            A setting, a level or a reward is out of range, or there is no row.
        """
        levels = _whole_levels(X)
        self._require_settings(levels.shape[1])
        top_K = levels.max(axis=0, initial=0) + 1
        num_levels = tuple(int(num) for num in (top_K if self.num_levels is None else self.num_levels))
        if not all(1 <= num <= _MOST_LEVELS for num in num_levels):
            msg = f"'num_levels' must lie in [1, {_MOST_LEVELS}]; got {num_levels}. Merge levels of that coordinate."
            raise CalibrationError(msg)
        scorer = StateScorer.fit(levels, y, num_levels)
        residual = None
        if self.sigma == "residual":
            residual = ResidualScale.fit(levels, scorer.score(levels), y, num_levels, sigma_min=self.sigma_min)
        for name in ("calibration_", "ratio_", "overlap_", "group_C_", "unbounded_"):
            self.__dict__.pop(name, None)
        self.num_levels_, self.scorer_, self.residual_, self.source_SK_ = num_levels, scorer, residual, levels.copy()
        self.n_features_in_ = len(num_levels)
        return self

    def calibrate(
        self, X: ArrayLike, y: ArrayLike, *, target: ArrayLike | None = None, groups: Labels | None = None
    ) -> Self:
        """Score calibration rows, and fit the density ratio where target states are given.

        Parameters
        ----------
        X, y
            [C, K] levels and [C] rewards in [0, 1] of rows that `fit` did not see. No row: every interval is unbounded.
        target
            [D, K] states of the distribution to bound, without rewards; each row counts as a prompt of its own.
            None: all rows weigh alike.
        groups
            [C] labels, with ``group_by="labels"`` only.

        Returns
        -------
        WeightedConformalRegressor
            This estimator; call again with other target states to refit the ratio.

        Raises
        ------
        CalibrationError
            Not fitted; a level or reward is out of range, target is empty, or groups do not fit `group_by`.
        """
        self._require("scorer_", "calibrate", "Call 'fit' first.")
        levels = _whole_levels(X)
        score = self.scorer_.score(levels)
        calibration = CalibrationSet.build(
            tuple(map(str, range(len(levels)))), levels, score_C=score, scale_C=self._scale(levels, score), truth_C=y
        )
        labels = self._labels(levels, groups)
        ratio = overlap = None
        if target is not None:
            ratio = fit_density_ratio(
                self.source_SK_,
                target,
                self.num_levels_,
                method=self.ratio,
                regularisation=self.regularisation,
                log_cap=(-self.log_cap, self.log_cap),
            )
            overlap = overlap_report(ratio, self.source_SK_, target, levels) if len(levels) else None
        self.calibration_, self.group_C_, self.ratio_, self.overlap_ = calibration, labels, ratio, overlap
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Return [N] expected rewards in [0, 1]; CalibrationError before `fit` or for levels out of range."""
        self._require("scorer_", "predict", "Call 'fit' first.")
        return self.scorer_.score(_whole_levels(X))

    def predict_interval(self, X: ArrayLike, *, groups: Labels | None = None) -> tuple[FloatArray, FloatArray]:
        """Return [N] lower and [N] upper ends, and keep `unbounded_`; see `predict_record`."""
        record = self.predict_record(X, groups=groups)
        self.unbounded_ = record.unbounded_N
        return record.lower_N, record.upper_N

    def predict_record(self, X: ArrayLike, *, groups: Labels | None = None) -> RewardIntervals:
        """Bound the rewards of new rows.

        Parameters
        ----------
        X
            [N, K] levels.
        groups
            [N] labels, with ``group_by="labels"`` only. A group without calibration rows is unbounded.

        Returns
        -------
        RewardIntervals
            Prompt ids are row numbers; none is missing.

        Raises
        ------
        CalibrationError
            Not fitted or calibrated, a level is out of range, or groups do not fit `group_by`.
        """
        self._require("scorer_", "predict_interval", "Call 'fit' and 'calibrate' first.")
        self._require("calibration_", "predict_interval", "Call 'calibrate' first.")
        levels = _whole_levels(X)
        score = self.scorer_.score(levels)
        log_C, log_N = np.zeros(len(self.calibration_)), np.zeros(len(levels))
        if self.ratio_ is not None:
            log_C, log_N = self.ratio_.log_ratio(self.calibration_.levels_CK), self.ratio_.log_ratio(levels)
        cutoff = weighted_cutoffs_by_group(
            self.calibration_.nonconformity_C,
            log_C,
            log_N,
            self.alpha,
            group_C=self.group_C_,
            group_N=self._labels(levels, groups),
        )
        ids, missing = tuple(map(str, range(len(levels)))), np.zeros(len(levels), dtype=bool)
        return reward_intervals(score, self._scale(levels, score), cutoff, prompt_id_N=ids, missing_N=missing)

    def _scale(self, levels: NDArray[Any], score: FloatArray) -> FloatArray:
        if self.residual_ is not None:
            return self.residual_.scale(levels)
        return bernoulli_scale(score, self.sigma_min) if self.sigma == "bernoulli" else np.ones(len(score))

    def _labels(self, levels: NDArray[Any], groups: Labels | None) -> tuple[Hashable, ...]:
        if (groups is not None) != (self.group_by == "labels"):
            given = "none" if groups is None else f"{len(groups)} labels"
            msg = (
                f"'groups' must be given with group_by='labels' and only then; got {given} (group_by={self.group_by})."
            )
            raise CalibrationError(msg)
        if groups is None:
            return (
                tuple(levels[:, self.group_by].tolist()) if isinstance(self.group_by, int) else ("all",) * len(levels)
            )
        if len(groups) != len(levels):
            msg = (
                f"'groups' must have one label for each of {len(levels)} rows; got {len(groups)}. Give one label a row."
            )
            raise CalibrationError(msg)
        return tuple(groups)

    def _require(self, name: str, method: str, step: str) -> None:
        if not hasattr(self, name):
            msg = f"'{method}' must come after what it uses; got no '{name}' in WeightedConformalRegressor. {step}"
            raise CalibrationError(msg)

    def _require_settings(self, num_columns: int) -> None:
        column = self.group_by if isinstance(self.group_by, int) else 0
        known = isinstance(self.group_by, int) or self.group_by in (None, "labels")
        for name, value, rule, ok in (
            ("alpha", self.alpha, "lie in (0, 1)", 0 < self.alpha < 1),
            ("sigma", self.sigma, f"be one of {', '.join(get_args(Sigma))}", self.sigma in get_args(Sigma)),
            ("sigma_min", self.sigma_min, "be positive and finite", 0 < self.sigma_min < np.inf),
            ("ratio", self.ratio, f"be one of {', '.join(get_args(Method))}", self.ratio in get_args(Method)),
            ("group_by", self.group_by, "be None, a column of X or 'labels'", known and 0 <= column < num_columns),
        ):
            if not ok:
                msg = f"'{name}' must {rule}; got {value}. Correct that parameter."
                raise CalibrationError(msg)
