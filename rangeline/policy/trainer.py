"""Update the policy from one batch of rollouts: AdamW steps on Accelerate, in one process.

It computes `updates_per_batch` optimiser steps on the clipped objective of `policy.objective`, each over the whole
batch. The old log-probs are those of the first step's own forward pass, taken before any weight changes, so that
they share precision, padding and temperature with the current ones and the first ratio is exactly 1.
Gradients are divided by the global counts of the batch alone, whatever the micro-batches.
Weight decay and a learning-rate schedule are left out: the papers' runs use neither, and a schedule is hidden state.
Dropout is off throughout (the model stays in evaluation mode), because it would make old and current differ.

Shapes: B rows of a micro-batch, L prompt and completion tokens (padded).
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from rangeline.errors import ConfigError, NonFiniteError
from rangeline.policy.batch import (
    Aggregation,
    IntArray,
    PolicyBatch,
    group_by_length,
    micro_batches,
    pad_rows,
    rows_with_loss,
    taught_weights,
    token_weights,
)
from rangeline.policy.objective import ObjectiveTerms, TokenTerms, combine_terms, policy_loss
from rangeline.policy.stopwatch import Stopwatch
from rangeline.records import BoolArray
from rangeline.rollout.token_logprobs import token_logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """How the policy is updated."""

    learning_rate: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of AdamW."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    """The probability ratio is clipped to [1 - clip_low, 1 + clip_high]."""
    kl_coefficient: float = 0.0
    """beta of the k3 term; 0 = off, no reference policy is held."""
    entropy_coefficient: float = 0.0
    updates_per_batch: int = 1
    """Optimiser steps a batch, each over all of it."""
    micro_batch_tokens: int = 8192
    """Rows times longest row of a forward pass, at most; changes speed and memory only."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm; infinity = never."""
    aggregation: Aggregation = "dr_grpo"
    temperature: float = 1.0
    """Temperature of all log-probs; the one the rollouts were sampled at."""
    mixed_precision: Literal["no", "bf16"] = "no"
    """bf16 runs the forward pass in bfloat16; weights, log-probs and optimiser stay float32."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        rules = {
            "learning_rate": ("be positive", 0 < self.learning_rate < math.inf),
            "betas": ("lie in [0, 1)", all(0 <= beta < 1 for beta in self.betas)),
            "clip_low": ("lie in [0, 1]", 0 <= self.clip_low <= 1),
            "clip_high": ("be at least 0", self.clip_high >= 0),
            "kl_coefficient": ("be at least 0", 0 <= self.kl_coefficient < math.inf),
            "entropy_coefficient": ("be at least 0", 0 <= self.entropy_coefficient < math.inf),
            "updates_per_batch": ("be at least 1", self.updates_per_batch >= 1),
            "micro_batch_tokens": ("be at least 1", self.micro_batch_tokens >= 1),
            "max_grad_norm": ("be positive", self.max_grad_norm > 0),
            "aggregation": ("be dr_grpo, grpo or dapo", self.aggregation in ("dr_grpo", "grpo", "dapo")),
            "temperature": ("be positive", 0 < self.temperature < math.inf),
            "mixed_precision": ("be no or bf16", self.mixed_precision in ("no", "bf16")),
        }
        for name, (rule, ok) in rules.items():
            if not ok:
                msg = f"'{name}' must {rule}; got {getattr(self, name)} (policy settings). Correct the setting."
                raise ConfigError(msg)

    @property
    def uses_every_row(self) -> bool:
        """True where a KL or entropy term reads rollouts without advantage too."""
        return self.kl_coefficient > 0 or self.entropy_coefficient > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """Finite numbers of one update; token means cover the rows that were trained on."""

    skipped: bool
    """True when every advantage was 0: no step was taken and the numbers below are 0."""
    steps: int = 0
    loss: float = 0.0
    """Mean over the steps."""
    grad_norm: float = 0.0
    """Mean over the steps, before clipping."""
    clip_share: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    ratio_max: float = 0.0
    mismatch_mean: float = 0.0
    """Mean absolute gap of sampled and old log-probs, over tokens whose sampled log-prob is finite."""
    mismatch_max: float = 0.0
    active_rows: int = 0
    """Rows that were trained on."""
    num_rows: int = 0
    num_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenTensors:
    """Padded rows of one micro-batch on the trainer's device."""

    token_ids_BL: Tensor
    attention_mask_BL: Tensor
    loss_mask_BL: Tensor


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _MicroBatch:
    tokens: TokenTensors
    advantage_B: Tensor
    weight_B: Tensor
    sampled_BL: Tensor
    reference_BL: Tensor | None


class PolicyTrainer:
    """The policy, its optimiser and, where a KL term asks for it, the frozen reference policy.

    Parameters
    ----------
    model
        Causal language model with float32 weights; changed in place.
    settings
        How to update it.
    reference
        Frozen model of the KL term; needed exactly when `kl_coefficient` is positive.
    cpu
        True forbids an accelerator.
    num_processes
        World size that was asked for; compared with what Accelerate started.

    Raises
    ------
    ConfigError
        When the process count differs from what was asked, or the KL term has no reference policy.
    """

    def __init__(
        self,
        model: Any,
        settings: UpdateSettings,
        *,
        reference: Any | None = None,
        cpu: bool = False,
        num_processes: int = 1,
    ) -> None:
        # Mixed precision is this class's own autocast: log-probs are computed in chunks outside the model's forward,
        # which Accelerate's wrapper would not reach, and the same weights must also sample unwrapped.
        self._accelerator = Accelerator(cpu=cpu, mixed_precision="no")
        if self._accelerator.num_processes != num_processes:
            msg = (
                f"'num_processes' must equal the started processes; got {self._accelerator.num_processes} for "
                f"{num_processes} asked. Start with torchrun --nproc_per_node {num_processes}."
            )
            raise ConfigError(msg)
        if settings.kl_coefficient > 0 and reference is None:
            msg = (
                f"'reference' must be a model when kl_coefficient is positive; got None ({settings.kl_coefficient}). "
                "Give the initial policy."
            )
            raise ConfigError(msg)
        self.settings = settings
        self.stopwatch = Stopwatch()
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.learning_rate, betas=settings.betas, weight_decay=0.0
        )
        self.model, self.optimizer = self._accelerator.prepare(model, optimizer)
        self.model.eval()
        self._reference = None if reference is None else reference.to(self.device).eval().requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the policy lives."""
        device: torch.device = self._accelerator.device
        return device

    def update(self, batch: PolicyBatch) -> UpdateReport:
        """Take the optimiser steps of one batch.

        Parameters
        ----------
        batch
            All rollouts of the iteration, those without signal included.

        Returns
        -------
        UpdateReport
            `skipped` and no step when every advantage is 0.

        Raises
        ------
        NonFiniteError
            When a log-prob, the loss or the gradient is not finite; weights are those of the last finite step.
        """
        started = time.perf_counter()
        self.stopwatch.start()
        if not np.any(batch.advantage_B != 0) and not any(row.weight for row in batch.taught):
            return UpdateReport(skipped=True, num_rows=len(batch), seconds=time.perf_counter() - started)
        micros = self._micro_batches(batch)
        self.stopwatch.lap("prepare")
        old: list[Tensor] = []
        parts: list[ObjectiveTerms] = []
        taught: list[float] = []
        norms = [
            self.step(chain(self._losses(micros, old, parts), self._taught_losses(batch, taught)))
            for _ in range(self.settings.updates_per_batch)
        ]
        total = combine_terms(parts)
        mismatch = torch.cat(
            [(micro.sampled_BL - old_BL)[micro.tokens.loss_mask_BL] for micro, old_BL in zip(micros, old, strict=True)]
            or [torch.zeros(0)]
        )
        gaps = mismatch[torch.isfinite(mismatch)].abs().double()
        return UpdateReport(
            skipped=False,
            steps=len(norms),
            loss=(total.loss + sum(taught)) / len(norms),
            grad_norm=sum(norms) / len(norms),
            clip_share=total.clip_share,
            entropy=total.entropy,
            kl=total.kl,
            ratio_max=total.ratio_max,
            mismatch_mean=float(gaps.mean()) if len(gaps) else 0.0,
            mismatch_max=float(gaps.max()) if len(gaps) else 0.0,
            active_rows=sum(len(micro.advantage_B) for micro in micros),
            num_rows=len(batch),
            num_tokens=total.num_tokens // len(norms),
            seconds=time.perf_counter() - started,
        )

    def step(self, losses: Iterable[Tensor], *, learning_rate: float | None = None) -> float:
        """Add up the gradients of the losses and take one optimiser step.

        Parameters
        ----------
        losses
            Losses of the micro-batches, already divided by the global count; taken one at a time.
        learning_rate
            Of this step alone; None means that of the settings.

        Returns
        -------
        float
            Norm of the whole gradient before clipping.

        Raises
        ------
        NonFiniteError
            When the norm is not finite; no step is taken.
        """
        try:
            self.stopwatch.start()
            for loss in losses:
                self.stopwatch.lap("forward")
                self._accelerator.backward(loss)
                self.stopwatch.lap("backward")
            norm = float(self._accelerator.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm))
            if not math.isfinite(norm):
                msg = f"'grad_norm' must be finite; got {norm} (policy update). Lower the learning rate."
                raise NonFiniteError(msg)
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.learning_rate if learning_rate is None else learning_rate
            self.optimizer.step()
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            self.stopwatch.lap("optimizer")
        return norm

    def logprobs(self, tokens: TokenTensors, *, model: Any | None = None) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies at the loss mask, in the precision and temperature of the update.

        Parameters
        ----------
        tokens
            Padded rows.
        model
            Another model than the policy, such as the reference.

        Returns
        -------
        tuple of Tensor
            float32 log-probs and entropies (B, L), 0 outside the loss mask; entropies carry a gradient only when the
            entropy term is on.
        """
        is_bf16 = self.settings.mixed_precision == "bf16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_bf16):
            return token_logprobs(
                self.model if model is None else model,
                tokens.token_ids_BL,
                tokens.attention_mask_BL,
                tokens.loss_mask_BL,
                temperature=self.settings.temperature,
                with_entropy=self.settings.entropy_coefficient > 0,
            )

    def tensors(self, token_ids_BL: IntArray, attention_mask_BL: BoolArray, loss_mask_BL: BoolArray) -> TokenTensors:
        """Move padded rows to the device, cut to the longest of them."""
        end = int(attention_mask_BL.sum(axis=1).max())

        def move(array: Any) -> Tensor:
            # Copied, since torch warns about read-only arrays that it would share.
            return torch.tensor(array[:, :end], device=self.device)

        return TokenTensors(
            token_ids_BL=move(token_ids_BL),
            attention_mask_BL=move(attention_mask_BL),
            loss_mask_BL=move(loss_mask_BL),
        )

    def close(self) -> Self:
        """Let go of the accelerator's references to the model and the optimiser."""
        self._accelerator.free_memory()
        return self

    def _micro_batches(self, batch: PolicyBatch) -> list[_MicroBatch]:
        settings = self.settings
        rows = rows_with_loss(batch, keep_zero_advantage=settings.uses_every_row)
        weight_B = token_weights(batch, settings.aggregation)
        return [
            self._micro_batch(batch, index, weight_B[index])
            for index in micro_batches(batch, rows, max_batch_tokens=settings.micro_batch_tokens)
        ]

    def _micro_batch(self, batch: PolicyBatch, index: IntArray, weight_B: Any) -> _MicroBatch:
        tokens = self.tensors(batch.token_ids_BL[index], batch.attention_mask_BL[index], batch.loss_mask_BL[index])
        sampled = batch.sampled_logprobs_BL[index][:, : tokens.token_ids_BL.shape[1]]
        reference_BL = None
        if self.settings.kl_coefficient > 0:
            with torch.no_grad():
                reference_BL, _ = self.logprobs(tokens, model=self._reference)
        return _MicroBatch(
            tokens=tokens,
            advantage_B=torch.tensor(batch.advantage_B[index], device=self.device),
            weight_B=torch.tensor(weight_B, device=self.device),
            sampled_BL=torch.tensor(sampled, device=self.device),
            reference_BL=reference_BL,
        )

    def _losses(self, micros: list[_MicroBatch], old: list[Tensor], parts: list[ObjectiveTerms]) -> Iterator[Tensor]:
        settings = self.settings
        for number, micro in enumerate(micros):
            current_BL, entropy_BL = self.logprobs(micro.tokens)
            if number == len(old):
                # First step: weights have not changed yet, so these are the old log-probs of every later step.
                old.append(current_BL.detach())
            loss, terms = policy_loss(
                TokenTerms(
                    current_BL=current_BL,
                    old_BL=old[number],
                    reference_BL=micro.reference_BL,
                    entropy_BL=entropy_BL,
                    mask_BL=micro.tokens.loss_mask_BL,
                    advantage_B=micro.advantage_B,
                    weight_B=micro.weight_B,
                ),
                clip_low=settings.clip_low,
                clip_high=settings.clip_high,
                kl_coefficient=settings.kl_coefficient,
                entropy_coefficient=settings.entropy_coefficient,
            )
            parts.append(terms)
            yield loss

    def _taught_losses(self, batch: PolicyBatch, values: list[float]) -> Iterator[Tensor]:
        """Give minus the weighted log-likelihood of the texts to learn; texts of weight 0 change nothing."""
        weight_R = taught_weights(batch, self.settings.aggregation)
        rows = [i for i, row in enumerate(batch.taught) if row.weight != 0 and row.target_ids]
        lengths = np.array([len(row.prompt_ids) + len(row.target_ids) for row in batch.taught], dtype=np.int64)
        ordered = sorted(rows, key=lambda i: (-int(lengths[i]), batch.taught[i].prompt_ids, batch.taught[i].target_ids))
        for index in group_by_length(ordered, lengths, max_batch_tokens=self.settings.micro_batch_tokens):
            chosen = [batch.taught[i] for i in index]
            arrays = pad_rows([row.prompt_ids for row in chosen], [row.target_ids for row in chosen], pad_id=0)
            logprob_BL, _ = self.logprobs(self.tensors(*arrays))
            weight_B1 = torch.tensor(weight_R[index], device=self.device, dtype=logprob_BL.dtype)[:, None]
            loss = -(weight_B1 * logprob_BL).sum()
            value = float(loss.detach())
            if not math.isfinite(value):
                msg = f"'loss' must be finite; got {value} (texts to learn). Lower the learning rate."
                raise NonFiniteError(msg)
            values.append(value)
            yield loss
