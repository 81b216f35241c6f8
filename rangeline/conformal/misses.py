"""One observation a prompt: how often its truths lie outside their intervals.

Computes the share of a prompt's valid rollouts that are not covered.
The formula is misses over valid rollouts, prompt by prompt.
It is divided by the prompt's valid rollouts only, never by its group size.
Nothing is left out of a paper; that prompts, not rollouts, are the observations is ours, because rollouts of one prompt
depend on each other.

Shapes: N rollouts flat, P prompts with a valid rollout.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rangeline.errors import CalibrationError
from rangeline.records import FloatArray


def missed_by_prompt(
    covered_N: ArrayLike, valid_N: ArrayLike, prompt_id_N: Sequence[str]
) -> tuple[FloatArray, tuple[str, ...]]:
    """Average the misses of each prompt over its valid rollouts.

    Parameters
    ----------
    covered_N, valid_N
        [N] bools, as `coverage.covered_N` gives them.
    prompt_id_N
        [N] prompt of each rollout.

    Returns
    -------
    tuple
        [P] miss rates in [0, 1] and [P] ids, ascending; a prompt without a valid rollout is in neither.

    Raises
    ------
    CalibrationError
        Lengths differ.

    Examples
    --------
    >>> rates, ids = missed_by_prompt([True, False, False], [True, True, False], ["a", "a", "b"])
    >>> rates.tolist(), ids
    ([0.5], ('a',))
    """
    covered, valid = np.asarray(covered_N, dtype=bool), np.asarray(valid_N, dtype=bool)
    if covered.shape != (len(prompt_id_N),) or valid.shape != covered.shape:
        msg = (
            f"'covered_N' and 'valid_N' must have shape ({len(prompt_id_N)},); got {covered.shape}, {valid.shape}. "
            "Give one value a rollout."
        )
        raise CalibrationError(msg)
    misses: dict[str, list[bool]] = {}
    for i in np.flatnonzero(valid).tolist():
        misses.setdefault(prompt_id_N[i], []).append(not covered[i])
    ids = tuple(sorted(misses))
    return np.array([float(np.mean(misses[prompt_id])) for prompt_id in ids], dtype=np.float64), ids
