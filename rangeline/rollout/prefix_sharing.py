"""Hidden states of rows whose beginnings repeat, with gradients: each distinct prompt is read once.

Computes the decoder's last hidden state before every kept token.
A row is a prefix, up to its first kept token, and the rest; keys and values of the distinct prefixes are read once and
stand, repeated, before the rest of each row, as attention would have found them.
Nothing is divided; values and gradients equal those of whole rows up to rounding.
Sharing is left out where it reads hardly fewer tokens, where keys and values cannot be shared (a sliding window, no
cache, activation checkpointing, which drops caches), and where a row keeps nothing.

Shapes: B rows, U distinct prefixes, P tokens of a prefix, T tokens of the rest, L tokens of a row, R kept tokens,
H hidden size.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from rangeline.rollout.reading import cached_forward, left_padded, position_ids

_WORTH = 0.8
"""Prefixes are shared where no more than this share of the padded tokens is then read: caches cost something too."""


@dataclass(frozen=True, slots=True)
class _Split:
    """Rows cut into a prefix that others may share, and the rest."""

    prefixes: list[tuple[int, ...]]
    """The U distinct prefixes, all but the last token of each: that one is read with the rest."""
    owner_B: list[int]
    rests: list[list[int]]
    """The prefix's last token, then the tokens up to the last kept one, itself left out."""
    kept: list[list[bool]]
    """Of each of these, whether the token after it is kept."""

    @property
    def num_tokens(self) -> int:
        """Tokens read, padding included."""
        return len(self.prefixes) * max(map(len, self.prefixes)) + len(self.rests) * max(map(len, self.rests))


def hidden_before(
    model: Any, token_ids_BL: Tensor, attention_mask_BL: Tensor, keep_BL: Tensor, *, share: bool = True
) -> Tensor:
    """Return the hidden state that each kept token is predicted from, rows in order, of shape [R, H].

    Parameters
    ----------
    model
        Causal language model of transformers, unwrapped.
    token_ids_BL, attention_mask_BL, keep_BL
        As for `token_logprobs.token_logprobs`.
    share
        False reads every row whole.
    """
    split = _split(token_ids_BL, attention_mask_BL, keep_BL) if share and _can_share(model) else None
    if split is None or split.num_tokens > _WORTH * len(token_ids_BL) * max(token_ids_BL.shape[1] - 1, 1):
        return _of_whole_rows(model, token_ids_BL, attention_mask_BL, keep_BL)
    return _after_prefixes(model, split)


def _can_share(model: Any) -> bool:
    # Each layer has a flag of its own, and may be in training mode where the decoder around it is not.
    drops_caches = any(
        getattr(module, "gradient_checkpointing", False) and module.training for module in model.get_decoder().modules()
    )
    return not (drops_caches or getattr(model.config.get_text_config(), "sliding_window", None))


def _split(token_ids_BL: Tensor, attention_mask_BL: Tensor, keep_BL: Tensor) -> _Split | None:
    split = _Split(prefixes=[], owner_B=[], rests=[], kept=[])
    number: dict[tuple[int, ...], int] = {}
    rows = zip(token_ids_BL.tolist(), attention_mask_BL.tolist(), keep_BL.tolist(), strict=True)
    for ids, mask, keep in rows:
        if True not in keep:
            return None
        first, end = keep.index(True), len(keep) - keep[::-1].index(True)
        prefix = tuple(token for token, real in zip(ids[:first], mask[:first], strict=True) if real)
        if len(prefix) < 2 or not all(mask[first : end - 1]):
            return None
        split.owner_B.append(number.setdefault(prefix[:-1], len(number)))
        split.rests.append([prefix[-1], *ids[first : end - 1]])
        split.kept.append(keep[first:end])
    split.prefixes.extend(number)
    return split


def _of_whole_rows(model: Any, token_ids_BL: Tensor, attention_mask_BL: Tensor, keep_BL: Tensor) -> Tensor:
    # The last token predicts nothing that is asked for.
    end = max(keep_BL.shape[1] - 1, 1)
    ids_BL, mask_BL = token_ids_BL[:, :end], attention_mask_BL[:, :end]
    hidden_BLH: Tensor = model.get_decoder()(
        input_ids=ids_BL, attention_mask=mask_BL, position_ids=position_ids(mask_BL), use_cache=False
    ).last_hidden_state
    return hidden_BLH[keep_BL[:, 1:]] if keep_BL.shape[1] > 1 else hidden_BLH[:0, 0]


def _after_prefixes(model: Any, split: _Split) -> Tensor:
    device = model.device
    cache = DynamicCache(config=model.config)
    ids_UP, mask_UP = left_padded(split.prefixes, device)
    cached_forward(model.get_decoder(), ids_UP, mask_UP, cache)
    owner_B = torch.tensor(split.owner_B, device=device)
    cache.batch_select_indices(owner_B)
    width = max(map(len, split.rests))
    # Padding of the rests lies behind them, where no kept state looks.
    ids_BT = torch.tensor([[*rest, *[0] * (width - len(rest))] for rest in split.rests], device=device)
    real_BT = torch.tensor([[1] * len(rest) + [0] * (width - len(rest)) for rest in split.rests], device=device)
    kept_BT = torch.tensor([[*kept, *[False] * (width - len(kept))] for kept in split.kept], device=device)
    mask_BK = torch.cat([mask_UP[owner_B], real_BT], dim=1)
    hidden_BTH: Tensor = cached_forward(model.get_decoder(), ids_BT, mask_BK, cache).last_hidden_state
    return hidden_BTH[kept_BT]
