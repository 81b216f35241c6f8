"""Gather weights and optimiser state that are spread over processes, and spread them again.

It computes the whole tensors of a policy under its plain names, whatever wraps, shards or adapts it.
A merged weight is W + s B A, the frozen weight plus the scaled product of its adapter.
Nothing is divided: the scale s is the adapter's own.
It leaves out checkpoints by shard: one process writes one file that any number of processes can read, which costs the
memory of one whole copy in the process that writes.

Every function here is called by all processes, in the same order; with one process it moves nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from rangeline.policy import zero

_ADAPTED = "base_model.model."
_BASE = ".base_layer."
_LORA = (".lora_A.", ".lora_B.")


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with all its parts, detached, on its device."""
    found = tensor.detach()
    return found.full_tensor() if isinstance(found, DTensor) else found


@contextmanager
def gathered(tensor: Tensor) -> Iterator[Tensor]:
    """Give a tensor with all its parts, also where DeepSpeed ZeRO-3 has taken them away."""
    if hasattr(tensor, "ds_id"):
        import deepspeed  # a door: installed only where it is used

        with deepspeed.zero.GatheredParameters([tensor]):
            yield tensor.detach()
    else:
        yield whole(tensor)


def plain_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Give every weight once, by its name in the plain model, adapters merged into what they adapt.

    Parameters
    ----------
    model
        Policy: plain, sharded, adapted by PEFT, or all of it.

    Yields
    ------
    tuple of str and Tensor
        Names of `state_dict` and whole tensors, one at a time; valid until the next is taken.
    """
    modules = dict(model.named_modules())
    seen: set[int] = set()
    for name, value in model.state_dict(keep_vars=True).items():
        # Tied weights are one tensor of two names, and are tied again by whoever loads the first.
        if id(value) in seen or any(part in name for part in _LORA):
            continue
        seen.add(id(value))
        plain = name.removeprefix(_ADAPTED).replace(_BASE, ".")
        with gathered(value) as tensor:
            adapted = modules.get(name.rpartition(_BASE)[0]) if _BASE in name and name.endswith(".weight") else None
            if adapted is None:
                yield plain, tensor
            else:
                yield plain, tensor + adapter_product(adapted)


@torch.no_grad()
def adapter_product(layer: Any) -> Tensor:
    """Return s B A of an adapted layer, in the layout of its weight."""
    name = layer.active_adapters[0]
    with gathered(layer.lora_A[name].weight) as down, gathered(layer.lora_B[name].weight) as up:
        product = layer.scaling[name] * (up @ down)
    # GPT-2 keeps its weights the other way round.
    return product.T if layer.fan_in_fan_out else product


def whole_weights(model: Any, *, keep: bool) -> dict[str, Tensor]:
    """Return copies of all plain weights on the CPU; an empty mapping where a process does not keep them."""
    return {name: tensor.to("cpu", copy=True).contiguous() for name, tensor in plain_weights(model) if keep}


@torch.no_grad()
def copy_weights(source: Any, target: nn.Module) -> None:
    """Copy a policy's plain weights into a plain model, cast to its precision."""
    mine = target.state_dict(keep_vars=True)
    for name, tensor in plain_weights(source):
        mine[name].copy_(tensor)


@torch.no_grad()
def spread_weights(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Put whole tensors, by the model's own names, into the parts that each process holds.

    Raises
    ------
    RuntimeError
        When a name or shape differs; torch's own text.
    """
    if held_by_deepspeed(model):
        zero.put_weights(model, weights)
        return
    if not any(isinstance(value, DTensor) for value in model.parameters()):
        model.load_state_dict(weights)
        return
    for name, value in model.named_parameters():
        value.copy_(spread(weights[name], like=value))


def held_by_deepspeed(model: Any) -> bool:
    """Tell whether DeepSpeed ZeRO holds the optimiser's copy of the weights in parts."""
    return any(hasattr(value, "ds_id") or hasattr(value, "_hp_mapping") for value in model.parameters())


def spread(value: Tensor, *, like: Tensor) -> Tensor:
    """Return a process's part of a whole tensor, laid out as another of the same shape; other shapes stay whole."""
    if isinstance(like, DTensor) and value.shape == like.shape:
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
    return value
