"""A comparison's plan: which methods, on which designs, with which seeds, and how learning rates are chosen.

A plan is a YAML file. A method is a name and settings laid over everything else; a design is a name and settings that
change the data. Methods of one seed share data, start, calibration and sampling streams, so that they are paired.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from rangeline.advantages import DEFAULT_REFERENCE_WIDTH
from rangeline.config import (
    VERSIONED_SECTIONS,
    PipelineConfig,
    Section,
    build_config,
    merge,
    read_settings,
)
from rangeline.errors import ConfigError
from rangeline.reward_config import Count, Positive
from rangeline.stages.comparison_budget import with_equal_budget
from rangeline.stages.reward_plan import plan_rewards

Rewards = Literal["judge", "oracle", "random"]
Role = Literal["test", "validation"]
Seed = Annotated[int, Field(strict=True)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$")]

SHARED_TRAIN = ("iterations", "prompts_per_iteration", "ratio_prompts", "audit_prompts", "labelled_prompts")
"""Of the training settings, those that make up a run's budget of rollouts and of labels."""
FITTED_TRAIN = ("prompts_per_iteration", "labelled_prompts")
"""Those of them that differ between reward sources, so that the sum is equal."""

_REDUCTIONS = {"lb": "lower", "mid": "middle", "ub": "upper"}
_AUTO = {"estimator": "auto", "reference_width": "auto", "advantage_scale": "match_batch"}
_RANGE_NAME = re.compile(r"range-(reciprocal|reciprocal_squared|exponential|gaussian)-(\d*\.?\d+)")


class MethodPlan(Section):
    """One way from intervals to advantages."""

    name: Name
    settings: dict[str, Any] = Field(default_factory=dict, description="Laid over the design's, such as advantages")
    rewards: Rewards = Field("judge", description="oracle: true rewards of policy prompts, an upper bound; or noise")

    @model_validator(mode="after")
    def _says_its_rewards(self) -> "MethodPlan":
        if self.rewards != "judge" and not self.name.startswith(self.rewards):
            msg = f"a method on {self.rewards} rewards must say so: its name must begin with '{self.rewards}'"
            raise ValueError(msg)
        return self


class DesignPlan(Section):
    """One set of data; its own seeds where they differ."""

    settings: dict[str, Any] = Field(default_factory=dict)
    seeds: tuple[Seed, ...] = Field((), description="Empty: the plan's")


class TuningPlan(Section):
    """How each method's learning rate is chosen: on the validation prompts of seeds that are not reported."""

    seeds: tuple[Seed, ...] = Field(min_length=1)
    grid: tuple[Positive, ...] = Field(min_length=2)
    designs: tuple[str, ...] = Field((), description="Designs that are tuned on; empty: all of them, each by itself")


class ComparisonPlan(Section):
    """Everything that a comparison is asked to do."""

    name: Name
    description: str = ""
    config: str | None = Field(None, description="Settings file beside the plan, laid over the workspace's")
    settings: dict[str, Any] = Field(default_factory=dict, description="Laid over those")
    seeds: tuple[Seed, ...] = Field(min_length=1)
    methods: tuple[MethodPlan, ...] = Field(min_length=1, description="Presets by name, or name and settings")
    reference: str = Field("range", description="The method that the others are subtracted from")
    designs: dict[Name, DesignPlan] = Field(default_factory=lambda: {"default": DesignPlan()}, min_length=1)
    tuning: TuningPlan | None = None
    evaluate_every: Count = Field(10, description="Iterations between two looks at the test prompts")
    validation_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="Of the evaluation pool: these prompts choose learning rates, and are never reported"
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    keep_files: bool = Field(False, description="Keep every iteration's files, not only what the tables need")

    @field_validator("methods", mode="before")
    @classmethod
    def _read_presets(cls, value: Any) -> Any:
        return [preset(item) if isinstance(item, str) else item for item in value] if isinstance(value, list) else value

    @model_validator(mode="after")
    def _is_consistent(self) -> "ComparisonPlan":
        names = [method.name for method in self.methods]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"methods must have distinct names; got '{twice[0]}' twice"
            raise ValueError(msg)
        self._require_distinct()
        if self.reference not in names:
            msg = f"'reference' must be one of the methods {', '.join(names)}"
            raise ValueError(msg)
        if self.tuning:
            reported = {seed for name in self.designs for seed in self.seeds_of(name)}
            if shared := sorted(reported & set(self.tuning.seeds)):
                msg = f"tuning seeds must not be reported; {shared[0]} is both"
                raise ValueError(msg)
            if unknown := sorted(set(self.tuning.designs) - set(self.designs)):
                msg = f"tuning designs must be designs of the plan; got '{unknown[0]}'"
                raise ValueError(msg)
        return self

    def _require_distinct(self) -> None:
        """Refuse a repeated seed: it would count as two, and standard errors and intervals come out too small."""
        lists = {
            "seeds": self.seeds,
            **{f"seeds of design '{name}'": item.seeds for name, item in self.designs.items()},
        }
        tuned = {"tuning seeds": self.tuning.seeds, "tuning grid": self.tuning.grid} if self.tuning else {}
        for name, values in {**lists, **tuned}.items():
            if twice := sorted({value for value in values if values.count(value) > 1}):
                msg = f"{name} must be distinct; got {twice[0]} twice"
                raise ValueError(msg)

    def seeds_of(self, design: str) -> tuple[int, ...]:
        """Return the reported seeds of a design."""
        return self.designs[design].seeds or self.seeds

    def tuned_on(self, design: str) -> tuple[str, ...]:
        """Return the designs whose tuning runs choose the learning rates of a design; none without tuning."""
        if self.tuning is None:
            return ()
        return self.tuning.designs or (design,)

    @property
    def compares_sources(self) -> bool:
        """True where a method names its reward source: then budgets are made equal, and not every run has a judge."""
        return any("source" in method.settings.get("reward", {}) for method in self.methods)

    def method(self, name: str) -> MethodPlan:
        """Return a method by its name."""
        return next(method for method in self.methods if method.name == name)


def preset(name: str) -> dict[str, Any]:
    """Return a method by its usual name.

    `auto` (labelled rollouts choose); `range`; `lb`, `mid` or `ub` with `-grpo` or `-dr_grpo`; `uarm`; `rloo` on
    midpoints; `range-<form>-<lambda>`; `oracle` (Dr.GRPO on true rewards: an upper bound) and `random` (Dr.GRPO on
    noise: a lower bound).

    Raises
    ------
    ConfigError
        The name is none of them.

    Examples
    --------
    >>> preset("ub-grpo")["settings"]
    {'advantages': {'estimator': 'grpo', 'reduction': 'upper', 'advantage_scale': 'none', 'reference_width': 0.25}}
    """

    def method(estimator: str, rewards: Rewards = "judge", **more: Any) -> dict[str, Any]:
        # A named method is itself, whatever the workspace's own method chooses or scales.
        advantages = {"estimator": estimator, "reduction": "middle", "advantage_scale": "none", **more}
        if estimator != "range":
            advantages["reference_width"] = DEFAULT_REFERENCE_WIDTH
        return {"name": name, "settings": {"advantages": advantages}, "rewards": rewards}

    reduction, _, estimator = name.partition("-")
    if reduction in _REDUCTIONS and estimator in ("grpo", "dr_grpo"):
        return method(estimator, reduction=_REDUCTIONS[reduction])
    if name == "auto":
        return {"name": name, "settings": {"advantages": dict(_AUTO)}, "rewards": "judge"}
    if name in ("range", "uarm", "rloo"):
        return method(name)
    if match := _RANGE_NAME.fullmatch(name):
        return method("range", form=match[1], reference_width=float(match[2]))
    if name == "oracle":
        return method("dr_grpo", rewards="oracle")
    if name == "random":
        return method("dr_grpo", rewards="random")
    msg = (
        f"Method '{name}' must be auto, range, uarm, rloo, oracle, random, lb-, mid- or ub- with grpo or dr_grpo, or "
        "range-<form>-<lambda>. Correct it, or give it as a mapping of name and settings."
    )
    raise ConfigError(msg)


def read_plan(path: Path) -> tuple[ComparisonPlan, dict[str, Any]]:
    """Read a plan, and the settings that it lays over a workspace's.

    Raises
    ------
    ConfigError
        The file is no plan; names the first setting that is wrong.
    """
    values = read_settings(path)
    values.setdefault("name", path.stem)
    try:
        plan = ComparisonPlan.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "plan"
        rule = first["msg"].removeprefix("Value error, ")
        msg = f"Setting '{place}' of the plan is not valid: {rule}; got {first['input']!r:.80} ({path}). Correct it."
        raise ConfigError(msg) from error
    over = read_settings(path.parent / plan.config) if plan.config else {}
    return plan, merge(over, plan.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One run of a comparison: a method on one design and seed, at one learning rate."""

    design: str
    seed: int
    method: MethodPlan
    config: PipelineConfig
    role: Role
    """Which prompts it is looked at with: reported runs never see the validation prompts, tuning runs only those."""

    @property
    def label(self) -> str:
        """Name for people."""
        rate = f" at {self.config.objective.learning_rate:g}" if self.role == "validation" else ""
        return f"{self.design}, {self.method.name}, seed {self.seed}{rate}"


def run_settings(
    plan: ComparisonPlan, base: Mapping[str, Any], design: str, seed: int, *, method: MethodPlan | None = None
) -> dict[str, Any]:
    """Return the settings of a design's seed, or of a method on it, over `base`, the workspace's and the plan's."""
    values = merge(merge(base, plan.designs[design].settings), {"seed": seed})
    return merge(values, method.settings) if method else values


def plan_run(
    plan: ComparisonPlan,
    base: Mapping[str, Any],
    *,
    design: str,
    seed: int,
    method: MethodPlan,
    role: Role,
    rate: float | None = None,
) -> RunPlan:
    """Return one run, at a learning rate that tuning asks for or chose, or, with None, at the method's own.

    Raises
    ------
    ConfigError
        The settings are not valid, or the method changes what all methods share: data, budget, held-out prompts, the
        promised coverage, and that a judge is asked.
    """
    source = f"{plan.name}: {design}, {method.name}"
    own = build_config(run_settings(plan, base, design, seed), source=source)
    # The comparison looks by itself, at prompts of its own choice.
    values = merge(
        run_settings(plan, base, design, seed, method=method),
        {"train": {"evaluate_every": 0, "completions": plan.keep_files}},
    )
    if rate is not None:
        values = merge(values, {"objective": {"learning_rate": rate}})
    config = build_config(values, source=source)
    if plan.compares_sources:
        config = with_equal_budget(config, own.train)
    _require_shared(method, config, own, source, compares_sources=plan.compares_sources)
    return RunPlan(design=design, seed=seed, method=method, config=config, role=role)


def _require_shared(
    method: MethodPlan, config: PipelineConfig, own: PipelineConfig, source: str, *, compares_sources: bool
) -> None:
    """Refuse before anything is spent what the tables would refuse at the end, or compare though it is not alike."""
    shared = {name: (getattr(config, name), getattr(own, name)) for name in (*VERSIONED_SECTIONS, "evaluate")}
    counts = [name for name in SHARED_TRAIN if not (compares_sources and name in FITTED_TRAIN)]
    shared |= {f"train.{name}": (getattr(config.train, name), getattr(own.train, name)) for name in counts}
    shared["intervals.alpha"] = (config.intervals.alpha, own.intervals.alpha)
    for name, (asked, common) in shared.items():
        if asked != common:
            msg = f"Method '{method.name}' must leave '{name}' as it is ({source}): methods share it. Make it a design."
            raise ConfigError(msg)
    if not compares_sources and not plan_rewards(config).needs_judge:
        msg = (
            f"Method '{method.name}' must learn from rewards of the judge, whose intervals are compared; got reward "
            f"source '{config.reward.source}' ({source}). Let methods name their reward.source, to compare sources."
        )
        raise ConfigError(msg)
