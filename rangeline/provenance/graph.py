"""The graph of a workspace: which stage read which file, made which file, and became which model.

Nodes are versions, named by digest: a stage's manifest, a file with its bytes, a registered model, a promotion.
A stage read the outputs of a parent manifest that it lists as inputs; of a parent of which it lists none it read all.
Manifests that later runs replaced are read from where they were kept.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rangeline.errors import LineageError
from rangeline.lineage import MANIFEST_NAME, Manifest, digest_file, read_manifest
from rangeline.provenance.kept import find_kept
from rangeline.provenance.ledger import Entry, Ledger

PLACES = ("data", "models", "runs", "comparisons")
"""Folders of a workspace in which stages leave manifests."""
CHECKPOINT_COPY = "checkpoint.json"
"""An iteration's copy of its checkpoint's marker, by whose digest the registry names the checkpoint."""
NodeKind = Literal["file", "stage", "model", "promotion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """A registered model version, as the registry tells it."""

    name: str
    version: int
    aliases: tuple[str, ...]
    made_of: tuple[str, ...]
    """sha256 of what it refers to: a checkpoint's marker, a scorer."""
    checkpoint: str | None = None
    """Workspace path of its checkpoint."""


@dataclass(frozen=True, slots=True)
class Node:
    """One version of one thing."""

    key: str
    kind: NodeKind
    title: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One manifest version."""

    key: str
    path: str
    manifest: Manifest
    entry: Entry | None
    """Who made it and when, where the ledger tells."""


@dataclass
class Graph:
    """Nodes and who made what from what; made whole by `build_graph`."""

    nodes: dict[str, Node] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    readers: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """What was made from a node, with how."""
    sources: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """What a node was made from, with how."""
    models: dict[str, ModelVersion] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    """Manifests in place that are not what the ledger noted: what follows from them is not proven."""

    def add(self, node: Node) -> str:
        """Add a node once; return its key."""
        self.nodes.setdefault(node.key, node)
        return node.key

    def link(self, source: str, target: str, how: str) -> None:
        """Say that the target was made from the source."""
        self.readers[source].append((target, how))
        self.sources[target].append((source, how))

    def files(self) -> Iterator[Node]:
        """Yield the file versions."""
        return (node for node in self.nodes.values() if node.kind == "file")

    def outputs(self, stage: str) -> list[str]:
        """Return the keys of the files that a stage made."""
        return [key for key, how in self.readers[stage] if how == "made"]


def file_key(path: str, sha256: str) -> str:
    """Return the key of a file version."""
    return f"{path}@{sha256}"


def title_of(manifest: Manifest, path: str) -> str:
    """Return what a person calls a stage version."""
    facts = manifest.facts
    if manifest.kind == "iteration":
        return f"iteration {facts.get('iteration')} of run {facts.get('run')}"
    if manifest.kind == "evaluation" and "policy" in facts:
        return f"evaluation of {facts['policy']}"
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return manifest.kind if manifest.kind in (folder, "warmup") else f"{manifest.kind} {folder}"


def build_graph(root: Path, ledger: Ledger, models: Iterable[ModelVersion] = ()) -> Graph:
    """Read every manifest of a workspace and of its past, and join what has the same bytes.

    Parameters
    ----------
    root
        Workspace.
    ledger
        Its ledger, which also names manifests that were replaced since.
    models
        Registered versions; they are joined to the iteration of their checkpoint by its digest.
    """
    graph = Graph()
    for path, place in _manifests(root, ledger):
        _add_stage(graph, ledger, path, place)
    for stage in list(graph.stages.values()):
        _link_stage(graph, stage)
    by_digest: dict[str, list[str]] = defaultdict(list)
    for node in graph.files():
        by_digest[node.sha256].append(node.key)
    for model in models:
        _add_model(graph, model, by_digest)
    for entry in ledger.entries:
        if entry.kind == "promotion":
            _add_promotion(graph, entry)
    return graph


def _manifests(root: Path, ledger: Ledger) -> Iterator[tuple[str, Path]]:
    """Yield each manifest version with where its bytes lie: in place, then what was replaced."""
    for name in PLACES:
        for place in sorted((root / name).rglob(MANIFEST_NAME)):
            yield place.relative_to(root).as_posix(), place
    for sha256, entry in ledger.by_manifest.items():
        path = str(entry.manifest["path"]) if entry.manifest else ""
        place = root / path
        if path and (not place.is_file() or digest_file(place) != sha256):
            kept = find_kept(root, sha256)
            if kept is not None:
                yield path, kept


def _add_stage(graph: Graph, ledger: Ledger, path: str, place: Path) -> None:
    sha256 = digest_file(place)
    noted = ledger.newest.get(path)
    try:
        manifest = read_manifest(place)
    except LineageError:
        graph.changed.append(path)
        return
    entry = ledger.by_manifest.get(sha256)
    if noted is not None and entry is None:
        graph.changed.append(path)
    key = graph.add(Node(sha256, "stage", title_of(manifest, path), path, sha256))
    graph.stages[key] = Stage(key, path, manifest, entry)


def _file(graph: Graph, path: str, sha256: str) -> str:
    return graph.add(Node(file_key(path, sha256), "file", path, path, sha256))


def _link_stage(graph: Graph, stage: Stage) -> None:
    manifest = stage.manifest
    listed = {(ref.path, ref.sha256) for ref in manifest.inputs}
    for ref in manifest.inputs:
        graph.link(_file(graph, ref.path, ref.sha256), stage.key, "read")
    for ref in manifest.outputs:
        graph.link(stage.key, _file(graph, ref.path, ref.sha256), "made")
    for ref in manifest.parents:
        parent = graph.stages.get(ref.sha256)
        if parent is None:
            continue
        made = [(item.path, item.sha256) for item in parent.manifest.outputs]
        if listed.isdisjoint(made):
            for path, sha256 in made:
                graph.link(_file(graph, path, sha256), stage.key, "built upon")


def _add_model(graph: Graph, model: ModelVersion, by_digest: Mapping[str, Sequence[str]]) -> None:
    aliases = f" ({', '.join(model.aliases)})" if model.aliases else ""
    key = f"{model.name} {model.version}"
    title = f"model {model.name} version {model.version}{aliases}"
    graph.add(Node(key, "model", title, model.checkpoint or "", model.made_of[0] if model.made_of else ""))
    graph.models[key] = model
    for sha256 in model.made_of:
        for source in by_digest.get(sha256, ()):
            # A marker's bytes may occur elsewhere; what is registered is the checkpoint, or the scorer itself.
            if model.checkpoint is None or source.startswith(_copy_of(model.checkpoint)):
                graph.link(source, key, "registered as")


def _copy_of(checkpoint: str) -> str:
    run, _, number = checkpoint.partition("/checkpoints/")
    return f"{run}/iterations/{number}/{CHECKPOINT_COPY}@"


def _add_promotion(graph: Graph, entry: Entry) -> None:
    facts = entry.facts
    title = f"{facts['alias']} since {entry.ended}: {facts['model']} version {facts['version']}"
    key = graph.add(Node(f"promotion {entry.digest}", "promotion", title, "", entry.digest))
    model = f"{facts['model']} {facts['version']}"
    if model in graph.nodes:
        graph.link(model, key, "promoted")
    for sha256 in facts.get("decided_by", ()):
        if sha256 in graph.stages:
            graph.link(sha256, key, "decided by")


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; None where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
