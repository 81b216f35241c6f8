"""Sample rollouts from a transformers model in this process.

Computes G completions of each prompt and the log-probability of every sampled token.
The formula is inverse-CDF sampling, token = min{v : F(v) > u}, F the cumulated softmax(logits / T) in float64 and u
drawn up front from the prompt's own stream; T = 0 takes the most likely token.
Nothing is divided. Nothing is left out or added: no top-p, no top-k, no penalties, so that sampled log-probs are the
policy's own; each prompt is read once and its key-value cache is repeated G times.

Shapes: P prompts of a batch, G rollouts a prompt, R rows still being written, L prompt tokens, T tokens, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from rangeline.errors import RolloutError
from rangeline.records import RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt, SampledRow, assemble, require_distinct, require_room
from rangeline.rollout.head_logprobs import tile_rows
from rangeline.rollout.pretrained import stop_ids
from rangeline.rollout.reading import cached_forward, left_padded
from rangeline.rollout.token_logprobs import logit_map
from rangeline.seeds import stream

_COMPACT_SHARE = 0.75
"""Finished rows leave the batch once no more than this share of it is unfinished: dropping rows copies the cache."""
_BLOCK_TOKENS = 256
"""Tokens whose mass is summed before the search: only one block a row is cumulated token by token."""


class TransformersEngine:
    """In-process engine: CPU or one GPU, tests, and the default.

    Parameters
    ----------
    model
        Causal language model; its weights may change between calls if `policy_version` is raised with them.
    tokenizer
        Its tokenizer.
    policy_version
        Version of the weights.
    prompts_per_batch
        Prompts sampled together, each with its whole group.
    """

    def __init__(self, model: Any, tokenizer: Any, *, policy_version: int, prompts_per_batch: int = 16) -> None:
        if prompts_per_batch < 1:
            msg = f"'prompts_per_batch' must be at least 1; got {prompts_per_batch}. Correct the sampling settings."
            raise RolloutError(msg)
        self.policy_version = policy_version
        self._model = model
        self._tokenizer = tokenizer
        self._prompts_per_batch = prompts_per_batch

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        plan: SamplingPlan,
        *,
        run_seed: int,
        iteration: int,
        purpose: str,
        progress: Callable[[int, int], None] | None = None,
    ) -> RolloutSet:
        """Return G rollouts a prompt, prompts in the order given.

        Parameters
        ----------
        prompts
            P prompts of distinct ids.
        plan
            Group size, temperature and completion cap. At temperature 0 log-probs are those of temperature 1.
        run_seed, iteration, purpose
            Together with the prompt id, the key of a prompt's random stream.
        progress
            Called with (rollouts done, rollouts wanted) after each batch.

        Raises
        ------
        RolloutError
            If prompt ids repeat, a prompt is empty or too long for the model, or its logits are not numbers.
        """
        require_distinct(prompts)
        require_room(prompts, plan.max_tokens, context_length(self._model))
        # Like lengths together waste the least padding, and the longest first shows a lack of memory at once.
        ordered = sorted(prompts, key=lambda prompt: -len(prompt.token_ids))
        rows_of: dict[str, list[SampledRow]] = {}
        with evaluating(self._model), torch.inference_mode():
            for start in range(0, len(ordered), self._prompts_per_batch):
                batch = ordered[start : start + self._prompts_per_batch]
                uniform_PGT = np.stack(
                    [
                        stream(run_seed, purpose, iteration, prompt.prompt_id).random(
                            (plan.group_size, plan.max_tokens)
                        )
                        for prompt in batch
                    ]
                )
                rows_of.update(self._sample(batch, plan, uniform_PGT))
                if progress is not None:
                    progress(len(rows_of) * plan.group_size, len(prompts) * plan.group_size)
        return assemble(prompts, rows_of, self.policy_version)

    def _sample(
        self, batch: Sequence[EncodedPrompt], plan: SamplingPlan, uniform_PGT: np.ndarray[Any, Any]
    ) -> dict[str, list[SampledRow]]:
        model, stops = self._model, stop_ids(self._tokenizer, self._model)
        num_groups, size, length = len(batch), plan.group_size, len(batch[0].token_ids)
        ids_PL, mask_PL = left_padded([prompt.token_ids for prompt in batch], model.device)
        cache = DynamicCache(config=model.config)
        logits = next_logits(model, ids_PL, mask_PL, cache).repeat_interleave(size, dim=0)
        cache.batch_repeat_interleave(size)
        mask_RL = torch.nn.functional.pad(mask_PL.repeat_interleave(size, dim=0), (0, plan.max_tokens), value=1)
        uniform_RT = torch.from_numpy(uniform_PGT).reshape(num_groups * size, -1).to(model.device)
        row_R = torch.arange(num_groups * size)  # number of each remaining row in the whole batch
        tokens: list[list[int]] = [[] for _ in range(len(row_R))]
        logprobs: list[list[float]] = [[] for _ in range(len(row_R))]
        done = np.zeros(len(row_R), dtype=bool)
        for t in range(plan.max_tokens):
            rows = row_R.tolist()
            token_R, logprob_R = draw_tokens(logits, uniform_RT[:, t], plan.temperature)
            for row, token, logprob in zip(rows, token_R.tolist(), logprob_R.tolist(), strict=True):
                if not done[row]:
                    _require_number(logprob, batch[row // size].prompt_id, t)
                    tokens[row].append(token)
                    logprobs[row].append(logprob)
                    done[row] = token in stops
            if done.all() or t + 1 == plan.max_tokens:
                break
            keep = np.flatnonzero(~done[rows])
            if len(keep) <= _COMPACT_SHARE * len(rows):
                index = torch.from_numpy(keep)
                row_R, index = row_R[index], index.to(model.device)
                cache.batch_select_indices(index)
                mask_RL, uniform_RT, token_R = mask_RL[index], uniform_RT[index], token_R[index]
            logits = next_logits(model, token_R[:, None], mask_RL[:, : length + t + 1], cache)
        return self._rows(batch, tokens, logprobs, done)

    def _rows(
        self,
        batch: Sequence[EncodedPrompt],
        tokens: list[list[int]],
        logprobs: list[list[float]],
        done: np.ndarray[Any, Any],
    ) -> dict[str, list[SampledRow]]:
        # Rows that say the same, as short completions do, are decoded once.
        written = list(dict.fromkeys(map(tuple, tokens)))
        decoded = self._tokenizer.batch_decode([list(ids) for ids in written], skip_special_tokens=True)
        text_of = dict(zip(written, decoded, strict=True))
        rows = [
            SampledRow(
                token_ids=tuple(ids),
                logprobs=tuple(values),
                finish_reason="stop" if stopped else "length",
                completion=text_of[tuple(ids)],
            )
            for ids, values, stopped in zip(tokens, logprobs, done, strict=True)
        ]
        size = len(rows) // len(batch)
        return {prompt.prompt_id: rows[p * size : (p + 1) * size] for p, prompt in enumerate(batch)}


def draw_tokens(logits_RV: Tensor, uniform_R: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return one token a row by inverse CDF, and its log-probability.

    Parameters
    ----------
    logits_RV
        Next-token logits, any float type.
    uniform_R
        float64 in [0, 1).
    temperature
        Positive, or 0: the most likely token, the first of equals.

    Returns
    -------
    tuple of Tensor
        int64 tokens and float32 log-probabilities at the temperature (at 1 where it is 0); a log-probability is
        NaN where the row's logits hold a NaN or +infinity, or only -infinity.
    """
    token_R = torch.empty(len(logits_RV), dtype=torch.int64, device=logits_RV.device)
    logprob_R = torch.empty(len(logits_RV), device=logits_RV.device)
    step = tile_rows(logits_RV)
    buffer_tV = torch.empty((min(step, len(logits_RV)), logits_RV.shape[-1]), device=logits_RV.device)
    for first in range(0, len(logits_RV), step):
        rows = slice(first, first + step)
        scaled_tV = buffer_tV[: len(logits_RV[rows])].copy_(logits_RV[rows])
        if temperature not in (0.0, 1.0):
            scaled_tV.div_(temperature)
        prob_tV = torch.softmax(scaled_tV, dim=-1)
        token_t1 = scaled_tV.argmax(dim=-1)[:, None] if temperature == 0 else _inverse_cdf(prob_tV, uniform_R[rows])
        token_R[rows] = token_t1[:, 0]
        logprob_R[rows] = prob_tV.gather(-1, token_t1).log()[:, 0]
    return token_R, logprob_R


def _inverse_cdf(prob_tV: Tensor, uniform_t: Tensor) -> Tensor:
    """Return min{v : F(v) > u} of each row as a column: the block of tokens first, then the token inside it."""
    num_tokens = prob_tV.shape[-1]
    blocks_tVK = torch.nn.functional.pad(prob_tV, (0, -num_tokens % _BLOCK_TOKENS)).unflatten(-1, (-1, _BLOCK_TOKENS))
    block_t1, rest_t1 = _first_above(blocks_tVK.sum(dim=-1), uniform_t[:, None], is_share=True)
    inside_tK = blocks_tVK.gather(1, block_t1[:, :, None].expand(-1, 1, _BLOCK_TOKENS))[:, 0]
    place_t1, _ = _first_above(inside_tK, rest_t1, is_share=False)
    return (block_t1 * _BLOCK_TOKENS + place_t1).clamp(max=num_tokens - 1)


def _first_above(mass_tK: Tensor, wanted_t1: Tensor, *, is_share: bool) -> tuple[Tensor, Tensor]:
    """Return the first place whose cumulated mass exceeds what is wanted, and how much is wanted of that place."""
    cdf_tK = mass_tK.cumsum(dim=-1, dtype=torch.float64)
    total_t1 = cdf_tK[:, -1:]
    # u * total may round up to total, and no token lies above it.
    least_t1 = torch.nextafter(total_t1, torch.zeros_like(total_t1))
    wanted_t1 = torch.minimum(wanted_t1 * total_t1 if is_share else wanted_t1, least_t1)
    place_t1 = torch.searchsorted(cdf_tK, wanted_t1, right=True).clamp(max=mass_tK.shape[-1] - 1)
    before_t1 = cdf_tK.gather(-1, place_t1) - mass_tK.gather(-1, place_t1)
    return place_t1, (wanted_t1 - before_t1).clamp(min=0)


def next_logits(model: Any, ids_RL: Tensor, mask_RK: Tensor, cache: DynamicCache) -> Tensor:
    """Return the logits after the last of some new tokens, and append these to the cache.

    Parameters
    ----------
    model
        Causal language model.
    ids_RL
        The new tokens of each row.
    mask_RK
        1 on real tokens, 0 on padding, over all K tokens: those of the cache and the new ones.
    cache
        Keys and values of the K - L tokens before; grows in place.
    """
    hidden_RLH = cached_forward(model.get_decoder(), ids_RL, mask_RK, cache).last_hidden_state
    # Two dimensions: of three with gaps between rows, a matrix product would copy the head's weight for every row.
    logits: Tensor = logit_map(model)(model.get_output_embeddings()(hidden_RLH[:, -1]))
    return logits


def context_length(model: Any) -> int | None:
    """Return the most tokens a model can read, None where its configuration does not say."""
    length = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return None if length is None else int(length)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Hold a model in eval mode, and give its former mode back."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _require_number(logprob: float, prompt_id: str, t: int) -> None:
    if math.isnan(logprob):
        msg = (
            f"'logits' must be numbers; got a log-probability of {logprob} (prompt '{prompt_id}', token {t}). "
            "Load the last good checkpoint, or sample in float32."
        )
        raise RolloutError(msg)
