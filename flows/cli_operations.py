"""Commands that run and check a workspace day by day: nights, audits, rollback, deployments, reports, servers."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_manners import friendly, say_result, say_table
from flows.cli_session import (
    DebugOption,
    QuietOption,
    WorkspaceOption,
    in_workspace,
    prepare_environment,
    say_pages,
)
from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.stages.workspace import PROJECT_HOME, Workspace

app = typer.Typer()


_EXAMPLES = {"reach": "calibration:1", "export": "openlineage"}


@app.command()
def nightly(
    workspace: WorkspaceOption = Path(),
    inbox: Annotated[str, typer.Option("--inbox", help="Folder in which new prompts arrive")] = "data/inbox",
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Do the night's work now: new data, calibration, training, evaluation, promotion through the gates."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.run_nightly import NightlyRequest
        from flows.run_nightly import nightly as flow

        outcome = str(flow(NightlyRequest(workspace=str(place.root), inbox=inbox)))
        say_result({"outcome": outcome}, outcome)

    in_workspace(work, workspace, quiet=quiet, debug=debug, trains=True)


@app.command()
def audit(
    target: Annotated[str, typer.Argument(help="A run, folder or model version; or all, reach or export")],
    what: Annotated[
        str | None,
        typer.Argument(help="Of reach: a prompt id, calibration:N, judge digest or file; of export: openlineage, ..."),
    ] = None,
    drawing: Annotated[str, typer.Option("--as", help="Of reach: tree, json, mermaid or html")] = "tree",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write in place of printing")] = None,
    workspace: WorkspaceOption = Path(),
    debug: DebugOption = False,
) -> None:
    """Verify by hash what a model came from (exit 5 when a byte differs), or tell what `reach WHAT` went into.

    `audit all` verifies the whole workspace; `audit export openlineage|prov|croissant` writes it for other tools.
    """

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.cli_lineage import audit_backwards, say_export, say_reach

        if target in ("reach", "export") and what is None:
            msg = f"'audit {target}' must be told what; got nothing. Give such as: audit {target} {_EXAMPLES[target]}."
            raise ConfigError(msg)
        if target == "reach":
            say_reach(place.root, str(what), drawing, output)
        elif target == "export":
            say_export(place.root, str(what), output)
        else:
            audit_backwards(place.root, target)

    in_workspace(work, workspace, quiet=True, debug=debug, flows=False)


@app.command()
def rollback(
    reason: Annotated[str, typer.Option("--reason", help="Why; it is written into the ledger")],
    workspace: WorkspaceOption = Path(),
    debug: DebugOption = False,
) -> None:
    """Put the policy version back that was champion before, after verifying its checkpoint."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.cli_lineage import say_rollback

        say_rollback(place.root, reason)

    in_workspace(work, workspace, debug=debug, flows=False)


@app.command()
def deploy(debug: DebugOption = False) -> None:
    """Put the flows and their automations on the Prefect server that PREFECT_API_URL names."""
    with friendly(debug=debug):
        prepare_environment(Path())
        from tasks.automations import deploy_all

        lines = deploy_all(PROJECT_HOME)
        say_result({"deployed": lines}, "\n".join(lines))


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="Name of the run")],
    workspace: WorkspaceOption = Path(),
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Write a run's report page, with evaluations before and after."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.report_run import ReportRequest
        from flows.report_run import report as flow

        page, table, _ = flow(ReportRequest(workspace=str(place.root), run=run, evaluate=settings.evaluate))
        say_table(table)
        say_pages(place, page, run)

    in_workspace(work, workspace, quiet=quiet, debug=debug)


@app.command()
def serve(
    page: Annotated[str | None, typer.Argument(help="Only one: prefect, mlflow or vllm")] = None,
    model: Annotated[Path | None, typer.Argument(help="vllm: folder of the model it begins with")] = None,
    workspace: WorkspaceOption = Path(),
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; 4200 for Prefect, 5000 for MLflow, 8000 for vLLM")
    ] = None,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of MLflow beside Prefect")] = 5000,
    sync_root: Annotated[
        Path | None, typer.Option("--sync-root", help="vllm: the only folder that new weights are loaded from")
    ] = None,
    lora: Annotated[bool, typer.Option("--lora", help="vllm: adapters can be loaded while it runs")] = False,
) -> None:
    """Start Prefect, MLflow, every deployment and a worker, or only one of them, on this machine; Ctrl-C ends them."""
    if page == "vllm":
        from flows.cli_vllm import serve_vllm

        with friendly(debug=False):
            serve_vllm(workspace, model, port=port or 8000, sync_root=sync_root, lora=lora)
        return
    from flows.cli_serve import serve_parts

    with friendly(debug=False):
        prepare_environment(workspace)
        serve_parts(workspace, PROJECT_HOME, page, port, mlflow_port)
