"""State scorer and score scales: what reward a judgment state promises, and how far off that promise is.

Computes ``s(z)``, the expected reward of a judgment state, by boosted trees on the one-hot state, and a scale sigma.
The scorer minimises ``sum over states of n_z (s(z) - mean reward of z)^2`` with L2 on the leaves, clipped to [0, 1];
sigma is ``sqrt(s (1 - s))`` or the mean absolute residual of the state, both with a floor.
Residual means are divided by the rows of the state plus pseudo-counts, which pull rare states to the overall mean.
Left out of the paper: nothing; it names a normalised score and not its scale, so both scales are ours.

Shapes: S source rows, N rows to score, K coordinates. Everything here is fitted on the source pool only, then frozen.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xgboost
from numpy.typing import ArrayLike, NDArray

from rangeline.errors import CalibrationError, ModelLoadError
from rangeline.records import UNKNOWN, FloatArray

State = tuple[int, ...]

_FORMAT = "rangeline-state-scorer-1"


def _require_levels(levels_NK: ArrayLike, num_levels: Sequence[int]) -> NDArray[np.int64]:
    raw = np.asarray(levels_NK)
    if raw.ndim != 2 or raw.shape[1] != len(num_levels) or raw.dtype.kind not in "iu":
        msg = (
            f"'levels_NK' must be whole numbers with {len(num_levels)} columns; got {raw.dtype} of shape {raw.shape}. "
            "Use the rubric that the judgments were made with."
        )
        raise CalibrationError(msg)
    levels = raw.astype(np.int64)
    bad = np.argwhere((levels < UNKNOWN) | (levels >= np.asarray(num_levels)))
    if bad.size:
        row, column = (int(v) for v in bad[0])
        msg = (
            f"'levels_NK' must lie in [-1, {num_levels[column] - 1}]; got {levels[row, column]} "
            f"(row {row}, column {column}). Use the rubric that the judgments were made with."
        )
        raise CalibrationError(msg)
    return levels


def one_hot_columns(levels_NK: ArrayLike, num_levels: Sequence[int]) -> NDArray[np.int64]:
    """Return [N, K], the one-hot column of each level: per coordinate UNKNOWN first, then levels 0 to L_k - 1.

    Levels out of range, or of another number of coordinates, raise CalibrationError.
    """
    levels = _require_levels(levels_NK, num_levels)
    start_K = np.concatenate(([0], np.cumsum([num + 1 for num in num_levels])[:-1])).astype(np.int64)
    return levels - UNKNOWN + start_K[: len(num_levels)]


def one_hot(levels_NK: ArrayLike, num_levels: Sequence[int]) -> NDArray[np.float32]:
    """Encode judgment states as 0/1 columns, UNKNOWN a column of its own.

    Parameters
    ----------
    levels_NK
        [N, K] whole numbers in [-1, L_k - 1].
    num_levels
        [K] known levels L_k of each coordinate, UNKNOWN not counted.

    Returns
    -------
    numpy.ndarray
        float32 [N, sum(L_k + 1)]; per coordinate UNKNOWN first, then levels 0 to L_k - 1.

    Raises
    ------
    CalibrationError
        A level is out of range, or the number of coordinates differs.

    Examples
    --------
    >>> one_hot([[1, -1]], [2, 1]).tolist()
    [[0.0, 0.0, 1.0, 1.0, 0.0]]
    """
    column_NK = one_hot_columns(levels_NK, num_levels)
    encoded = np.zeros((len(column_NK), sum(num + 1 for num in num_levels)), dtype=np.float32)
    encoded[np.arange(len(column_NK))[:, None], column_NK] = 1
    return encoded


def _require_unit(values_S: ArrayLike, name: str, length: int) -> FloatArray:
    values = np.asarray(values_S, dtype=np.float64)
    if values.shape != (length,) or length == 0:
        msg = f"'{name}' must have one value for each of 1 or more rows; got {values.shape} for {length} rows."
        raise CalibrationError(msg)
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if bad.size:
        i = int(bad[0])
        msg = f"'{name}' must lie in [0, 1]; got {values[i]} (row {i}). Correct or drop the source row."
        raise CalibrationError(msg)
    return values


@dataclass(frozen=True, slots=True, eq=False)
class StateScorer:
    """Frozen expected reward of a judgment state; make it with `fit` or `from_bytes`."""

    booster: xgboost.Booster = field(repr=False)
    num_levels: tuple[int, ...]

    @classmethod
    def fit(  # noqa: PLR0913
        cls,
        levels_SK: ArrayLike,
        reward_S: ArrayLike,
        num_levels: Sequence[int],
        *,
        trees: int = 60,
        depth: int = 3,
        learning_rate: float = 0.15,
        l2: float = 1.0,
        seed: int = 0,
    ) -> "StateScorer":
        """Fit boosted trees of squared loss on one-hot source states.

        Parameters
        ----------
        levels_SK
            [S, K] source states; at least one row.
        reward_S
            [S] known rewards in [0, 1], never missing. All equal is allowed.
        num_levels
            [K] known levels of each coordinate.
        trees, depth, learning_rate, l2
            Number and depth of trees, shrinkage, L2 penalty of leaf values. Depth 1 cannot see that one coordinate
            changes the meaning of another.
        seed
            Seed of the booster; nothing is subsampled, so that it changes no result today.

        Returns
        -------
        StateScorer
            The same, bit for bit, for the same rows in any order.

        Raises
        ------
        CalibrationError
            There is no row, a reward is missing or outside [0, 1], or a level is out of range.

        Notes
        -----
        Range-GRPO section 3.2 and RoWCI (45 trees of depth 1, rate .07 there; the defaults here are ours).
        """
        levels = _require_levels(levels_SK, num_levels)
        reward = _require_unit(reward_S, "reward_S", len(levels))
        order = np.argsort(reward, kind="stable")
        levels, reward = levels[order], reward[order]
        # Equal states share one row weighted by their count: the same loss, and independent of the order of rows.
        state_UK, row_of, count_U = np.unique(levels, axis=0, return_inverse=True, return_counts=True)
        mean_U = np.bincount(row_of.reshape(-1), weights=reward) / count_U
        data = xgboost.DMatrix(one_hot(state_UK, num_levels), label=mean_U, weight=count_U, nthread=1)
        params = {
            "objective": "reg:squarederror",
            "base_score": float(reward.mean()),
            "max_depth": depth,
            "learning_rate": learning_rate,
            "reg_lambda": l2,
            "seed": seed,
            "nthread": 1,
        }
        return cls(xgboost.train(params, data, num_boost_round=trees), tuple(int(num) for num in num_levels))

    def score(self, levels_NK: ArrayLike) -> FloatArray:
        """Return [N] float64 expected rewards in [0, 1]; levels out of range raise CalibrationError."""
        encoded = one_hot(levels_NK, self.num_levels)
        if not len(encoded):
            return np.zeros(0)
        raw = self.booster.predict(xgboost.DMatrix(encoded, nthread=1))
        return np.clip(raw.astype(np.float64), 0.0, 1.0)

    def to_bytes(self) -> bytes:
        """Return one JSON header line (format, levels, sha256) followed by XGBoost's UBJ model."""
        model = bytes(self.booster.save_raw("ubj"))
        header = {"format": _FORMAT, "num_levels": self.num_levels, "sha256": hashlib.sha256(model).hexdigest()}
        return json.dumps(header, sort_keys=True).encode() + b"\n" + model

    @classmethod
    def from_bytes(cls, data: bytes) -> "StateScorer":
        """Read what `to_bytes` wrote; damaged bytes raise ModelLoadError."""
        line, _, model = data.partition(b"\n")
        try:
            header = json.loads(line)
            num_levels = tuple(int(num) for num in header["num_levels"])
            whole = header["format"] == _FORMAT and header["sha256"] == hashlib.sha256(model).hexdigest()
        except (ValueError, KeyError, TypeError):
            whole = False
        # XGBoost ends the whole process on damaged bytes, so they must not reach it.
        if not whole:
            msg = f"'data' must be a whole state scorer; got {len(data)} bytes that are not. Make or fetch it again."
            raise ModelLoadError(msg)
        booster = xgboost.Booster(params={"nthread": 1})
        booster.load_model(bytearray(model))
        return cls(booster, num_levels)

    @property
    def digest(self) -> str:
        """Hex sha256 of `to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def bernoulli_scale(score_N: ArrayLike, sigma_min: float = 0.05) -> FloatArray:
    """Return ``max(sqrt(s (1 - s)), sigma_min)``, the scale of 0/1 rewards; scores outside [0, 1] are NaN."""
    score = np.asarray(score_N, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.maximum(np.sqrt(score * (1 - score)), sigma_min)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ResidualScale:
    """Frozen residual scale of each state; states never seen in the source have the overall scale."""

    num_levels: tuple[int, ...]
    by_state: dict[State, float]
    """Scale of each source state, floored."""
    overall: float
    """Mean absolute residual of all source rows, floored."""

    @classmethod
    def fit(
        cls,
        levels_SK: ArrayLike,
        score_S: ArrayLike,
        reward_S: ArrayLike,
        num_levels: Sequence[int],
        *,
        pseudo_count: float = 5.0,
        sigma_min: float = 0.05,
    ) -> "ResidualScale":
        """Fit ``max((sum |s - Y| + k * overall) / (n + k), sigma_min)`` per state, k pseudo-counts, on source rows.

        Rows without a reward or a score in [0, 1], and levels out of range, raise CalibrationError.
        """
        levels = _require_levels(levels_SK, num_levels)
        score = _require_unit(score_S, "score_S", len(levels))
        residual = np.abs(score - _require_unit(reward_S, "reward_S", len(levels)))
        order = np.argsort(residual, kind="stable")
        levels, residual = levels[order], residual[order]
        overall = float(residual.mean())
        state_UK, row_of, count_U = np.unique(levels, axis=0, return_inverse=True, return_counts=True)
        sum_U = np.bincount(row_of.reshape(-1), weights=residual)
        scale_U = np.maximum((sum_U + pseudo_count * overall) / (count_U + pseudo_count), sigma_min)
        by_state = dict(zip(map(tuple, state_UK.tolist()), scale_U.tolist(), strict=True))
        return cls(num_levels=tuple(num_levels), by_state=by_state, overall=max(overall, sigma_min))

    def scale(self, levels_NK: ArrayLike) -> FloatArray:
        """Return [N] positive scales; levels out of range raise CalibrationError."""
        states = map(tuple, _require_levels(levels_NK, self.num_levels).tolist())
        return np.array([self.by_state.get(state, self.overall) for state in states], dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """Return the scale as plain values for JSON."""
        cells = [[list(state), value] for state, value in self.by_state.items()]
        return {"num_levels": list(self.num_levels), "overall": self.overall, "by_state": cells}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "ResidualScale":
        """Read what `to_json` gave; every scale is reproduced exactly."""
        by_state = {tuple(state): float(value) for state, value in content["by_state"]}
        return cls(num_levels=tuple(content["num_levels"]), by_state=by_state, overall=float(content["overall"]))
