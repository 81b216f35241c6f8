"""Walk from an artifact back to every byte it came from, and verify each by hash.

The walk follows manifests: an iteration names its calibration, pools, warm-up and the iteration before; each of
those names its inputs and parents. Every file is hashed once. A file that differs is located: to the byte where the
original bytes are still at hand (the DVC cache), else to the first block whose digest differs.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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
from rangeline.run_notes import run_facts, why_absent

Status = Literal["ok", "changed", "missing", "pruned", "outside"]
Original = Callable[[str], Path | None]
_MARKER = "COMPLETE"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one file."""

    path: str
    status: Status
    detail: str

    @property
    def is_failure(self) -> bool:
        """True when the file is not what its manifest says; a pruned checkpoint is no failure."""
        return self.status in ("changed", "missing", "outside")


@dataclass(frozen=True, slots=True)
class AuditNode:
    """One manifest of the chain, with its files and the manifests it builds upon."""

    title: str
    manifest: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]
    children: tuple["AuditNode", ...]

    def walk(self) -> Iterator["AuditNode"]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Every failed finding of the tree, once."""
        seen = {item.path: item for node in self.walk() for item in node.findings if item.is_failure}
        return tuple(seen.values())

    @property
    def num_files(self) -> int:
        """Distinct files that were verified."""
        return len({item.path for node in self.walk() for item in node.findings if item.status == "ok"})


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


@dataclass
class _Walk:
    root: Path
    original: Original
    seen: dict[tuple[str, str], Finding] = field(default_factory=dict)
    visited: set[str] = field(default_factory=set)
    earlier: list[Path] = field(default_factory=list)
    """Manifests of the same kind as the one that names them, such as the iteration before: visited in turn."""

    def check(self, name: str, sha256: str, size: int, blocks: list[str] | None) -> Finding:
        key = (name, sha256)
        if key not in self.seen:
            self.seen[key] = self._check(name, sha256, size, blocks)
        return self.seen[key]

    def _check(self, name: str, sha256: str, size: int, blocks: list[str] | None) -> Finding:
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root.resolve()):
            return Finding(name, "outside", "lies outside the workspace")
        if not path.is_file():
            return Finding(name, "missing", f"missing; recorded sha256 {sha256[:12]}")
        if digest_file(path) == sha256:
            return Finding(name, "ok", f"sha256 {sha256[:12]}")
        return Finding(name, "changed", self._locate(path, name, sha256, size, blocks))

    def _locate(self, path: Path, name: str, sha256: str, size: int, blocks: list[str] | None) -> str:
        original = self.original(name)
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

    def visit(self, path: Path, title: str) -> AuditNode:
        name = path.resolve().relative_to(self.root.resolve()).as_posix()
        if name in self.visited:
            return AuditNode(f"{title} (see above)", name, (), (), ())
        self.visited.add(name)
        manifest = read_manifest(path)
        # Parents first: a file is located by the blocks in the manifest of the stage that made it.
        parents, children = [], []
        for parent in manifest.parents:
            finding = self.check(parent.path, parent.sha256, parent.size, None)
            parents.append(finding)
            target = (self.root / parent.path).resolve()
            if finding.status != "ok" or target == path.resolve():
                continue
            above = read_manifest(target)
            if above.kind == manifest.kind:
                self.earlier.append(target)
            else:
                children.append(self.visit(target, _title(above)))
        files = [
            self.check(ref.path, ref.sha256, ref.size, list(manifest.blocks.get(ref.path, [])) or None)
            for ref in (*manifest.outputs, *manifest.inputs)
        ]
        return AuditNode(title, name, _facts(manifest), (*files, *parents), tuple(children))


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
        walk.check(f"{name}/{_MARKER}", copy.sha256, copy.size, block_digests(marker_path)),
        *(walk.check(f"{name}/{item}", facts["sha256"], facts["size"], facts.get("blocks")) for item, facts in files),
    ]


def audit(root: Path, start: Path, *, original: Original) -> AuditNode:
    """Verify everything that a manifest rests on.

    Parameters
    ----------
    root
        Workspace that the recorded paths are relative to.
    start
        Folder of a checkpoint, of an iteration or of a data stage, or a manifest file.
    original
        Gives the original bytes of a workspace path where they are still at hand, else None.

    Returns
    -------
    AuditNode
        The verified chain; `failures` is empty when every byte matches.

    Raises
    ------
    LineageError
        When `start` has no manifest, or a manifest on the way is damaged.
    """
    walk = _Walk(root, original)
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
    nodes = [walk.visit(manifest_path, _title(read_manifest(manifest_path)))]
    while walk.earlier:
        path = walk.earlier.pop()
        nodes.append(walk.visit(path, _title(read_manifest(path))))
    marker = folder / "checkpoint.json"
    if not marker.is_file():
        return nodes[0]
    target = checkpoint or folder.parent.parent / "checkpoints" / folder.name
    findings = _checkpoint_findings(walk, marker, target, must_exist=checkpoint is not None)
    name = target.resolve().relative_to(root.resolve()).as_posix()
    return AuditNode(f"checkpoint {target.name}", name, run_facts(folder), tuple(findings), tuple(nodes))


def render_tree(node: AuditNode, *, verbose: bool = False) -> list[str]:
    """Return the lines of the audit tree; files that match are counted, those that do not are named."""
    lines: list[str] = []

    def add(item: AuditNode, indent: str) -> None:
        lines.append(f"{indent}{item.title}  [{item.manifest}]")
        lines.extend(f"{indent}  · {fact}" for fact in item.facts)
        good = sum(finding.status == "ok" for finding in item.findings)
        if good:
            lines.append(f"{indent}  ✓ {good} files match")
        for finding in item.findings:
            mark = {"ok": "✓", "pruned": "-"}.get(finding.status, "✗")
            if finding.status != "ok" or verbose:
                lines.append(f"{indent}  {mark} {finding.path}: {finding.detail}")
        for child in item.children:
            add(child, indent + "  ")

    add(node, "")
    return lines
