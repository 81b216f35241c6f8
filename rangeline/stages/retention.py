"""What may go: runs of old nights, evaluations of policies that are gone, caches that grew; and what must stay.

Only runs that a night made are ever deleted, and never one that a registered alias, a former champion or a lineage
needs. What the lineage of a champion rests on outside its run is kept by digest, so that later nights may write over
it. Deleting says why, in the ledger, and the audit tells it from a loss.
"""

import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from rangeline.errors import LineageError
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.provenance.kept import find_kept, keep, keep_only
from rangeline.provenance.ledger import Ledger
from rangeline.records import ArtifactRef
from rangeline.stages.workspace import Workspace

NIGHTLY = "nightly-"
"""How the names of runs begin that nights made."""
EVALUATIONS = "_evaluations"


@dataclass(frozen=True, slots=True)
class Deletion:
    """One folder or file that may go."""

    path: str
    reason: str
    size: int


def run_of(path: str) -> str:
    """Return the name of the run that a workspace path lies in; empty where it lies in none."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "runs" else ""


def lineage_refs(root: Path, manifest: Path, older: Callable[[ArtifactRef], Path | None]) -> list[ArtifactRef]:
    """Return every file that a manifest rests on, manifests included, each version once.

    Parameters
    ----------
    root
        Workspace.
    manifest
        Where the walk starts.
    older
        Gives the bytes of a manifest that a later run replaced, else None; what cannot be found is not walked.
    """
    found: dict[tuple[str, str], ArtifactRef] = {}
    todo = [manifest]
    while todo:
        made = read_manifest(todo.pop())
        for ref in (*made.outputs, *made.inputs):
            found.setdefault((ref.path, ref.sha256), ref)
        for ref in made.parents:
            if (ref.path, ref.sha256) in found:
                continue
            found[ref.path, ref.sha256] = ref
            place = older(ref)
            if place is not None:
                todo.append(place)
    return list(found.values())


def keep_lineage(root: Path, refs: Iterable[ArtifactRef]) -> tuple[str, ...]:
    """Keep the bytes of a lineage that later nights may write over; return the paths whose bytes are not at hand.

    Files that stages made are linked; raw files and rubrics, which a person may write into, are copied.
    """
    absent = []
    for ref in refs:
        is_made = ref.path.startswith(("data/", "models/")) and not ref.path.startswith("data/raw/")
        if not ref.path.startswith("runs/") and not keep(root, root / ref.path, ref.sha256, link=is_made):
            absent.append(ref.path)
    return tuple(absent)


def plan_retention(
    workspace: Workspace, ledger: Ledger, *, protected: Collection[str], keep_runs: int
) -> tuple[Deletion, ...]:
    """Return the nightly runs and evaluations that may go.

    Parameters
    ----------
    workspace, ledger
        Where, and in which order its runs were begun: a clock that was set back makes no run older.
    protected
        Names of runs that must stay, whatever their age.
    keep_runs
        Newest nightly runs that stay, at least 1.

    Raises
    ------
    LineageError
        When `keep_runs` is below 1.
    """
    if keep_runs < 1:
        msg = f"'keep_runs' must be at least 1; got {keep_runs}. The run of the night itself always stays."
        raise LineageError(msg)
    found = [path for path in workspace.runs.glob(f"{NIGHTLY}*") if (path / "run.json").is_file()]
    nights = sorted(found, key=lambda path: _age(workspace, path, ledger), reverse=True)
    old = [path for path in nights[keep_runs:] if path.name not in protected]
    deletions = [
        Deletion(_name(workspace, path), f"older than the {keep_runs} newest nights; no alias needs it", _size(path))
        for path in old
    ]
    gone = {path.name for path in old}
    for path in sorted((workspace.runs / EVALUATIONS).glob(f"*/{MANIFEST_NAME}")):
        policy = str(read_manifest(path).facts.get("policy", ""))
        if run_of(policy) in gone:
            reason = f"evaluation of '{policy}', which went"
            deletions.append(Deletion(_name(workspace, path.parent), reason, _size(path.parent)))
    return tuple(deletions)


def cache_deletions(workspace: Workspace, *, max_bytes: int) -> tuple[Deletion, ...]:
    """Return the caches that are larger than they may be; they are made again from what they were made from."""
    wal = workspace.verdicts.with_name(f"{workspace.verdicts.name}-wal")
    shm = workspace.verdicts.with_name(f"{workspace.verdicts.name}-shm")
    found = []
    for group in ((workspace.verdicts, wal, shm), (workspace.anchor_cache,)):
        sizes = {path: _size(path) for path in group if path.exists()}
        if sum(sizes.values()) > max_bytes:
            reason = f"cache above {max_bytes / 1e6:.0f} MB; made again when asked"
            found += [Deletion(_name(workspace, path), reason, size) for path, size in sizes.items()]
    return tuple(found)


def delete(workspace: Workspace, deletions: Iterable[Deletion]) -> int:
    """Delete what a plan names; return the bytes. A path outside the workspace is refused.

    Raises
    ------
    LineageError
        When a path leaves the workspace.
    """
    freed = 0
    for item in deletions:
        path = workspace.root / item.path
        if not path.resolve().is_relative_to(workspace.root.resolve()) or path.resolve() == workspace.root.resolve():
            msg = f"'{item.path}' must lie in the workspace to be deleted; got {path.resolve()}. Nothing was deleted."
            raise LineageError(msg)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        freed += item.size
    return freed


def drop_kept(root: Path, ledger: Ledger, needed: Iterable[ArtifactRef]) -> int:
    """Delete kept bytes that neither a protected lineage nor the ledger's manifests need; return the bytes."""
    return keep_only(root, {*(ref.sha256 for ref in needed), *ledger.by_manifest})


def find_older(root: Path) -> Callable[[ArtifactRef], Path | None]:
    """Return the finder of a manifest's bytes: in place where they match, else kept."""

    def find(ref: ArtifactRef) -> Path | None:
        place = root / ref.path
        return place if place.is_file() and digest_file(place) == ref.sha256 else find_kept(root, ref.sha256)

    return find


def _age(workspace: Workspace, path: Path, ledger: Ledger) -> tuple[int, float, str]:
    """Return what orders runs by age: the ledger's line, and for those that it does not know the time of the file."""
    file = path / "run.json"
    return ledger.begun.get(_name(workspace, file), 0), file.stat().st_mtime, path.name


def _name(workspace: Workspace, path: Path) -> str:
    return path.relative_to(workspace.root).as_posix()


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(item.stat().st_size for item in files if item.is_file())
