"""Data tasks: run versioned stages through DVC, check the pools, record them."""

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline import errors
from rangeline.errors import BadInputError, PoolError, RangelineError, ToolError
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.data import pool_counts, pool_table
from rangeline.stages.workspace import Workspace, data_remote, open_workspace, require_named_settings
from tasks.expectations import check_pools
from tasks.notes import note_stage
from tasks.reporting import flow_progress, logger, show_table
from tasks.tracked_numbers import stage_numbers
from tasks.tracking import Tracker
from tasks.validation import load_expectations
from tasks.versioning import ensure_repository, locked_stages, push, reproduce, status

_STAGE_ERROR = re.compile(r"error: (\w+): (.*)")


@task(name="reproduce stages", cache_policy=NO_CACHE)
def reproduce_stages(workspace: str, stages: Sequence[str], *, force: bool = False, alone: bool = False) -> None:
    """Bring versioned stages up to date through DVC, and push what they made to the remote.

    Raises
    ------
    RangelineError
        What the stage said, as the class that it was.
    ToolError
        When DVC itself fails.
    """
    root = Path(workspace).resolve()
    require_named_settings(Workspace(root))
    ensure_repository(root, data_remote())
    said: list[str] = []
    with flow_progress(stages[-1]) as progress:

        def take(line: str) -> None:
            said.append(line)
            progress.line(line)

        # DVC's processes do the work: meanwhile this one opens what the next steps need.
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(_open_tools, root)
            try:
                reproduce(root, stages, on_line=take, force=force, alone=alone)
            except ToolError as error:
                for line in reversed(said):
                    if found := _STAGE_ERROR.match(line):
                        raise _named_error(*found.groups()) from error
                raise
            opened.result()
    push(root, stages)


def _open_tools(root: Path) -> None:
    """Make the tracking store where there is none, and import what checks the pools: seconds each, the first time."""
    Tracker.open(root)
    load_expectations()


def _named_error(name: str, message: str) -> RangelineError:
    """Return what a stage's process said as the error it was, so that it keeps its exit code and its explanation."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, RangelineError) and "__init__" not in vars(kind):
        return kind(message)
    return BadInputError(message)


@task(name="check pools", cache_policy=NO_CACHE)
def require_sound_pools(workspace: str) -> dict[str, int]:
    """Hold the pools against the expectation suite, show them, and return their sizes.

    Raises
    ------
    PoolError
        When an expectation fails; names each.
    """
    place, _ = open_workspace(workspace)
    outcome = check_pools(pool_table(place), output=place.root / ".rangeline" / "expectations" / "pools")
    counts = pool_counts(place)
    rows = [{"pool": name, "prompts": count} for name, count in counts.items()]
    show_table("pools", rows, "Disjoint prompt pools; no prompt and no cluster of near duplicates is in two")
    if not outcome.success:
        msg = f"Pools must meet every expectation; failed: {'; '.join(outcome.failed)} ({outcome.result_path})."
        raise PoolError(msg)
    for path in (place.prompts / "rejected.json", place.pools / "excluded.json"):
        if left_out := json.loads(path.read_text(encoding="utf-8")):
            first = left_out[0]
            logger.warning(
                "%d prompts are in no pool, such as %s: %s; all of them: %s",
                *(len(left_out), first["prompt_id"], first["reason"], path),
            )
    return counts


@task(name="record data", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_stage(workspace: str, stage: str) -> str:
    """Track what a versioned stage made: its parameters, facts, and outputs as data sets; return the run id.

    A stage that made nothing new is recorded once.
    """
    place, _ = open_workspace(workspace)
    path: Path = getattr(place, stage) / MANIFEST_NAME
    manifest = read_manifest(path)
    tracker = Tracker.open(place.root)
    key = stage_key(place, stage)
    if run_id := tracker.find_run("rangeline.manifest", key):
        note_stage(place.root, path, mlflow_run_id=run_id)
        return run_id
    run_id = tracker.start_run(stage, kind=stage, tags={"rangeline.manifest": key})
    tracker.log_parameters(run_id, manifest.parameters)
    tracker.log_inputs(run_id, [*manifest.inputs, *manifest.outputs], context=stage)
    tracker.log_metrics(run_id, stage_numbers(manifest.facts), step=0)
    tracker.log_file(run_id, path)
    tracker.end_run(run_id)
    note_stage(place.root, path, mlflow_run_id=run_id, copies=tracker.local_artifacts(run_id, place.root))
    return run_id


def stage_key(place: Workspace, stage: str) -> str:
    """Return what identifies the present output of a stage."""
    from rangeline.lineage import digest_file

    return digest_file(getattr(place, stage) / MANIFEST_NAME)[:32]


@task(name="data status", cache_policy=NO_CACHE)
def say_data_status(workspace: str) -> bool:
    """Say whether DVC finds all data as locked; return True when it does.

    A stage that was never run, as that of anchors where no reward source needs them, has nothing that could differ.
    """
    place = Path(workspace)
    made = locked_stages(place)
    changed = [stage for stage in status(place) if stage in made]
    logger.info("data versions: %s", "as locked" if not changed else f"changed: {', '.join(changed)}")
    return not changed
