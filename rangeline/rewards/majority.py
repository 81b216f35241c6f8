"""TTRL: reward the rollouts whose answer is the group's most frequent one.

It computes one vote a prompt over extracted answers, and a reward of 1 for those that agree with the winner, else 0.
reward_i = [answer_i = argmax_a #{j : answer_j = a}].
Nothing is divided.
Left out of the paper: nothing; ours is that a tie gives missing rewards, since neither answer is the majority's, and
that a group in which nothing could be read does too. A rollout without an answer has no vote and never wins.

Shapes: N rollouts flat.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rangeline.errors import BadInputError
from rangeline.records import BoolArray, RewardIntervals
from rangeline.rewards.source import point_intervals


def majority_intervals(
    prompt_id_N: Sequence[str], answer_N: Sequence[str | None], missing_N: BoolArray
) -> RewardIntervals:
    """Make zero-width intervals of agreement with the group's vote.

    Parameters
    ----------
    prompt_id_N
        Prompt of each rollout; a group is what shares one.
    answer_N
        Extracted answer in one writing; None where there is none.
    missing_N
        True where nobody can say what the answer is (cut off, ambiguous): no vote and no reward.

    Returns
    -------
    RewardIntervals
        Source `majority`, support [0, 1]; a whole rollout without an answer has reward 0 where its group has a winner.

    Raises
    ------
    BadInputError
        When lengths differ.

    Examples
    --------
    >>> made = majority_intervals(("p", "p", "p"), ("7", "7", None), np.zeros(3, dtype=bool))
    >>> made.center_N.tolist()
    [1.0, 1.0, 0.0]
    """
    if not len(prompt_id_N) == len(answer_N) == len(missing_N):
        msg = f"'answer_N' must have one value a rollout; got {len(answer_N)} for {len(prompt_id_N)} prompt ids."
        raise BadInputError(msg)
    winner = {prompt_id: vote(votes) for prompt_id, votes in _votes(prompt_id_N, answer_N, missing_N).items()}
    reward_N = np.array(
        [
            np.nan if (won := winner.get(prompt_id)) is None else float(answer == won)
            for prompt_id, answer in zip(prompt_id_N, answer_N, strict=True)
        ]
    )
    return point_intervals(prompt_id_N, reward_N, support=(0.0, 1.0), source="majority", missing_N=missing_N)


def vote(answers: Sequence[str]) -> str | None:
    """Return the unique most frequent answer; None on a tie or without a vote."""
    ranked = Counter(answers).most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


def _votes(prompt_id_N: Sequence[str], answer_N: Sequence[str | None], missing_N: BoolArray) -> dict[str, list[str]]:
    votes: dict[str, list[str]] = {}
    for prompt_id, answer, missing in zip(prompt_id_N, answer_N, missing_N, strict=True):
        if answer is not None and not missing:
            votes.setdefault(prompt_id, []).append(answer)
    return votes
