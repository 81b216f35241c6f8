"""What the sittings of a run leave: a manifest each, what is kept of checkpoints, and the checkpoint of a stop.

A sitting is one process that trains a run; a run that was killed or stopped has several. Its manifest says after which
iteration it went on and what newer remains it passed over and why. It lies apart from the iterations, whose own
manifests are the same however many sittings made them.
"""

from collections.abc import Collection
from pathlib import Path

from rangeline.lineage import MANIFEST_NAME, digest_file, write_json, write_manifest
from rangeline.policy.checkpoint import MARKER
from rangeline.policy.processes import Policy
from rangeline.policy.retention import NOTE, prune
from rangeline.stages.iteration import Iteration
from rangeline.stages.iteration_metrics import MEASURED
from rangeline.stages.quarantine import QUARANTINE_NAME
from rangeline.stages.run import STOPPED, OpenedRun, RunFolder, retention_of
from rangeline.stages.workspace import Workspace

SITTINGS = "sittings"
_REMADE = ("recalibration.parquet", QUARANTINE_NAME, NOTE, "timings.json", *MEASURED)
"""Files whose absence or presence says something, and which an iteration that is made anew may lack."""


def write_sitting(workspace: Workspace, opened: OpenedRun, until: int) -> Path:
    """Write the manifest of a sitting that begins; return its path.

    Parameters
    ----------
    workspace, opened
        Where, and the run as it was found.
    until
        Iterations the sitting is to reach.
    """
    folder = opened.folder.root / SITTINGS
    number = 1 + max((int(path.stem) for path in folder.glob("[0-9]*.json")), default=0)
    path = folder / f"{number:04d}.json"
    write_manifest(
        path,
        workspace.root,
        kind="sitting",
        outputs={},
        parents=[opened.folder.iteration(opened.done) / MANIFEST_NAME] if opened.done else [],
        facts={
            "run": opened.folder.name,
            "sitting": number,
            "resumed_after": opened.done,
            "until": until,
            "passed_over": list(opened.passed_over),
        },
    )
    return path


def clear_remains(opened: OpenedRun, until: int) -> None:
    """Drop what interrupted sittings left in the folders of iterations that are made anew."""
    for number in range(opened.done + 1, until + 1):
        for name in _REMADE:
            (opened.folder.iteration(number) / name).unlink(missing_ok=True)


def retire(run: RunFolder, number: int, pinned: Collection[str]) -> tuple[Path, ...]:
    """Delete the checkpoints that an iteration's note gives up, but for those that somebody refers to.

    Parameters
    ----------
    run, number
        The run and its newest complete iteration.
    pinned
        Names of checkpoints that stay whatever the note says.
    """
    kept = {run.checkpoint(item).name for item in (*retention_of(run, number).kept, number)}
    return prune(run.root / "checkpoints", {*kept, *pinned})


def save_stop(iteration: Iteration, worker: Policy) -> None:
    """Write a checkpoint where none was due, because the run is to stop after this iteration.

    The iteration's manifest does not name it, for an undisturbed run has none here; the run's own note does.
    """
    iteration.save(worker)
    digest = digest_file(iteration.run.checkpoint(iteration.number) / MARKER)
    write_json(iteration.run.root / STOPPED, {"iteration": iteration.number, "marker_sha256": digest})
