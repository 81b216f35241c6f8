"""What k completions of one prompt say together: the consensus answer, and how steadily it is right.

Computes cons@k, the chance that the most frequent answer of k completions is right, and G-Pass@k(tau), the chance that
at least tau * k of them are. Formulas: both count all C(n, k) ways to draw k of the n valid completions without
replacement; for cons@k a draw whose first place is shared by t answers counts 1 / t if the right one is among them.
Both are divided by C(n, k), in exact integers until the last division.
Published maj@k takes one draw, or breaks ties by order; here all draws are counted, so that no seed and no order of
completions enters. A completion without an answer casts no vote, and one without a verdict must be left out before.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from rangeline.errors import BadInputError

_RIGHT = object()
"""All right completions vote for one answer, however they write it."""


def g_pass_at_k(num_samples: int, num_right: int, k: int, threshold: float) -> float:
    """Return the chance that at least a share of k completions is right.

    The sum over j from ``ceil(tau * k)`` to k of ``C(c, j) C(n - c, k - j) / C(n, k)``.

    Parameters
    ----------
    num_samples
        n, valid completions of the prompt, at least k.
    num_right
        c, right completions among them, in [0, n].
    k
        Completions drawn, at least 1.
    threshold
        tau in (0, 1]; at 1 all k must be right, near 0 it is pass@k.

    Raises
    ------
    BadInputError
        If k is below 1, n is below k, c is outside [0, n] or tau outside (0, 1].

    Notes
    -----
    Liu et al. 2024, "Are your LLMs capable of stable reasoning?", equation 3.

    Examples
    --------
    >>> g_pass_at_k(4, 2, 2, 1.0), g_pass_at_k(4, 2, 2, 0.5)
    (0.16666666666666666, 0.8333333333333334)
    """
    _require_draw(num_samples, num_right, k)
    if not 0 < threshold <= 1:
        msg = f"'threshold' must lie in (0, 1]; got {threshold}. Give the share of completions that must be right."
        raise BadInputError(msg)
    # A float such as 0.1 times 30 lies above 3 and would ask for a fourth right completion.
    least = math.ceil(Fraction(threshold).limit_denominator(10**6) * k)
    ways = sum(math.comb(num_right, j) * math.comb(num_samples - num_right, k - j) for j in range(least, k + 1))
    return ways / math.comb(num_samples, k)


def consensus_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """Return the chance that the most frequent answer of k completions is right.

    Parameters
    ----------
    answers
        Canonical answer of each of the n valid completions; None where it gives none, which is no vote.
    right
        Verdict on each; right completions count as one answer.
    k
        Completions that vote, in [1, n]; k = n is the plain majority vote.

    Returns
    -------
    float
        In [0, 1]; a draw without any vote is not right, and a shared first place counts in part.

    Raises
    ------
    BadInputError
        If lengths differ, or k is not in [1, n].

    Notes
    -----
    Wang et al. 2023 (self-consistency). Exact counting over draws and equal shares for ties are ours.

    Examples
    --------
    >>> consensus_at_k(["7", "7", "8"], [True, True, False], 3)
    1.0
    >>> consensus_at_k(["7", "8", None, "8"], [True, False, False, False], 2)
    0.3333333333333333
    """
    if len(answers) != len(right):
        msg = f"'right' must have one verdict an answer; got {len(right)} for {len(answers)}. Pair them row by row."
        raise BadInputError(msg)
    num_right = sum(map(bool, right))
    _require_draw(len(answers), num_right, k)
    votes: Counter[object] = Counter(
        _RIGHT if is_right else answer
        for answer, is_right in zip(answers, right, strict=True)
        if is_right or answer is not None
    )
    others = [count for answer, count in votes.items() if answer is not _RIGHT]
    silent = len(answers) - sum(votes.values())
    wins = Fraction(0)
    for won in range(1, min(num_right, k) + 1):
        for tied, ways in _rest(others, silent, k - won, won):
            wins += Fraction(math.comb(num_right, won) * ways, 1 + tied)
    return float(wins / math.comb(len(answers), k))


def _rest(others: Sequence[int], silent: int, drawn: int, most: int) -> Iterator[tuple[int, int]]:
    """Give, by the number of other answers with exactly `most` votes, the ways to draw the rest, none above `most`."""
    ways: Counter[tuple[int, int]] = Counter({(taken, 0): math.comb(silent, taken) for taken in range(drawn + 1)})
    for count in others:
        longer: Counter[tuple[int, int]] = Counter()
        for (taken, tied), number in ways.items():
            for votes in range(min(count, most, drawn - taken) + 1):
                longer[taken + votes, tied + (votes == most)] += number * math.comb(count, votes)
        ways = longer
    return ((tied, number) for (taken, tied), number in ways.items() if taken == drawn and number)


def _require_draw(num_samples: int, num_right: int, k: int) -> None:
    if not 1 <= k <= num_samples:
        msg = f"'k' must lie in [1, {num_samples}], the valid completions; got {k}. Sample more completions a prompt."
        raise BadInputError(msg)
    if not 0 <= num_right <= num_samples:
        msg = f"'num_right' must lie in [0, {num_samples}]; got {num_right}. Count right completions among the valid."
        raise BadInputError(msg)
