"""Folds that leave out whole prompts: rollouts of one prompt share states, and would vouch for each other.

Computes a fold number for each row of two pools, so that all rows of a prompt, in either pool, are left out together.
Prompts are shuffled inside three kinds (source only, both, target only) and dealt in that order, fold after fold.
Folds hold numbers of prompts that differ by at most one, not numbers of rows.
Left out of RoWCI, which folds nothing: everything here is our choice.

Shapes: S source rows, D target rows, P distinct prompts.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rangeline.errors import CalibrationError

PromptIds = tuple[Sequence[str], Sequence[str]]
"""Prompt ids of the source rows and of the target rows."""
NUM_FOLDS = 5


def ids_of_rows(source_SK: ArrayLike, target_DK: ArrayLike, prompt_ids: PromptIds | None) -> PromptIds:
    """Return the prompt ids of the rows of both pools; without any, each row is a prompt of its own.

    Parameters
    ----------
    source_SK, target_DK
        [S, K] and [D, K] states.
    prompt_ids
        Ids of the source rows and of the target rows, or None.

    Returns
    -------
    PromptIds
        Made-up ids number the rows in ascending order of their states, so that no fold depends on the order of rows.

    Raises
    ------
    CalibrationError
        A pool has another number of ids than rows.
    """
    pools = (np.asarray(source_SK), np.asarray(target_DK))
    if prompt_ids is None:
        return _ranked("source", pools[0]), _ranked("target", pools[1])
    for name, pool, ids in zip(("source", "target"), pools, prompt_ids, strict=True):
        if len(pool) != len(ids):
            msg = (
                f"'prompt_ids' must have one id a row; got {len(ids)} for {len(pool)} rows ({name} pool). "
                "Pass the ids of the very rows."
            )
            raise CalibrationError(msg)
    return prompt_ids


def _ranked(name: str, levels: NDArray[np.int64]) -> list[str]:
    rank = np.empty(len(levels), dtype=np.int64)
    rank[np.lexsort(levels.T[::-1])] = np.arange(len(levels))
    return [f"{name} {number:09d}" for number in rank.tolist()]


def prompt_folds(prompt_ids: PromptIds, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Deal prompts into up to five folds.

    Parameters
    ----------
    prompt_ids
        Ids of the source rows and of the target rows.
    seed
        Seed of the shuffles.

    Returns
    -------
    tuple of numpy.ndarray or None
        int64 [S] and [D], fold of each row: each fold, and what is left without it, holds rows of both pools. None
        where a pool has rows of fewer than two prompts.
    """
    names, code_N = np.unique(np.asarray([*prompt_ids[0], *prompt_ids[1]], dtype=str), return_inverse=True)
    code_S, code_D = np.split(code_N.reshape(-1), [len(prompt_ids[0])])
    in_source, in_target = (np.isin(np.arange(len(names)), code) for code in (code_S, code_D))
    num_folds = min(NUM_FOLDS, int(in_source.sum()), int(in_target.sum()))
    if num_folds < 2:
        return None
    rng = np.random.default_rng(seed)
    kinds = (in_source & ~in_target, in_source & in_target, in_target & ~in_source)
    # Prompts with source rows are dealt in a row, and so are those with target rows: no fold goes without either.
    order = np.concatenate([rng.permutation(np.flatnonzero(kind)) for kind in kinds])
    fold_P = np.empty(len(names), dtype=np.int64)
    fold_P[order] = np.arange(len(order)) % num_folds
    return fold_P[code_S], fold_P[code_D]
