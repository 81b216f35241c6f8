"""The losses of one batch, micro-batch by micro-batch, and the old log-probs that they share.

It computes, for each part of a batch that takes an optimiser step, the losses of its micro-batches.
The formulas are those of `policy.objective`, and of the log-likelihood of the texts to learn beside it.
Each loss is already divided by the global counts of its part, so that their gradients add up.
Old log-probs are those before the batch's first step: where one part is the whole batch they come from that step's own
forward pass, so that they share precision and padding with the current ones and the first ratio is exactly 1; where
there are several parts, all are computed before the first of them moves the weights.

Shapes: B rows of a micro-batch, L prompt and completion tokens (padded).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rangeline.errors import NonFiniteError
from rangeline.policy.batch import (
    IntArray,
    PolicyBatch,
    group_by_length,
    micro_batches,
    pad_rows,
    rows_with_loss,
    taught_weights,
    token_weights,
)
from rangeline.policy.mismatch import (
    Mismatch,
    combine_mismatch,
    compare_with_sampler,
    measure_mismatch,
    require_small_mismatch,
)
from rangeline.policy.objective import ObjectiveTerms, TokenTerms, policy_loss
from rangeline.policy.settings import UpdateSettings
from rangeline.records import BoolArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenTensors:
    """Padded rows of one micro-batch on the trainer's device."""

    token_ids_BL: Tensor
    attention_mask_BL: Tensor
    loss_mask_BL: Tensor


class Scorer(Protocol):
    """What the losses need of a trainer."""

    settings: UpdateSettings

    @property
    def device(self) -> torch.device:
        """Where the policy lives."""
        ...

    def logprobs(self, tokens: TokenTensors) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies under the policy."""
        ...

    def reference_logprobs(self, tokens: TokenTensors) -> Tensor | None:
        """Return log-probs under the frozen reference; None where there is none."""
        ...

    def tensors(self, token_ids_BL: IntArray, attention_mask_BL: BoolArray, loss_mask_BL: BoolArray) -> TokenTensors:
        """Move padded rows to the device."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MicroBatch:
    """Rows of one forward pass, and what does not change from step to step."""

    tokens: TokenTensors
    advantage_B: Tensor
    weight_B: Tensor
    sampled_BL: Tensor
    reference_BL: Tensor | None


class PartLosses:
    """The part of a batch that one optimiser step takes.

    Parameters
    ----------
    scorer
        Trainer that gives log-probs.
    batch
        The part: its own rows and texts to learn; counts are taken over it.
    """

    def __init__(self, scorer: Scorer, batch: PolicyBatch) -> None:
        self._scorer, self._batch, self._settings = scorer, batch, scorer.settings
        rows = rows_with_loss(batch, keep_zero_advantage=self._settings.uses_every_row)
        weight_B = token_weights(batch, self._settings.aggregation)
        budget = self._settings.micro_batch_tokens
        self._micros = [
            self._micro_batch(index, weight_B[index]) for index in micro_batches(batch, rows, max_batch_tokens=budget)
        ]
        self._old: list[Tensor] = []
        self._factors: list[Tensor | None] = []
        self.mismatch: list[Mismatch] = []
        """Of each micro-batch whose old log-probs are known."""

    @property
    def has_signal(self) -> bool:
        """False where no advantage and no text to learn asks for a step."""
        return bool(np.any(self._batch.advantage_B != 0)) or any(row.weight for row in self._batch.taught)

    @property
    def num_rows(self) -> int:
        """Rows that have a loss."""
        return sum(len(micro.advantage_B) for micro in self._micros)

    def freeze_old(self) -> None:
        """Compute the old log-probs under the present weights."""
        for micro in self._micros:
            with torch.no_grad():
                old_BL, _ = self._scorer.logprobs(micro.tokens)
            self._keep_old(micro, old_BL)

    def losses(self, terms: list[ObjectiveTerms], taught: list[float]) -> Iterator[Tensor]:
        """Give the losses one at a time, and append what they report.

        Raises
        ------
        MismatchError
            In the first pass, when sampler and trainer differ by more than is allowed.
        NonFiniteError
            When a log-prob or a loss is not finite.
        """
        yield from self._policy_losses(terms)
        yield from self._taught_losses(taught)

    def _keep_old(self, micro: MicroBatch, old_BL: Tensor) -> None:
        settings = self._settings
        rows = compare_with_sampler(
            old_BL,
            micro.sampled_BL,
            micro.tokens.loss_mask_BL,
            correction=settings.correction,
            cap=settings.correction_cap,
        )
        self._old.append(old_BL.detach())
        self._factors.append(rows.factor_BL)
        self.mismatch.append(measure_mismatch(rows, correction=settings.correction))

    def _policy_losses(self, terms: list[ObjectiveTerms]) -> Iterator[Tensor]:
        settings = self._settings
        fresh = len(self._old) < len(self._micros)
        for number, micro in enumerate(self._micros):
            current_BL, entropy_BL = self._scorer.logprobs(micro.tokens)
            if fresh:
                self._keep_old(micro, current_BL)
            loss, said = policy_loss(
                TokenTerms(
                    current_BL=current_BL,
                    old_BL=self._old[number],
                    reference_BL=micro.reference_BL,
                    entropy_BL=entropy_BL,
                    mask_BL=micro.tokens.loss_mask_BL,
                    advantage_B=micro.advantage_B,
                    weight_B=micro.weight_B,
                    factor_BL=self._factors[number],
                ),
                clip_low=settings.clip_low,
                clip_high=settings.clip_high,
                dual_clip=settings.dual_clip,
                kl_coefficient=settings.kl_coefficient,
                kl_form=settings.kl_form,
                entropy_coefficient=settings.entropy_coefficient,
            )
            terms.append(said)
            yield loss
        if fresh:
            # The optimiser steps after the last loss: an error here leaves the weights as they were.
            require_small_mismatch(combine_mismatch(self.mismatch), settings.max_mismatch)

    def _micro_batch(self, index: IntArray, weight_B: Any) -> MicroBatch:
        batch, device = self._batch, self._scorer.device
        # Cut to the columns that some row attends, on whichever side the padding lies.
        used = np.flatnonzero(batch.attention_mask_BL[index].any(axis=0))
        columns = slice(int(used[0]), int(used[-1]) + 1)
        tokens = self._scorer.tensors(
            batch.token_ids_BL[index, columns],
            batch.attention_mask_BL[index, columns],
            batch.loss_mask_BL[index, columns],
        )
        return MicroBatch(
            tokens=tokens,
            advantage_B=torch.tensor(batch.advantage_B[index], device=device),
            weight_B=torch.tensor(weight_B, device=device),
            sampled_BL=torch.tensor(batch.sampled_logprobs_BL[index, columns], device=device),
            reference_BL=self._scorer.reference_logprobs(tokens),
        )

    def _taught_losses(self, values: list[float]) -> Iterator[Tensor]:
        """Give minus the weighted log-likelihood of the texts to learn; texts of weight 0 change nothing."""
        texts = self._batch.taught
        weight_R = taught_weights(self._batch, self._settings.aggregation)
        rows = [i for i, row in enumerate(texts) if row.weight != 0 and row.target_ids]
        lengths = np.array([len(row.prompt_ids) + len(row.target_ids) for row in texts], dtype=np.int64)
        ordered = sorted(rows, key=lambda i: (-int(lengths[i]), texts[i].prompt_ids, texts[i].target_ids))
        for index in group_by_length(ordered, lengths, max_batch_tokens=self._settings.micro_batch_tokens):
            chosen = [texts[i] for i in index]
            arrays = pad_rows([row.prompt_ids for row in chosen], [row.target_ids for row in chosen], pad_id=0)
            logprob_BL, _ = self._scorer.logprobs(self._scorer.tensors(*arrays))
            weight_B1 = torch.tensor(weight_R[index], device=self._scorer.device, dtype=logprob_BL.dtype)[:, None]
            loss = -(weight_B1 * logprob_BL).sum()
            value = float(loss.detach())
            if not math.isfinite(value):
                msg = f"'loss' must be finite; got {value} (texts to learn). Lower the learning rate."
                raise NonFiniteError(msg)
            values.append(value)
            yield loss


def split_by_prompt(batch: PolicyBatch, num_parts: int) -> list[PolicyBatch]:
    """Cut a batch into parts of whole prompts, dealt out in the order of their ids; no part is empty.

    Parameters
    ----------
    batch
        The whole batch.
    num_parts
        Parts at most; 1 gives the batch itself.

    Returns
    -------
    list of PolicyBatch
        Each with the texts to learn of its prompts; the order of the batch's rows changes nothing.
    """
    if num_parts == 1:
        return [batch]
    ids = sorted(batch.group_sizes)
    return [_take_prompts(batch, ids[first::num_parts]) for first in range(min(num_parts, len(ids)))]


def _take_prompts(batch: PolicyBatch, prompt_ids: Sequence[str]) -> PolicyBatch:
    chosen = set(prompt_ids)
    rows = [i for i, prompt_id in enumerate(batch.prompt_id_B) if prompt_id in chosen]
    return replace(
        batch,
        prompt_id_B=tuple(batch.prompt_id_B[i] for i in rows),
        sample_B=tuple(batch.sample_B[i] for i in rows),
        token_ids_BL=batch.token_ids_BL[rows],
        attention_mask_BL=batch.attention_mask_BL[rows],
        loss_mask_BL=batch.loss_mask_BL[rows],
        sampled_logprobs_BL=batch.sampled_logprobs_BL[rows],
        advantage_B=batch.advantage_B[rows],
        completion_lengths_B=batch.completion_lengths_B[rows],
        group_sizes={prompt_id: batch.group_sizes[prompt_id] for prompt_id in prompt_ids},
        taught=tuple(row for row in batch.taught if row.prompt_id in chosen),
    )
