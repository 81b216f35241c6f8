"""The judge looked at by a person: the reliability report, and a rubric tried on a few rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rangeline.config import PipelineConfig, build_config, merge, parse_assignment, read_settings
from rangeline.stages.workspace import Workspace
from tasks.reporting import flow_progress

if TYPE_CHECKING:
    from rangeline.stages.judge_trial import Trial  # which imports torch


@dataclass(frozen=True, slots=True)
class Reliability:
    """The report as text, and where it lies."""

    page: str
    folder: str
    report: Any
    """Numbers of the page."""


def _opened(root: Path, assignments: Sequence[str]) -> tuple[Workspace, PipelineConfig]:
    """Open a workspace as it is, with settings of this call laid over its own."""
    workspace = Workspace(root.resolve())
    values = read_settings(workspace.params)
    for text in assignments:
        values = merge(values, parse_assignment(text))
    return workspace, build_config(values, source=str(workspace.params))


def report_reliability(root: Path, assignments: Sequence[str], rows: int) -> Reliability:
    """Measure the judge on the labelled rollouts and write the report."""
    from rangeline.evaluation.judge_page import markdown_page
    from rangeline.stages.judge_report import report_judge

    workspace, config = _opened(root, assignments)
    with flow_progress("judge report") as progress:
        result = report_judge(workspace, config, progress, rows=rows)
    return Reliability(markdown_page(result.report), str(result.folder), result.report)


def try_on_rows(root: Path, assignments: Sequence[str], rubric: Path, file: Path, rows: int) -> "Trial":
    """Judge a few rows of a file by a rubric."""
    from rangeline.stages.judge_trial import try_rubric

    workspace, config = _opened(root, assignments)
    return try_rubric(workspace, config, rubric, file, rows=rows)


def trial_lines(trial: "Trial") -> list[str]:
    """Return what came out, in lines for a person."""
    from rangeline.evaluation.report_text import visible

    lines = []
    for row in trial.rows:
        lines.append(visible(" ".join(row.completion.split()))[:100] or "(empty)")
        lines += [f"  {name}: {level}" for name, level in row.levels.items()]
    lines.append(f"{trial.num_rows_of_file} rows of the file would take {trial.num_questions_of_file} questions.")
    if trial.spent is not None:
        spent = trial.spent
        lines.append(f"Spent here: {spent.calls} calls, {spent.tokens} tokens, {spent.money:g} in money.")
    return lines
