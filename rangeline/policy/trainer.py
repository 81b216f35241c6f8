"""Update the policy from one batch of rollouts: AdamW steps on Accelerate, in one process or several.

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
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rangeline.errors import ConfigError, NonFiniteError
from rangeline.policy.activation_checkpointing import allow_checkpointing, checkpointed_layers
from rangeline.policy.adapter import is_adapted
from rangeline.policy.batch import IntArray, PolicyBatch
from rangeline.policy.losses import PartLosses, split_by_prompt
from rangeline.policy.losses import TokenTensors as TokenTensors  # rows as the trainer takes them
from rangeline.policy.mismatch import Mismatch, combine_mismatch, require_small_mismatch
from rangeline.policy.objective import ObjectiveTerms, combine_terms
from rangeline.policy.report import StepReport, report_update
from rangeline.policy.report import UpdateReport as UpdateReport  # what an update returns
from rangeline.policy.schedule import schedule_factor
from rangeline.policy.settings import UpdateSettings as UpdateSettings  # found beside the trainer that they set
from rangeline.policy.world import World
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
        Frozen model of the KL term; needed exactly when `kl_coefficient` is positive, and not where the model has an
        adapter: without it, the model is its own reference.
    cpu
        True forbids an accelerator.
    num_processes
        World size that was asked for; compared with what Accelerate started.
    world
        Where the trainer runs, in place of `cpu` and `num_processes`.

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
        world: World | None = None,
    ) -> None:
        self.world = World(cpu=cpu, num_processes=num_processes) if world is None else world
        if settings.kl_coefficient > 0 and reference is None and not is_adapted(model):
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
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate, betas=settings.betas, weight_decay=0.0)
        self.model = model
        self.optimizer = self.world.prepare(model, optimizer, max_grad_norm=settings.max_grad_norm)
        self._reference = None if reference is None else reference.to(self.device).eval().requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the policy lives."""
        return self.world.device

    def update(self, batch: PolicyBatch) -> UpdateReport:
        """Take the optimiser steps of one batch.

        Parameters
        ----------
        batch
            All rollouts of the iteration, those without signal included; the same in every process.

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
            require_small_mismatch(self._mismatch_of(parts), settings.max_mismatch)
        by_step = [
            self._take_step(part) for _ in range(settings.updates_per_batch) for part in parts if part.has_signal
        ]
        return report_update(
            by_step,
            self._mismatch_of(parts),
            passes=settings.updates_per_batch,
            active_rows=int(self.world.total([sum(part.num_rows for part in parts)])[0]),
            num_rows=len(batch),
            seconds=time.perf_counter() - started,
        )

    def _take_step(self, part: PartLosses) -> StepReport:
        terms: list[ObjectiveTerms] = []
        taught: list[float] = []
        rate = self.learning_rate
        norm = self.step(
            part.losses(terms, taught), num_losses=part.num_losses, before=partial(self._check_mismatch, part)
        )
        total = combine_terms(self.world.records_of_all(combine_terms(terms)))
        return StepReport(
            step=self.num_steps,
            learning_rate=rate,
            loss=total.loss + self.world.total([sum(taught)])[0],
            grad_norm=norm,
            grad_norm_clipped=min(norm, self.settings.max_grad_norm),
            terms=total,
        )

    def _check_mismatch(self, part: PartLosses) -> None:
        if part.is_first_pass:
            require_small_mismatch(self._mismatch_of([part]), self.settings.max_mismatch)
            part.is_first_pass = False

    def _mismatch_of(self, parts: Iterable[PartLosses]) -> Mismatch:
        mine = combine_mismatch([item for part in parts for item in part.mismatch])
        return combine_mismatch(self.world.records_of_all(mine))

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken so far, those before a restored checkpoint included."""
        counts = (int(state["step"]) for state in self.optimizer.state.values() if "step" in state)
        return max(counts, default=0)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return self.settings.learning_rate * self._factor(self.num_steps)

    def step(
        self,
        losses: Iterable[Tensor],
        *,
        num_losses: int | None = None,
        before: Callable[[], None] | None = None,
        learning_rate: float | None = None,
    ) -> float:
        """Add up the gradients of the losses, over all processes, and take one optimiser step.

        Parameters
        ----------
        losses
            Losses of this process's micro-batches, already divided by the global count; taken one at a time.
        num_losses
            How many come; None, in one process alone, takes all.
        before
            Called when all gradients are there; an error that it raises keeps the step from being taken.
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
            self.world.add_gradients(iter(losses), num_losses, self._idle_loss)
            if before is not None:
                before()
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            norm = self.world.step(self.optimizer, max_norm=self.settings.max_grad_norm)
            if not math.isfinite(norm):
                msg = f"'grad_norm' must be finite; got {norm} (policy update). Lower the learning rate."
                raise NonFiniteError(msg)
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
            score = self.world.score if model is None else partial(token_logprobs, model)
            return score(
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
        # An adapted model without its adapter is the policy that the run began from.
        with torch.no_grad(), self.model.disable_adapter() if self._reference is None else nullcontext():
            return self.logprobs(tokens, model=self._reference)[0]

    def even_out(self, count: int) -> None:
        """Pass through the policy as often as the process with the most forward passes, of which this one did some.

        Sharded weights are gathered by all processes together, in every forward pass.
        """
        if self.world.shards_weights:
            with torch.no_grad():
                for _ in range(int(self.world.highest([count])[0]) - count):
                    self._idle_loss()

    def _idle_loss(self) -> Tensor:
        """Return a loss of 0 that uses the policy: what a process does while another has more micro-batches."""
        mask = np.array([[False, True]])
        tokens = self.tensors(np.zeros((1, 2), dtype=np.int64), np.ones_like(mask), mask)
        return 0.0 * self.logprobs(tokens)[0].sum()

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
        """Let go of the references to the model and the optimiser."""
        self.world.close()
        return self
