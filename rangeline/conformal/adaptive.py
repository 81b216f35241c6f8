"""Coverage kept while the policy improves: audited rollouts move the level and refresh the calibration rows.

Computes the miscoverage level of the next iteration, and one weight function for frozen and recent calibration rows.
The level follows ``level + rate (target - mean miss)``; a row of state z weighs ``1 / (f / w(z) + 1 - f)``, where w is
the density ratio of the policy to the frozen rows and f the discounted share of frozen rows among all rows.
Misses are divided by the valid rollouts of their prompt, then by prompts; shares are of rows.
Left out of the papers: nothing of Gibbs and Candes but their clipping; the use of both repairs together, and the
discount of rows that an older policy wrote, are ours. Range-GRPO itself has no repair.

Shapes: N rollouts, C calibration rows, K coordinates, P prompts.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rangeline.conformal.checks import require_alpha, require_rows, vector
from rangeline.conformal.density_ratio import DensityRatio
from rangeline.conformal.intervals import CalibrationSet
from rangeline.errors import CalibrationError
from rangeline.records import FloatArray

_EDGE = 1e-9
"""Cutoffs ask for a level inside (0, 1); at this one every interval is unbounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveLevel:
    """Miscoverage level of the next intervals; a snapshot, and part of a run's state."""

    target: float
    """The promised miss rate, in (0, 1)."""
    level: float
    """Where the walk stands: at most 1, and below 0 by less than one step."""
    num_updates: int = 0

    @property
    def alpha(self) -> float:
        """Level to make intervals at, inside (0, 1); below 0 the walk asks for unbounded intervals."""
        return min(max(self.level, _EDGE), 1 - _EDGE)

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "AdaptiveLevel":
        """Read what `to_json` gave; the level is reproduced exactly."""
        return cls(
            target=float(content["target"]), level=float(content["level"]), num_updates=int(content["num_updates"])
        )


def start_level(target: float) -> AdaptiveLevel:
    """Return the walk at its start, the promised miss rate; a target outside (0, 1) raises CalibrationError."""
    require_alpha(target)
    return AdaptiveLevel(target=float(target), level=float(target))


def update_level(state: AdaptiveLevel, missed_P: ArrayLike, *, rate: float) -> AdaptiveLevel:
    """Move the level by ``rate (target - mean of missed_P)``.

    Parameters
    ----------
    state
        The walk so far, at whose `alpha` the missed intervals were made.
    missed_P
        [P] miss rates of prompts, in [0, 1], as `misses.missed_by_prompt` gives them. Empty: nothing was learnt, and
        the state is returned as it is.
    rate
        Step size in [0, 1]; 0 keeps the level.

    Returns
    -------
    AdaptiveLevel
        With the level of the next intervals.

    Raises
    ------
    CalibrationError
        A miss rate or the rate is out of range.

    Notes
    -----
    Gibbs and Candes (2021), eq. (2), with the mean over prompts as the error. Whatever the misses are, as long as an
    unbounded interval misses nothing, their mean over T updates is at most ``target + (target + rate) / (rate T)``.
    Ours: the walk stops at 1, above which no interval can get narrower. That keeps the bound from above and gives up
    the one from below, which nobody needs.

    Examples
    --------
    >>> round(update_level(start_level(0.1), [0.5, 0.0], rate=0.1).alpha, 6)
    0.085
    """
    missed = vector(missed_P, "missed_P")
    require_rows((missed >= 0) & (missed <= 1), "missed_P", "lie in [0, 1]", missed)
    if not 0 <= rate <= 1:
        msg = f"'rate' must lie in [0, 1]; got {rate}. Correct the interval settings."
        raise CalibrationError(msg)
    if not len(missed):
        return state
    # Sorted, so that the order of prompts cannot change a bit of the run's state.
    moved = state.level + rate * (state.target - float(np.sort(missed).mean()))
    return replace(state, level=min(moved, 1.0), num_updates=state.num_updates + 1)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BlendedRatio:
    """Weight of a state under frozen and recent rows together; stands where a density ratio does."""

    ratio: DensityRatio | None
    """Policy over frozen rows; None where the frozen rows are the policy's own."""
    frozen_share: float
    """f, in (0, 1]: discounted share of frozen rows. 1: there are no recent rows."""

    def log_ratio(self, levels_NK: ArrayLike) -> FloatArray:
        """Return [N] ``-log(f / w(z) + 1 - f)``, at most ``-log(1 - f)``; bad levels raise CalibrationError."""
        levels = np.asarray(levels_NK)
        log_N = np.zeros(len(levels)) if self.ratio is None else self.ratio.log_ratio(levels)
        if self.frozen_share == 1:
            return log_N
        return -np.logaddexp(math.log(self.frozen_share) - log_N, math.log1p(-self.frozen_share))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BlendedCalibration:
    """Frozen and recent calibration rows as one set, with what their weights need."""

    rows: CalibrationSet
    log_discount_C: FloatArray
    """Added to the log weight of each calibration row: log of the discount for frozen rows, 0 for recent ones."""
    ratio: BlendedRatio
    num_recent: int
    """Rows that are recent, the last of `rows`."""


def blend(
    frozen: CalibrationSet, recent: Sequence[CalibrationSet], *, ratio: DensityRatio | None, discount: float
) -> BlendedCalibration:
    """Join frozen calibration rows with audited rows of recent policies.

    All rows are taken as draws of one mixture, ``f p_frozen + (1 - f) p_policy``, and weighed by the policy's density
    over it (the balance heuristic), so no weight exceeds ``1 / (1 - f)``. A frozen row counts as `discount` rows.

    Parameters
    ----------
    frozen
        The rows that calibration made, before training.
    recent
        Audited rows of the last iterations, scored by the same scorer and scale; none is allowed.
    ratio
        Density ratio of the current policy to the frozen rows; None weighs them alike.
    discount
        In (0, 1]. 1 trusts a frozen row, once reweighed, like a recent one; a smaller value follows a truth that drifts
        given the state, which no ratio can see, at the price of fewer effective rows.

    Returns
    -------
    BlendedCalibration
        Without recent rows, `frozen` with its own ratio and no discount: plain weighted calibration, to the last bit.

    Raises
    ------
    CalibrationError
        The discount is out of range, or the sets differ in coordinates.

    Notes
    -----
    Ours; the weights are those of multiple importance sampling (Veach and Guibas, 1995). Recent rows are treated as
    draws of the current policy, though they come from policies a few updates older.
    """
    if not 0 < discount <= 1:
        msg = f"'discount' must lie in (0, 1]; got {discount}. Correct the interval settings."
        raise CalibrationError(msg)
    num_recent = sum(len(part) for part in recent)
    if not num_recent:
        plain = BlendedRatio(ratio=ratio, frozen_share=1.0)
        return BlendedCalibration(rows=frozen, log_discount_C=np.zeros(len(frozen)), ratio=plain, num_recent=0)
    counted, own = discount * len(frozen), BlendedRatio(ratio=None, frozen_share=1.0)
    log_discount = np.concatenate([np.full(len(frozen), math.log(discount)), np.zeros(num_recent)])
    return BlendedCalibration(
        rows=join_calibration([frozen, *recent]),
        log_discount_C=log_discount,
        ratio=BlendedRatio(ratio=ratio, frozen_share=counted / (counted + num_recent)) if counted else own,
        num_recent=num_recent,
    )


def leave_out(blended: BlendedCalibration, prompt_id: str) -> BlendedCalibration:
    """Return the calibration without the rows of one prompt, for the intervals of that prompt; weights stay."""
    keep = np.array([other != prompt_id for other in blended.rows.prompt_id_C], dtype=bool)
    first_recent = len(keep) - blended.num_recent
    return replace(
        blended,
        rows=without_prompts(blended.rows, (prompt_id,)),
        log_discount_C=blended.log_discount_C[keep],
        num_recent=int(np.count_nonzero(keep[first_recent:])),
    )


def join_calibration(parts: Sequence[CalibrationSet]) -> CalibrationSet:
    """Return the rows of several sets as one, in their order; none, or sets of other coordinates: CalibrationError."""
    widths = {part.levels_CK.shape[1] for part in parts}
    if len(widths) != 1:
        msg = f"'parts' must be sets of one number of coordinates; got {sorted(widths)}. Use one rubric."
        raise CalibrationError(msg)
    return CalibrationSet(
        prompt_id_C=tuple(prompt_id for part in parts for prompt_id in part.prompt_id_C),
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("levels_CK", "score_C", "scale_C", "truth_C", "nonconformity_C")
        },
    )


def without_prompts(rows: CalibrationSet, prompt_ids: Collection[str]) -> CalibrationSet:
    """Return the rows of all other prompts: a prompt must not help to bound itself."""
    left_out = set(prompt_ids)
    keep = np.array([prompt_id not in left_out for prompt_id in rows.prompt_id_C], dtype=bool)
    return CalibrationSet(
        prompt_id_C=tuple(prompt_id for prompt_id in rows.prompt_id_C if prompt_id not in left_out),
        **{
            name: getattr(rows, name)[keep]
            for name in ("levels_CK", "score_C", "scale_C", "truth_C", "nonconformity_C")
        },
    )
