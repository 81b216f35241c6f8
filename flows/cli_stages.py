"""Commands that make something: data, starting policy, calibration, anchors, a trained policy, or all in order."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_manners import manner, say, say_object, say_table
from flows.cli_session import (
    ConfigOption,
    DebugOption,
    EngineOption,
    QuietOption,
    RewardOption,
    RunOption,
    SetOption,
    WorkspaceOption,
    in_workspace,
    say_pages,
)
from rangeline.config import PipelineConfig
from rangeline.stages.workspace import Workspace

app = typer.Typer()


@app.command()
def demo(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    run: RunOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Run everything in order: prepare, warmup, calibrate, train, evaluate, report, audit.

    With RANGELINE_POLICY=<Hub name or folder> and --config FILE it runs on your own model and data.
    """

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.audit_lineage import AuditRequest, audit
        from flows.run_nightly import run_pipeline

        result = run_pipeline(str(place.root), settings, run)
        name = str(result["run"])
        matching = audit(AuditRequest(workspace=str(place.root), target=name))
        say(f"\nRun {name}: policy version {result['version']} is {result['alias']}; {matching} files verified.")
        say_table(list(result["table"]))  # type: ignore[call-overload]
        say_pages(place, Path(str(result["page"])), name)

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug, trains=True)


@app.command()
def prepare(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    force: Annotated[bool, typer.Option("--force", help="Make everything again")] = False,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Check prompts and split them into disjoint pools; version them in DVC."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.prepare_data import PrepareRequest
        from flows.prepare_data import prepare as flow

        counts = flow(PrepareRequest(workspace=str(place.root), force=force))
        if manner().as_json:
            say_object({"prompts": counts})
        else:
            say_table([(name, f"{count} prompts") for name, count in counts.items()])

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def warmup(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Train the starting policy on the labelled warm-up pool."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.common import DataRequest
        from flows.warm_up_policy import warmup as flow

        flow(DataRequest(workspace=str(place.root)))

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def calibrate(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Judge the source and calibration pools, fit the scorer, freeze the calibration set."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.calibrate_judge import CalibrateRequest
        from flows.calibrate_judge import calibrate as flow

        flow(CalibrateRequest(workspace=str(place.root), alpha=settings.intervals.alpha))

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def anchors(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Make the anchors and the metric head of reward source anchor_contrast."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.common import DataRequest
        from flows.make_anchors import anchors as flow

        flow(DataRequest(workspace=str(place.root)))

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def train(  # noqa: PLR0913 - one argument an option
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    run: RunOption = None,
    reward: RewardOption = None,
    engine: EngineOption = None,
    processes: Annotated[
        int | None, typer.Option("--processes", "-p", min=1, help="One a GPU; processes.count")
    ] = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Train the policy; the same command resumes a run that was interrupted."""
    named = {"reward.source": reward, "rollout.engine": engine, "processes.count": processes}
    assignments = [*(assignments or []), *(f"{name}={value}" for name, value in named.items() if value)]

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.run_nightly import request_of
        from flows.train_policy import train as flow

        result = flow(request_of(str(place.root), settings, run))
        if manner().as_json:
            say_object(result)
        else:
            say_table([(name, str(value)) for name, value in result.items()])

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug, trains=True)
