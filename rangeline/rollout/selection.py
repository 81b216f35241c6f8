"""Rows of rollout sets: some of one, or all of several."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from rangeline.errors import BadInputError
from rangeline.records import RolloutSet

_ROWS = tuple(item.name for item in fields(RolloutSet) if item.name.endswith("_N"))


def take_rollouts(rollouts: RolloutSet, rows: Sequence[int]) -> RolloutSet:
    """Return some rows of a rollout set, in the order asked for."""
    if list(rows) == list(range(len(rollouts))):
        return rollouts
    taken: dict[str, Any] = {name: tuple(getattr(rollouts, name)[i] for i in rows) for name in _ROWS}
    return replace(rollouts, **taken)


def join_rollouts(parts: Sequence[RolloutSet]) -> RolloutSet:
    """Return the rows of several rollout sets of one policy version, part after part.

    Raises
    ------
    BadInputError
        When there is no part, or two parts come from different policy versions.
    """
    versions = {part.policy_version for part in parts}
    if len(versions) != 1:
        msg = f"'parts' must come from one policy version; got {sorted(versions)}. Join rollouts of one iteration."
        raise BadInputError(msg)
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {name: tuple(value for part in parts for value in getattr(part, name)) for name in _ROWS}
    return RolloutSet(**joined, policy_version=versions.pop())
