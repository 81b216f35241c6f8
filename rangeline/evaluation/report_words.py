"""What the report says in words: did coverage stand, did accuracy move, and the closing table.

Each verdict comes with the numbers that it was read from; what was not measured is said to be so.
"""

import math
from collections import Counter
from dataclasses import dataclass

from rangeline.evaluation.comparison import PairedDifference
from rangeline.evaluation.report_text import (
    DASH,
    count_text,
    level_text,
    number_of,
    number_text,
    points_text,
    share_text,
    sparkline,
)
from rangeline.evaluation.run_summary import DomainEvaluation, RunSummary
from rangeline.evaluation.sampling_metrics import Estimate

_STATUS = {
    "covered": ("✓", "Coverage stands", "The target lies inside the band."),
    "under_coverage": ("✗", "Coverage does not stand", "The band, or the run's monitor, lies below the target."),
    "over_coverage": ("▲", "Coverage stands, with room", "The band, or the run's monitor, lies above the target."),
    "no_overlap": ("✗", "Coverage cannot be promised", "Calibration hardly overlaps with what the policy writes."),
    "concept_drift": ("✗", "Coverage cannot be promised", "The truth behind a judgment state has changed."),
    "too_little_evidence": ("?", "Coverage is undecided", "Too few labelled prompts to tell."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One verdict: a mark that needs no colour, a headline, its numbers, and what they mean."""

    mark: str
    headline: str
    numbers: str
    detail: str


def coverage_finding(summary: RunSummary) -> Finding:
    """Return whether coverage stands, by the last iteration that measured it."""
    known = summary.last_known("coverage/empirical")
    if known is None:
        detail = "It was not measured."
        if summary.iterations and all(row.get("status") == "not_measured" for row in summary.iterations):
            detail = "It was not measured: the reward source makes no intervals that could cover the truth."
        return Finding(mark="?", headline="Coverage is unknown", numbers=DASH, detail=detail)
    row = summary.iterations[known[0]]
    unknown = ("?", "Coverage has no verdict", "The iteration carries no status.")
    mark, headline, meaning = _STATUS.get(str(row.get("status")), unknown)
    counts = Counter(str(row.get("status") or "not measured").replace("_", " ") for row in summary.iterations)
    tally = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    detail = f"{meaning} Iterations: {tally}."
    if (run := run_coverage_text(summary)) != DASH:
        detail += f" Over the run: {run}."
    return Finding(mark=mark, headline=headline, numbers=coverage_text(summary), detail=detail)


def accuracy_finding(domain: DomainEvaluation) -> Finding:
    """Return whether accuracy of one domain moved: it did if the paired interval excludes 0."""
    paired, name = domain.paired, domain.domain
    values = [DASH if side is None else share_text(side.value) for side in (domain.before, domain.after)]
    numbers = " → ".join(values)
    if paired is None:
        detail = "It was not compared on the same prompts."
        return Finding(mark="?", headline=f"Accuracy on {name}: no comparison", numbers=numbers, detail=detail)
    mark, verb, holds = "≈", "did not move clearly", "contains 0"
    if paired.lower is not None and paired.lower > 0:
        mark, verb, holds = "▲", "rose", "excludes 0"
    elif paired.upper is not None and paired.upper < 0:
        mark, verb, holds = "▼", "fell", "excludes 0"
    detail = f"{change_text(paired)}: the {level_text(paired.confidence)} interval {holds}."
    return Finding(mark=mark, headline=f"Accuracy on {name} {verb}", numbers=numbers, detail=detail)


def summary_table(summary: RunSummary) -> list[tuple[str, str]]:
    """Return the closing table of a run: accuracy by domain, change, coverage, width, overlap, missing rewards.

    Parameters
    ----------
    summary
        The run.

    Returns
    -------
    list[tuple[str, str]]
        Names and values in words, not escaped; values of iterations are the last known ones and say from where.
    """
    rows = []
    for domain in summary.told_evaluations:
        rows.append((f"accuracy before, {domain.domain}", estimate_text(domain.before)))
        rows.append((f"accuracy after, {domain.domain}", estimate_text(domain.after)))
        rows.append((f"change, {domain.domain}", change_text(domain.paired)))
    rows.append(("coverage", coverage_text(summary)))
    if summary.last_known("monitor/mean_miss") is not None:
        rows.append(("coverage over the run", run_coverage_text(summary)))
    rows += _curves(summary)
    for key, label, write in (
        ("interval/mean_width", "mean interval width", number_text),
        ("interval/unbounded_share", "unbounded intervals", share_text),
        ("ratio/ess_share", "effective sample size, share of rows", share_text),
        ("reward/missing_share", "missing rewards", share_text),
    ):
        known = summary.last_known(key)
        rows.append((label, DASH if known is None else f"{write(known[1])} ({_iteration(summary, known[0])})"))
    return rows


def _curves(summary: RunSummary) -> list[tuple[str, str]]:
    """Return each share that was measured along the run as a line of bars from 0 to 100 %, with its ends."""
    rows = []
    for key, label in (
        ("evaluation/accuracy", "held-out accuracy along the run"),
        ("coverage/empirical", "coverage along the run"),
        ("oracle/coverage", "true coverage of policy rollouts"),
    ):
        known = [value for value in summary.column(key) if value is not None]
        if len(known) > 1:
            mean = math.fsum(known) / len(known)
            ends = f"{share_text(known[0])} → {share_text(known[-1])}"
            rows.append((label, f"{sparkline(known)} {ends}, mean {share_text(mean)}"))
    return rows


def estimate_text(estimate: Estimate | None) -> str:
    """Return a share with its interval and number of prompts; a dash if it is not known."""
    if estimate is None or estimate.value is None:
        return DASH
    interval = f"{share_text(estimate.lower)} to {share_text(estimate.upper)}"
    return f"{share_text(estimate.value)} ({interval}; {estimate.num_prompts} prompts)"


def change_text(paired: PairedDifference | None) -> str:
    """Return a change in percentage points with interval, shared prompts and sign test; a dash if not known."""
    if paired is None:
        return DASH
    interval = f"{points_text(paired.lower)} to {points_text(paired.upper)}"
    p_value = "p < 0.001" if paired.p_value < 0.001 else f"p = {number_text(paired.p_value)}"
    return f"{points_text(paired.mean)} points ({interval}; {paired.num_shared} shared prompts, sign test {p_value})"


def coverage_text(summary: RunSummary) -> str:
    """Return the last known coverage with band, target and iteration; a dash if it was never measured."""
    known = summary.last_known("coverage/empirical")
    if known is None:
        return DASH
    row = summary.iterations[known[0]]
    lower, upper, target = (
        share_text(number_of(row.get(f"coverage/{name}"))) for name in ("band_lower", "band_upper", "target")
    )
    return f"{share_text(known[1])} (band {lower} to {upper}; target {target}; {_iteration(summary, known[0])})"


def run_coverage_text(summary: RunSummary) -> str:
    """Return the coverage over all audited prompts of the run, with the monitor's interval; a dash if not known."""
    known = summary.last_known("monitor/mean_miss")
    if known is None:
        return DASH
    row = summary.iterations[known[0]]
    lower, upper, prompts = (
        number_of(row.get(f"monitor/{name}")) for name in ("miss_upper", "miss_lower", "num_prompts")
    )
    ends = [DASH if miss is None else share_text(1 - miss) for miss in (lower, upper)]
    return f"{share_text(1 - known[1])} ({ends[0]} to {ends[1]} at every look; {count_text(prompts)} audited prompts)"


def _iteration(summary: RunSummary, position: int) -> str:
    return f"iteration {summary.iteration_numbers[position]:g}"
