"""Divide the rows of a batch among processes, by whole prompt groups.

It computes which process trains on which row.
Groups go, largest first, to the process with the fewest padded tokens so far: longest-processing-time scheduling.
Nothing is divided by anything here: weights come from counts of the whole batch, whoever trains on a row.
It leaves out cutting a group in two, although that would even the load further, so that all rollouts of a prompt, and
what is computed once for it, stay in one process.

Shapes: B rows.
"""

from collections.abc import Sequence

import numpy as np

from rangeline.policy.batch import IntArray


def shard_groups(
    prompt_id_B: Sequence[str], lengths_B: Sequence[int] | IntArray, rows: Sequence[int] | IntArray, num_shards: int
) -> list[IntArray]:
    """Return the rows of each process; all rows of a prompt are in one of them.

    Parameters
    ----------
    prompt_id_B
        Prompt of each row of the batch.
    lengths_B
        Tokens of each row, which is what it costs.
    rows
        Row numbers to divide.
    num_shards
        W, the number of processes, at least 1.

    Returns
    -------
    list of IntArray
        W arrays of row numbers, increasing; some are empty where there are fewer prompts than processes.
    """
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(prompt_id_B[int(row)], []).append(int(row))
    cost = {prompt_id: sum(int(lengths_B[row]) for row in group) for prompt_id, group in groups.items()}
    shards: list[list[int]] = [[] for _ in range(num_shards)]
    loads = [0] * num_shards
    # Ids break ties, so that the order of the batch changes nothing.
    for prompt_id in sorted(groups, key=lambda name: (-cost[name], name)):
        lightest = loads.index(min(loads))
        shards[lightest] += groups[prompt_id]
        loads[lightest] += cost[prompt_id]
    return [np.array(sorted(shard), dtype=np.int64) for shard in shards]
