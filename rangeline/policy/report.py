"""What an update says of itself: finite numbers of each optimiser step, and of the whole update."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from rangeline.policy.mismatch import Mismatch
from rangeline.policy.objective import ObjectiveTerms, combine_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One optimiser step."""

    step: int
    """Number of the step over the optimiser's whole life, from 1."""
    learning_rate: float
    loss: float
    grad_norm: float
    """Before clipping."""
    grad_norm_clipped: float
    terms: ObjectiveTerms
    """What the objective said of the step's tokens; its loss leaves texts to learn out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport(Mismatch):
    """Finite numbers of one update; token means cover the rows that were trained on."""

    skipped: bool
    """True when every advantage was 0: no step was taken and the other numbers are no measurements."""
    steps: int = 0
    learning_rate: float = 0.0
    """Of the last step."""
    loss: float = 0.0
    """Mean over the steps."""
    grad_norm: float = 0.0
    """Mean over the steps, before clipping."""
    grad_norm_clipped: float = 0.0
    """Mean over the steps, after clipping."""
    clip_share: float = 0.0
    clip_low_share: float = 0.0
    clip_high_share: float = 0.0
    clip_low_min: float = 0.0
    clip_high_max: float = 0.0
    dual_clip_share: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    ratio_min: float = 1.0
    ratio_mean: float = 1.0
    ratio_max: float = 1.0
    active_rows: int = 0
    """Rows that were trained on."""
    num_rows: int = 0
    num_tokens: int = 0
    """Completion tokens of a pass over the batch, of rows that were trained on."""
    seconds: float = 0.0
    by_step: tuple[StepReport, ...] = ()
    """Every optimiser step, in order."""


_SHARED = (
    *("clip_share", "clip_low_share", "clip_high_share", "clip_low_min", "clip_high_max", "dual_clip_share"),
    *("entropy", "kl", "ratio_min", "ratio_mean", "ratio_max"),
)
_MISMATCH = tuple(item.name for item in fields(Mismatch))


def update_numbers(report: UpdateReport) -> dict[str, float]:
    """Return one update as flat numbers; seconds are left out, for a repeat takes others."""
    names = (item.name for item in fields(report) if item.name not in ("seconds", "by_step"))
    return {name: getattr(report, name) for name in names}


def step_numbers(report: StepReport) -> dict[str, float]:
    """Return what one step measured as flat numbers, for tables and trackers."""
    return {
        "learning_rate": report.learning_rate,
        "loss": report.loss,
        "grad_norm": report.grad_norm,
        "grad_norm_clipped": report.grad_norm_clipped,
        **{name: getattr(report.terms, name) for name in _SHARED},
        "num_tokens": report.terms.num_tokens,
    }


def report_update(
    by_step: Sequence[StepReport], mismatch: Mismatch, *, passes: int, active_rows: int, num_rows: int, seconds: float
) -> UpdateReport:
    """Sum up the steps of one update: means over steps or tokens, extremes over all."""
    total = combine_terms([report.terms for report in by_step])
    num = max(len(by_step), 1)
    return UpdateReport(
        skipped=False,
        steps=len(by_step),
        learning_rate=by_step[-1].learning_rate if by_step else 0.0,
        loss=sum(report.loss for report in by_step) / num,
        grad_norm=sum(report.grad_norm for report in by_step) / num,
        grad_norm_clipped=sum(report.grad_norm_clipped for report in by_step) / num,
        **{name: getattr(total, name) for name in _SHARED},
        **{name: getattr(mismatch, name) for name in _MISMATCH},
        active_rows=active_rows,
        num_rows=num_rows,
        num_tokens=total.num_tokens // passes,
        seconds=seconds,
        by_step=tuple(by_step),
    )
