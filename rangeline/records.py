"""Frozen records that pass between rooms: complete when made, checked once, never changed.

Shapes: N rollouts flat, K rubric coordinates, C calibration rows, P prompts. Group membership is the prompt id of
each rollout, never its position. What is unknown has its own field (`missing`, `UNKNOWN`), never a zero or a NaN.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rangeline.errors import BadInputError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
LevelArray = NDArray[np.int8]

UNKNOWN = -1
"""Level of a coordinate that the judge could not answer; a level of its own, never the value 0."""

FinishReason = Literal["stop", "length"]
Reserved = Literal["train", "policy", "ratio", "warmup", "source", "calibration", "audit", "evaluation"]
"""What a prompt's owner keeps it for: a pool by name, or `train` for whichever pool the split sends it to."""


def _frozen_array(values: Any, dtype: Any) -> NDArray[Any]:
    array = np.array(values, dtype=dtype, copy=True)
    array.flags.writeable = False
    return array


def _freeze(record: Any, **dtypes: Any) -> None:
    for name, dtype in dtypes.items():
        object.__setattr__(record, name, _frozen_array(getattr(record, name), dtype))


def _require_same_length(record: Any, *names: str) -> int:
    lengths = {name: len(getattr(record, name)) for name in names}
    if len(set(lengths.values())) > 1:
        msg = f"'{type(record).__name__}' fields must have one length; got {lengths}."
        raise BadInputError(msg)
    return next(iter(lengths.values()))


def _require_finite(record: Any, name: str, where: BoolArray, prompt_ids: tuple[str, ...]) -> None:
    values = getattr(record, name)
    bad = np.flatnonzero(where & ~np.isfinite(values))
    if bad.size:
        i = int(bad[0])
        place = f", prompt '{prompt_ids[i]}'" if prompt_ids else ""
        msg = f"'{name}' must be finite where not missing; got {values[i]} (row {i}{place})."
        raise BadInputError(msg)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a chat prompt."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """One question, with a reference answer or without."""

    prompt_id: str
    prompt: str | tuple[ChatMessage, ...]
    suite: str
    domain: str = "default"
    reference: str | None = None
    """The known right answer; None on unlabelled prompts."""
    share: Reserved = "train"
    """What the row's owner reserved it for; `train` rows are split by hash."""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """How rollouts are drawn: no top-p, no top-k, so that sampled log-probs are those of the policy."""

    group_size: int
    """G, rollouts a prompt, at least 1."""
    temperature: float = 1.0
    """Positive; 0 means greedy."""
    max_tokens: int = 16
    """Completion cap in tokens, end-of-sequence included."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, value, ok in (
            ("group_size", self.group_size, self.group_size >= 1),
            ("temperature", self.temperature, self.temperature >= 0),
            ("max_tokens", self.max_tokens, self.max_tokens >= 1),
        ):
            if not ok:
                msg = f"'{name}' must be positive; got {value}. Correct the sampling settings."
                raise BadInputError(msg)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RolloutSet:
    """N completions of one policy version, flat; rows of one prompt share its id."""

    prompt_id_N: tuple[str, ...]
    sample_N: tuple[int, ...]
    """Number of the rollout inside its group, from 0."""
    completion_N: tuple[str, ...]
    prompt_token_ids_N: tuple[tuple[int, ...], ...]
    """The very ids the engine was given."""
    token_ids_N: tuple[tuple[int, ...], ...]
    """Sampled ids, the closing end-of-sequence id included where one was sampled."""
    sampled_logprobs_N: tuple[tuple[float, ...], ...]
    """Log-probabilities of the sampled ids under the sampler, at the sampling temperature."""
    finish_reason_N: tuple[FinishReason, ...]
    policy_version: int

    def __post_init__(self) -> None:
        """Check that lengths agree, row by row too."""
        names = [item.name for item in fields(self) if item.name.endswith("_N")]
        _require_same_length(self, *names)
        for i, (ids, logprobs) in enumerate(zip(self.token_ids_N, self.sampled_logprobs_N, strict=True)):
            if len(ids) != len(logprobs):
                msg = (
                    f"'sampled_logprobs_N' must have one value a token; got {len(logprobs)} for {len(ids)} "
                    f"(row {i}, prompt '{self.prompt_id_N[i]}')."
                )
                raise BadInputError(msg)

    def __len__(self) -> int:
        """Return N."""
        return len(self.prompt_id_N)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JudgmentTable:
    """Judgment states of N rollouts, row for row with their rollout set."""

    prompt_id_N: tuple[str, ...]
    levels_NK: LevelArray
    """int8, level number of each coordinate; UNKNOWN (-1) is a level of its own."""
    missing_N: BoolArray
    """True where the judge failed altogether: no state, no reward."""
    coordinates: tuple[str, ...]
    num_levels: tuple[int, ...]
    """Known levels of each coordinate, UNKNOWN not counted."""
    judge_digest: str

    def __post_init__(self) -> None:
        """Check shapes and level ranges."""
        _freeze(self, levels_NK=np.int8, missing_N=np.bool_)
        _require_same_length(self, "prompt_id_N", "levels_NK", "missing_N")
        _require_same_length(self, "coordinates", "num_levels")
        if self.levels_NK.ndim != 2 or self.levels_NK.shape[1] != len(self.coordinates):
            msg = f"'levels_NK' must have {len(self.coordinates)} columns; got shape {self.levels_NK.shape}."
            raise BadInputError(msg)
        top = np.array(self.num_levels, dtype=np.int64)
        bad = np.argwhere((self.levels_NK < UNKNOWN) | (self.levels_NK >= top))
        if bad.size:
            row, column = (int(v) for v in bad[0])
            msg = (
                f"'levels_NK' must lie in [-1, {top[column] - 1}] for '{self.coordinates[column]}'; got "
                f"{self.levels_NK[row, column]} (row {row}, prompt '{self.prompt_id_N[row]}')."
            )
            raise BadInputError(msg)

    @property
    def unknown_share(self) -> float:
        """Share of UNKNOWN among all asked coordinates, missing rows left out; 1.0 when nothing was asked."""
        asked = self.levels_NK[~self.missing_N]
        return float((asked == UNKNOWN).mean()) if asked.size else 1.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RewardIntervals:
    """A reward interval for each of N rollouts: the one currency between reward sources and advantages."""

    prompt_id_N: tuple[str, ...]
    lower_N: FloatArray
    upper_N: FloatArray
    unbounded_N: BoolArray
    """True where the cutoff was infinite and the interval is the whole support."""
    missing_N: BoolArray
    """True where no reward could be made; bounds are NaN there and nobody may average them."""
    support: tuple[float, float] | None
    """Range of possible rewards; None for scores without bounds."""
    source: str
    """Name of the reward source."""

    def __post_init__(self) -> None:
        """Check lengths, order, finiteness and support."""
        _freeze(self, lower_N=np.float64, upper_N=np.float64, unbounded_N=np.bool_, missing_N=np.bool_)
        _require_same_length(self, "prompt_id_N", "lower_N", "upper_N", "unbounded_N", "missing_N")
        valid = ~self.missing_N
        for name in ("lower_N", "upper_N"):
            _require_finite(self, name, valid, self.prompt_id_N)
            values = getattr(self, name).copy()
            values[self.missing_N] = np.nan
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        lower, upper = self.lower_N, self.upper_N
        low, high = self.support or (-np.inf, np.inf)
        bad = np.flatnonzero(valid & ((lower > upper) | (lower < low) | (upper > high)))
        if bad.size:
            i = int(bad[0])
            msg = (
                f"Interval must satisfy {low} <= lower <= upper <= {high}; got [{lower[i]}, {upper[i]}] "
                f"(row {i}, prompt '{self.prompt_id_N[i]}')."
            )
            raise BadInputError(msg)

    def __len__(self) -> int:
        """Return N."""
        return len(self.prompt_id_N)

    @property
    def center_N(self) -> FloatArray:
        """(L + U) / 2 after clipping to the support; NaN where missing."""
        return (self.lower_N + self.upper_N) / 2

    @property
    def half_width_N(self) -> FloatArray:
        """(U - L) / 2 after clipping to the support; NaN where missing."""
        return (self.upper_N - self.lower_N) / 2


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Advantages:
    """Signed credit of N rollouts inside their groups."""

    prompt_id_N: tuple[str, ...]
    value_N: FloatArray
    """Finite everywhere; exactly 0 where not active."""
    active_N: BoolArray
    """False for missing rewards and for groups with fewer than two valid rollouts."""
    estimator: str

    def __post_init__(self) -> None:
        """Check lengths and finiteness."""
        _freeze(self, value_N=np.float64, active_N=np.bool_)
        _require_same_length(self, "prompt_id_N", "value_N", "active_N")
        _require_finite(self, "value_N", np.ones(len(self.value_N), dtype=bool), self.prompt_id_N)
        bad = np.flatnonzero(~self.active_N & (self.value_N != 0))
        if bad.size:
            i = int(bad[0])
            msg = (
                f"'value_N' must be 0 where not active; got {self.value_N[i]} (row {i}, prompt "
                f"'{self.prompt_id_N[i]}')."
            )
            raise BadInputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapReport:
    """How well source states cover the target states of this iteration."""

    ess: float
    """Effective sample size of the calibration weights, (sum w)^2 / sum w^2."""
    ess_share: float
    """ess over the number of calibration rows."""
    max_weight_share: float
    clipped_share: float
    """Share of calibration rows whose log-ratio was clipped."""
    clipped_target_share: float
    """Share of target rows whose log-ratio was clipped, by the same cap."""
    mean_source_weight: float
    """Mean weight of source rows after clipping; near 1 for a sound ratio, whose weights turn source into target."""
    pareto_k: float | None
    """Pareto shape of the largest fifth of the calibration weights; None with too few distinct ones to have a shape."""
    classifier_auc: float | None
    """Cross-validated AUC of source against target; None where it could not be computed."""
    unseen_target_share: float
    """Share of target rows whose state never occurs in the source."""
    num_unseen_levels: int
    """Pairs of coordinate and level that occur in the target and never in the source."""
    separable: bool
    """True when no state occurs in both pools: the ratio is then set by its penalty and its cap, not by data."""
    num_source: int
    num_target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageReport:
    """Coverage of one iteration on held-out labelled rollouts, always with its band."""

    empirical: float | None
    """Share of valid rows whose truth lies inside the interval; None when there is no valid row."""
    band_lower: float | None
    band_upper: float | None
    """Clustered band (by prompt) of the empirical coverage at `band_confidence`."""
    band_confidence: float
    target: float
    """1 - alpha."""
    num_rows: int
    num_prompts: int
    missing_share: float
    """Share of rows without an interval; rows without a truth are left out of `num_rows` as well."""
    mean_width: float | None
    unbounded_share: float | None
    ess_share: float
    status: Literal["covered", "under_coverage", "over_coverage", "too_little_evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """A file by its path inside the workspace and its digests: the only thing that crosses tasks."""

    path: str
    md5: str
    sha256: str
    size: int
    rows: int | None = None
