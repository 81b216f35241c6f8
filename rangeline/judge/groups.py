"""Compare the rollouts of a group with each other: equal answers, the majority, and ranks of what a judge says.

A group is the rollouts of one prompt id, in any order and number. A rollout without an extracted answer agrees with
nothing, but counts in its group.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from rangeline.records import UNKNOWN, FloatArray


def agreement_shares(prompt_id_N: Sequence[str], extracted_N: Sequence[str | None]) -> list[float | None]:
    """Return, per rollout, the share of its group's rollouts that have the same extracted answer.

    Parameters
    ----------
    prompt_id_N
        Group of each rollout, in any order.
    extracted_N
        Answers; None where nothing was extracted, which agrees with nothing but counts in the group.

    Returns
    -------
    list
        Values in (0, 1]; None where nothing was extracted.

    Examples
    --------
    >>> agreement_shares(["p", "q", "p", "p", "p"], ["7", "7", "7", None, "8"])
    [0.5, 1.0, 0.5, None, 0.25]
    """
    size = Counter(prompt_id_N)
    votes = Counter(zip(prompt_id_N, extracted_N, strict=True))
    return [
        None if answer is None else votes[prompt_id, answer] / size[prompt_id]
        for prompt_id, answer in zip(prompt_id_N, extracted_N, strict=True)
    ]


def majority_levels(prompt_id_N: Sequence[str], extracted_N: Sequence[str | None]) -> list[int]:
    """Return 1 for the group's most frequent answer, 0 for another, UNKNOWN for none or where two lead together.

    Examples
    --------
    >>> majority_levels(["p", "p", "p", "q", "q"], ["7", "7", "8", "1", "2"])
    [1, 1, 0, -1, -1]
    """
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for prompt_id, answer in zip(prompt_id_N, extracted_N, strict=True):
        if answer is not None:
            votes[prompt_id][answer] += 1
    leaders = {}
    for prompt_id, counts in votes.items():
        top = counts.most_common(2)
        leaders[prompt_id] = top[0][0] if len(top) == 1 or top[0][1] > top[1][1] else None
    return [
        UNKNOWN if answer is None or leaders[prompt_id] is None else int(answer == leaders[prompt_id])
        for prompt_id, answer in zip(prompt_id_N, extracted_N, strict=True)
    ]


def rank_shares(prompt_id_N: Sequence[str], rating_N: FloatArray) -> list[float | None]:
    """Return, per rollout, the share of its group's other rated rollouts that are rated lower, equal ones half.

    Parameters
    ----------
    prompt_id_N
        Group of each rollout.
    rating_N
        Ratings; NaN where there is none.

    Returns
    -------
    list
        Values in [0, 1]; None where the rollout, or every other of its group, has no rating.

    Examples
    --------
    >>> import numpy as np
    >>> rank_shares(["p", "p", "p", "q"], np.array([0.1, 0.9, 0.9, 0.5]))
    [0.0, 0.75, 0.75, None]
    """
    rated: defaultdict[str, list[float]] = defaultdict(list)
    for prompt_id, rating in zip(prompt_id_N, rating_N.tolist(), strict=True):
        if not math.isnan(rating):
            rated[prompt_id].append(rating)
    shares: list[float | None] = []
    for prompt_id, rating in zip(prompt_id_N, rating_N.tolist(), strict=True):
        others = len(rated[prompt_id]) - 1
        if math.isnan(rating) or others < 1:
            shares.append(None)
            continue
        below = sum(other < rating for other in rated[prompt_id])
        equal = sum(other == rating for other in rated[prompt_id]) - 1
        shares.append((below + equal / 2) / others)
    return shares


def tallies(prompt_id_N: Sequence[str], extracted_N: Sequence[str | None]) -> list[str]:
    r"""Return, per rollout, the distinct answers of its group with their counts, the most frequent first.

    Examples
    --------
    >>> tallies(["p", "p", "p"], ["7", "8", "7"])[0]
    '7 (2 of 3)\n8 (1 of 3)'
    """
    size, votes = Counter(prompt_id_N), Counter(zip(prompt_id_N, extracted_N, strict=True))
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for (prompt_id, answer), count in sorted(votes.items(), key=lambda item: (-item[1], item[0][1] or "")):
        lines[prompt_id].append(f"{'no answer' if answer is None else answer} ({count} of {size[prompt_id]})")
    return ["\n".join(lines[prompt_id]) for prompt_id in prompt_id_N]
