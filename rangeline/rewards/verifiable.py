"""Turn a verifier's rewards into intervals of zero width.

It computes one interval a rollout from the verdict of a suite against the reference.
lower = upper = reward.
Nothing is divided.
It leaves out any default for rollouts that were not verified: they are missing, never 0.

Shapes: N rollouts flat.
"""

from collections.abc import Sequence

import numpy as np

from rangeline.errors import BadInputError
from rangeline.records import RewardIntervals


def verifier_intervals(prompt_id_N: Sequence[str], reward_N: Sequence[float | None]) -> RewardIntervals:
    """Make zero-width intervals of verified rewards.

    Parameters
    ----------
    prompt_id_N
        Prompt of each rollout.
    reward_N
        Rewards in [0, 1]; None where the verifier gave no verdict or the prompt has no reference.

    Returns
    -------
    RewardIntervals
        Source `verifier`, support [0, 1], missing where the reward is None.

    Raises
    ------
    BadInputError
        When lengths differ, or a reward is not finite or outside [0, 1].

    Examples
    --------
    >>> intervals = verifier_intervals(("p", "p"), (1.0, None))
    >>> intervals.missing_N.tolist(), float(intervals.half_width_N[0])
    ([False, True], 0.0)
    """
    if len(prompt_id_N) != len(reward_N):
        msg = f"'reward_N' must have one value a rollout; got {len(reward_N)} for {len(prompt_id_N)}."
        raise BadInputError(msg)
    value_N = np.array([np.nan if reward is None else reward for reward in reward_N], dtype=np.float64)
    return RewardIntervals(
        prompt_id_N=tuple(prompt_id_N),
        lower_N=value_N,
        upper_N=value_N,
        unbounded_N=np.zeros(len(value_N), dtype=bool),
        missing_N=np.array([reward is None for reward in reward_N], dtype=bool),
        support=(0.0, 1.0),
        source="verifier",
    )
