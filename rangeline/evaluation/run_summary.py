"""What the report page needs to know about one run: plain records, no arrays, no paths to open.

A number that is not known is None, and shows as a dash; it is never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rangeline.evaluation.comparison import PairedDifference
from rangeline.evaluation.report_text import number_of
from rangeline.evaluation.sampling_metrics import Estimate

Verdict = Literal["right", "partial", "wrong", "missing", "unlabelled"]
"""`partial`: a reward between those of right and wrong; `missing`: a reference exists but the completion could not be
checked; `unlabelled`: no reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainEvaluation:
    """Accuracy of one domain before and after training, on the same evaluation prompts."""

    domain: str
    num_prompts: int
    before: Estimate | None
    """None when it was not measured."""
    after: Estimate | None
    paired: PairedDifference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRow:
    """One judgment state or score bin: what the scorer promised and what was true."""

    label: str
    pool: Literal["calibration", "audit"] = "calibration"
    """`calibration`: rollouts of the first policy; `audit`: of the policies of the run."""
    predicted: float | None
    """Mean predicted reward of the rows, in [0, 1]."""
    observed: float | None
    """Mean true reward of the rows; None when no row is labelled."""
    lower: float | None = None
    """Of a band of `observed` that counts prompts, not rows; None, like `upper`, where there is none."""
    upper: float | None = None
    count: int
    num_prompts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationOutcome:
    """Outcome of one data expectation."""

    name: str
    success: bool | None
    """None when it could not be evaluated."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptRollout:
    """One completion with its reward interval and its credit."""

    completion: str
    state: str
    """Judgment state in words; empty when there is none."""
    lower: float | None
    """None, like `upper`, when the reward is missing."""
    upper: float | None
    advantage: float | None
    midpoint_advantage: float | None
    """What the interval's middle alone would have given."""
    verdict: Verdict
    finish: str
    truth: float | None = None
    """True reward; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One prompt with the rollouts of one iteration."""

    prompt: str
    reference: str | None
    iteration: int
    rollouts: tuple[TranscriptRollout, ...]
    share: Literal["policy", "audit"] = "policy"
    """`policy`: trained on; `audit`: labelled, never trained on, so that there is no advantage."""
    reason: str = ""
    """Why it is shown, where it is not one of the first of its iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEntry:
    """A file that the run was made from, or made."""

    kind: str
    path: str
    sha256: str


ALL_DOMAINS = "all"
"""How an evaluation names its numbers over every domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run, as its report tells it."""

    run_name: str
    description: str
    """One sentence: what was trained, by which estimator, on what."""
    run_card: Mapping[str, object]
    """Settings in the order in which they show."""
    key_card: Mapping[str, str] = field(default_factory=dict)
    """What decides the meaning of the numbers, in words: estimator, normaliser, KL, sampling, parser, digests."""
    notes: tuple[str, ...] = ()
    """What a reader must know before the numbers, such as files that are there no more."""
    num_groups: int | None = None
    """Prompts with rollouts that were credited, over all iterations: transcripts show some of them."""
    evaluations: tuple[DomainEvaluation, ...] = ()
    iterations: tuple[Mapping[str, float | str | None], ...] = ()
    """One mapping an iteration: metric name to number or None, and `status`, the word of the coverage report.

    The names are those of `METRICS`; others are ignored. `iteration` gives the number, else the position does.
    """
    calibration: tuple[CalibrationRow, ...] = ()
    expectations: tuple[ExpectationOutcome, ...] = ()
    transcripts: tuple[Transcript, ...] = ()
    lineage: tuple[LineageEntry, ...] = ()
    budget: Mapping[str, float | None]
    """Totals of the run by name, such as rollouts, judge calls, tokens."""
    confidence: float = 0.95
    """Of the accuracy intervals."""
    band_confidence: float = 0.95
    """Of the coverage band."""

    @property
    def told_evaluations(self) -> tuple[DomainEvaluation, ...]:
        """Evaluations that tell different things: of one domain alone, `all` would tell the same again."""
        single = [item for item in self.evaluations if item.domain != ALL_DOMAINS]
        return tuple(single) if len(single) == 1 else self.evaluations

    @property
    def iteration_numbers(self) -> list[float]:
        """Number of each iteration: its `iteration`, else its position from 0."""
        named = [number_of(row.get("iteration")) for row in self.iterations]
        return [float(i) if number is None else number for i, number in enumerate(named)]

    def column(self, key: str) -> list[float | None]:
        """Return one metric by iteration; None where it is absent or not finite."""
        return [number_of(row.get(key)) for row in self.iterations]

    def shows(self, key: str) -> bool:
        """Tell whether a metric has its place in the report: always, but for optional ones that nobody measured."""
        return not key.startswith(OPTIONAL_METRICS) or self.last_known(key) is not None

    def last_known(self, key: str) -> tuple[int, float] | None:
        """Return position and value of the last iteration that knows a metric; None if none does."""
        known = [(i, value) for i, value in enumerate(self.column(key)) if value is not None]
        return known[-1] if known else None


@dataclass(frozen=True, slots=True)
class Metric:
    """How one number of an iteration is named and written."""

    key: str
    label: str
    kind: Literal["share", "number", "count", "seconds"]
    group: str


METRICS = (
    Metric("coverage/empirical", "coverage", "share", "Coverage"),
    Metric("coverage/band_lower", "band from", "share", "Coverage"),
    Metric("coverage/band_upper", "band to", "share", "Coverage"),
    Metric("coverage/target", "target", "share", "Coverage"),
    Metric("monitor/mean_miss", "miss rate of the run", "share", "Coverage"),
    Metric("monitor/miss_lower", "from", "share", "Coverage"),
    Metric("monitor/miss_upper", "to", "share", "Coverage"),
    Metric("monitor/num_prompts", "audited prompts", "count", "Coverage"),
    Metric("monitor/drift_log_wealth", "drift evidence (log)", "number", "Coverage"),
    Metric("interval/mean_width", "mean width", "number", "Coverage"),
    Metric("interval/unbounded_share", "unbounded", "share", "Coverage"),
    Metric("ratio/ess_share", "ESS share", "share", "Overlap"),
    Metric("ratio/classifier_auc", "classifier AUC", "number", "Overlap"),
    Metric("ratio/clipped_share", "clipped weights", "share", "Overlap"),
    Metric("ratio/clipped_target_share", "clipped target weights", "share", "Overlap"),
    Metric("ratio/max_weight_share", "largest weight", "share", "Overlap"),
    Metric("ratio/mean_source_weight", "mean source weight", "number", "Overlap"),
    Metric("ratio/pareto_k", "Pareto k", "number", "Overlap"),
    Metric("ratio/broken_rules", "broken overlap rules", "count", "Overlap"),
    Metric("ratio/unseen_target_share", "unseen states", "share", "Overlap"),
    Metric("reward/missing_share", "missing rewards", "share", "Rewards and advantages"),
    Metric("reward/mean_center", "mean center", "number", "Rewards and advantages"),
    Metric("reward/std", "spread", "number", "Rewards and advantages"),
    Metric("reward/zero_spread_share", "groups all alike", "share", "Rewards and advantages"),
    Metric("advantage/sign_flips", "sign flips", "count", "Rewards and advantages"),
    Metric("advantage/median_pair_weight", "median pair weight", "number", "Rewards and advantages"),
    Metric("advantage/active_share", "active", "share", "Rewards and advantages"),
    Metric("advantage/rms", "RMS", "number", "Rewards and advantages"),
    Metric("advantage/midpoint_rms", "RMS by midpoint", "number", "Rewards and advantages"),
    Metric("advantage/credited", "credited", "count", "Rewards and advantages"),
    Metric("judge/agreement", "orders pairs rightly", "share", "Judge"),
    Metric("judge/pairs", "audited pairs", "count", "Judge"),
    Metric("judge/unknown_share", "judge unknown", "share", "Judge"),
    Metric("judge/missing_share", "missing judgments", "share", "Judge"),
    Metric("judge/alike_share", "groups judged alike", "share", "Judge"),
    Metric("audit/credited", "credited", "count", "Credit of audited rollouts"),
    Metric("audit/flips", "sign flips", "count", "Credit of audited rollouts"),
    Metric("audit/flips_right", "flips towards the truth", "count", "Credit of audited rollouts"),
    Metric("audit/flips_wrong", "flips away from it", "count", "Credit of audited rollouts"),
    Metric("train/accuracy", "audit accuracy", "share", "Policy"),
    Metric("evaluation/accuracy", "held-out accuracy", "share", "Policy"),
    Metric("oracle/coverage", "true coverage", "share", "Behind the intervals"),
    Metric("oracle/mean_reward", "true reward", "number", "Behind the intervals"),
    Metric("oracle/best_share", "best answers", "share", "Behind the intervals"),
    Metric("oracle/flips", "sign flips", "count", "Behind the intervals"),
    Metric("oracle/flips_right", "flips towards the truth", "count", "Behind the intervals"),
    Metric("oracle/flips_wrong", "flips away from it", "count", "Behind the intervals"),
    Metric("policy/loss", "loss", "number", "Policy"),
    Metric("policy/grad_norm", "gradient norm", "number", "Policy"),
    Metric("policy/clip_share", "clipped tokens", "share", "Policy"),
    Metric("policy/entropy", "entropy (nats)", "number", "Policy"),
    Metric("policy/mismatch_mean", "mean mismatch", "number", "Policy"),
    Metric("policy/mismatch_max", "largest mismatch", "number", "Policy"),
    Metric("policy/learning_rate", "learning rate", "number", "Policy"),
    Metric("completion/mean_length", "mean length", "number", "Policy"),
    Metric("completion/truncated_share", "cut off", "share", "Policy"),
    Metric("time/generate_s", "generate", "seconds", "Time"),
    Metric("time/judge_s", "judge", "seconds", "Time"),
    Metric("time/bound_s", "bound and cover", "seconds", "Time"),
    Metric("time/update_s", "update", "seconds", "Time"),
    Metric("time/update_prepare_s", "update: prepare", "seconds", "Time"),
    Metric("time/update_forward_s", "update: forward", "seconds", "Time"),
    Metric("time/update_backward_s", "update: backward", "seconds", "Time"),
    Metric("time/update_optimizer_s", "update: optimiser", "seconds", "Time"),
    Metric("time/measure_s", "measure", "seconds", "Time"),
    Metric("time/save_s", "save", "seconds", "Time"),
    Metric("time/orchestration_s", "orchestration, gate included", "seconds", "Time"),
    Metric("time/gate_s", "coverage gate", "seconds", "Time"),
    Metric("time/iteration_s", "whole iteration", "seconds", "Time"),
    Metric("budget/rollouts", "rollouts", "count", "Budget"),
    Metric("budget/judge_calls", "judge calls, cached ones counted", "count", "Budget"),
    Metric("budget/tokens", "tokens", "count", "Budget"),
)
"""Every number that a report shows of an iteration, in the order of its tables."""

OPTIONAL_METRICS = ("audit/", "evaluation/", "judge/agreement", "judge/alike", "judge/pairs", "oracle/")
"""Beginnings of the names of numbers that most runs do not measure: where none is known, none is shown."""
