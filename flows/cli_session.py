"""What most commands share: their options, the environment of the tools, and work in a workspace with a server."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from flows.cli_manners import friendly, manner, require_answerable, say_table
from rangeline.config import PipelineConfig
from rangeline.full_disk import FullDiskTold, require_writable
from rangeline.stages.workspace import Workspace, choose_workspace
from tasks.processes import TELEMETRY_OFF
from tasks.server import prefect_server

ENVIRONMENT = {
    **TELEMETRY_OFF,
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # Spinning threads starve each other as soon as anything else runs on these cores.
    "OMP_WAIT_POLICY": "PASSIVE",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""No telemetry, no chatter of tools, threads that wait politely; whoever sets one of these keeps it."""

WorkspaceOption = Annotated[Path, typer.Option("--workspace", "-w", help="Folder with params.yaml")]
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Settings laid over params.yaml")]
SetOption = Annotated[list[str] | None, typer.Option("--set", "-s", help="One setting, such as train.iterations=3")]
RunOption = Annotated[str | None, typer.Option("--run", help="Name of the run; by default made from the settings")]
RewardOption = Annotated[str | None, typer.Option("--reward", help="Reward source, such as verifier or majority")]
EngineOption = Annotated[str | None, typer.Option("--engine", help="What samples: transformers or vllm")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and results")]


def prepare_environment(root: Path) -> None:
    """Set what the tools read from the environment, before any of them is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(root.resolve() / ".prefect"))


def open_console(*, quiet: bool) -> None:
    """Let the project's own log lines appear on standard error."""
    from rich.logging import RichHandler

    from tasks.reporting import console

    logger = logging.getLogger("rangeline")
    logger.handlers[:] = [RichHandler(console=console, show_path=False, show_level=False, markup=False)]
    logger.setLevel(logging.WARNING if quiet or manner().quiet else logging.DEBUG if manner().verbose else logging.INFO)
    logger.propagate = False
    # Prefect's connection for events says on its own when a server was started again, with a traceback.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    # What MLflow's store logs with a traceback, it raises too, and that is told in one line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def in_workspace(  # noqa: PLR0913 - one argument an option
    work: Callable[[Workspace, PipelineConfig], None],
    workspace: Path,
    *,
    config: Path | None = None,
    assignments: list[str] | None = None,
    quiet: bool = False,
    debug: bool = False,
    flows: bool = True,
    trains: bool = False,
) -> None:
    """Choose the workspace and settings, then do the work there, with a Prefect server and errors made friendly."""
    with friendly(debug=debug):
        place, settings = choose_workspace(workspace, config_file=config, assignments=assignments or [])
        if trains:
            require_answerable(settings.train.on_alarm)
        prepare_environment(workspace)
        if flows:
            require_writable(place.root)
        # What comes after the server imports prefect, which reads its address then.
        with prefect_server("flows.run_nightly" if trains else "tasks.reporting") if flows else nullcontext():
            open_console(quiet=quiet)
            if place.root != workspace.resolve():
                logging.getLogger("rangeline").info("settings differ from params.yaml: working in %s", place.root)
            remedy = "What is whole stays whole: make room, and give the same command again."
            with FullDiskTold(place.root, "this command", remedy):
                work(place, settings)


def say_pages(place: Workspace, page: Path, run: str) -> None:
    """Print where the results lie and how to open the pages of Prefect and MLflow."""
    from rangeline.stages.run import RunFolder, last_complete

    folder = RunFolder(place.run(run))
    done, _ = last_complete(folder)
    here = Path.cwd().resolve()

    def short(path: Path) -> str:
        return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

    option = "" if place.root == here else f" --workspace {short(place.root)}"
    command = short(Path(sys.executable).with_name("rangeline").absolute())
    say_table(
        [
            ("report page", short(page)),
            ("manifest", short(folder.iteration(done) / "manifest.json")),
            ("audit it", f"{command} audit {run}{option}"),
            ("Prefect page", f"{command} serve prefect"),
            ("MLflow page", f"{command} serve mlflow{option}"),
        ]
    )
