"""Weights and optimiser state that DeepSpeed ZeRO holds in parts; DeepSpeed is imported only where it trains.

It computes whole tensors from parts, and parts from whole tensors, with DeepSpeed's own functions.
There is no formula here and nothing is divided.
DeepSpeed's checkpoints are left out: they are pickles, and fit one number of processes.

Not run: DeepSpeed trains several processes under Accelerate on GPUs alone, and none was there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_SLOTS = ("exp_avg", "exp_avg_sq")
_STEP = "step"


def adam_slots(model: Any, optimizer: Any) -> Iterator[tuple[str, str, Tensor]]:
    """Give name, slot and whole tensor of AdamW's state, for all processes together."""
    from deepspeed.utils import safe_get_full_optimizer_state

    states = list(_adam(optimizer).state.values())
    step = torch.as_tensor(states[0][_STEP] if states and _STEP in states[0] else 0.0, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        for slot in _SLOTS:
            value = safe_get_full_optimizer_state(parameter, slot) if parameter.requires_grad else None
            if value is not None:
                yield name, slot, value.detach().reshape(parameter.shape if value.ndim else value.shape)
        if parameter.requires_grad:
            yield name, _STEP, step


def put_adam_slots(model: Any, optimizer: Any, slots: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Put AdamW's whole state, by parameter name, into the parts of this process."""
    from deepspeed.utils import safe_set_full_optimizer_state

    for name, parameter in model.named_parameters():
        for slot in _SLOTS:
            if name in slots and slot in slots[name]:
                safe_set_full_optimizer_state(parameter, slots[name][slot], slot)
    steps = {float(found[_STEP]) for found in slots.values() if _STEP in found}
    for state in _adam(optimizer).state.values():
        for step in steps:
            state[_STEP] = torch.tensor(step) if isinstance(state.get(_STEP), Tensor) else int(step)


def put_weights(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Put whole weights into what computes and into what the optimiser steps on."""
    import deepspeed
    from deepspeed.utils import safe_set_full_fp32_param

    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.data.copy_(weights[name])
        if parameter.requires_grad:
            safe_set_full_fp32_param(parameter, weights[name].to(parameter.device))


def _adam(optimizer: Any) -> Any:
    # Accelerate's wrapper holds DeepSpeed's, which holds the trainer's.
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
