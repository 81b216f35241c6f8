"""Settings of what watches the intervals: the coverage gate, and the rules of overlap."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rangeline.reward_config import Count, Section, Share


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
