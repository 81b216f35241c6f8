"""How a decoder reads token ids: positions, padding, and new tokens after a cache of keys and values.

Shapes: B or R rows, L tokens, K tokens of the cache and the new ones.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache as remembered
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache


def position_ids(attention_mask_BL: Tensor) -> Tensor:
    """Return the position of each token among the attended ones, 0 on padding before the first.

    Parameters
    ----------
    attention_mask_BL
        1 (or True) on real tokens, 0 on padding, which may lie on either side.

    Returns
    -------
    Tensor
        int64, [B, L].
    """
    return (attention_mask_BL.long().cumsum(dim=-1) - 1).clamp(min=0)


@remembered
def _cache_keyword(forward: Callable[..., Any]) -> str:
    """Return the name that a decoder's forward has for its cache: `cache` from transformers 5.24 on."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


def cached_forward(module: Any, ids_RL: Tensor, mask_RK: Tensor, cache: DynamicCache) -> Any:
    """Return the output of a decoder on new tokens, and append these to the cache."""
    forward: Any = type(module).forward
    keyword = _cache_keyword(forward)
    return module(
        input_ids=ids_RL,
        attention_mask=mask_RK,
        position_ids=position_ids(mask_RK)[:, -ids_RL.shape[1] :],
        use_cache=True,
        **{keyword: cache},
    )


def left_padded(rows: Sequence[Sequence[int]], device: Any) -> tuple[Tensor, Tensor]:
    """Return rows of token ids padded on the left with id 0, and their attention mask."""
    width = max(len(row) for row in rows)
    ids = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = row
        mask[i, width - len(row) :] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
