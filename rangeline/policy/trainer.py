"""Update the policy from one batch of rollouts: AdamW steps on Accelerate, in one process.

It computes `updates_per_batch` passes over a batch on the clipped objective of `policy.objective`, each of
`mini_batches` optimiser steps; `policy.losses` gives the losses of a step and says where old log-probs come from.
Gradients are divided by the global counts of what a step takes alone, whatever the micro-batches.
The learning rate follows `policy.schedule` by the optimiser's own count of steps, so that no state is added to it.
Weight decay is left out: the papers' runs do not use it. Dropout is off throughout (the model stays in evaluation
mode), because it would make old and current log-probs differ.

Shapes: B rows of a micro-batch, L prompt and completion tokens (padded).
"""

import math
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from rangeline.errors import ConfigError, NonFiniteError
from rangeline.policy.activation_checkpointing import allow_checkpointing, checkpointed_layers
from rangeline.policy.batch import IntArray, PolicyBatch
from rangeline.policy.losses import PartLosses, split_by_prompt
from rangeline.policy.losses import TokenTensors as TokenTensors  # rows as the trainer takes them
from rangeline.policy.mismatch import Mismatch, combine_mismatch, require_small_mismatch
from rangeline.policy.objective import ObjectiveTerms, combine_terms
from rangeline.policy.report import StepReport, report_update
from rangeline.policy.report import UpdateReport as UpdateReport  # what an update returns
from rangeline.policy.schedule import schedule_factor
from rangeline.policy.settings import UpdateSettings as UpdateSettings  # found beside the trainer that they set
from rangeline.records import BoolArray
from rangeline.rollout.token_logprobs import token_logprobs


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
        self._factor = schedule_factor(
            settings.schedule, warmup_steps=settings.warmup_steps, num_steps=settings.schedule_steps or 0
        )
        if settings.activation_checkpointing:
            allow_checkpointing(model)
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
        MismatchError
            When sampler and trainer differ by more than the settings allow; no step is taken.
        """
        started = time.perf_counter()
        if not np.any(batch.advantage_B != 0) and not any(row.weight for row in batch.taught):
            return UpdateReport(skipped=True, num_rows=len(batch), seconds=time.perf_counter() - started)
        settings = self.settings
        parts = [PartLosses(self, part) for part in split_by_prompt(batch, settings.mini_batches)]
        if len(parts) > 1:
            for part in parts:
                part.freeze_old()
            require_small_mismatch(_mismatch_of(parts), settings.max_mismatch)
        by_step = [
            self._take_step(part) for _ in range(settings.updates_per_batch) for part in parts if part.has_signal
        ]
        return report_update(
            by_step,
            _mismatch_of(parts),
            passes=settings.updates_per_batch,
            active_rows=sum(part.num_rows for part in parts),
            num_rows=len(batch),
            seconds=time.perf_counter() - started,
        )

    def _take_step(self, part: PartLosses) -> StepReport:
        terms: list[ObjectiveTerms] = []
        taught: list[float] = []
        rate = self.learning_rate
        norm = self.step(part.losses(terms, taught))
        total = combine_terms(terms)
        return StepReport(
            step=self.num_steps,
            learning_rate=rate,
            loss=total.loss + sum(taught),
            grad_norm=norm,
            grad_norm_clipped=min(norm, self.settings.max_grad_norm),
            terms=total,
        )

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken so far, those before a restored checkpoint included."""
        counts = (int(state["step"]) for state in self.optimizer.state.values() if "step" in state)
        return max(counts, default=0)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return self.settings.learning_rate * self._factor(self.num_steps)

    def step(self, losses: Iterable[Tensor], *, learning_rate: float | None = None) -> float:
        """Add up the gradients of the losses and take one optimiser step.

        Parameters
        ----------
        losses
            Losses of the micro-batches, already divided by the global count; taken one at a time.
        learning_rate
            Of this step alone; None means that of the settings and their schedule.

        Returns
        -------
        float
            Norm of the whole gradient before clipping.

        Raises
        ------
        NonFiniteError
            When the norm is not finite; no step is taken.
        """
        rate = self.learning_rate if learning_rate is None else learning_rate
        try:
            for loss in losses:
                self._accelerator.backward(loss)
            norm = float(self._accelerator.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm))
            if not math.isfinite(norm):
                msg = f"'grad_norm' must be finite; got {norm} (policy update). Lower the learning rate."
                raise NonFiniteError(msg)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        finally:
            self.optimizer.zero_grad(set_to_none=True)
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
            Log-probs and entropies (B, L) in the model's precision, float32 at least; 0 outside the loss mask. The
            entropies carry a gradient only when the entropy term is on.
        """
        is_bf16 = self.settings.mixed_precision == "bf16"
        chosen = self.model if model is None else model
        is_lean = self.settings.activation_checkpointing and chosen is self.model and torch.is_grad_enabled()
        with (
            torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_bf16),
            checkpointed_layers(chosen) if is_lean else nullcontext(),
        ):
            return token_logprobs(
                chosen,
                tokens.token_ids_BL,
                tokens.attention_mask_BL,
                tokens.loss_mask_BL,
                temperature=self.settings.temperature,
                chunk_rows=self.settings.chunk_rows,
                with_entropy=self.settings.entropy_coefficient > 0,
            )

    def reference_logprobs(self, tokens: TokenTensors) -> Tensor | None:
        """Return log-probs under the frozen reference policy; None when the KL term is off."""
        if self.settings.kl_coefficient == 0:
            return None
        with torch.no_grad():
            return self.logprobs(tokens, model=self._reference)[0]

    def tensors(self, token_ids_BL: IntArray, attention_mask_BL: BoolArray, loss_mask_BL: BoolArray) -> TokenTensors:
        """Move padded rows to the device, cut to the last column that some row attends."""
        end = int(np.flatnonzero(attention_mask_BL.any(axis=0))[-1]) + 1

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


def _mismatch_of(parts: Iterable[PartLosses]) -> Mismatch:
    return combine_mismatch([item for part in parts for item in part.mismatch])
