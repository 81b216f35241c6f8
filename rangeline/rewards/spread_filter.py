"""RLPR's spread filter: prompts whose rollouts all earn alike leave the batch.

It computes, for each iteration, the least standard deviation that a group needs, and which groups have it.
Kept iff std >= beta * ema; ema starts as the mean of the recorded mean stds, then ema = decay ema + (1 - decay) s,
s the mean group std of the iteration before, over all groups drawn there, before filtering.
The std divides by m - 1, m the group's rewards; the mean std by the number of groups that have a std.
Nothing is left out of the method's public code; that a group of fewer than two rewards is not kept is ours.

Shapes: N rollouts flat, P groups by prompt id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rangeline.records import BoolArray, RewardIntervals


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterState:
    """What the filter remembers from iteration to iteration."""

    recorded: tuple[float, ...] = ()
    """Mean group std of the iterations before the first that filters."""
    ema: float | None = None
    """None until the first iteration that filters."""
    previous: float | None = None
    """Mean group std of the iteration before; None where no group of it had one."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"recorded": list(self.recorded), "ema": self.ema, "previous": self.previous}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read them again; an empty mapping is the state before the first iteration."""
        return cls(recorded=tuple(values.get("recorded", ())), ema=values.get("ema"), previous=values.get("previous"))


def group_spreads(intervals: RewardIntervals) -> dict[str, float | None]:
    """Return the standard deviation of each prompt's rewards; None with fewer than two."""
    rewards: dict[str, list[float]] = {prompt_id: [] for prompt_id in intervals.prompt_id_N}
    for prompt_id, value, missing in zip(intervals.prompt_id_N, intervals.center_N, intervals.missing_N, strict=True):
        if not missing:
            rewards[prompt_id].append(float(value))
    return {
        prompt_id: float(np.std(values, ddof=1)) if len(values) > 1 else None for prompt_id, values in rewards.items()
    }


def advance(state: FilterState, number: int, *, filter_from: int, decay: float) -> FilterState:
    """Move the EMA on at the start of an iteration; before `filter_from` nothing changes."""
    if number < filter_from:
        return state
    if state.ema is None:
        ema = float(np.mean(state.recorded)) if state.recorded else state.previous
    elif state.previous is None:
        ema = state.ema
    else:
        ema = decay * state.ema + (1.0 - decay) * state.previous
    return FilterState(recorded=state.recorded, ema=ema, previous=state.previous)


def observe(
    state: FilterState, number: int, spreads: Sequence[float | None], *, record_from: int, filter_from: int
) -> FilterState:
    """Take in the group stds of all groups that an iteration drew, kept or not.

    Parameters
    ----------
    state
        After `advance`.
    number
        Of the iteration, from 1.
    spreads
        A std a group; None and what is not finite is left out.
    record_from, filter_from
        First iteration that is recorded, and first that filters.
    """
    known = [value for value in spreads if value is not None and np.isfinite(value)]
    if number < record_from or not known:
        # What an earlier iteration measured has moved the EMA once, and must not do so again.
        return FilterState(recorded=state.recorded, ema=state.ema, previous=None)
    mean = float(np.mean(known))
    recorded = (*state.recorded, mean) if number < filter_from else state.recorded
    return FilterState(recorded=recorded, ema=state.ema, previous=mean)


def kept_rows(intervals: RewardIntervals, threshold: float | None) -> BoolArray:
    """Return which rollouts belong to a group that is wide enough; all of them without a threshold."""
    if threshold is None:
        return np.ones(len(intervals), dtype=bool)
    spread_of = group_spreads(intervals)
    return np.array(
        [(spread := spread_of[prompt_id]) is not None and spread >= threshold for prompt_id in intervals.prompt_id_N],
        dtype=bool,
    )
