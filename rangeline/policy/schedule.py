"""Learning rate of an optimiser step, as a share of the set one: warm-up, then constant, linear or cosine decay.

It computes a factor from the number of steps taken before, which the optimiser's own state holds: no state is added.
Formulas are those of transformers' schedules, which are asked for them.
Nothing is divided here. Restarts and other shapes are left out, because no run of the papers uses one.
"""

from collections.abc import Callable
from typing import Literal

import torch
from transformers import get_scheduler

ScheduleKind = Literal["constant", "linear", "cosine"]
_NAMES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def schedule_factor(kind: ScheduleKind, *, warmup_steps: int, num_steps: int) -> Callable[[int], float]:
    """Return the function from the number of steps taken before to the factor of the next one.

    Parameters
    ----------
    kind
        What follows the warm-up: `constant` stays at 1, `linear` and `cosine` fall to 0 at `num_steps`.
    warmup_steps
        Steps over which the factor rises to 1; 0 = none.
    num_steps
        Steps of the whole run, read by `linear` and `cosine`; later steps have factor 0.

    Returns
    -------
    Callable
        A warm-up of W steps gives 1/W, 2/W, ..., 1. The library's own first step has rate 0 and so does nothing; that
        warm-up begins one step later in its count is ours.

    Examples
    --------
    >>> factor = schedule_factor("linear", warmup_steps=2, num_steps=6)
    >>> [factor(taken) for taken in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    chosen = get_scheduler(_NAMES[kind], optimizer, num_warmup_steps=warmup_steps, num_training_steps=num_steps)
    shape = chosen.lr_lambdas[0]

    def factor(taken: int) -> float:
        return float(shape(taken + 1 if taken < warmup_steps else taken))

    return factor
