"""Compare the tracking store with the files that its numbers came from: data stages, iterations, runs, evaluations.

What the store says beyond that, its parameters and tags, and the numbers of benchmarks and compared runs, are copies
for reading.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangeline.audit import Finding
from rangeline.audit_records import TrackedNumbers, check_numbers, iteration_numbers, point_numbers
from rangeline.errors import LineageError
from rangeline.lineage import digest_file, read_manifest
from rangeline.provenance.kept import find_kept
from rangeline.provenance.ledger import Ledger
from tasks.tracking import TIMING, Tracker

_EVALUATION = "evaluation"


def stage_numbers(facts: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what the store is told of a data stage: the numbers among its facts."""
    return {
        f"data/{name}": float(value)
        for name, value in facts.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def evaluation_numbers(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Return what the store is told of an evaluation: by domain, accuracy with its interval, and the missing share."""
    flat: dict[str, float | None] = {}
    for domain, values in metrics.items():
        for name in ("value", "lower", "upper"):
            flat[f"accuracy/{domain}/{name}"] = values["average"][name]
        flat[f"missing/{domain}"] = values["missing_share"]
    return flat


def tracked_findings(root: Path, ledger: Ledger, manifests: set[str]) -> list[Finding]:
    """Return a finding for the tracking run of each manifest that has one, and of each training run above iterations.

    Parameters
    ----------
    root, ledger
        Workspace and its ledger.
    manifests
        Paths of the manifests whose numbers are compared, relative to the workspace.
    """
    if not (root / "mlruns").is_dir():
        return []
    tracker = Tracker.open(root)
    noted = {path: entry.mlflow.get("run_id") for path, (_, entry) in ledger.newest.items()}
    found: list[Finding] = []
    runs: dict[str, list[Path]] = {}
    for name in sorted(manifests):
        folder = (root / name).parent
        if folder.parent.name == "iterations" and (root / name).is_file():
            runs.setdefault(folder.parts[-3], []).append(folder)
        for place in _versions(root, ledger, name):
            told = _told_of(tracker, name, place, noted.get(name))
            if told is not None:
                run_id, own = told
                tracked = TrackedNumbers(run_id=run_id, values=run_metrics(tracker, run_id))
                found.append(check_numbers(name, own, tracked))
    for run, folders in runs.items():
        parent = noted.get(f"runs/{run}/run.json")
        if parent:
            own = {key: value for folder in folders for key, value in point_numbers(folder).items()}
            points = TrackedNumbers(run_id=parent, values=_points(tracker, parent, folders, own))
            found.append(check_numbers(f"runs/{run}", own, points))
    return found


def _versions(root: Path, ledger: Ledger, name: str) -> list[Path]:
    """Return where the bytes of each noted version of a manifest lie: in place, and of data stages kept by digest."""
    place = root / name
    inside = [digest_file(place)] if place.is_file() else []
    if name.startswith("runs/"):
        return [place] if inside else []
    earlier = [
        str(entry.manifest["sha256"]) for entry in ledger.entries if entry.manifest and entry.manifest["path"] == name
    ]
    kept = [find_kept(root, sha256) for sha256 in dict.fromkeys(earlier) if sha256 not in inside]
    return [*([place] if inside else []), *(path for path in kept if path is not None)]


def _told_of(tracker: Tracker, name: str, place: Path, noted: str | None) -> tuple[str, Mapping[str, Any]] | None:
    """Return the tracking run of a manifest and the numbers that it must hold; None where it has none."""
    if name.startswith("runs/") and "/iterations/" in name:
        return None if noted is None else (noted, iteration_numbers(place.parent))
    try:
        manifest = read_manifest(place)
        if manifest.kind == _EVALUATION:
            metrics = json.loads((place.parent / "metrics.json").read_text(encoding="utf-8"))
            return None if noted is None else (noted, evaluation_numbers(metrics))
    except (LineageError, ValueError, OSError, KeyError, TypeError):
        return None  # what is wrong with the file itself is named by its own hash
    run_id = tracker.find_run("rangeline.manifest", digest_file(place)[:32])
    return None if run_id is None else (run_id, stage_numbers(manifest.facts))


def run_metrics(tracker: Tracker, run_id: str) -> dict[str, float]:
    """Return what the tracking store holds of a run whose metrics have one value each; NaN where it contradicts itself.

    The store keeps a metric twice, as a latest value and as a history; a number that was changed in one of them shows.
    """
    latest = dict(tracker.client.get_run(run_id).data.metrics)
    found = dict(latest)
    for key, value in latest.items():
        if key.startswith(TIMING):
            continue  # tracked again by the next sitting of an interrupted run, with other seconds
        history: list[Any] = tracker.client.get_metric_history(run_id, key)
        if not history or any(item.value != value for item in history):
            found[key] = float("nan")
    return found


def _points(tracker: Tracker, run_id: str, folders: list[Path], own: Mapping[str, object]) -> dict[str, float]:
    """Return what the store holds of a training run at the steps of some iterations, by `name at step`."""
    numbers = {int(folder.name) for folder in folders}
    latest = dict(tracker.client.get_run(run_id).data.metrics)
    found: dict[str, float] = {}
    for key in latest.keys() | {name.rpartition(" at ")[0] for name in own}:
        if key.startswith((TIMING, "tracking/")):
            continue
        history: list[Any] = tracker.client.get_metric_history(run_id, key)
        for point in history:
            name = f"{key} at {point.step}"
            # An optimiser's step is counted over the whole run: which iteration took it is in the files alone.
            if name in own or (point.step in numbers and not key.startswith("step/")):
                found[name] = point.value if found.get(name, point.value) == point.value else float("nan")
        last = max(history, key=lambda point: (point.step, point.timestamp), default=None)
        if last is not None and latest.get(key) != last.value:
            found[f"{key} at {last.step}"] = float("nan")
    return found
