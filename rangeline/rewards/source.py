"""Put reward intervals of several sources together, row for row; what is missing stays missing.

It computes one interval a rollout from a primary source and one that overrides it where it has a reward.
There is no formula: a row is taken whole from one source or from the other.
Nothing is divided and nothing is averaged.
It leaves out weighting of sources, because a mean of an interval and a point covers nothing.

Shapes: N rollouts flat.
"""

from collections.abc import Sequence

import numpy as np

from rangeline.errors import BadInputError
from rangeline.records import BoolArray, RewardIntervals


def merge(
    primary: RewardIntervals, override: RewardIntervals, *, override_N: BoolArray | None = None
) -> RewardIntervals:
    """Take each row from the override where it has a reward, or where told to, else from the primary source.

    Parameters
    ----------
    primary
        N intervals.
    override
        N intervals of the same rollouts, in the same order.
    override_N
        Rows that belong to the override whole, missing ones too; None means the rows where it has a reward.

    Returns
    -------
    RewardIntervals
        Missing where the chosen source is; its source is named `primary+override`.

    Raises
    ------
    BadInputError
        When prompt ids differ row by row, or supports differ.

    Examples
    --------
    >>> judged = missing_intervals(("p", "q"), (0.0, 1.0), "judge_interval")
    >>> merge(judged, missing_intervals(("p", "q"), (0.0, 1.0), "verifier")).source
    'judge_interval+verifier'
    """
    if len(primary) != len(override):
        msg = (
            f"'override' must have {len(primary)} rows; got {len(override)} ('{primary.source}', '{override.source}'). "
            "Compute both from the same rollouts."
        )
        raise BadInputError(msg)
    for i, (mine, theirs) in enumerate(zip(primary.prompt_id_N, override.prompt_id_N, strict=True)):
        if mine != theirs:
            msg = f"'override' must follow the prompt ids of the primary source; got '{theirs}' for '{mine}' (row {i})."
            raise BadInputError(msg)
    if primary.support != override.support:
        msg = (
            f"'override' must have support {primary.support}; got {override.support} ('{override.source}'). "
            "Merge only rewards on one scale."
        )
        raise BadInputError(msg)
    wins_N = ~override.missing_N if override_N is None else override_N
    return RewardIntervals(
        prompt_id_N=primary.prompt_id_N,
        lower_N=np.where(wins_N, override.lower_N, primary.lower_N),
        upper_N=np.where(wins_N, override.upper_N, primary.upper_N),
        unbounded_N=np.where(wins_N, override.unbounded_N, primary.unbounded_N),
        missing_N=np.where(wins_N, override.missing_N, primary.missing_N),
        support=primary.support,
        source=f"{primary.source}+{override.source}",
    )


def missing_intervals(prompt_ids: Sequence[str], support: tuple[float, float] | None, source: str) -> RewardIntervals:
    """Make intervals of rollouts that no source could score.

    Parameters
    ----------
    prompt_ids
        Prompt of each rollout.
    support
        Range of the rewards that are missing; None for scores without bounds.
    source
        Name of the reward source that gave nothing.

    Returns
    -------
    RewardIntervals
        Every row missing, bounds NaN.
    """
    num = len(prompt_ids)
    return RewardIntervals(
        prompt_id_N=tuple(prompt_ids),
        lower_N=np.full(num, np.nan),
        upper_N=np.full(num, np.nan),
        unbounded_N=np.zeros(num, dtype=bool),
        missing_N=np.ones(num, dtype=bool),
        support=support,
        source=source,
    )
