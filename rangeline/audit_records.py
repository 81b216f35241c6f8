"""Audit what no manifest names: the ledger, the files beside manifests, and the numbers in the tracking store.

The chain of manifests proves what an artifact was made from. The newest manifest of a chain, reports, expectation
pages and tracked metrics are named by no later manifest; the ledger names them, and its own lines are chained.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from rangeline.audit_tree import Finding
from rangeline.lineage import digest_file
from rangeline.provenance.kept import find_kept, kept_digests
from rangeline.provenance.ledger import Ledger, ledger_path


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedNumbers:
    """What the tracking store holds of one run."""

    run_id: str
    values: Mapping[str, float]
    """Metrics as the store gives them back; NaN where it holds two values of one."""


def check_ledger(root: Path, ledger: Ledger) -> list[Finding]:
    """Return a finding for each line of the ledger that is not as it was written, or one that it holds."""
    name = ledger_path(root).relative_to(root).as_posix()
    if ledger.problems:
        return [Finding(name, "changed", problem) for problem in ledger.problems]
    return [Finding(name, "ok", f"{len(ledger.entries)} lines, each chained to the one before")]


def check_noted(root: Path, ledger: Ledger, paths: Iterable[str] | None = None) -> list[Finding]:
    """Verify each noted manifest and file against the digest that it had when it was last noted.

    Parameters
    ----------
    root, ledger
        Workspace and its ledger.
    paths
        Which noted paths to look at; None means all.
    """
    wanted = ledger.newest if paths is None else {path: ledger.newest[path] for path in paths if path in ledger.newest}
    return [_noted(root, ledger, path, sha256) for path, (sha256, _) in sorted(wanted.items())]


def _noted(root: Path, ledger: Ledger, name: str, sha256: str) -> Finding:
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        return Finding(name, "outside", "lies outside the workspace")
    if not path.is_file():
        if reason := ledger.why_deleted(name):
            return Finding(name, "pruned", f"deleted by retention: {reason}")
        if find_kept(root, sha256):
            return Finding(name, "superseded", "not in place; the noted bytes are kept and match")
        return Finding(name, "missing", f"missing; noted sha256 {sha256[:12]}")
    if digest_file(path) == sha256:
        return Finding(name, "ok", f"sha256 {sha256[:12]}")
    kept = "; the noted bytes are kept" if find_kept(root, sha256) else ""
    return Finding(name, "changed", f"sha256 differs from the noted {sha256[:12]}{kept}")


def check_kept(root: Path) -> list[Finding]:
    """Verify each kept file against the digest that is its name: what was replaced rests on it alone."""
    found = []
    for sha256, path in sorted(kept_digests(root).items()):
        name = path.relative_to(root).as_posix()
        actual = digest_file(path)
        is_whole = actual == sha256
        detail = f"sha256 {sha256[:12]}" if is_whole else f"kept as {sha256[:12]}, its sha256 is {actual[:12]}"
        found.append(Finding(name, "ok" if is_whole else "changed", detail))
    return found


def check_numbers(name: str, own: Mapping[str, object], tracked: TrackedNumbers) -> Finding:
    """Compare what the tracking store says of an artifact with the artifact's own files, number by number.

    Parameters
    ----------
    name
        Path of what the numbers are of, as the finding names it.
    own
        Numbers of its files; what is no finite number is not tracked and not compared.
    tracked
        What the store holds.

    Notes
    -----
    The own files are verified by their manifest elsewhere in the audit; where both differ, both are named.
    """
    title = f"tracking run {tracked.run_id} ({name})"
    mine_of = {key: float(value) for key, value in own.items() if _is_number(value)}
    for key in sorted(mine_of.keys() | tracked.values.keys()):
        mine, theirs = mine_of.get(key), tracked.values.get(key)
        if key.startswith("tracking/") or mine == theirs:
            continue
        if key.startswith("time/") and mine is None:
            continue  # a sitting that was killed had tracked its seconds, and the file tells those of the next
        told = "contradicts itself" if theirs is not None and math.isnan(theirs) else f"is {theirs}"
        return Finding(title, "changed", f"metric '{key}' {told} in the store and is {mine} in the file it came from")
    return Finding(title, "ok", f"{len(mine_of)} metrics as in the files")


def iteration_numbers(folder: Path) -> dict[str, object]:
    """Return the numbers of an iteration's files that its own tracking run holds."""
    return {**_read(folder / "metrics.json"), **_read(folder / "timings.json")}


def point_numbers(folder: Path) -> dict[str, object]:
    """Return the numbers of an iteration's files that its training run holds, by `name at step`; seconds aside."""
    found = {f"{key} at {int(folder.name)}": value for key, value in _read(folder / "metrics.json").items()}
    for row in _rows(folder / "steps.json"):
        found |= {f"step/{key} at {int(row['step'])}": value for key, value in row.items() if key != "step"}
    return found


def _read(path: Path) -> dict[str, object]:
    """Return a file's numbers; none where it is absent or no JSON, which its own hash names."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return [row for row in json.loads(path.read_text(encoding="utf-8")) if "step" in row]
    except (OSError, ValueError, TypeError):
        return []


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and math.isfinite(value)
