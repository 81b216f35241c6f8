"""Layers whose activations are computed again in the backward pass instead of being kept.

It computes nothing of its own: it switches on, for one forward pass, what transformers' layers offer.
There is no formula and nothing is divided; gradients are those of a pass that keeps everything.
Layers only checkpoint in training mode, where dropout acts too. Here the flag of the checkpointing layers alone is
raised, so that everything inside them stays in evaluation mode (ours).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.modeling_layers import GradientCheckpointingLayer

from rangeline.errors import ConfigError


def allow_checkpointing(model: Any) -> None:
    """Prepare a model once.

    Raises
    ------
    ConfigError
        When its layers cannot be checkpointed.
    """
    if not _layers(model):
        msg = (
            f"'activation_checkpointing' must be false for a model whose layers cannot be checkpointed; got "
            f"{type(model).__name__}. Turn it off, or choose another model."
        )
        raise ConfigError(msg)
    # The name of older 5.x releases, which later ones warn about.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


@contextmanager
def checkpointed_layers(model: Any) -> Iterator[None]:
    """Checkpoint the layers of a prepared model in the forward passes of the block."""
    layers = _layers(model)
    before = [layer.training for layer in layers]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer, mode in zip(layers, before, strict=True):
            layer.training = mode


def _layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
