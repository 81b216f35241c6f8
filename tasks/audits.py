"""Audit and reach: from a version back to every byte it came from, and forwards from a prompt to every model."""

import difflib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.audit import Finding, Stores, audit, audit_folders, render_tree
from rangeline.audit_records import check_kept, check_ledger, check_noted
from rangeline.errors import BadInputError, ConfigError, LineageError
from rangeline.lineage import MANIFEST_NAME, digest_file, relative_path
from rangeline.provenance.croissant import croissant_dataset
from rangeline.provenance.drawings import draw_json, draw_mermaid, draw_tree
from rangeline.provenance.graph import Graph, build_graph
from rangeline.provenance.kept import find_kept
from rangeline.provenance.ledger import Entry, Ledger, read_ledger, vouched_files
from rangeline.provenance.openlineage import openlineage_events
from rangeline.provenance.page import draw_page
from rangeline.provenance.prov_json import prov_document
from rangeline.provenance.reach import Reach, find_target, index_tables, reach
from rangeline.provenance.row_index import RowIndex
from rangeline.stages.run import RunFolder, last_complete
from rangeline.stages.workspace import Workspace
from tasks.champions import POLICY_MODEL, SCORER_MODEL, model_versions
from tasks.reporting import logger, show_markdown
from tasks.tracked_numbers import tracked_findings
from tasks.tracking import Tracker
from tasks.versioning import cache_folder, find_cached, original_of

EVERYTHING = "all"
Drawing = Literal["tree", "json", "mermaid", "html"]
Export = Literal["openlineage", "prov", "croissant"]


def _start(place: Workspace, target: str) -> tuple[Path, dict[str, Any] | None]:
    """Find what to audit: a folder or file, a run, or a version of the registered policy with what it refers to."""
    path = (place.root / target).resolve()
    # Retention may have deleted the checkpoint: the audit then says when, and what was kept.
    retired = path.parent.name == "checkpoints" and (path.parents[1] / "iterations" / path.name).is_dir()
    if (path.exists() or retired) and path != place.root and path.is_relative_to(place.root):
        if (path / "run.json").is_file():
            return _last_of(RunFolder(path)), None
        return path, None
    if target.isdigit() or target.isidentifier():
        run = RunFolder(place.runs / target)
        if (run.root / "run.json").is_file():
            return _last_of(run), None
        try:
            found = Tracker.open(place.root).find_version(POLICY_MODEL, target)
        except BadInputError as error:
            msg = f"'{target}' must be a run, a folder or a model version; got none of them in '{place.root}'."
            raise ConfigError(msg + _nearest(place, target)) from error
        return place.root / str(found["reference"]["checkpoint"]["path"]), dict(found["reference"])
    run = RunFolder(place.run(target))
    if (run.root / "run.json").is_file():
        return _last_of(run), None
    msg = f"'{target}' must be a run, a checkpoint or data folder, or a model version; got none in '{place.root}'."
    raise ConfigError(msg + _nearest(place, target))


def _nearest(place: Workspace, target: str) -> str:
    """Return a hint at the run that a name is nearly that of; empty where there is none."""
    close = difflib.get_close_matches(target, [path.parent.name for path in place.runs.glob("*/run.json")], n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def _last_of(run: RunFolder) -> Path:
    done, _ = last_complete(run)
    if not done:
        msg = f"Run '{run.name}' must have a complete iteration to audit; got none. Resume it first."
        raise LineageError(msg)
    return run.checkpoint(done)


def stores_of(root: Path, ledger: Ledger) -> Stores:
    """Return where recorded bytes of a workspace may lie: in place, kept, or in DVC's cache."""

    @cache
    def dvc() -> Path | None:
        try:
            return cache_folder(root)
        except BadInputError:  # no repository: nothing was versioned
            return None

    def older(sha256: str, md5: str | None) -> Path | None:
        kept = find_kept(root, sha256)
        if kept is not None or md5 is None:
            return kept
        folder = dvc()
        return None if folder is None else find_cached(folder, md5)

    def original(name: str) -> Path | None:
        return None if dvc() is None else original_of(root, name)

    vouched = vouched_files(root, ledger)
    return Stores(original=original, older=older, vouched=vouched, why_deleted=ledger.why_deleted)


@task(name="audit chain", cache_policy=NO_CACHE)
def audit_target(workspace: str, target: str) -> tuple[list[str], tuple[Finding, ...], int]:
    """Verify the chain below a target, its ledger and its tracked metrics; `all` verifies the whole workspace.

    Returns the tree's lines, the failures, and how many files match.
    """
    root = Path(workspace).resolve()
    lines, failures, matching = (_audit_all if target == EVERYTHING else _audit_one)(root, target)
    logger.info("audit of %s: %d files match, %d differ", target, matching, len(failures))
    tree = "\n".join(lines)
    show_markdown("lineage", f"## Lineage of {target}\n\n```text\n{tree}\n```\n", "Verified lineage")
    return lines, failures, matching


def _audit_one(root: Path, target: str) -> tuple[list[str], tuple[Finding, ...], int]:
    ledger = read_ledger(root)
    stores = stores_of(root, ledger)
    start, reference = _start(Workspace(root), target)
    if changed := _changed_start(root, ledger, start):
        # What it says of others is not believed, so there is nothing to walk.
        return _lines_of([changed]), (changed,), 0
    node = audit(root, start, original=stores.original, stores=stores)
    names = {item.manifest for item in node.walk()}
    runs = {"/".join(name.split("/")[:2]) for name in names if name.startswith("runs/")}
    noted = _noted_of(ledger, names, tuple(f"{run}/" for run in runs))
    beside = [
        *check_ledger(root, ledger),
        *check_noted(root, ledger, noted),
        *check_kept(root),
        *tracked_findings(root, ledger, names),
        *(() if reference is None else _referred(root, reference)),
    ]
    failures = _once((*node.failures, *(item for item in beside if item.is_failure)))
    lines = [*render_tree(node), *_lines_of(beside)]
    seen = {item.path for one in node.walk() for item in one.findings if item.status == "ok"}
    return lines, failures, len(seen | {item.path for item in beside if item.status == "ok"})


def _noted_of(ledger: Ledger, manifests: set[str], runs: tuple[str, ...]) -> list[str]:
    """Return the noted paths that belong to some manifests and runs, the tracking store's copies of them included."""

    def belongs(entry: Entry) -> bool:
        closed = entry.manifest is not None and entry.manifest["path"] in manifests
        return closed or any(str(item["path"]).startswith(runs) for item in entry.files)

    return [
        path
        for path, (_, entry) in ledger.newest.items()
        if path in manifests or path.startswith(runs) or (path.startswith("mlruns/") and belongs(entry))
    ]


def _changed_start(root: Path, ledger: Ledger, start: Path) -> Finding | None:
    """Return a finding where the first manifest of the walk, which no other names, is not the one that was noted."""
    folder = start if start.is_dir() or start.parent.name == "checkpoints" else start.parent
    if folder.parent.name == "checkpoints":
        folder = folder.parent.parent / "iterations" / folder.name
    name = relative_path(folder / MANIFEST_NAME, root)
    found = check_noted(root, ledger, [name]) if (folder / MANIFEST_NAME).is_file() else []
    return next((item for item in found if item.is_failure), None)


def _audit_all(root: Path, target: str) -> tuple[list[str], tuple[Finding, ...], int]:
    """Verify everything that any manifest in place or any line of the ledger names."""
    ledger = read_ledger(root)
    stores = stores_of(root, ledger)
    lines: list[str] = []
    findings: list[Finding] = [*check_ledger(root, ledger), *check_noted(root, ledger), *check_kept(root)]
    graph = build_graph(root, ledger)
    # A manifest that is not the one that was noted is named by that; what it says of others is not believed.
    whole = (stage for stage in graph.stages.values() if ledger.newest.get(stage.path, (stage.key,))[0] == stage.key)
    places = [root / stage.path for stage in whole if stage.key == digest_of(root / stage.path)]
    for node in audit_folders(root, (place.parent for place in places), stores=stores):
        findings += [item for one in node.walk() for item in one.findings]
    findings += [Finding(path, "changed", "is no manifest, or not the one that was noted") for path in graph.changed]
    findings += tracked_findings(root, ledger, {stage.path for stage in graph.stages.values()})
    findings += _registered(root)
    lines += _lines_of(_once(findings))
    failures = _once(item for item in findings if item.is_failure)
    return lines, failures, len({item.path for item in findings if item.status == "ok"})


def _registered(root: Path) -> list[Finding]:
    """Compare what each registered policy refers to with what lies in place."""
    tracker, findings = Tracker.open(root), []
    for version in model_versions(tracker, POLICY_MODEL):
        try:
            findings += _referred(root, tracker.find_version(POLICY_MODEL, version.version)["reference"])
        except LineageError as error:
            findings.append(Finding(f"{POLICY_MODEL} version {version.version}", "changed", str(error)))
    return findings


def digest_of(path: Path) -> str | None:
    """Return the sha256 of a file; None where there is none."""
    return digest_file(path) if path.is_file() else None


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple({(item.path, item.status): item for item in findings}.values())


def _lines_of(findings: Iterable[Finding]) -> list[str]:
    marks = {"ok": "✓", "pruned": "-", "superseded": "-"}
    shown = [item for item in findings if item.status != "ok"]
    good = sum(item.status == "ok" for item in findings)
    return [
        f"ledger, files beside manifests, tracked metrics: {good} match",
        *(f"  {marks.get(item.status, '✗')} {item.path}: {item.detail}" for item in shown),
    ]


def _referred(root: Path, reference: dict[str, Any]) -> list[Finding]:
    """Compare the iteration's manifest with the digest that the registry holds of it."""
    wanted = reference.get("manifest") or {}
    place = root / str(wanted.get("path", ""))
    if not place.is_file():
        return []
    name = f"{wanted['path']} (as registered)"
    if digest_file(place) == wanted["sha256"]:
        return [Finding(name, "ok", f"sha256 {wanted['sha256'][:12]}")]
    return [Finding(name, "changed", f"sha256 differs from the registered {wanted['sha256'][:12]}")]


def load_graph(root: Path) -> Graph:
    """Read the whole graph of a workspace, with the versions of its registry where there is one."""
    models = []
    if (root / "mlruns").is_dir():
        tracker = Tracker.open(root)
        models = [item for name in (POLICY_MODEL, SCORER_MODEL) for item in model_versions(tracker, name)]
    return build_graph(root, read_ledger(root), models)


@task(name="reach", cache_policy=NO_CACHE)
def reach_target(workspace: str, target: str) -> Reach:
    """Walk forwards from a prompt, a calibration row, a judge or a file to all that it reached."""
    root = Path(workspace).resolve()
    graph, index = load_graph(root), RowIndex(root)
    unknown = index_tables(graph, index)
    found = reach(graph, find_target(root, graph, index, target), index, unknown=unknown)
    show_markdown(
        "reach", f"## {found.target.title[:200]}\n\n```mermaid\n{draw_mermaid(found)}```\n", "What it reached"
    )
    return found


def draw_reach(found: Reach, drawing: Drawing) -> str:
    """Return a reach as text of the asked kind."""
    if drawing == "html":
        return draw_page(found)
    if drawing == "mermaid":
        return draw_mermaid(found)
    if drawing == "json":
        return json.dumps(draw_json(found), indent=1, ensure_ascii=False) + "\n"
    return "\n".join(draw_tree(found)) + "\n"


def export_lineage(workspace: str, kind: Export) -> str:
    """Return a workspace's lineage in a format of other tools: a JSON object, or for events one a line."""
    root = Path(workspace).resolve()
    if kind == "croissant":
        folder = Workspace(root).pools
        return json.dumps(croissant_dataset(root, folder), indent=1, ensure_ascii=False) + "\n"
    graph = load_graph(root)
    if kind == "prov":
        return json.dumps(prov_document(graph), indent=1, ensure_ascii=False) + "\n"
    return "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in openlineage_events(root, graph))
