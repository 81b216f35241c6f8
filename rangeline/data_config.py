"""Settings of the data: where prompts come from, and how they are split into pools."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rangeline.reward_config import Count, Section, Share


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
