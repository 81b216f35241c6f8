"""Log-probabilities of the last tokens of many texts that share their beginnings, without a [B, L, V] tensor.

Computes log p(token_t | tokens_<t) at temperature 1 in float32 for the last `num_scored` tokens of each row, and where
asked the entropy of that distribution and its distance from the uniform one.
The formulas are log-softmax of the language-model head's logits taken at the token, -sum_v p_v log p_v, and
KL(uniform || p) = -log V - (1/V) sum_v log p_v.
Nothing else is divided: values are per token.
Each distinct prompt is read once and its keys and values are repeated for its rows; a model with a sliding window, or
without keys and values to share, reads every row whole instead. Values agree up to float32 rounding.

Shapes: P prompts of a batch, R rows, L tokens (padded), X scored tokens, H hidden size, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from rangeline.records import FloatArray
from rangeline.rollout.reading import cached_forward, left_padded, position_ids
from rangeline.rollout.token_logprobs import logit_map
from rangeline.rollout.transformers_engine import context_length, evaluating

_CHUNK_ROWS = 512
"""Scored tokens a pass through the head; bounds the memory at this times V."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixRow:
    """A text in two parts: a prompt that other rows may share, and what follows it."""

    prompt_ids: tuple[int, ...]
    """At least one token."""
    suffix_ids: tuple[int, ...]
    num_scored: int
    """How many of the suffix's last tokens are scored, in [1, len(suffix_ids)]."""

    @property
    def length(self) -> int:
        """Tokens of the whole row."""
        return len(self.prompt_ids) + len(self.suffix_ids)


Reader = Callable[[Tensor, Tensor], Tensor]
"""From log-probabilities [X, V] and tokens [X] to values [X, K]."""


def suffix_logprobs(
    model: Any, rows: Sequence[SuffixRow], *, max_batch_tokens: int = 8192, share_prefix: bool = True
) -> list[FloatArray | None]:
    """Return the log-probability of each scored token of each row; arguments as for `suffix_statistics`.

    Returns
    -------
    list
        float64 of shape (num_scored,) a row, NaN where the model's logits are no numbers; None where the row is longer
        than the model's context.
    """
    values = _read_rows(model, rows, _read_logprob, max_batch_tokens=max_batch_tokens, share_prefix=share_prefix)
    return [None if value is None else value[:, 0] for value in values]


def suffix_statistics(
    model: Any, rows: Sequence[SuffixRow], *, max_batch_tokens: int = 8192, share_prefix: bool = True
) -> list[FloatArray | None]:
    """Return log-probability, entropy and distance from uniform at each scored token of each row.

    Parameters
    ----------
    model
        Causal language model of transformers; its own dtype is used up to the head, float32 from there.
    rows
        What to score.
    max_batch_tokens
        Padded tokens of one forward pass; a single longer row gets a pass of its own.
    share_prefix
        False reads every row whole; changes speed and memory only.

    Returns
    -------
    list
        float64 of shape (num_scored, 3) a row: log-probability, entropy, KL(uniform || p); NaN where the model's logits
        are no numbers; None where the row is longer than the model's context.
    """
    return _read_rows(model, rows, _read_all, max_batch_tokens=max_batch_tokens, share_prefix=share_prefix)


def _read_logprob(logprob_XV: Tensor, target_X: Tensor) -> Tensor:
    return logprob_XV.gather(-1, target_X[:, None])


def _read_all(logprob_XV: Tensor, target_X: Tensor) -> Tensor:
    # A token of probability 0 has log-probability -inf and adds nothing to the entropy.
    entropy_X = -(logprob_XV.exp() * logprob_XV.clamp(min=torch.finfo(logprob_XV.dtype).min)).sum(dim=-1)
    distance_X = -logprob_XV.mean(dim=-1) - math.log(logprob_XV.shape[-1])
    return torch.stack([_read_logprob(logprob_XV, target_X)[:, 0], entropy_X, distance_X], dim=1)


def _read_rows(
    model: Any, rows: Sequence[SuffixRow], read: Reader, *, max_batch_tokens: int, share_prefix: bool
) -> list[FloatArray | None]:
    context = context_length(model)
    result: list[FloatArray | None] = [None] * len(rows)
    fitting = [i for i, row in enumerate(rows) if context is None or row.length <= context]
    has_window = getattr(model.config.get_text_config(), "sliding_window", None)
    shared = share_prefix and not has_window
    groups: dict[tuple[int, ...], list[int]] = {}
    for i in fitting:
        # A prompt of one token leaves nothing to keep: its only state predicts the first token of the suffix.
        key = rows[i].prompt_ids if shared and len(rows[i].prompt_ids) > 1 else (-1,)
        groups.setdefault(key, []).append(i)
    alone = groups.pop((-1,), [])
    with evaluating(model), torch.inference_mode():
        for index in _batches(rows, alone, max_batch_tokens):
            _store(result, rows, index, _whole(model, [rows[i] for i in index], read))
        for batch in _group_batches(rows, groups, max_batch_tokens):
            index = [i for members in batch.values() for i in members]
            _store(result, rows, index, _after_shared(model, rows, batch, read))
    return result


def _batches(rows: Sequence[SuffixRow], index: Sequence[int], budget: int) -> Iterator[list[int]]:
    batch: list[int] = []
    for i in sorted(index, key=lambda i: -rows[i].length):
        # Longest first: the first row of a batch sets its width.
        if batch and (len(batch) + 1) * rows[batch[0]].length > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _group_batches(
    rows: Sequence[SuffixRow], groups: dict[tuple[int, ...], list[int]], budget: int
) -> Iterator[dict[tuple[int, ...], list[int]]]:
    batch: dict[tuple[int, ...], list[int]] = {}
    for prompt in sorted(groups, key=lambda prompt: (-len(prompt), prompt)):
        together = [*(i for members in batch.values() for i in members), *groups[prompt]]
        width = max(len(key) for key in [*batch, prompt]) + max(len(rows[i].suffix_ids) for i in together)
        if batch and len(together) * width > budget:
            yield batch
            batch = {}
        batch[prompt] = groups[prompt]
    if batch:
        yield batch


def _store(result: list[FloatArray | None], rows: Sequence[SuffixRow], index: Sequence[int], values: Tensor) -> None:
    ends = np.cumsum([rows[i].num_scored for i in index])[:-1]
    for i, part in zip(index, np.split(values.double().cpu().numpy(), ends), strict=True):
        result[i] = part


def _whole(model: Any, rows: Sequence[SuffixRow], read: Reader) -> Tensor:
    width = max(row.length for row in rows)
    ids = torch.zeros((len(rows), width), dtype=torch.int64)
    mask, keep = torch.zeros_like(ids), torch.zeros(ids.shape, dtype=torch.bool)
    for r, row in enumerate(rows):
        ids[r, : row.length] = torch.tensor([*row.prompt_ids, *row.suffix_ids])
        mask[r, : row.length] = 1
        keep[r, row.length - row.num_scored : row.length] = True
    ids, mask, keep = (item.to(model.device) for item in (ids, mask, keep))
    hidden_RLH = model.get_decoder()(
        input_ids=ids, attention_mask=mask, position_ids=position_ids(mask), use_cache=False
    ).last_hidden_state
    return _through_head(model, hidden_RLH[:, :-1][keep[:, 1:]], ids[keep], read)


def _after_shared(
    model: Any, rows: Sequence[SuffixRow], batch: dict[tuple[int, ...], list[int]], read: Reader
) -> Tensor:
    device, cache = model.device, DynamicCache(config=model.config)
    # The last prompt token is read with each suffix: its state predicts the suffix's first token.
    ids_PL, mask_PL = left_padded([prompt[:-1] for prompt in batch], device)
    cached_forward(model.get_decoder(), ids_PL, mask_PL, cache)
    owner = torch.tensor([p for p, members in enumerate(batch.values()) for _ in members], device=device)
    cache.batch_select_indices(owner)
    members = [rows[i] for group in batch.values() for i in group]
    width = max(len(row.suffix_ids) for row in members)
    ids = torch.zeros((len(members), width), dtype=torch.int64)
    real, keep = torch.zeros_like(ids), torch.zeros(ids.shape, dtype=torch.bool)
    target = torch.zeros_like(ids)
    for r, row in enumerate(members):
        length = len(row.suffix_ids)
        ids[r, :length] = torch.tensor([row.prompt_ids[-1], *row.suffix_ids[:-1]])
        target[r, :length] = torch.tensor(row.suffix_ids)
        real[r, :length] = 1
        keep[r, length - row.num_scored : length] = True
    keep = keep.to(device)
    mask = torch.cat([mask_PL[owner], real.to(device)], dim=1)
    hidden_XH = cached_forward(model.get_decoder(), ids.to(device), mask, cache).last_hidden_state[keep]
    return _through_head(model, hidden_XH, target.to(device)[keep], read)


def _through_head(model: Any, hidden_XH: Tensor, target_X: Tensor, read: Reader) -> Tensor:
    head, finish = model.get_output_embeddings(), logit_map(model)
    parts = []
    for hidden, target in zip(hidden_XH.split(_CHUNK_ROWS), target_X.split(_CHUNK_ROWS), strict=True):
        logprob_XV = torch.log_softmax(finish(head(hidden)).float(), dim=-1)
        parts.append(read(logprob_XV, target))
    return torch.cat(parts)
