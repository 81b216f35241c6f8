"""A comparison in Markdown and as plain values: the same numbers to the same digit each time, and no clock time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rangeline.evaluation.comparison_statistics import FlipCount, SeedDifference, SeedMean
from rangeline.evaluation.comparison_summary import DesignSummary, MethodSummary
from rangeline.evaluation.report_text import DASH, level_text, markdown_cell

_FEWEST_SEEDS = 5
"""Resampling fewer seeds gives intervals that are far too narrow: they are shown, and no verdict is drawn from them."""
_DIGITS = 6
"""Digits of stored numbers: far below any standard error, and above what rounding of sums moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSummary:
    """A whole comparison."""

    name: str
    description: str
    designs: tuple[DesignSummary, ...]
    tuning: dict[str, Any]
    """How learning rates were chosen; empty where they were given."""
    failures: dict[str, str]
    """Reason of each job that failed, by its label."""
    confidence: float


def percent(value: SeedMean) -> str:
    """Write a share in percent with its standard error.

    >>> percent(SeedMean(mean=0.5817, standard_error=0.026, num_seeds=10))
    '58.2 ± 2.6'
    """
    if value.mean is None:
        return DASH
    return f"{100 * value.mean:.1f}" + ("" if value.standard_error is None else f" ± {100 * value.standard_error:.1f}")


def number(value: SeedMean, digits: int = 3) -> str:
    """Write a mean without its error."""
    return DASH if value.mean is None else f"{value.mean:.{digits}f}"


def band(value: SeedMean, ends: tuple[float | None, float | None]) -> str:
    """Write a share with its band."""
    if value.mean is None:
        return DASH
    inside = "" if ends[0] is None or ends[1] is None else f" [{ends[0]:.3f}, {ends[1]:.3f}]"
    return f"{value.mean:.3f}{inside}"


def change(value: SeedDifference | None) -> str:
    """Write a difference in percentage points with its interval."""
    return DASH if value is None else f"{_points(value.mean)}{_between(value)}"


def _points(share: float) -> str:
    """Write a difference of shares in points; what rounds to zero has no sign."""
    points = round(100 * share, 1)
    return f"{points:+.1f}" if points else "0.0"


def _between(value: SeedDifference) -> str:
    return "" if value.lower is None or value.upper is None else f" [{_points(value.lower)}, {_points(value.upper)}]"


def wins(value: SeedDifference | None) -> str:
    """Write on how many seeds the reference was better, and the exact p-value."""
    return DASH if value is None else f"{value.num_wins} of {value.num_seeds} (p {value.p_value:.3f})"


def flips(value: FlipCount) -> str:
    """Write the share of credited rollouts whose sign flipped, and how often the truth was with the new sign."""
    if not value.num_credited or not value.num_flips:
        return "none" if value.num_credited else DASH
    share = f"{100 * value.num_flips / value.num_credited:.1f} %"
    return share if value.right_share is None else f"{share}, right {100 * value.right_share:.0f} %"


COLUMNS = (
    "method",
    "accuracy %",
    "{reference} minus it",
    "{reference} wins",
    "coverage",
    "width",
    "unbounded",
    "ESS share",
    "RMS",
    "flips against midpoint",
    "rate",
)
SOURCE_COLUMNS = ("rollouts", "made before", "note")
"""Of methods with different reward sources, beside the others."""


def cells(item: MethodSummary) -> list[str]:
    """Return the row of a method, in the order of `COLUMNS`."""
    return [
        item.method,
        percent(item.accuracy),
        change(item.difference),
        wins(item.difference),
        band(item.coverage, item.coverage_band),
        number(item.width),
        number(item.unbounded),
        number(item.ess, 2),
        number(item.rms),
        flips(item.flips),
        f"{item.learning_rate:g}",
    ]


def rows(design: DesignSummary) -> list[list[str]]:
    """Return the row of every method; one without any result is a row with its reason."""
    if not _tells_more(design):
        return [cells(item) for item in design.methods]
    done = [[*_source_cells(item), counted(item.rollouts), counted(item.before), ""] for item in design.methods]
    width = len(COLUMNS) + len(SOURCE_COLUMNS) - 2
    return done + [[name, *[DASH] * width, f"failed: {_one_line(why)}"] for name, why in design.absent.items()]


def _source_cells(item: MethodSummary) -> list[str]:
    made = cells(item)
    made[COLUMNS.index("coverage")] = "not measured" if item.coverage.mean is None else made[COLUMNS.index("coverage")]
    return made


def counted(rollouts: Mapping[str, int]) -> str:
    """Write rollouts as their sum and what they are for.

    >>> counted({"policy": 24, "ratio": 0, "audit": 16})
    '40 (16 audit, 24 policy)'
    """
    parts = [f"{count} {kind}" for kind, count in sorted(rollouts.items()) if count]
    return f"{sum(rollouts.values())} ({', '.join(parts)})" if parts else "0"


def _one_line(words: str) -> str:
    return " ".join(words.replace("|", "/").split())


def _tells_more(design: DesignSummary) -> bool:
    return design.compares_sources or bool(design.absent)


def header(design: DesignSummary) -> list[str]:
    """Return the names of the columns."""
    names = COLUMNS + (SOURCE_COLUMNS if _tells_more(design) else ())
    return [name.format(reference=design.reference) for name in names]


def finding(design: DesignSummary, confidence: float) -> str:
    """Say in one sentence how the reference stands against the best scalar reduction, or which source came highest."""
    if design.compares_sources:
        return _source_finding(design)
    best = design.best_scalar
    if all(item.method != design.reference for item in design.methods):
        return f"{design.reference} has no result here, and nothing can be compared with it."
    if best is None or best.difference is None:
        return f"{design.reference} has no scalar reduction to be compared with here."
    difference = best.difference
    points = f"{_points(difference.mean)} points"
    if difference.lower is None or difference.upper is None:
        return f"{design.reference} minus {best.method}, the best scalar reduction: {points} on one seed; no interval."
    words = "is not told apart from"
    if difference.num_seeds < _FEWEST_SEEDS:
        words = f"cannot be told, with fewer than {_FEWEST_SEEDS} seeds, from"
    elif difference.lower > 0:
        words = "beats"
    elif difference.upper < 0:
        words = "loses to"
    level = level_text(confidence)
    return (
        f"{design.reference} {words} the best scalar reduction, {best.method}: {points}, {level} interval "
        f"[{_points(difference.lower)}, {_points(difference.upper)}], {difference.num_wins} of "
        f"{difference.num_seeds} seeds."
    )


def _source_finding(design: DesignSummary) -> str:
    known = [(item.accuracy.mean, item) for item in design.methods if item.accuracy.mean is not None]
    if not known:
        return "No source has an accuracy here."
    value, best = max(known, key=lambda pair: pair[0])
    ties = sum(other == value for other, _ in known) - 1
    seeds = f"{best.accuracy.num_seeds} seed{'s' if best.accuracy.num_seeds > 1 else ''}"
    words = f"{best.method} has the highest accuracy of {len(known)} sources, {100 * value:.1f} %, over {seeds}"
    words += f", and {ties} {'others reach' if ties > 1 else 'other reaches'} it" if ties else ""
    few = best.accuracy.num_seeds < _FEWEST_SEEDS
    return words + (f"; fewer than {_FEWEST_SEEDS} seeds tell no sources apart." if few else ".")


def legend(design: DesignSummary) -> str:
    """Say what the numbers of a design are."""
    whose = "unlabelled policy rollouts, by the oracle" if design.is_oracle else "labelled audit rollouts"
    return (
        f"Accuracy on {design.num_held_out} held-out prompts after the last iteration; ± is one standard error over "
        f"seeds. Coverage of {whose}, over the whole run, target {design.target:g}; its band resamples seeds. "
        f"{_budget_text(design)}"
    )


def _budget_text(design: DesignSummary) -> str:
    """Say which rollouts are equal, and which methods drew more or fewer than the reference."""
    by_name = {item.method: item for item in design.methods}
    base = by_name.get(design.reference, design.methods[0])
    total = sum(base.rollouts.values())
    if not design.compares_sources:
        budget = ", ".join(f"{count} {kind}" for kind, count in sorted(base.rollouts.items()))
        return f"Every run drew the same number of rollouts: {budget}."
    apart = [(name, sum(item.rollouts.values()) - total) for name, item in by_name.items()]
    unequal = ", ".join(f"{name} {more:+d}" for name, more in apart if more)
    told = f"these another number, for want of prompts or to refill a filtered batch: {unequal}"
    told = told if unequal else "so did every other"
    return (
        f"Rollouts are those of a run, audit and ratio rollouts counted; {base.method} drew {total}, and "
        f"{told}. "
        "Those made before are drawn once for a seed, however long the run, and are not part of that budget. Paired "
        "are data, start, held-out prompts and their sampling streams; first rollouts only among methods that draw the "
        "same prompts as often. Coverage is of methods that ask the judge; the others promise none."
    )


def markdown(summary: ComparisonSummary) -> str:
    """Return the tables as Markdown."""
    parts = [f"# {summary.name}", *([summary.description] if summary.description else [])]
    for design in summary.designs:
        names = header(design)
        lines = [_row(names), f"|{'|'.join(['---'] * len(names))}|"]
        lines += [_row(row) for row in rows(design)]
        parts += [f"## {design.design}", finding(design, summary.confidence), "\n".join(lines), legend(design)]
        if design.missing:
            parts.append("Without a result: " + "; ".join(design.missing) + ".")
    if summary.tuning:
        parts += ["## Learning rates", tuning_text(summary.tuning)]
    if summary.failures:
        parts += ["## Failed", _failures(summary)]
    return "\n\n".join(parts) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_cell, cells))} |"


def _failures(summary: ComparisonSummary) -> str:
    return "\n".join(f"- {label}: {markdown_cell(reason)}" for label, reason in sorted(summary.failures.items()))


def tuning_text(tuning: dict[str, Any]) -> str:
    """Say how learning rates were chosen, and which stand at the edge of their grid."""
    seeds, grid = (", ".join(f"{value:g}" for value in tuning[name]) for name in ("seeds", "grid"))
    lines = [f"Chosen on the validation prompts of seeds {seeds}, which are not reported, among {grid}."]
    for design, said in tuning["designs"].items():
        chosen = ", ".join(f"{method} {rate:g}" for method, rate in said["chosen"].items())
        edge = f" At the edge of the grid: {', '.join(said['at_edge'])}." if said["at_edge"] else ""
        lines.append(f"- {design} (tuned on {', '.join(said['tuned_on'])}): {chosen}.{edge}")
    return "\n".join(lines)


def plain(summary: ComparisonSummary) -> dict[str, Any]:
    """Return all numbers as JSON values, rounded to six digits after the point."""
    return dict(_rounded(asdict(summary)))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(item) for item in value]
    return value
