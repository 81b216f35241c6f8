"""One row of a paper's table: what was measured, what is a hole and why, and averages that never skip a hole.

A cell is a value with its interval, or a hole with a reason. An average is the plain mean of its columns, divided by
their number; one hole among them makes it a hole that names the columns it lacks. Nothing is imputed, and a
measurement with fewer completions than the column asks for is a hole too, not a stand-in.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rangeline.evaluation.presets import Column, Preset
from rangeline.evaluation.report_text import markdown_cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell: a value, or a hole with its reason."""

    title: str
    value: float | None
    lower: float | None = None
    upper: float | None = None
    reason: str | None = None
    """Why there is no value; None where there is one."""
    notes: tuple[str, ...] = ()
    """What a reader must know of the value, such as that only the first problems were asked."""


def fill_preset(
    preset: Preset, metrics: Mapping[str, Mapping[str, Any]], unavailable: Mapping[str, str]
) -> tuple[Cell, ...]:
    """Return the row of a preset's table: its columns, then its averages.

    Parameters
    ----------
    preset
        The table.
    metrics
        Metrics of each benchmark that was run, as `benchmark_metrics` and `overlap_metrics` give them.
    unavailable
        Reason of each benchmark that could not be run.

    Returns
    -------
    tuple[Cell, ...]
        In the table's order.
    """
    cells = {column.title: _cell(column, metrics, unavailable) for column in preset.columns}
    averages = []
    for average in preset.averages:
        members = [cells[title] for title in average.columns]
        holes = [cell.title for cell in members if cell.value is None]
        values = [cell.value for cell in members if cell.value is not None]
        averages.append(
            Cell(title=average.title, value=None, reason=f"no value of {', '.join(holes)}")
            if holes
            else Cell(
                title=average.title,
                value=math.fsum(values) / len(values),
                notes=tuple(sorted({note for cell in members for note in cell.notes})),
            )
        )
    return (*cells.values(), *averages)


def _cell(column: Column, metrics: Mapping[str, Mapping[str, Any]], unavailable: Mapping[str, str]) -> Cell:
    if column.benchmark not in metrics:
        return Cell(title=column.title, value=None, reason=unavailable.get(column.benchmark, "not run"))
    measured = metrics[column.benchmark]
    estimate = measured["estimates"].get(column.key)
    if estimate is None:
        reason = (
            measured.get("unavailable", {}).get(column.key) or f"asks for {column.key}; got n={measured['samples']}"
        )
        return Cell(title=column.title, value=None, reason=reason)
    if estimate["value"] is None:
        return Cell(title=column.title, value=None, reason=f"no problem has what {column.key} needs")
    return Cell(
        title=column.title,
        value=estimate["value"],
        lower=estimate["lower"],
        upper=estimate["upper"],
        notes=_notes(column, measured, estimate),
    )


def _notes(column: Column, measured: Mapping[str, Any], estimate: Mapping[str, Any]) -> tuple[str, ...]:
    name, asked = column.benchmark, measured["num_problems"]
    notes = [f"{name}: {measured['remark']}"] if measured.get("remark") else []
    if asked < measured["num_available"]:
        notes.append(f"{name}: the first {asked} of {measured['num_available']} problems")
    if estimate["num_prompts"] < asked:
        notes.append(f"{name}: {estimate['num_prompts']} of {asked} problems have the verdicts for {column.key}")
    if measured["missing_share"]:
        share, floor = _percent(measured["missing_share"]), measured["floor"].get(column.key)
        counted = "" if floor is None else f"; counted as wrong, {column.key} is {floor:.3f}"
        notes.append(f"{name}: {share} of completions have no verdict{counted}")
    return tuple(notes)


def preset_markdown(title: str, rows: Mapping[str, Sequence[Cell]]) -> str:
    """Return a Markdown table, one row a policy, with every hole and every note told below it.

    Parameters
    ----------
    title
        Heading of the table.
    rows
        Cells of each policy, of one preset.
    """
    cells = next(iter(rows.values()))
    names = [cell.title for cell in cells]
    lines = [f"## {title}", "", _line(["Policy", *names]), _line(["---"] * (len(names) + 1))]
    below: list[str] = []
    for policy, row in rows.items():
        lines.append(_line([policy, *(_cell_text(cell, below) for cell in row)]))
    return "\n".join([*lines, "", *(f"{i}. {text}" for i, text in enumerate(below, 1)), ""])


def benchmark_markdown(metrics: Mapping[str, Mapping[str, Any]], unavailable: Mapping[str, str]) -> str:
    """Return Markdown tables of everything that was measured: values, then what stands behind them."""
    heads: tuple[str, ...] = ("Benchmark", "Measure", "Value", "Interval", "Missing as wrong", "Problems")
    lines = ["## Values", "", _line(heads), _line(["---"] * len(heads))]
    for name, measured in metrics.items():
        for key, estimate in measured["estimates"].items():
            interval = "-" if estimate["lower"] is None else f"{estimate['lower']:.3f} to {estimate['upper']:.3f}"
            value = "-" if estimate["value"] is None else f"{estimate['value']:.3f}"
            floor = "-" if measured["floor"].get(key) is None else f"{measured['floor'][key]:.3f}"
            lines.append(_line([name, key, value, interval, floor, f"{estimate['num_prompts']}"]))
        lines += [_line([name, key, f"- ({why})", "-", "-", "0"]) for key, why in measured["unavailable"].items()]
    lines += [_line([name, "-", f"- ({reason})", "-", "-", "0"]) for name, reason in unavailable.items()]
    heads = (
        "Benchmark",
        "Problems",
        "n",
        "T",
        "top-p",
        "Max tokens",
        "Seed",
        "Cut off",
        "Absent",
        "Ambiguous",
        "Missing",
    )
    lines += ["", "## How they were sampled and read", "", _line(heads), _line(["---"] * len(heads))]
    for name, measured in metrics.items():
        problems = f"{measured['num_problems']} of {measured['num_available']}"
        settings = [f"{measured[key]}" for key in ("samples", "temperature", "top_p", "max_tokens", "seed")]
        shares = [_percent(measured[f"{key}_share"]) for key in ("truncated", "absent", "ambiguous", "missing")]
        lines.append(_line([name, problems, *settings, *shares]))
    reasons = [
        f"- {name}: missing because of {reason}: {_percent(share)} of completions"
        for name, measured in metrics.items()
        for reason, share in measured["missing_reasons"].items()
    ]
    reasons += [f"- {name}: {measured['remark']}" for name, measured in metrics.items() if measured.get("remark")]
    return "\n".join([*lines, "", *reasons, ""]) if reasons else "\n".join([*lines, ""])


def _cell_text(cell: Cell, below: list[str]) -> str:
    if cell.value is None:
        text, told = "-", [f"{cell.title}: {cell.reason}"]
    else:
        text, told = f"{cell.value:.3f}", [f"{cell.title}: {note}" for note in cell.notes]
    numbers = []
    for item in told:
        if item not in below:
            below.append(item)
        numbers.append(below.index(item) + 1)
    return f"{text} ({', '.join(map(str, numbers))})" if numbers else text


def _line(cells: Sequence[str]) -> str:
    # A policy may be called anything; a bar would open another column.
    return "| " + " | ".join(map(markdown_cell, cells)) + " |"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
