"""Which prompts an iteration takes: epoch after epoch of keyed permutations, so that no loader state exists."""

from collections.abc import Sequence
from functools import lru_cache

from rangeline.records import PromptRow
from rangeline.seeds import stream


def pick_rows(rows: Sequence[PromptRow], count: int, *, seed: int, purpose: str, iteration: int) -> list[PromptRow]:
    """Return the prompts of one iteration: epoch after epoch of keyed permutations, so no loader state exists."""
    total = len(rows)
    count = min(count, total)
    first = (iteration - 1) * count
    drawn: list[int] = []
    for epoch in range(first // total, (first + count - 1) // total + 1):
        begin, end = max(first - epoch * total, 0), min(first + count - epoch * total, total)
        drawn += _epoch_order(seed, purpose, total, count, epoch)[begin:end]
    return [rows[i] for i in drawn]


@lru_cache(maxsize=8)
def _epoch_order(seed: int, purpose: str, total: int, count: int, epoch: int) -> list[int]:
    """Return the order of one epoch, which depends on that of the epoch before where an iteration straddles both."""
    begins = epoch
    while (begins * total) % count:
        begins -= 1
    order: list[int] = []
    for number in range(begins, epoch + 1):
        fresh = stream(seed, purpose, number).permutation(total).tolist()
        # The iteration that straddles two epochs holds this many of the former one; they come late in the new one.
        begun = (number * total) % count
        straddling = set(order[total - begun :])
        order = [i for i in fresh if i not in straddling] + [i for i in fresh if i in straddling]
    return order
