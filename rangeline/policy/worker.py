"""The resident policy: one process that holds the model for all iterations of a run and takes a few calls.

It computes nothing itself: it generates with `rollout.transformers_engine`, updates with `policy.trainer`, and saves
and restores with `policy.checkpoint`, keeping the policy version of all three in step.
There is no formula here and nothing is divided.
It leaves out the starting of processes (`policy.processes`): where there are several, each holds a worker and all
take the same calls in the same order, each samples the prompts it is given, and the first alone writes.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
from safetensors.torch import save_file

from rangeline.errors import CheckpointError, ConfigError
from rangeline.policy.adapter import LoraSettings, add_adapter, is_adapted
from rangeline.policy.batch import PolicyBatch, TaughtRow, build_batch
from rangeline.policy.checkpoint import WholeState, load_checkpoint, optimizer_tensors, read_state, save_checkpoint
from rangeline.policy.gathering import copy_weights, whole_weights
from rangeline.policy.supervised import ChoiceRow, SupervisedReport, SupervisedRow, choice_update, supervised_update
from rangeline.policy.trainer import PolicyTrainer, UpdateReport, UpdateSettings
from rangeline.policy.world import World
from rangeline.records import Advantages, RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt, RolloutEngine
from rangeline.rollout.pretrained import Pretrained, load_pretrained
from rangeline.rollout.transformers_engine import TransformersEngine

SamplerDtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a worker trains, and how much of the policy."""

    num_processes: int = 1
    """World size that was asked for; compared with what was started."""
    cpu: bool = False
    """True forbids an accelerator."""
    lora: LoraSettings | None = None
    """Adapters to train in place of the weights; None trains the weights."""


ALONE = Placement()
"""One process that trains all weights."""


class PolicyWorker:
    """The policy of a run; make it with `PolicyWorker.load`.

    Parameters
    ----------
    pretrained
        Model with float32 weights, its tokenizer, digest and name.
    settings
        How the policy is updated.
    sampler_dtype
        Precision of sampling. Another one than float32 keeps a cast copy of the weights beside the policy.
    prompts_per_batch
        Prompts that are sampled at once.
    seed
        Seed of the run; with iteration and prompt id it keys every draw, in whichever process.
    placement
        Processes and adapters.

    Raises
    ------
    ConfigError
        When another number of processes was started, `sampler_dtype` is unknown, or adapters would be sharded.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        *,
        settings: UpdateSettings,
        sampler_dtype: SamplerDtype = "float32",
        prompts_per_batch: int = 8,
        seed: int = 0,
        placement: Placement = ALONE,
    ) -> None:
        if sampler_dtype not in ("float32", "bfloat16", "float16"):
            msg = f"'sampler_dtype' must be float32, bfloat16 or float16; got '{sampler_dtype}'. Correct the setting."
            raise ConfigError(msg)
        world, lora = World(cpu=placement.cpu, num_processes=placement.num_processes), placement.lora
        if lora is not None and world.shards_weights:
            msg = f"'lora.rank' must be 0 where weights are sharded; got {lora.rank}. Use DDP, or train the weights."
            raise ConfigError(msg)
        model = pretrained.model
        # Copied before any update: the KL term compares with the policy this worker was loaded from.
        reference = deepcopy(model) if settings.kl_coefficient > 0 and lora is None else None
        sampler = None
        if sampler_dtype != "float32" or lora is not None or world.shards_weights:
            # Adapters are merged into a copy, never into the frozen start: adding and taking away would change it.
            sampler = _cast_copy(model, getattr(torch, sampler_dtype))
        if lora is not None:
            model = add_adapter(model, lora, seed=seed)
        self.tokenizer = pretrained.tokenizer
        self.model_name = pretrained.name
        self.model_digest = pretrained.digest
        self.policy_version = 0
        self._seed = seed
        self._prompts_per_batch = prompts_per_batch
        self._trainer = PolicyTrainer(model, settings, reference=reference, world=world)
        self._sampler = self._trainer.model if sampler is None else sampler.to(self._trainer.device)
        self.engine: RolloutEngine | None = None
        """Engine that samples in place of the model in this process; it must follow `policy_version` by itself."""

    @classmethod
    def load(  # noqa: PLR0913 - what the class takes, and where the model is found
        cls,
        name_or_folder: str,
        *,
        settings: UpdateSettings,
        sampler_dtype: SamplerDtype = "float32",
        trust_remote_code: bool = False,
        cache_dir: Path,
        prompts_per_batch: int = 8,
        seed: int = 0,
        placement: Placement = ALONE,
    ) -> Self:
        """Load a policy by name or folder, with float32 weights, and make it resident.

        Parameters
        ----------
        name_or_folder
            Initial policy of the run. A resumed run loads the same one and then restores, so that the reference
            policy of a KL term stays the initial one.
        settings, sampler_dtype, prompts_per_batch, seed, placement
            As for the class.
        trust_remote_code
            Allow code that comes with the model.
        cache_dir
            Where a packaged model is converted to, once.

        Returns
        -------
        PolicyWorker
            At policy version 0.

        Raises
        ------
        ModelLoadError
            When the model cannot be loaded.
        """
        pretrained = load_pretrained(
            name_or_folder, dtype="float32", trust_remote_code=trust_remote_code, cache_dir=cache_dir
        )
        return cls(
            pretrained,
            settings=settings,
            sampler_dtype=sampler_dtype,
            prompts_per_batch=prompts_per_batch,
            seed=seed,
            placement=placement,
        )

    @property
    def model(self) -> Any:
        """The policy with float32 weights, for reward sources that read its probabilities; not to be changed."""
        return self._trainer.model

    @property
    def pad_id(self) -> int:
        """Token id that fills padding: the tokenizer's pad id, else its end-of-sequence id."""
        pad_id = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad_id is None else pad_id)

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        plan: SamplingPlan,
        *,
        iteration: int,
        purpose: str,
        progress: Callable[[int, int], None] | None = None,
    ) -> RolloutSet:
        """Sample rollouts from the current policy.

        Parameters
        ----------
        prompts
            Prompts by id and token ids.
        plan
            Group size, temperature and cap.
        iteration, purpose
            Key the draws together with the run seed and the prompt ids.
        progress
            Called with (rollouts done, rollouts wanted) after each batch.

        Returns
        -------
        RolloutSet
            Stamped with the current policy version.

        Raises
        ------
        RolloutError
            When a prompt cannot be sampled.
        """
        engine: RolloutEngine = self.engine or TransformersEngine(
            self._sampler,
            self.tokenizer,
            policy_version=self.policy_version,
            prompts_per_batch=self._prompts_per_batch,
        )
        return engine.generate(
            prompts, plan, run_seed=self._seed, iteration=iteration, purpose=purpose, progress=progress
        )

    def batch(
        self,
        rollouts: RolloutSet,
        advantages: Advantages,
        *,
        max_tokens: int,
        trained_tokens: Sequence[int] | None = None,
        taught: Sequence[TaughtRow] = (),
    ) -> PolicyBatch:
        """Build the batch of these rollouts with the tokenizer's pad id; see `policy.batch.build_batch`."""
        return build_batch(
            rollouts,
            advantages,
            pad_id=self.pad_id,
            max_tokens=max_tokens,
            trained_tokens=trained_tokens,
            taught=taught,
        )

    def update(self, batch: PolicyBatch) -> UpdateReport:
        """Update the policy from one batch; the policy version rises by one when a step was taken."""
        report = self._trainer.update(batch)
        if not report.skipped:
            self._advance()
        return report

    def supervised_step(self, rows: Sequence[SupervisedRow], *, learning_rate: float | None = None) -> SupervisedReport:
        """Take one supervised step; the policy version rises by one. See `policy.supervised.supervised_update`."""
        report = supervised_update(self._trainer, rows, pad_id=self.pad_id, learning_rate=learning_rate)
        self._advance()
        return report

    def choice_step(self, rows: Sequence[ChoiceRow], *, learning_rate: float | None = None) -> SupervisedReport:
        """Take one step towards choosing alike; the policy version rises by one. See `policy.supervised`."""
        report = choice_update(self._trainer, rows, pad_id=self.pad_id, learning_rate=learning_rate)
        self._advance()
        return report

    def save(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint; `policy_version`, `seed` and the initial model's digest are added to the state.

        Parameters
        ----------
        folder
            Final name of the checkpoint.
        state
            JSON values of the run; must hold `iteration`.

        Raises
        ------
        CheckpointError
            When the state is no JSON or holds no iteration.
        """
        own = {"policy_version": self.policy_version, "seed": self._seed, "model_digest": self.model_digest}
        trainer, world = self._trainer, self._trainer.world
        gathered = None
        if world.size > 1 or is_adapted(trainer.model):
            gathered = WholeState(
                weights=whole_weights(trainer.model, keep=world.is_main),
                slots=optimizer_tensors(trainer.model, trainer.optimizer),
            )
        if world.is_main:
            save_checkpoint(
                folder,
                model=trainer.model,
                tokenizer=self.tokenizer,
                optimizer=trainer.optimizer,
                state={**state, **own},
                whole_state=gathered,
            )
        world.wait()

    def export_weights(self, path: Path) -> None:
        """Write the policy's whole weights, adapters merged, to one safetensors file."""
        weights = whole_weights(self._trainer.model, keep=self._trainer.world.is_main)
        if self._trainer.world.is_main:
            save_file(weights, path)
        self._trainer.world.wait()

    def restore(self, folder: Path) -> dict[str, Any]:
        """Continue from a checkpoint of the same run.

        Parameters
        ----------
        folder
            A complete checkpoint.

        Returns
        -------
        dict
            The saved state.

        Raises
        ------
        CheckpointError
            When the checkpoint is incomplete or damaged, or began from another model or seed.
        """
        saved = read_state(folder)
        for name, mine in (("model_digest", self.model_digest), ("seed", self._seed)):
            if saved.get(name) != mine:
                msg = (
                    f"'{name}' must equal the checkpoint's {saved.get(name)}; got {mine} ('{folder}'). "
                    "Resume with the settings that the run began with."
                )
                raise CheckpointError(msg)
        load_checkpoint(folder, self._trainer)
        self.policy_version = int(saved["policy_version"])
        self._refresh_sampler()
        return saved

    def take_part_seconds(self) -> dict[str, float]:
        """Return the seconds of the updates since the last call by part: prepare, forward, backward, optimizer."""
        return self._trainer.stopwatch.take()

    def close(self) -> None:
        """Let go of model and optimiser; the worker cannot be used afterwards."""
        self._trainer.close()

    def _advance(self) -> None:
        self.policy_version += 1
        self._refresh_sampler()

    def _refresh_sampler(self) -> None:
        if self._sampler is not self._trainer.model:
            copy_weights(self._trainer.model, self._sampler)


def _cast_copy(model: Any, dtype: torch.dtype) -> Any:
    copy = deepcopy(model).eval().requires_grad_(False)
    # Parameters only: rotary frequencies are buffers and lose positions in half precision.
    for parameter in copy.parameters():
        parameter.data = parameter.data.to(dtype)
    return copy
