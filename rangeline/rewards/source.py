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
from rangeline.records import BoolArray, FloatArray, RewardIntervals


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


def point_intervals(
    prompt_ids: Sequence[str],
    reward_N: FloatArray,
    *,
    support: tuple[float, float] | None,
    source: str,
    missing_N: BoolArray | None = None,
) -> RewardIntervals:
    """Make intervals of zero width from scalar rewards.

    Parameters
    ----------
    prompt_ids
        Prompt of each rollout.
    reward_N
        Rewards; one that is not finite is missing.
    support
        Range of possible rewards; None for scores without bounds.
    source
        Name of the reward source.
    missing_N
        True where there is no reward, whatever stands in `reward_N`; None means nowhere.

    Returns
    -------
    RewardIntervals
        lower = upper = reward.

    Examples
    --------
    >>> point_intervals(("p", "p"), np.array([1.0, np.nan]), support=None, source="s").missing_N.tolist()
    [False, True]
    """
    missing = ~np.isfinite(reward_N) if missing_N is None else missing_N | ~np.isfinite(reward_N)
    return RewardIntervals(
        prompt_id_N=tuple(prompt_ids),
        lower_N=np.where(missing, np.nan, reward_N),
        upper_N=np.where(missing, np.nan, reward_N),
        unbounded_N=np.zeros(len(prompt_ids), dtype=bool),
        missing_N=missing,
        support=support,
        source=source,
    )


def take_intervals(intervals: RewardIntervals, rows: Sequence[int]) -> RewardIntervals:
    """Return some rows of an interval record, in the order asked for."""
    index = np.asarray(rows, dtype=np.int64)
    return RewardIntervals(
        prompt_id_N=tuple(intervals.prompt_id_N[i] for i in rows),
        lower_N=intervals.lower_N[index],
        upper_N=intervals.upper_N[index],
        unbounded_N=intervals.unbounded_N[index],
        missing_N=intervals.missing_N[index],
        support=intervals.support,
        source=intervals.source,
    )


def assemble_intervals(
    prompt_ids: Sequence[str], parts: Sequence[tuple[Sequence[int], RewardIntervals]]
) -> RewardIntervals:
    """Put the intervals of several sources, each of some rows, into one record; rows of no source are missing.

    Parameters
    ----------
    prompt_ids
        Prompt of each of N rollouts.
    parts
        Row numbers and the intervals of just these rows, a pair a source.

    Returns
    -------
    RewardIntervals
        Its source joins the names with `+`; its support is that of the parts where they share one, else None.

    Raises
    ------
    BadInputError
        When a part does not follow the prompt ids of its rows.
    """
    num = len(prompt_ids)
    lower_N, upper_N = np.full(num, np.nan), np.full(num, np.nan)
    unbounded_N, missing_N = np.zeros(num, dtype=bool), np.ones(num, dtype=bool)
    for rows, part in parts:
        wanted = tuple(prompt_ids[i] for i in rows)
        if wanted != part.prompt_id_N:
            msg = f"'{part.source}' must follow the prompt ids of its {len(rows)} rows; it does not. Score those rows."
            raise BadInputError(msg)
        index = np.asarray(rows, dtype=np.int64)
        lower_N[index], upper_N[index] = part.lower_N, part.upper_N
        unbounded_N[index], missing_N[index] = part.unbounded_N, part.missing_N
    supports = {part.support for _, part in parts}
    return RewardIntervals(
        prompt_id_N=tuple(prompt_ids),
        lower_N=lower_N,
        upper_N=upper_N,
        unbounded_N=unbounded_N,
        missing_N=missing_N,
        support=supports.pop() if len(supports) == 1 else None,
        source="+".join(dict.fromkeys(part.source for _, part in parts)),
    )
