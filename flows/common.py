"""What the flows share: the workspace in every form, and the sections that training may set."""

from typing import TypeVar

from pydantic import Field

from rangeline.config import (
    TRAINING_SECTIONS,
    AdvantageConfig,
    CoverageConfig,
    IntervalConfig,
    LoraConfig,
    ObjectiveConfig,
    OverlapConfig,
    PipelineConfig,
    ProcessesConfig,
    RolloutConfig,
    Section,
    TrainConfig,
    build_config,
)
from rangeline.reward_config import RewardConfig

Settings = TypeVar("Settings", bound=Section)


def laid_over(below: Settings, above: Settings) -> Settings:
    """Return settings, not checked, with those laid over them that were given by name; what was left out stays."""
    values = {}
    for name in above.model_fields_set:
        lower, upper = getattr(below, name), getattr(above, name)
        is_section = isinstance(lower, Section) and isinstance(upper, Section)
        values[name] = laid_over(lower, upper) if is_section else upper
    return below.model_copy(update=values)


def settings_with(config: PipelineConfig, **sections: Section) -> PipelineConfig:
    """Return the workspace's settings with what was given of some sections laid over them.

    Raises
    ------
    ConfigError
        When they do not go together.
    """
    laid = {name: laid_over(getattr(config, name), section) for name, section in sections.items()}
    return build_config(config.model_copy(update=laid).model_dump(mode="json"), source="the request of this run")


class DataRequest(Section):
    """Which workspace a flow works in."""

    workspace: str = Field(".", description="Folder with params.yaml; data settings are those of that file")


class TrainRequest(DataRequest):
    """A training run."""

    run: str | None = Field(None, description="Name of the run; empty: made from the settings, so a repeat resumes")
    train: TrainConfig = TrainConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    intervals: IntervalConfig = IntervalConfig()
    advantages: AdvantageConfig = AdvantageConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    processes: ProcessesConfig = ProcessesConfig()
    lora: LoraConfig = LoraConfig()
    coverage: CoverageConfig = CoverageConfig()
    overlap: OverlapConfig = OverlapConfig()

    def over(self, config: PipelineConfig) -> PipelineConfig:
        """Return the workspace's settings with those of this request laid over them that were given.

        Raises
        ------
        ConfigError
            When they do not go together.
        """
        given = self.model_fields_set.intersection(TRAINING_SECTIONS)
        return settings_with(config, **{name: getattr(self, name) for name in given})
