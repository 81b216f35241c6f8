"""Walk from an artifact back to every byte it came from, and verify each by hash.

The walk follows manifests: an iteration names its calibration, pools, warm-up and the iteration before; each of
those names its inputs and parents. Every file is hashed once. A file that differs is located: to the byte where the
original bytes are still at hand (the DVC cache), else to the first block whose digest differs. A file that a later
run of its stage replaced is superseded, which is no failure: the recorded bytes are verified where they were kept.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rangeline.audit_tree import AuditNode as AuditNode
from rangeline.audit_tree import Finding as Finding
from rangeline.audit_tree import render_tree as render_tree
from rangeline.errors import LineageError
from rangeline.lineage import (
    MANIFEST_NAME,
    Manifest,
    artifact_ref,
    block_bytes,
    block_digests,
    code_state,
    digest_file,
    environment,
    read_manifest,
)
from rangeline.records import ArtifactRef
from rangeline.run_notes import run_facts, why_absent

Original = Callable[[str], Path | None]
Older = Callable[[str, str | None], Path | None]
_MARKER = "COMPLETE"
_READ_BYTES = 1 << 20


def first_difference(path: Path, original: Path) -> int:
    """Return the offset of the first byte in which two files differ (the shorter one's end counts)."""
    offset = 0
    with path.open("rb") as left, original.open("rb") as right:
        while True:
            a, b = left.read(_READ_BYTES), right.read(_READ_BYTES)
            if a != b:
                shared = min(len(a), len(b))
                return offset + next((i for i in range(shared) if a[i] != b[i]), shared)
            if not a:
                return offset
            offset += len(a)


def _nothing_older(sha256: str, md5: str | None) -> Path | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Where else recorded bytes may lie, and what lies in place by right."""

    original: Original
    """Gives the original bytes of a workspace path where they are still at hand, else None."""
    older: Older = _nothing_older
    """Gives the bytes of a sha256 (or the md5 beside it) that were kept when the path got others, else None."""
    vouched: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Digests that each path may have now, by the records of later runs."""
    why_deleted: Callable[[str], str | None] = field(default=lambda path: None)
    """Tells why retention deleted a path, None where it did not."""


@dataclass
class _Walk:
    root: Path
    stores: Stores
    seen: dict[tuple[str, str], Finding] = field(default_factory=dict)
    visited: set[tuple[str, str]] = field(default_factory=set)
    earlier: list[tuple[Path, str]] = field(default_factory=list)
    """Manifests of the same kind as the one that names them, such as the iteration before: visited in turn."""

    def check(
        self, name: str, sha256: str, size: int, *, blocks: list[str] | None = None, md5: str | None = None
    ) -> Finding:
        key = (name, sha256)
        if key not in self.seen:
            self.seen[key] = self._check(name, sha256, size, blocks, md5)
        return self.seen[key]

    def _check(self, name: str, sha256: str, size: int, blocks: list[str] | None, md5: str | None) -> Finding:
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root.resolve()):
            return Finding(name, "outside", "lies outside the workspace")
        if not path.is_file():
            if reason := self.stores.why_deleted(name):
                return Finding(name, "pruned", f"deleted by retention: {reason}; recorded sha256 {sha256[:12]}")
            if self.kept(sha256, md5):
                return Finding(name, "superseded", "not in place; the recorded bytes are kept and match")
            return Finding(name, "missing", f"missing; recorded sha256 {sha256[:12]}")
        actual = digest_file(path)
        if actual == sha256:
            return Finding(name, "ok", f"sha256 {sha256[:12]}")
        if actual in self.stores.vouched.get(name, ()):
            where = self.kept(sha256, md5)
            kept = "the recorded bytes are kept and match" if where else "the recorded bytes were not kept"
            return Finding(name, "superseded", f"made anew by a later run (sha256 {actual[:12]}); {kept}")
        return Finding(name, "changed", self._locate(path, name, sha256, size, blocks))

    def kept(self, sha256: str, md5: str | None) -> Path | None:
        found = self.stores.older(sha256, md5)
        return found if found is not None and digest_file(found) == sha256 else None

    def _locate(self, path: Path, name: str, sha256: str, size: int, blocks: list[str] | None) -> str:
        original = self.stores.original(name)
        if original is not None and digest_file(original) == sha256:
            offset = first_difference(path, original)
            return f"first byte that does not match: {offset} (of {size})"
        actual = path.stat().st_size
        if actual == size and blocks:
            length = block_bytes(size)
            found = block_digests(path)
            for number, (have, want) in enumerate(zip(found, blocks, strict=True)):
                if have != want:
                    end = min((number + 1) * length, size)
                    return f"first byte that does not match lies in [{number * length}, {end}) (of {size})"
        return f"sha256 differs from the recorded {sha256[:12]}; size {actual}, recorded {size}"

    def visit(self, path: Path, name: str, title: str) -> AuditNode:
        """Verify one manifest, read from where its bytes lie, and all that it builds upon."""
        if (name, digest_file(path)) in self.visited:
            return AuditNode(f"{title} (see above)", name, (), (), ())
        self.visited.add((name, digest_file(path)))
        manifest = read_manifest(path)
        # Parents first: a file is located by the blocks in the manifest of the stage that made it.
        parents, children = [], []
        for parent in manifest.parents:
            finding = self.check(parent.path, parent.sha256, parent.size, md5=parent.md5)
            parents.append(finding)
            target = self._source(parent, finding)
            if target is None or parent.path == name:
                continue
            above = read_manifest(target)
            if above.kind == manifest.kind:
                self.earlier.append((target, parent.path))
            else:
                children.append(self.visit(target, parent.path, _title(above)))
        files = [
            self.check(
                ref.path, ref.sha256, ref.size, blocks=list(manifest.blocks.get(ref.path, [])) or None, md5=ref.md5
            )
            for ref in (*manifest.outputs, *manifest.inputs)
        ]
        return AuditNode(title, name, _facts(manifest), (*files, *parents), tuple(children))

    def _source(self, parent: ArtifactRef, finding: Finding) -> Path | None:
        """Return where the bytes of a parent manifest lie; what cannot be verified is not followed."""
        if finding.status == "ok":
            return (self.root / parent.path).resolve()
        return self.kept(parent.sha256, parent.md5) if finding.status in ("superseded", "pruned") else None


def _title(manifest: Manifest) -> str:
    number = manifest.facts.get("iteration")
    return f"{manifest.kind} {number}" if number is not None else manifest.kind


def _facts(manifest: Manifest) -> tuple[str, ...]:
    facts, code = manifest.facts, manifest.code
    lines = []
    if judge := facts.get("judge"):
        lines.append(f"judge {judge['model']} {judge['digest'][:12]}, rubric {judge['rubric_sha256'][:12]}")
    if counts := facts.get("counts"):
        lines.append("prompts " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    if base := facts.get("base_sha256"):
        lines.append(f"base model {facts['base_model']} {base[:12]}")
    same = "as here" if manifest.environment == environment() else "not as here"
    commit = (code.get("commit") or "unknown")[:12]
    changed = ", with uncommitted changes" if code.get("dirty") else ""
    here = "" if code.get("commit") == code_state()["commit"] else " (another commit is checked out now)"
    lines.append(f"code {code.get('version')} commit {commit}{changed}{here}")
    lines.append(f"environment {manifest.environment.get('packages_sha256', '')[:12]}, {same}")
    return tuple(lines)


def _checkpoint_findings(walk: _Walk, marker_path: Path, folder: Path, *, must_exist: bool) -> list[Finding]:
    name = folder.resolve().relative_to(walk.root.resolve()).as_posix()
    try:
        marker: dict[str, Any] = json.loads(marker_path.read_text(encoding="utf-8"))
        files = sorted(marker["files"].items())
    except (ValueError, KeyError, TypeError, AttributeError):
        # The iteration's own manifest tells that its copy of the marker changed; nothing in it is believed.
        return []
    if not folder.is_dir():
        retired, detail = why_absent(folder)
        return [Finding(name, "pruned" if retired and not must_exist else "missing", detail)]
    copy = artifact_ref(marker_path, walk.root)
    return [
        walk.check(f"{name}/{_MARKER}", copy.sha256, copy.size, blocks=block_digests(marker_path)),
        *(
            walk.check(f"{name}/{item}", facts["sha256"], facts["size"], blocks=facts.get("blocks"))
            for item, facts in files
        ),
    ]


def audit(root: Path, start: Path, *, original: Original, stores: Stores | None = None) -> AuditNode:
    """Verify everything that a manifest rests on.

    Parameters
    ----------
    root
        Workspace that the recorded paths are relative to.
    start
        Folder of a checkpoint, of an iteration or of a data stage, or a manifest file.
    original
        Gives the original bytes of a workspace path where they are still at hand, else None.
    stores
        Where bytes lie that later runs replaced; None knows of no later runs. Its `original` is the one that counts.

    Returns
    -------
    AuditNode
        The verified chain; `failures` is empty when every byte matches.

    Raises
    ------
    LineageError
        When `start` has no manifest, or a manifest on the way is damaged.
    """
    walk = _Walk(root, stores or Stores(original=original))
    # A checkpoint that retention deleted can still be asked for: its iteration's manifest says what it was.
    is_checkpoint = start.parent.name == "checkpoints"
    folder = start if start.is_dir() or is_checkpoint else start.parent
    checkpoint = None
    if folder.parent.name == "checkpoints":
        checkpoint, folder = folder, folder.parent.parent / "iterations" / folder.name
    manifest_path = folder / MANIFEST_NAME
    if not manifest_path.is_file():
        msg = f"'{start}' must have a manifest; got no '{manifest_path}'. Name a run, checkpoint or data folder."
        raise LineageError(msg)
    return _audit_folder(walk, folder, checkpoint)


def audit_folders(root: Path, folders: Iterable[Path], *, stores: Stores) -> list[AuditNode]:
    """Verify what many manifests rest on; what they share is verified once.

    Parameters
    ----------
    root, stores
        As of `audit`.
    folders
        Folders with a manifest.

    Raises
    ------
    LineageError
        When a manifest is damaged.
    """
    walk = _Walk(root, stores)
    return [_audit_folder(walk, folder, None) for folder in folders]


def _audit_folder(walk: _Walk, folder: Path, checkpoint: Path | None) -> AuditNode:
    """Verify a folder's manifest and all before it, and the checkpoint that it closed, which must be there if named."""
    path, root = folder / MANIFEST_NAME, walk.root.resolve()
    nodes = [walk.visit(path, path.resolve().relative_to(root).as_posix(), _title(read_manifest(path)))]
    while walk.earlier:
        path, name = walk.earlier.pop()
        nodes.append(walk.visit(path, name, _title(read_manifest(path))))
    marker = folder / "checkpoint.json"
    if not marker.is_file():
        # Iterations before the one that it names, as an evaluation does, belong to what it rests on.
        return replace(nodes[0], children=(*nodes[0].children, *nodes[1:]))
    target = checkpoint or folder.parent.parent / "checkpoints" / folder.name
    findings = _checkpoint_findings(walk, marker, target, must_exist=checkpoint is not None)
    name = target.resolve().relative_to(root).as_posix()
    return AuditNode(f"checkpoint {target.name}", name, run_facts(folder), tuple(findings), tuple(nodes))
