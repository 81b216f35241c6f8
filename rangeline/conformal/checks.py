"""Checks that the statistics share: one value a row, a rule for each, and a message that names the row."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rangeline.errors import CalibrationError
from rangeline.records import BoolArray, FloatArray


def require_rows(ok_N: BoolArray, name: str, rule: str, values_N: NDArray[np.generic]) -> None:
    """Raise CalibrationError with the first row that is not ok, its value and the rule."""
    bad = np.flatnonzero(~ok_N)
    if bad.size:
        i = int(bad[0])
        msg = f"'{name}' must {rule}; got {values_N[i]} (row {i}). Correct or drop the row."
        raise CalibrationError(msg)


def require_alpha(alpha: float) -> None:
    """Raise CalibrationError unless alpha lies in (0, 1)."""
    if not 0 < alpha < 1:
        msg = f"'alpha' must lie in (0, 1); got {alpha}. Correct the conformal settings."
        raise CalibrationError(msg)


def vector(values: ArrayLike, name: str, length: int | None = None) -> FloatArray:
    """Return the values as float64 with one axis; CalibrationError for another shape or length."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "one axis" if length is None else f"shape ({length},)"
        msg = f"'{name}' must have {wanted}; got shape {array.shape}. Give one value a row."
        raise CalibrationError(msg)
    return array
