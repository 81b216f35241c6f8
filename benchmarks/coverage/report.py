"""Tables and plots of the coverage study: means of cells, the acceptance lines, the monitor's curves."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.coverage.alarms import ALPHA, DELTA, PROMPTS, Alarms
from benchmarks.coverage.study import ESTIMATED, METHODS
from benchmarks.coverage.verdict import MIN_ESS_SHARE, TOLERANCE, Cell, eligible, failures, select, verdict_lines

_COLOURS = dict(
    zip(METHODS, ("#888888", "#000000", "#1b6ca8", "#2a9d8f", "#e76f51", "#8e5ea2", "#c9a227"), strict=False)
)


def _mean_cell(cells: Sequence[Cell]) -> str:
    if not cells:
        return "-"
    return f"{np.mean([c.coverage for c in cells]):.3f} ({np.mean([c.width for c in cells]):.2f})"


def _table(cells: Sequence[Cell], title: str, of: Callable[[Cell], object]) -> list[str]:
    groups = sorted({of(c) for c in cells}, key=lambda g: (isinstance(g, str), g))
    lines = [f"| {title} | true ESS share | " + " | ".join(METHODS) + " |", "|---" * (len(METHODS) + 2) + "|"]
    for group in groups:
        rows = [c for c in cells if of(c) == group]
        shares = [c.ess_share for c in rows if c.method == "true ratio"]
        values = [_mean_cell([c for c in rows if c.method == method]) for method in METHODS]
        lines.append(f"| {group} | {np.mean(shares):.2f} | " + " | ".join(values) + " |")
    return [*lines, ""]


def _failure_table(cells: Sequence[Cell]) -> list[str]:
    gap_of = {(c.design.name, c.size, c.alpha): c.gap for c in cells if c.method == "true ratio"}
    lines = [
        "| cell | gap | standard error | gap with the true ratio | ESS share | unbounded share |",
        "|---|---|---|---|---|---|",
    ]
    for c in failures(cells):
        true_gap = gap_of[c.design.name, c.size, c.alpha]
        lines.append(
            f"| {c.label} | {c.gap:+.3f} | {c.error:.3f} | {true_gap:+.3f} | {c.ess_share:.2f} "
            f"| {c.unbounded_share:.2f} |"
        )
    return [*lines, ""] if len(lines) > 2 else ["None.", ""]


def _alarm_table(alarms: Sequence[Alarms]) -> list[str]:
    lines = [
        "| miss rate | from iteration | correlation | monitor: alarmed by the end | median delay, prompts"
        " | over-coverage alarms | repeated row-level test: alarmed by the end |",
        "|---|---|---|---|---|---|---|",
    ]
    for a in alarms:
        delay = "-" if a.median_delay is None else f"{a.median_delay:,.0f}"
        lines.append(
            f"| {a.miss_rate} | {a.change_at} | {a.correlation} | {a.monitor_I[-1]:.3f} | {delay} | {a.over_share:.3f}"
            f" | {a.repeated_test_I[-1]:.3f} |"
        )
    return [*lines, ""]


def render(cells: Sequence[Cell], alarms: Sequence[Alarms], facts: str) -> str:
    """Write the study as Markdown."""
    shift = select(cells, lambda c: c.design.family == "shift" and c.alpha == ALPHA)
    size = 512 if any(c.size == 512 for c in cells) else max(c.size for c in cells)
    at_size = [c for c in shift if c.size == size]
    changed = select(cells, lambda c: c.design.family != "shift" and c.alpha == ALPHA and c.size == size)
    outside = select(eligible(cells), lambda c: abs(c.gap) > TOLERANCE)
    return "\n".join(
        [
            "# Coverage under shift of judgment states",
            "",
            facts,
            "",
            "## Acceptance",
            "",
            *[f"- {line}" for line in verdict_lines(cells)],
            "",
            f"## Coverage (mean width) at alpha {ALPHA}, by shift strength, {size} calibration rows",
            "",
            *_table(at_size, "shift", lambda c: c.design.strength),
            f"## By calibration rows, shift 0.8 and 1.2, alpha {ALPHA}",
            "",
            *_table([c for c in shift if c.design.strength in (0.8, 1.2)], "rows", lambda c: c.size),
            f"## By states, shift 0.8 and 1.2, {size} calibration rows",
            "",
            *_table([c for c in at_size if c.design.strength in (0.8, 1.2)], "states", lambda c: c.design.num_states),
            f"## By correlation within prompts, shift 0.8 and 1.2, {size} calibration rows",
            "",
            *_table(
                [c for c in at_size if c.design.strength in (0.8, 1.2)], "correlation", lambda c: c.design.correlation
            ),
            f"## One thing changed (else shift 1.2, 64 states, no correlation), {size} calibration rows",
            "",
            *_table(changed, "design", lambda c: c.design.name),
            f"## Cells outside {TOLERANCE}, ESS share above {MIN_ESS_SHARE}: {len(outside)}, the worst first",
            "",
            *_failure_table(cells),
            f"## Monitor: target miss rate {ALPHA}, false-alarm rate {DELTA} for both sides together",
            "",
            *_alarm_table(alarms),
        ]
    )


def _coverage_plot(cells: Sequence[Cell]) -> Figure:
    shift = select(cells, lambda c: c.design.family == "shift" and c.alpha == ALPHA and c.design.num_states == 64)
    shift = [c for c in shift if c.design.correlation == 0]
    sizes = sorted({c.size for c in shift})
    figure = Figure(figsize=(3.1 * len(sizes), 3.4), layout="constrained")
    for axes, size in zip(np.atleast_1d(figure.subplots(1, len(sizes), sharey=True)), sizes, strict=True):
        for method in METHODS:
            line = sorted((c.design.strength, c.coverage) for c in shift if c.method == method and c.size == size)
            axes.plot(*zip(*line, strict=True), label=method, color=_COLOURS[method], marker="o", markersize=3)
        axes.axhspan(1 - ALPHA - TOLERANCE, 1 - ALPHA + TOLERANCE, color="#dddddd", zorder=0)
        axes.set(title=f"{size} calibration rows", xlabel="shift strength")
    figure.axes[0].set_ylabel("coverage, nominal 0.9")
    figure.axes[0].legend(fontsize=7)
    return figure


def _ess_plot(cells: Sequence[Cell]) -> Figure:
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for method in ESTIMATED:
        chosen = [c for c in cells if c.method == method and c.design.family == "shift"]
        axes.scatter([c.ess_share for c in chosen], [c.gap for c in chosen], s=6, label=method, color=_COLOURS[method])
    axes.axhspan(-TOLERANCE, TOLERANCE, color="#dddddd", zorder=0)
    axes.axvline(MIN_ESS_SHARE, color="#555555", linestyle=":")
    axes.set(xlabel="effective sample share of the estimated weights", ylabel="coverage minus nominal")
    axes.legend(fontsize=8)
    return figure


def _alarm_plot(alarms: Sequence[Alarms]) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    false, found = figure.subplots(1, 2)
    for a in alarms:
        prompts = PROMPTS * np.arange(1, len(a.monitor_I) + 1)
        if a.miss_rate == ALPHA:
            line = false.plot(prompts, a.monitor_I, label=f"monitor, correlation {a.correlation}")
            label = f"repeated test, correlation {a.correlation}"
            false.plot(prompts, a.repeated_test_I, linestyle="--", color=line[0].get_color(), label=label)
        elif a.miss_rate > ALPHA and a.correlation == 0:
            since = "" if a.change_at == 0 else f" from prompt {a.change_at * PROMPTS}"
            found.plot(prompts, a.monitor_I, label=f"miss rate {a.miss_rate}{since}", linestyle="--" if since else "-")
    false.axhline(DELTA / 2, color="#555555", linestyle=":")
    false.set(title="false alarms at the promised miss rate", xlabel="prompts seen", ylabel="share of runs alarmed")
    found.set(title="under-coverage found", xlabel="prompts seen")
    for axes in (false, found):
        axes.legend(fontsize=6)
    return figure


def save_plots(cells: Sequence[Cell], alarms: Sequence[Alarms], folder: Path) -> None:
    """Write the three plots; the same results give the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "rangeline"}):
        _coverage_plot(cells).savefig(folder / "coverage_by_shift.svg", metadata={"Date": None})
        _ess_plot(cells).savefig(folder / "coverage_by_ess.png", dpi=120)
        _alarm_plot(alarms).savefig(folder / "monitor_alarms.svg", metadata={"Date": None})
