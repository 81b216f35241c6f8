"""Comparison tasks: conduct the runs in a process of their own, write tables and page, record each run once."""

import sys
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.config import PipelineConfig
from rangeline.errors import BadInputError, ToolError
from rangeline.stages.comparison_plan import read_plan
from rangeline.stages.comparison_results import FinishedRun, Results, finished_runs, write_results
from rangeline.stages.comparison_sources import choose_plan
from rangeline.stages.workspace import open_workspace
from tasks.processes import run_streaming
from tasks.reporting import flow_progress, logger, show_markdown
from tasks.tracking import Tracker

_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}
_TOLD = "compare "
_ERROR = "error: "


def plan_comparison(
    workspace: str,
    plan: str | None,
    rewards: str | None,
    *,
    iterations: int | None = None,
    assignments: tuple[str, ...] = (),
    config: PipelineConfig | None = None,
) -> str:
    """Return the plan file: the one given, or one written for the reward sources named, which holds the assignments.

    `config` takes the place of the workspace's own settings.

    Raises
    ------
    ConfigError
        Both or neither are given, or a name or setting is not valid.
    """
    place, own = open_workspace(workspace)
    given = Path(plan) if plan else None
    chosen = choose_plan(
        place, config or own, plan=given, rewards=rewards, iterations=iterations, assignments=assignments
    )
    return str(chosen)


@task(name="conduct comparison", cache_policy=NO_CACHE)
def conduct_comparison(workspace: str, plan: str, processes: int, assignments: tuple[str, ...]) -> None:
    """Do all runs of a plan that are not complete, in processes of one thread each.

    They end when this process ends, however it ends; the same call later goes on from what is complete.

    Raises
    ------
    BadInputError
        The plan or a setting is not valid.
    ToolError
        The conducting process failed; a single run that fails does not fail it.
    """
    said: list[str] = []
    with flow_progress("compare") as progress:

        def take(line: str) -> None:
            said.append(line)
            if line.startswith(_TOLD):
                logger.info("%s", line.removeprefix(_TOLD))
            else:
                progress.line(line)

        command = [sys.executable, "-m", "rangeline.stages.comparison_conduct", workspace, plan, str(processes)]
        status = run_streaming([*command, *assignments], cwd=Path.cwd(), env=_ONE_THREAD, on_line=take)
    if status:
        for line in reversed(said):
            if line.startswith(_ERROR):
                raise BadInputError(line.removeprefix(_ERROR))
        last = " / ".join(said[-5:]) or "it said nothing"
        msg = f"The comparison must end with status 0; got {status}: {last}. The same command goes on from there."
        raise ToolError(msg)


@task(name="write comparison", cache_policy=NO_CACHE)
def write_comparison(workspace: str, plan: str, copy_to: str | None = None) -> Results:
    """Write page, tables, rows and curves of a comparison, and show the table."""
    results = write_results(Path(workspace), Path(plan), copy_to=Path(copy_to) if copy_to else None)
    show_markdown("comparison", results.table, "Methods compared on the same data, start and sampling streams")
    for label, reason in results.failures.items():
        logger.warning("failed: %s: %s", label, reason)
    return results


@task(name="record comparison", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_comparison(workspace: str, plan: str) -> int:
    """Track every finished run that is not tracked yet: its settings in short, its last numbers; return how many."""
    root = Path(workspace).resolve()
    name = read_plan(Path(plan))[0].name
    tracker, count = Tracker.open(root), 0
    for item in finished_runs(root / "comparisons" / name)[0]:
        key = item.folder.relative_to(root).as_posix()
        if tracker.find_run("rangeline.compared", key) is None:
            _record(tracker, item, key, name)
            count += 1
    return count


def _record(tracker: Tracker, item: FinishedRun, key: str, comparison: str) -> None:
    result = item.result
    keys = ("design", "method", "seed", "rewards", "estimator", "learning_rate")
    label = f"{result['method']}, {result['design']}, seed {result['seed']}"
    run_id = tracker.start_run(label, kind="compare")
    tracker.log_parameters(run_id, {"comparison": comparison, **{name: result[name] for name in keys}})
    last: dict[str, Any] = result["rows"][-1]
    metrics = {
        "compare/accuracy": last["accuracy"],
        "compare/width": last["audit"]["mean_width"],
        "compare/ess_share": last["ess_share"],
        "compare/rms": last["rms"],
    }
    tracker.log_metrics(run_id, metrics, step=last["iteration"])
    tracker.log_file(run_id, item.folder / "result.json")
    # Tagged last: a sitting that was killed meanwhile leaves no run that looks recorded.
    tracker.client.set_tag(run_id, "rangeline.compared", key)
    tracker.end_run(run_id)
