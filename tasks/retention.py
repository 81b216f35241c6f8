"""Retention tasks: keep what the serving policy rests on, and let old nights and grown caches go."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.lineage import MANIFEST_NAME
from rangeline.provenance.graph import ModelVersion
from rangeline.provenance.ledger import PRUNED, read_ledger
from rangeline.records import ArtifactRef
from rangeline.stages.retention import (
    cache_deletions,
    delete,
    drop_kept,
    find_older,
    keep_lineage,
    lineage_refs,
    plan_retention,
    run_of,
)
from rangeline.stages.workspace import Workspace
from tasks.champions import POLICY_MODEL, former_champions, model_versions
from tasks.notes import note
from tasks.reporting import logger, show_table
from tasks.tracking import Tracker


def protected_versions(root: Path, *, keep_champions: int) -> list[ModelVersion]:
    """Return the versions that must stay: every one with an alias, and the last champions."""
    tracker = Tracker.open(root)
    former = set(former_champions(tracker, POLICY_MODEL, count=keep_champions))
    return [item for item in model_versions(tracker, POLICY_MODEL) if item.aliases or item.version in former]


@task(name="keep lineage", cache_policy=NO_CACHE)
def keep_champion_lineage(workspace: str, checkpoint: str) -> int:
    """Keep by digest what a policy's lineage rests on outside its run; return the number of files that it names."""
    root = Path(workspace).resolve()
    refs = _lineage(root, checkpoint)
    absent = keep_lineage(root, refs)
    if absent:
        logger.warning("lineage of %s: %d files are not at hand any more: %s", checkpoint, len(absent), absent[:3])
    return len(refs)


def _lineage(root: Path, checkpoint: str) -> list[ArtifactRef]:
    manifest = root / checkpoint.replace("/checkpoints/", "/iterations/") / MANIFEST_NAME
    return lineage_refs(root, manifest, find_older(root)) if manifest.is_file() else []


@task(name="apply retention", cache_policy=NO_CACHE)
def apply_retention(
    workspace: str, run: str, *, keep_runs: int, keep_champions: int, max_cache_mb: float
) -> list[dict[str, Any]]:
    """Delete old nights, evaluations of theirs, and caches that grew; never what a protected version needs.

    Returns what went, with its reason and size; the ledger says so too.
    """
    place = Workspace(Path(workspace).resolve())
    versions = protected_versions(place.root, keep_champions=keep_champions)
    checkpoints = [item.checkpoint for item in versions if item.checkpoint]
    needed = [ref for checkpoint in checkpoints for ref in _lineage(place.root, checkpoint)]
    protected = {run, *(run_of(checkpoint) for checkpoint in checkpoints), *(run_of(ref.path) for ref in needed)}
    deletions = [
        *plan_retention(place, read_ledger(place.root), protected=protected, keep_runs=keep_runs),
        *cache_deletions(place, max_bytes=int(max_cache_mb * 1e6)),
    ]
    by_reason: dict[str, list[str]] = {}
    for item in deletions:
        by_reason.setdefault(item.reason, []).append(item.path)
    # Written down first: a night that is killed in between leaves no deletion that nobody can explain.
    for reason, paths in by_reason.items():
        note(place.root, PRUNED, facts={"deleted": paths, "reason": reason})
    freed = delete(place, deletions) + drop_kept(place.root, read_ledger(place.root), needed)
    rows = [asdict(item) for item in deletions]
    show_table("retention", rows, f"What went: {freed / 1e6:.1f} MB; kept are {', '.join(sorted(protected))}")
    logger.info("retention: %d folders and files went, %.1f MB", len(rows), freed / 1e6)
    return rows
