"""Low-rank adapters: train s B A beside frozen weights, with PEFT.

It computes nothing itself: PEFT puts the adapters in, `policy.gathering` merges them for sampling and export.
The adapted weight is W + (alpha / rank) B A; B starts at 0, so the start is the policy that was loaded.
The product is divided by the rank, as LoRA (2021) does.
Dropout, biases and quantised bases are left out: dropout would make old and current log-probs differ, and merged
weights of a quantised base are not the weights that were trained.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from rangeline.errors import CheckpointError, ConfigError
from rangeline.seeds import seed_of

FOLDER = "adapter"
"""Where a checkpoint holds the adapter, in PEFT's own form."""
_WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """Shape of the adapters."""

    rank: int
    """At least 1."""
    alpha: float
    """The product is scaled by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Names of the layers that are adapted; empty: every linear layer but the head."""


def add_adapter(model: Any, settings: LoraSettings, *, seed: int) -> Any:
    """Freeze a model and put trainable adapters beside its layers.

    Parameters
    ----------
    model
        Causal language model; changed in place.
    settings
        Shape of the adapters.
    seed
        Seed of the run: the random half of the adapters is the same in every process.

    Returns
    -------
    PEFT's model; `disable_adapter` gives the frozen start back, which is the reference policy.

    Raises
    ------
    ConfigError
        When no layer has one of the names.
    """
    from peft import LoraConfig, get_peft_model  # a door: imported only where adapters are used

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        target_modules=list(settings.targets) or "all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(seed, "adapter"))
        try:
            adapted = get_peft_model(model, config)
        except ValueError as error:
            msg = f"'lora.targets' must name layers of the model; got {settings.targets}: {error} Correct the setting."
            raise ConfigError(msg) from error
    return adapted.eval()


def is_adapted(model: Any) -> bool:
    """Tell whether a model has adapters beside it."""
    return hasattr(model, "disable_adapter")


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter alone, loadable by PEFT on the start that it was trained on."""
    from peft import get_peft_model_state_dict

    folder.mkdir(parents=True)
    model.peft_config["default"].save_pretrained(str(folder))
    weights = get_peft_model_state_dict(model)
    save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, folder / _WEIGHTS)


def load_adapter(model: Any, folder: Path) -> None:
    """Put a saved adapter into an adapted model of the same shape.

    Raises
    ------
    CheckpointError
        When there is none, or it has another shape.
    """
    from peft import set_peft_model_state_dict

    path = folder / _WEIGHTS
    if not path.is_file():
        msg = f"'{path}' must exist where lora.rank is set; got no such file. Resume with the settings of the run."
        raise CheckpointError(msg)
    try:
        found = set_peft_model_state_dict(model, load_file(path))
    except RuntimeError as error:
        msg = f"'{path}' must hold an adapter of this shape; got: {error}. Resume with the settings of the run."
        raise CheckpointError(msg) from error
    if found.unexpected_keys:
        msg = f"'{path}' must hold this adapter's weights; got {found.unexpected_keys[:3]}. Resume the run it is of."
        raise CheckpointError(msg)
