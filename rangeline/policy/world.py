"""The processes that train one policy together; a single process is a world of its own.

It starts Accelerate, wraps the policy the way the launch environment asks for (nothing, DDP, FSDP2, DeepSpeed ZeRO),
adds up gradients over micro-batches and processes, and exchanges counts.
The gradient is sum_r g_r over processes r. Every wrapper takes the mean over the W processes, so each loss is
multiplied by W first: what divides a loss are counts of the whole batch, inside its weights, never a mean of means.
It leaves out tensor, pipeline and sequence parallelism: a process holds, or gathers block by block, the whole model.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from rangeline.errors import ConfigError
from rangeline.rollout.token_logprobs import token_logprobs

Record = TypeVar("Record", bound=Any)


class LogprobModule(nn.Module):
    """Log-probabilities as a module's forward pass, so that a wrapper sees every use of the policy.

    Parameters
    ----------
    policy
        Causal language model.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy
        # FSDP shards these blocks one by one.
        self._no_split_modules = list(getattr(policy, "_no_split_modules", None) or ())

    def forward(
        self, token_ids_BL: Tensor, attention_mask_BL: Tensor, loss_mask_BL: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Return what `rollout.token_logprobs` does."""
        return token_logprobs(self.policy, token_ids_BL, attention_mask_BL, loss_mask_BL, **options)


class World:
    """What a trainer needs to know of its processes.

    Parameters
    ----------
    cpu
        True forbids an accelerator.
    num_processes
        World size that was asked for; compared with what was started.

    Raises
    ------
    ConfigError
        When the process count differs from what was asked.
    """

    def __init__(self, *, cpu: bool = False, num_processes: int = 1) -> None:
        # Mixed precision is the trainer's own autocast: log-probs are computed in chunks outside the model's forward,
        # which Accelerate's wrapper would not reach, and the same weights must also sample unwrapped.
        self._accelerator = Accelerator(cpu=cpu, mixed_precision="no")
        if self._accelerator.num_processes != num_processes:
            msg = (
                f"'num_processes' must equal the started processes; got {self._accelerator.num_processes} for "
                f"{num_processes} asked. Start with torchrun --nproc_per_node {num_processes}."
            )
            raise ConfigError(msg)
        self._wrapped: Any = None
        if self._accelerator.distributed_type == DistributedType.MULTI_CPU:
            self._shard_on_cpu()

    def _shard_on_cpu(self) -> None:
        # Accelerate drops an FSDP configuration without a word where there is no accelerator; torch shards there too.
        if os.environ.get("ACCELERATE_USE_FSDP") == "true":
            self._accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin()
            for state in (self._accelerator.state, PartialState()):
                state.distributed_type = DistributedType.FSDP

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        device: torch.device = self._accelerator.device
        return device

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        return int(self._accelerator.process_index)

    @property
    def size(self) -> int:
        """W, the number of processes."""
        return int(self._accelerator.num_processes)

    @property
    def is_main(self) -> bool:
        """True in the one process that writes files."""
        return self.rank == 0

    @property
    def uses_deepspeed(self) -> bool:
        """True where DeepSpeed holds gradients and optimiser."""
        return bool(self._accelerator.distributed_type == DistributedType.DEEPSPEED)

    @property
    def shards_weights(self) -> bool:
        """True where a process does not hold all weights, and cannot sample from its own alone."""
        stage = self._accelerator.deepspeed_plugin.zero_stage if self.uses_deepspeed else 0
        return bool(self._accelerator.distributed_type == DistributedType.FSDP or stage == 3)

    def prepare(self, policy: Any, optimizer: torch.optim.Optimizer, *, max_grad_norm: float) -> Any:
        """Wrap a policy for training; the policy's own object stays usable.

        Parameters
        ----------
        policy
            Causal language model, alike in every process; changed in place.
        optimizer
            Over its trained parameters.
        max_grad_norm
            Known to DeepSpeed before the first step, which clips by itself.

        Returns
        -------
        The optimiser to use.
        """
        if self.uses_deepspeed:
            config = self._accelerator.state.deepspeed_plugin.deepspeed_config
            config["train_micro_batch_size_per_gpu"] = 1
            config["gradient_clipping"] = max_grad_norm if max_grad_norm < float("inf") else 0.0
            # The trainer's AdamW is kept where the optimiser is offloaded, so that steps are the same everywhere.
            config["zero_force_ds_cpu_optimizer"] = False
        self._wrapped, optimizer = self._accelerator.prepare(LogprobModule(policy), optimizer)
        self._wrapped.eval()
        return optimizer

    def score(self, *tensors: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """Return the policy's log-probs and entropies; with sharded weights, every process calls it as often."""
        # Processes that share prompts differently would gather layers differently often, and wait for each other.
        result: tuple[Tensor, Tensor] = self._wrapped(*tensors, share_prefix=not self.shards_weights, **options)
        return result

    def add_gradients(self, losses: Iterator[Tensor], num_losses: int | None, idle: Callable[[], Tensor]) -> None:
        """Add up the gradients of this process's losses, and those of all processes.

        Parameters
        ----------
        losses
            Losses of this process, already divided by counts of the whole batch; taken one at a time.
        num_losses
            How many come; None, in one process alone, takes all.
        idle
            Gives a loss of 0 that uses the policy once, for a process that has fewer losses than another.
        """
        if num_losses is None:
            if self.size > 1:
                msg = f"'num_losses' must be known in a world of {self.size} processes; got None. Count the losses."
                raise ConfigError(msg)
            for loss in losses:
                self._accelerator.backward(loss)
            return
        most = int(self.highest([num_losses])[0])
        for number in range(most):
            is_last = number + 1 == most
            with self._held_back(is_last):
                loss = self.size * (next(losses) if number < num_losses else idle())
                if self.uses_deepspeed:
                    self._wrapped.set_gradient_accumulation_boundary(is_boundary=is_last)
                    self._wrapped.backward(loss)
                else:
                    self._accelerator.backward(loss)

    def _held_back(self, is_last: bool) -> AbstractContextManager[Any]:
        # DDP exchanges gradients once a step; sharding has no room for them and exchanges after every micro-batch.
        if is_last or self._accelerator.distributed_type not in (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU):
            return nullcontext()
        context: AbstractContextManager[Any] = self._accelerator.no_sync(self._wrapped)
        return context

    def step(self, optimizer: Any, *, max_norm: float) -> float:
        """Scale the whole gradient down to a norm and take one optimiser step.

        Returns
        -------
        float
            Norm of the gradient before; where it is not finite, no step was taken. DeepSpeed scales and steps in one
            call, so that there a norm that is not finite comes after the step.
        """
        if self.uses_deepspeed:
            self._wrapped.step()
            return float(self._wrapped.get_global_grad_norm() or 0.0)
        norm = self._accelerator.clip_grad_norm_(self._wrapped.parameters(), max_norm)
        value = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        if math.isfinite(value):
            optimizer.step()
        return value

    def rows_of_all(self, values: Sequence[float]) -> list[list[float]]:
        """Return the same few numbers of every process, by rank."""
        if self.size == 1:
            return [list(values)]
        row = torch.tensor([list(values)], dtype=torch.float64, device=self.device)
        gathered: list[list[float]] = self._accelerator.gather(row).tolist()
        return gathered

    def highest(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each number over all processes."""
        return [max(column) for column in zip(*self.rows_of_all(values), strict=True)]

    def total(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each number over all processes."""
        return [sum(column) for column in zip(*self.rows_of_all(values), strict=True)]

    def records_of_all(self, record: Record) -> list[Record]:
        """Return a flat record of numbers of every process, by rank; whole numbers stay whole."""
        names = [field.name for field in fields(record)]
        values = [getattr(record, name) for name in names]
        if self.size == 1:
            return [record]
        kinds = [type(value) for value in values]
        rows = self.rows_of_all([float(value) for value in values])
        return [
            replace(record, **{name: kind(value) for name, kind, value in zip(names, kinds, row, strict=True)})
            for row in rows
        ]

    def wait(self) -> None:
        """Return once every process is here."""
        self._accelerator.wait_for_everyone()

    def close(self) -> None:
        """Let go of the references to the policy and the optimiser."""
        self._accelerator.free_memory()
