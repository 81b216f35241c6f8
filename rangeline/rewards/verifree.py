"""VeriFree: reward a rollout by the likelihood of the reference after its reasoning, and learn the reference with it.

It computes R of each rollout, and the texts whose log-likelihood joins the objective.
R = prod_t pi(y*_t | x, z, y*_<t); the gradient is E[A grad log pi(z | x) + R grad log pi(y* | x, z)], A by RLOO on R.
R is divided by nothing; both terms share the normaliser of the policy batch.
Left out of the paper: its limit to answers of fewer than seven tokens, which was a choice of data; ours is that a
rollout without reasoning or answer has R = 0 and keeps its whole completion in the gradient.

Shapes: N rollouts flat, T tokens of a reference.
"""

from collections.abc import Sequence

import numpy as np

from rangeline.records import BoolArray, FloatArray, RewardIntervals
from rangeline.rewards.reference_probability import aggregate_probabilities
from rangeline.rewards.source import point_intervals


def verifree_intervals(
    prompt_id_N: Sequence[str],
    logprobs_N: Sequence[FloatArray | None],
    *,
    well_formed_N: BoolArray,
    missing_N: BoolArray,
) -> RewardIntervals:
    """Make zero-width intervals of the reference's likelihood.

    Parameters
    ----------
    prompt_id_N
        Prompt of each rollout.
    logprobs_N
        Log-probabilities of the reference's tokens after each rollout's reasoning; None where it could not be scored.
    well_formed_N
        True where there is reasoning and an answer after it; the others have R = 0.
    missing_N
        True where no reward can be made.

    Returns
    -------
    RewardIntervals
        Source `verifree`, support [0, 1].

    Examples
    --------
    >>> one = verifree_intervals(
    ...     ("p",), [np.log([0.5, 0.5])], well_formed_N=np.array([True]), missing_N=np.array([False])
    ... )
    >>> float(one.lower_N[0])
    0.25
    """
    reward_N = np.zeros(len(prompt_id_N))
    for i, logprobs in enumerate(logprobs_N):
        if well_formed_N[i]:
            reward_N[i] = np.nan if logprobs is None else aggregate_probabilities(logprobs, "product")
    return point_intervals(prompt_id_N, reward_N, support=(0.0, 1.0), source="verifree", missing_N=missing_N)
