"""The judge looked at by a person: the reliability report, and a rubric tried on a few rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rangeline.config import PipelineConfig, build_config, merge, parse_assignment, read_settings
from rangeline.stages.workspace import Workspace
from tasks.reporting import flow_progress


@dataclass(frozen=True, slots=True)
class Reliability:
    """The report as text, and where it lies."""

    page: str
    folder: str


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
    return Reliability(markdown_page(result.report), str(result.folder))


def try_on_rows(root: Path, assignments: Sequence[str], rubric: Path, file: Path, rows: int) -> list[str]:
    """Judge a few rows; return lines for a person."""
    from rangeline.evaluation.report_text import visible
    from rangeline.stages.judge_trial import try_rubric

    workspace, config = _opened(root, assignments)
    trial = try_rubric(workspace, config, rubric, file, rows=rows)
    lines = []
    for row in trial.rows:
        lines.append(visible(" ".join(row.completion.split()))[:100] or "(empty)")
        lines += [f"  {name}: {level}" for name, level in row.levels.items()]
    lines.append(f"{trial.num_rows_of_file} rows of the file would take {trial.num_questions_of_file} questions.")
    if trial.spent is not None:
        spent = trial.spent
        lines.append(f"Spent here: {spent.calls} calls, {spent.tokens} tokens, {spent.money:g} in money.")
    return lines
