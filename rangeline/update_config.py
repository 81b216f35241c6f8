"""Settings of the policy update: learning rate, objective, correction of mismatch, processes, adapters."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rangeline.reward_config import Count, Positive, Section, Share


class ScheduleConfig(Section):
    """The learning rate along a run's optimiser steps."""

    kind: Literal["constant", "linear", "cosine"] = Field("constant", description="What follows the warm-up")
    warmup_steps: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="Steps over which the rate rises")
    steps: Count | None = Field(
        None, description="Steps over which it falls to 0; needed for linear and cosine, more than warmup_steps"
    )

    @model_validator(mode="after")
    def _knows_its_end(self) -> "ScheduleConfig":
        if self.kind != "constant" and (self.steps is None or self.steps <= self.warmup_steps):
            msg = f"steps must be set, above warmup_steps={self.warmup_steps}, where kind is {self.kind}"
            raise ValueError(msg)
        return self


class MismatchConfig(Section):
    """What is done about a sampler whose log-probs are not the trainer's."""

    correction: Literal["none", "token", "sequence"] = Field(
        "none", description="Multiply clipped terms by the truncated ratio of trainer and sampler, by token or sequence"
    )
    cap: Positive = Field(2.0, description="Largest importance factor")
    limit: Positive | None = Field(
        1.0, description="Mean gap of log-probs, in nats a token, above which training stops; empty: no limit"
    )


class ObjectiveConfig(Section):
    """The policy objective and its optimiser."""

    learning_rate: Positive = 5e-6
    schedule: ScheduleConfig = ScheduleConfig()
    clip_low: Share = 0.2
    clip_high: Positive = Field(0.2, description="More than clip_low is clip-higher")
    dual_clip: Annotated[float, Field(gt=1)] | None = Field(
        None, description="Largest ratio of a token of negative advantage, above 1 + clip_high; empty: off"
    )
    kl_coefficient: Annotated[float, Field(ge=0)] = 0.0
    kl_form: Literal["k1", "k2", "k3"] = Field("k3", description="Estimator of the KL term; docs/training.md")
    entropy_coefficient: Annotated[float, Field(ge=0)] = 0.0
    mismatch: MismatchConfig = MismatchConfig()
    updates_per_batch: Count = Field(1, description="Passes over a batch")
    mini_batches: Count = Field(1, description="Parts of a pass by prompt, one optimiser step each")
    activation_checkpointing: bool = Field(False, description="Less memory, more time, the same gradient")
    micro_batch_tokens: Count = Field(2048, description="Padded tokens of one forward pass")
    max_grad_norm: Positive = 1.0
    aggregation: Literal["dr_grpo", "grpo", "dapo"] = "dr_grpo"

    @model_validator(mode="after")
    def _dual_clip_lies_outside(self) -> "ObjectiveConfig":
        if self.dual_clip is not None and self.dual_clip <= 1 + self.clip_high:
            msg = f"dual_clip must be above 1 + clip_high = {1 + self.clip_high:g}, or empty"
            raise ValueError(msg)
        return self


class ProcessesConfig(Section):
    """Over how many processes the policy samples and is updated; the warm-up runs in one."""

    count: Count = Field(1, description="Processes of this machine: one a GPU; the result is the same but for rounding")
    accelerate_config: str | None = Field(
        None, description="File of Accelerate, such as deploy/accelerate/fsdp2.yaml; empty: every process holds it all"
    )


class LoraConfig(Section):
    """Adapters that are trained in place of the weights; the frozen start is the reference policy."""

    rank: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="0 trains the weights themselves")
    alpha: Positive = Field(32.0, description="The adapters' product is scaled by alpha / rank")
    targets: tuple[str, ...] = Field(
        (), description="Layers by name, such as q_proj; empty: all linear ones but the head"
    )
