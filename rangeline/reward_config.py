"""Settings of reward sources: which one scores which prompts, and what each of them may be told.

Each subsection belongs to the source of its name and is read by no other.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SourceName = Literal[
    "judge_interval",
    "verifier",
    "reference_probability",
    "verifree",
    "verifier_model",
    "majority",
    "self_certainty",
    "token_entropy",
    "sequence_likelihood",
    "trapo",
    "anchor_contrast",
    "sft",
    "pseudo_sft",
    "variance_aware",
    "student_t",
]

Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, strict=True)]


class Section(BaseModel):
    """Base of all settings: frozen, and strict about unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SpreadFilterConfig(Section):
    """RLPR's filter: prompts whose rewards hardly differ leave the batch, and others are drawn in their place."""

    enabled: bool = Field(True, description="Off: the ablation 'without std-filtering'")
    beta: NonNegative = Field(0.5, description="A prompt is kept at std >= beta * EMA; .5 Qwen, .9 Llama, 1 Gemma")
    decay: Share = Field(0.99, description="Of the EMA of the mean group std")
    record_from: Count = Field(6, description="First iteration whose mean group std is recorded")
    filter_from: Count = Field(11, description="First iteration that filters; the EMA starts as the mean recorded")
    max_refills: Annotated[int, Field(ge=0, le=100)] = Field(
        4, description="Rounds of further prompts an iteration may draw to fill its batch"
    )


class ReferenceProbabilityConfig(Section):
    """RLPR: how likely the reference is after the rollout's reasoning."""

    aggregate: Literal["mean", "product", "root"] = Field("mean", description="Of the token probabilities")
    debias: bool = Field(True, description="Subtract the probability without reasoning, of the initial policy")
    format_weight: Share = Field(0.0, description="Share of the format reward: .1 gives .9 * reward + .1 * format")
    repetition_penalty: NonNegative = Field(0.0, description="Taken off for each repeat of ten words, at most 10 times")
    verifier_weight: NonNegative = Field(0.0, description="Weight of the verifier's reward that is added")
    references: Literal["best", "mean"] = Field("best", description="Of several references for one prompt")
    share_prefix: bool = Field(True, description="Read the prompt of a group once; changes speed and memory only")
    filter: SpreadFilterConfig = SpreadFilterConfig()


class VerifreeConfig(Section):
    """VeriFree: the reference's likelihood after the reasoning, with its gradient."""

    reference_term: bool = Field(True, description="Also learn the reference, weighted by the reward")


class VerifierModelConfig(Section):
    """A model that decides whether an answer equals the reference (General Reasoner)."""

    token_penalty: NonNegative = Field(0.05, description="Taken off for each token of difference in length")
    max_tokens_apart: Annotated[int, Field(ge=0)] = Field(10, description="Differences beyond count as this")


class TrapoConfig(Section):
    """TraPO: trust unlabelled prompts whose pass rates move like those of labelled ones."""

    top_share: Share = Field(0.1, description="Share of the batch's unlabelled prompts that is kept in any case")
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = Field(0.4, description="Kept above this mean cosine")


class AnchorContrastConfig(Section):
    """RRPO: nearer to a prompt's positive anchors than to its negative ones."""

    delta: NonNegative = Field(1e-4, description="Added to the group's standard deviation")
    max_drift: Annotated[float, Field(gt=0)] = Field(
        0.1, description="Squared discrepancy of rollouts now and at the start, above which the drift alarm is raised"
    )


class AnchorsConfig(Section):
    """Anchors of RRPO: rollouts of the starting policy under better and worse conditions."""

    conditions: str = Field("conditions", description="Folder of condition files, relative to the workspace")
    count: Annotated[int, Field(ge=2, le=64, strict=True)] = Field(4, description="K, anchors a side and prompt")
    queries: Annotated[int, Field(ge=2, le=256, strict=True)] = Field(
        8, description="Unconditioned rollouts a prompt, on which the metric head is trained"
    )
    use_references: bool = Field(True, description="Let conditions use the reference where a prompt has one")
    pools: tuple[Literal["policy", "warmup", "source", "calibration", "audit", "evaluation"], ...] = Field(
        ("policy", "evaluation"), min_length=1, description="Whose prompts get anchors: those trained on, and measured"
    )
    prompts_per_shard: Count = Field(64, description="Prompts that are made, and kept, at once")


class MetricHeadConfig(Section):
    """The metric head of RRPO, trained offline on the anchors, frozen afterwards."""

    width: Count = Field(512, description="Of the inner layer")
    dimension: Count = Field(512, description="Of the projection")
    temperature: Annotated[float, Field(gt=0)] = Field(0.1, description="tau")
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    max_epochs: Count = 100
    patience: Count = Field(5, description="Epochs without a better held-out loss before training ends")
    prompts_per_batch: Count = 16
    held_out_share: Annotated[float, Field(gt=0, lt=1)] = 0.2


class VarianceAwareConfig(Section):
    """A reward drawn from the judge's interval, lowered by the interval's variance."""

    penalty: NonNegative = Field(1.0, description="Weight of the interval's variance, width^2 / 12")


class StudentTConfig(Section):
    """Binary rewards from Student-t intervals of the better and the worse half of a group (IRPM)."""

    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95


class RewardConfig(Section):
    """Where rewards come from."""

    source: SourceName = Field("judge_interval", description="Scores the policy share")
    prompts: Literal["auto", "policy", "warmup"] = Field(
        "auto", description="Pool of the policy share; auto: warmup for sources that need references"
    )
    labelled_source: SourceName = Field("verifier", description="Scores the train.labelled_prompts of each iteration")
    domains: dict[str, SourceName] = Field(default_factory=dict, description="Domains with a source of their own")
    weights: dict[SourceName, NonNegative] = Field(
        default_factory=dict, description="Factor of the advantages of a source's prompts; 1 where not named"
    )
    domain_weights: dict[str, NonNegative] = Field(
        default_factory=dict, description="Factor of the advantages of a domain's prompts, beside that of their source"
    )
    optimiser_calls: Literal["one", "per_source"] = Field(
        "one", description="One update on all prompts, or one after another for each source"
    )
    reference_probability: ReferenceProbabilityConfig = ReferenceProbabilityConfig()
    verifree: VerifreeConfig = VerifreeConfig()
    verifier_model: VerifierModelConfig = VerifierModelConfig()
    trapo: TrapoConfig = TrapoConfig()
    anchor_contrast: AnchorContrastConfig = AnchorContrastConfig()
    variance_aware: VarianceAwareConfig = VarianceAwareConfig()
    student_t: StudentTConfig = StudentTConfig()
