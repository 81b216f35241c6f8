"""Read the size of a model from its configuration, without its weights: what estimates of memory and time need."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rangeline.errors import ModelLoadError

_FAILURES = (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError)
"""What transformers raises for a configuration that is absent, foreign or broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Size of a decoder."""

    weights: int
    """Parameters; tied ones count once."""
    layers: int
    width: int
    kv_width: int
    """Key and value heads times their size."""
    vocabulary: int
    max_positions: int | None
    """Longest prompt and completion together; None where the configuration states none."""


def read_shape(
    name: str, *, architecture: Mapping[str, Any], vocabulary: int, trust_remote_code: bool = False
) -> ModelShape:
    """Return the size of a model by name; of a model of the Hub the configuration alone is downloaded.

    Parameters
    ----------
    name
        As `policy.model`: `package:<distribution>`, `fresh:<type>`, a folder, or a Hub name with `@revision`.
    architecture, vocabulary
        Of a model `fresh:<type>`: its configuration, and words of its tokenizer.
    trust_remote_code
        True runs code that the model brings along.

    Raises
    ------
    ModelLoadError
        When there is no such configuration, or none of a causal language model.
    """
    kind, _, rest = name.partition(":")
    try:
        if kind == "fresh":
            config = AutoConfig.for_model(rest, **{**architecture, "vocab_size": vocabulary})
        elif kind == "package":
            config = _packaged(rest)
        else:
            place, _, revision = name.partition("@")
            config = AutoConfig.from_pretrained(
                name if Path(name).is_dir() else place,
                revision=revision or "main",
                trust_remote_code=trust_remote_code,
            )
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except _FAILURES as error:
        reason = " ".join(str(error).split())[:160]
        msg = (
            f"'model' must have a configuration that can be read; got '{name}' ({reason}). "
            "Check its name, or the network and HF_HUB_OFFLINE."
        )
        raise ModelLoadError(msg) from error
    return _shape(config, model)


def _packaged(distribution: str) -> Any:
    module = distribution.replace("-", "_")
    spec = find_spec(module) if module.isidentifier() else None
    found = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if len(found) != 1:
        msg = f"package '{distribution}' is not installed, or has not one .gguf file"
        raise ValueError(msg)
    return AutoConfig.from_pretrained(str(found[0].parent), gguf_file=found[0].name)


def _shape(config: Any, model: Any) -> ModelShape:
    text = config.get_text_config()
    heads, width = int(text.num_attention_heads), int(text.hidden_size)
    head_width = getattr(text, "head_dim", None) or width // heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    return ModelShape(
        weights=sum(parameter.numel() for parameter in model.parameters()),
        layers=int(text.num_hidden_layers),
        width=width,
        kv_width=int(kv_heads * head_width),
        vocabulary=int(text.vocab_size),
        max_positions=getattr(text, "max_position_embeddings", None),
    )
