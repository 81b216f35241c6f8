"""`rangeline judge ...`: try a rubric on a few rows, and report how reliable the judge is on labelled rollouts.

Both work in the workspace itself: a judge that `--set` names is looked at there, and changes no data.
"""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_manners import friendly, manner, say, say_object, say_result
from flows.cli_session import open_console, prepare_environment

app = typer.Typer(no_args_is_help=True, help="Try a rubric, and measure how reliable the judge is.")

WorkspaceOption = Annotated[Path, typer.Option("--workspace", "-w", help="Folder with params.yaml")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="One setting of this call, such as judge.ask=text")
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error")]


@app.command("report")
def report(
    workspace: WorkspaceOption = Path(),
    assignments: SetOption = None,
    rows: Annotated[int, typer.Option("--rows", min=8, help="Labelled rollouts, whole prompts")] = 400,
    debug: DebugOption = False,
) -> None:
    """Report how reliable the judge is: agreement with the truth, flips, length bias, attacks, information."""
    with friendly(debug=debug):
        prepare_environment(workspace)
        from tasks.judging import report_reliability

        open_console(quiet=True)
        result = report_reliability(workspace, assignments or [], rows)
        if manner().as_json:
            say_object({"folder": result.folder, "report": result.report})
            return
        say(result.page)
        say(f"written to {result.folder}: report.json, report.md, report.html")


@app.command("try")
def try_rubric(
    rubric: Annotated[Path, typer.Argument(help="Rubric file", exists=True, dir_okay=False)],
    file: Annotated[Path, typer.Argument(help="JSONL with prompt and completion a line", exists=True, dir_okay=False)],
    workspace: WorkspaceOption = Path(),
    assignments: SetOption = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows to judge")] = 5,
    debug: DebugOption = False,
) -> None:
    """Judge a few rows by a rubric and say what all of them would take, before anything is spent."""
    with friendly(debug=debug):
        prepare_environment(workspace)
        from tasks.judging import trial_lines, try_on_rows

        open_console(quiet=True)
        trial = try_on_rows(workspace, assignments or [], rubric, file, rows)
        say_result(trial, "\n".join(trial_lines(trial)))
