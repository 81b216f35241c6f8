"""Sample rollouts from a transformers model in this process.

Computes G completions of each prompt and the log-probability of every sampled token.
The formula is inverse-CDF sampling, token = min{v : F(v) > u}, F the cumulated softmax(logits / T) in float64 and u
drawn up front from the prompt's own stream; T = 0 takes the most likely token.
Nothing is divided. Nothing is left out or added: no top-p, no top-k, no penalties, so that sampled log-probs are the
policy's own; each prompt is read once and its key-value cache is repeated G times.

Shapes: P prompts of a batch, G rollouts a prompt, R rows still being written, L prompt tokens, T tokens, V vocabulary.
"""

import inspect
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
from rangeline.rollout.pretrained import stop_ids
from rangeline.rollout.token_logprobs import position_ids
from rangeline.seeds import stream

_COMPACT_SHARE = 0.75
"""Finished rows leave the batch once no more than this share of it is unfinished: dropping rows copies the cache."""


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
        tokens: list[list[int]] = [[] for _ in row_R]
        logprobs: list[list[float]] = [[] for _ in row_R]
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
        texts = self._tokenizer.batch_decode(tokens, skip_special_tokens=True)
        rows = [
            SampledRow(
                token_ids=tuple(ids),
                logprobs=tuple(values),
                finish_reason="stop" if stopped else "length",
                completion=text,
            )
            for ids, values, stopped, text in zip(tokens, logprobs, done, texts, strict=True)
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
    logprob_RV = torch.log_softmax(logits_RV.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        token_R = logprob_RV.argmax(dim=-1)
    else:
        cdf_RV = logprob_RV.exp().cumsum(dim=-1, dtype=torch.float64)
        total_R = cdf_RV[:, -1]
        # u * total may round up to total, and no token lies above it.
        wanted_R = torch.minimum(uniform_R * total_R, torch.nextafter(total_R, torch.zeros_like(total_R)))
        token_R = torch.searchsorted(cdf_RV, wanted_R[:, None], right=True)[:, 0].clamp(max=logits_RV.shape[-1] - 1)
    return token_R, logprob_RV.gather(-1, token_R[:, None])[:, 0]


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
    logits: Tensor = cached_forward(model, ids_RL, mask_RK, cache, logits_to_keep=1).logits[:, -1]
    return logits


def cached_forward(module: Any, ids_RL: Tensor, mask_RK: Tensor, cache: DynamicCache, **options: Any) -> Any:
    """Return the output of a model, or of its decoder, on new tokens, and append these to the cache."""
    # The keyword is `cache` from transformers 5.24 on.
    keyword = "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"
    return module(
        input_ids=ids_RL,
        attention_mask=mask_RK,
        position_ids=position_ids(mask_RK)[:, -ids_RL.shape[1] :],
        use_cache=True,
        **{keyword: cache},
        **options,
    )


def left_padded(rows: Sequence[Sequence[int]], device: Any) -> tuple[Tensor, Tensor]:
    """Return rows of token ids padded on the left with id 0, and their attention mask."""
    width = max(len(row) for row in rows)
    ids = torch.zeros((len(rows), width), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = torch.tensor(row)
        mask[i, width - len(row) :] = 1
    return ids.to(device), mask.to(device)


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
    if np.isnan(logprob):
        msg = (
            f"'logits' must be numbers; got a log-probability of {logprob} (prompt '{prompt_id}', token {t}). "
            "Load the last good checkpoint, or sample in float32."
        )
        raise RolloutError(msg)
