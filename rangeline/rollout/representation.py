"""Represent completions by the hidden states of a causal language model.

Computes one vector a rollout: the mean of the last hidden layer over the tokens of its completion, read after its
prompt.
The formula is h(y; x) = (1/T) sum_t hidden_t, t over the sampled tokens, the closing end-of-sequence token included.
It is divided by T, the number of those tokens.
Nothing of RRPO 3.2 is left out; that the closing token counts, and that sums are in float32, is ours.

Shapes: N rollouts, P prompts and B completions of one pass, L tokens of a prompt, T of a completion, K of both, H
hidden size.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from rangeline.errors import BadInputError, RolloutError
from rangeline.records import RolloutSet
from rangeline.rollout.reading import cached_forward, left_padded
from rangeline.rollout.transformers_engine import context_length, evaluating

HiddenArray = NDArray[np.float32]
_Texts = dict[tuple[int, ...], dict[tuple[int, ...], int]]
"""Distinct completions of each distinct prompt, with the first row that has them."""


def mean_hidden(
    model: Any,
    rollouts: RolloutSet,
    *,
    micro_batch_tokens: int = 4096,
    progress: Callable[[int, int], None] | None = None,
) -> HiddenArray:
    """Return the representation of every rollout.

    Parameters
    ----------
    model
        Causal language model; its weights are not changed.
    rollouts
        N rollouts with their prompts as the policy was asked them, whatever led their sampling.
    micro_batch_tokens
        Padded tokens of one forward pass; the completions of a single prompt go together.
    progress
        Called with (distinct rollouts done, distinct rollouts wanted) after each pass.

    Returns
    -------
    HiddenArray
        float32 of shape (N, H); NaN where a completion has no token, and non-finite where the model's states are.

    Raises
    ------
    BadInputError
        When there is no rollout, or `micro_batch_tokens` is not positive.
    RolloutError
        When a prompt with its completion is longer than the model can read.

    Notes
    -----
    RRPO 3.2. The last bits depend on which rows share a pass, so equal inputs in equal order give equal bytes.
    """
    if not len(rollouts) or micro_batch_tokens < 1:
        msg = (
            f"'rollouts' and 'micro_batch_tokens' must be at least 1; got {len(rollouts)} and {micro_batch_tokens} "
            "(representation). Sample first."
        )
        raise BadInputError(msg)
    lengths = [len(a) + len(b) for a, b in zip(rollouts.prompt_token_ids_N, rollouts.token_ids_N, strict=True)]
    _require_room(rollouts, lengths, context_length(model))
    # Equal texts are read once: they have one representation to the last bit, and short answers repeat.
    completions: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for i, (prompt, ids) in enumerate(zip(rollouts.prompt_token_ids_N, rollouts.token_ids_N, strict=True)):
        completions.setdefault(prompt, {}).setdefault(ids, i)
    hidden_of: dict[tuple[tuple[int, ...], tuple[int, ...]], HiddenArray] = {}
    total = sum(len(texts) for texts in completions.values())
    with evaluating(model), torch.inference_mode():
        for prompts in _passes(completions, micro_batch_tokens):
            pairs = [(prompt, ids) for prompt in prompts for ids in completions[prompt]]
            hidden_of.update(zip(pairs, _pass(model, prompts, pairs), strict=True))
            if progress is not None:
                progress(len(hidden_of), total)
    return np.stack([hidden_of[pair] for pair in zip(rollouts.prompt_token_ids_N, rollouts.token_ids_N, strict=True)])


def _require_room(rollouts: RolloutSet, lengths: list[int], context: int | None) -> None:
    for i, length in enumerate(lengths):
        if context is not None and length > context:
            msg = (
                f"A prompt with its completion must fit the model's context of {context}; got {length} tokens (row "
                f"{i}, prompt '{rollouts.prompt_id_N[i]}'). Shorten the prompt or lower max_tokens."
            )
            raise RolloutError(msg)


def _passes(completions: _Texts, micro_batch_tokens: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield prompts that are read together: as many as keep the padded rows of all completions within the budget."""

    def width(prompt: tuple[int, ...]) -> int:
        return len(prompt) + max(len(ids) for ids in completions[prompt])

    prompts: list[tuple[int, ...]] = []
    rows, widest = 0, 0
    # Like lengths together waste the least padding.
    for prompt in sorted(completions, key=lambda item: (-width(item), item)):
        rows, widest = rows + len(completions[prompt]), max(widest, width(prompt))
        if prompts and rows * widest > micro_batch_tokens:
            yield prompts
            prompts, rows, widest = [], len(completions[prompt]), width(prompt)
        prompts.append(prompt)
    yield prompts


def _pass(
    model: Any, prompts: list[tuple[int, ...]], pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> HiddenArray:
    """Read every prompt once, then its completions behind copies of its keys and values."""
    ids_PL, mask_PL = left_padded(prompts, model.device)
    cache = DynamicCache(config=model.config)
    cached_forward(model.get_decoder(), ids_PL, mask_PL, cache)
    place = {prompt: p for p, prompt in enumerate(prompts)}
    index_B = torch.tensor([place[prompt] for prompt, _ in pairs], device=model.device)
    cache.batch_select_indices(index_B)
    width = max(max(len(ids) for _, ids in pairs), 1)
    ids_BT = torch.zeros((len(pairs), width), dtype=torch.int64)
    keep_BT = torch.zeros((len(pairs), width), dtype=torch.bool)
    for b, (_, ids) in enumerate(pairs):
        ids_BT[b, : len(ids)] = torch.tensor(ids)
        keep_BT[b, : len(ids)] = True
    ids_BT, keep_BT = ids_BT.to(model.device), keep_BT.to(model.device)
    mask_BK = torch.cat([mask_PL[index_B], keep_BT.long()], dim=1)
    hidden_BTH = cached_forward(model.get_decoder(), ids_BT, mask_BK, cache).last_hidden_state
    sum_BH = torch.where(keep_BT[:, :, None], hidden_BTH.float(), 0.0).sum(dim=1)
    # No token: 0 / 0 is NaN, which stands for "no representation".
    mean_BH: HiddenArray = (sum_BH / keep_BT.sum(dim=1)[:, None]).cpu().numpy()
    return mean_BH
