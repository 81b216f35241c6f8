"""How the policy is updated: the settings of the trainer, checked when they are made."""

import math
from dataclasses import dataclass
from typing import Literal

from rangeline.errors import ConfigError
from rangeline.policy.batch import Aggregation
from rangeline.policy.divergence import KlForm
from rangeline.policy.mismatch import Correction
from rangeline.policy.schedule import ScheduleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """How the policy is updated."""

    learning_rate: float = 1e-6
    schedule: ScheduleKind = "constant"
    """What the learning rate does after the warm-up."""
    warmup_steps: int = 0
    """Optimiser steps over which the learning rate rises; 0 = none."""
    schedule_steps: int | None = None
    """Optimiser steps over which it falls; needed unless the schedule is constant."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of AdamW."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    """The probability ratio is clipped to [1 - clip_low, 1 + clip_high]."""
    dual_clip: float | None = None
    """Largest ratio of a token of negative advantage, above 1 + clip_high; None = off."""
    kl_coefficient: float = 0.0
    """beta of the KL term; 0 = off, no reference policy is held."""
    kl_form: KlForm = "k3"
    entropy_coefficient: float = 0.0
    correction: Correction = "none"
    """Importance factors against the sampler, see `policy.mismatch`."""
    correction_cap: float = 2.0
    """Largest importance factor."""
    max_mismatch: float | None = None
    """Largest mean gap of sampled and trainer log-probs; above it no step is taken. None = no limit."""
    updates_per_batch: int = 1
    """Passes over a batch."""
    mini_batches: int = 1
    """Parts of a pass by prompt, an optimiser step each, divided by the counts of the part."""
    micro_batch_tokens: int = 8192
    """Rows times longest row of a forward pass, at most; changes speed and memory only."""
    chunk_rows: int = 512
    """Tokens whose logits exist at once; changes speed and memory only."""
    activation_checkpointing: bool = False
    """Activations of layers are computed again in the backward pass; changes speed and memory only."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm; infinity = never."""
    aggregation: Aggregation = "dr_grpo"
    temperature: float = 1.0
    """Temperature of all log-probs; the one the rollouts were sampled at."""
    mixed_precision: Literal["no", "bf16"] = "no"
    """bf16 runs the forward pass in bfloat16; weights, log-probs and optimiser stay float32."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        steps, above = self.schedule_steps, 1 + self.clip_high
        rules = {
            "learning_rate": ("be positive", 0 < self.learning_rate < math.inf),
            "schedule": ("be constant, linear or cosine", self.schedule in ("constant", "linear", "cosine")),
            "warmup_steps": ("be at least 0", self.warmup_steps >= 0),
            "schedule_steps": (
                f"be set, above warmup_steps={self.warmup_steps}, where the schedule is {self.schedule}",
                self.schedule == "constant" or (steps is not None and steps > self.warmup_steps),
            ),
            "betas": ("lie in [0, 1)", all(0 <= beta < 1 for beta in self.betas)),
            "clip_low": ("lie in [0, 1]", 0 <= self.clip_low <= 1),
            "clip_high": ("be at least 0", self.clip_high >= 0),
            "dual_clip": (
                f"be above 1 + clip_high = {above:g}",
                self.dual_clip is None or above < self.dual_clip < math.inf,
            ),
            "kl_coefficient": ("be at least 0", 0 <= self.kl_coefficient < math.inf),
            "kl_form": ("be k1, k2 or k3", self.kl_form in ("k1", "k2", "k3")),
            "entropy_coefficient": ("be at least 0", 0 <= self.entropy_coefficient < math.inf),
            "correction": ("be none, token or sequence", self.correction in ("none", "token", "sequence")),
            "correction_cap": ("be positive", 0 < self.correction_cap < math.inf),
            "max_mismatch": ("be positive", self.max_mismatch is None or self.max_mismatch > 0),
            "updates_per_batch": ("be at least 1", self.updates_per_batch >= 1),
            "mini_batches": ("be at least 1", self.mini_batches >= 1),
            "micro_batch_tokens": ("be at least 1", self.micro_batch_tokens >= 1),
            "chunk_rows": ("be at least 1", self.chunk_rows >= 1),
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
