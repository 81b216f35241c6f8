"""What the flows share: the workspace in every form, and the sections that training may set."""

from pydantic import Field

from rangeline.config import (
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
)
from rangeline.reward_config import RewardConfig


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
        """Return the workspace's settings with this request's sections in place."""
        names = (
            *("train", "rollout", "reward", "intervals", "advantages", "objective"),
            *("coverage", "overlap", "processes", "lora"),
        )
        return config.model_copy(update={name: getattr(self, name) for name in names})
