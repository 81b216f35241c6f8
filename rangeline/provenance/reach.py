"""Walk forwards: which stages, checkpoints, models and promotions did a prompt, a row, a judge or a file reach.

A file reaches every stage that read it, whatever that stage made, and so on. A prompt is followed by row as long as
tables tell it: through ingest and split into the tables that hold it, and into a stage that read such a table if one
of the stage's own tables holds the prompt, or it has none. From there on its influence has no row any more, and
reaches all that was made. So a prompt that no iteration drew reaches no model, and an audited one is reached by what
the audit taught. Nothing is divided. How strong an influence is, is not told.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rangeline.errors import BadInputError
from rangeline.provenance.graph import Graph, Node, Stage
from rangeline.provenance.row_index import RowIndex

ROW_STAGES = frozenset({"generated", "prompts", "pools"})
"""Stages that pass rows on one by one: what they say of one prompt is not made from another."""
_MIN_DIGITS = 8
"""Hex digits from which a word may be the beginning of a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is to be followed."""

    title: str
    start: tuple[str, ...]
    """Keys of the nodes that hold it."""
    prompt_id: str | None = None
    """Set where it is followed by row."""


@dataclass
class Reach:
    """What was reached, in the order of the walk."""

    target: Target
    graph: Graph
    steps: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    """By node: the node that it was first reached from (None at the start), and how."""
    unknown: tuple[str, ...] = ()
    """Tables whose bytes are gone: the prompt is taken to be in them."""

    def nodes(self, kind: str) -> list[Node]:
        """Return the reached nodes of a kind, in order."""
        return [self.graph.nodes[key] for key in self.steps if self.graph.nodes[key].kind == kind]

    @property
    def stages(self) -> list[Stage]:
        """Reached stage versions, in order."""
        return [self.graph.stages[key] for key in self.steps if key in self.graph.stages]

    @property
    def models(self) -> list[Node]:
        """Reached model versions."""
        return self.nodes("model")

    @property
    def checkpoints(self) -> list[str]:
        """Reached checkpoints, as workspace paths."""
        found = [node.path for node in self.nodes("file") if node.path.endswith("/checkpoint.json")]
        return [path.replace("/iterations/", "/checkpoints/").removesuffix("/checkpoint.json") for path in found]


def find_target(root: Path, graph: Graph, index: RowIndex, text: str) -> Target:
    """Find what a word names: `prompt:`, `calibration:`, `judge:`, `file:` and a name, or the name alone.

    Parameters
    ----------
    root, graph, index
        Workspace, its graph, and the index of its tables.
    text
        A prompt id; `calibration:N`, the N-th row of the calibration pool in place, from 1; the beginning of a judge's
        digest or a rubric's, of 8 digits or more, or a judge's model; a path, or the beginning of a file's digest.

    Raises
    ------
    BadInputError
        When nothing of that name is known; names what comes near.
    """
    kind, mark, name = text.partition(":")
    if mark and kind in _FINDERS:
        found = _FINDERS[kind](root, graph, index, name)
    else:
        tries = (finder(root, graph, index, text) for finder in (_file, _prompt, _judge))
        found = next((target for target in tries if target is not None), None)
    if found is None:
        near = index.ids_like(text.removeprefix("prompt:"))
        hint = f" Prompts that begin alike: {', '.join(near)}." if near else ""
        msg = (
            f"'{text}' must be a prompt id, calibration:N, the digest of a judge, or a file; got none of them in "
            f"{len(graph.stages)} manifests.{hint}"
        )
        raise BadInputError(msg)
    return found


def _file(root: Path, graph: Graph, index: RowIndex, name: str) -> Target | None:
    path = Path(name)
    if path.is_absolute() and path.is_relative_to(root):
        name = path.relative_to(root).as_posix()
    is_digest = len(name) >= _MIN_DIGITS and set(name) <= set("0123456789abcdef")
    found = [
        node.key
        for node in graph.nodes.values()
        if node.kind in ("file", "stage") and (node.path == name or (is_digest and node.sha256.startswith(name)))
    ]
    versions = f" ({len(found)} versions)" if len(found) > 1 else ""
    return Target(title=f"file {name}{versions}", start=tuple(found)) if found else None


def _prompt(root: Path, graph: Graph, index: RowIndex, name: str) -> Target | None:
    holding = index.holding(name)
    found = tuple(node.key for node in graph.files() if node.sha256 in holding)
    return Target(title=f"prompt {name}", start=found, prompt_id=name) if found else None


def _judge(root: Path, graph: Graph, index: RowIndex, name: str) -> Target | None:
    if not name:
        return None

    def is_it(judge: dict[str, str]) -> bool:
        digests = (judge.get("digest", ""), judge.get("rubric_sha256", ""))
        return judge.get("model") == name or (
            len(name) >= _MIN_DIGITS and any(digest.startswith(name) for digest in digests)
        )

    found = tuple(key for key, stage in graph.stages.items() if is_it(dict(stage.manifest.facts.get("judge") or {})))
    return Target(title=f"judge {name}", start=found) if found else None


def _calibration_row(root: Path, graph: Graph, index: RowIndex, name: str) -> Target | None:
    import pyarrow.parquet as pq

    path = root / "data" / "calibration" / "calibration_truth.parquet"
    if not name.isdecimal() or not path.is_file():
        return None
    rows = pq.read_table(path).to_pylist()
    if not 1 <= int(name) <= len(rows):
        msg = f"'calibration:N' must be a row of '{path}', 1 to {len(rows)}; got {name}. Count from 1."
        raise BadInputError(msg)
    row = rows[int(name) - 1]
    target = _prompt(root, graph, index, str(row["prompt_id"]))
    said = f"calibration row {name} (prompt {row['prompt_id']}, answer {row['extracted']!r}, truth {row['truth']})"
    return None if target is None else Target(title=said, start=target.start, prompt_id=target.prompt_id)


_FINDERS: dict[str, Callable[[Path, Graph, RowIndex, str], Target | None]] = {
    "prompt": _prompt,
    "calibration": _calibration_row,
    "judge": _judge,
    "file": _file,
}


def index_tables(graph: Graph, index: RowIndex) -> tuple[str, ...]:
    """Take every table of the graph into the index; return the digests of those whose bytes are gone."""
    files = [(node.path, node.sha256) for node in graph.files()]
    absent = set(index.add(files))
    return tuple(sorted({sha256 for path, sha256 in files if path in absent}))


def reach(graph: Graph, target: Target, index: RowIndex, *, unknown: Iterable[str] = ()) -> Reach:
    """Walk from a target to all that it reached, nearest first; every node is looked at once.

    Parameters
    ----------
    graph, target
        From `build_graph` and `find_target`.
    index
        Of the graph's tables; used where the target is a prompt.
    unknown
        Digests of tables whose bytes are gone.
    """
    walk = _Walk(graph, target, index, frozenset(unknown))
    walk.run()
    gone = tuple(sorted({node.path for node in walk.reach.nodes("file") if node.sha256 in walk.unknown}))
    walk.reach.unknown = gone if target.prompt_id is not None else ()
    return walk.reach


class _Walk:
    """The state of one walk."""

    def __init__(self, graph: Graph, target: Target, index: RowIndex, unknown: frozenset[str]) -> None:
        self.graph, self.reach, self.unknown = graph, Reach(target, graph), unknown
        by_row = target.prompt_id is not None
        self.tables = (index.tables() | unknown) if by_row else frozenset()
        self.holding = (index.holding(target.prompt_id or "") | unknown) if by_row else frozenset()
        self.by_row = by_row
        self.queue: deque[tuple[str, bool]] = deque()

    def run(self) -> None:
        # Data first, so that a table is reached from the pool that it was drawn from and not by itself.
        order = sorted(self.reach.target.start, key=lambda key: self._is_later(self.graph.nodes[key]))
        for key in order:
            self._reached(key, None, "holds it", by_row=self.by_row)
            self._drain()
            maker = next((source for source, how in self.graph.sources[key] if how == "made"), None)
            if self.by_row and maker is not None and self.graph.stages[maker].manifest.kind not in ROW_STAGES:
                self._reached(maker, key, "holds it", by_row=False)
                self._drain()

    def _is_later(self, node: Node) -> bool:
        makers = [source for source, how in self.graph.sources[node.key] if how == "made"]
        return any(self.graph.stages[key].manifest.kind not in ROW_STAGES for key in makers)

    def _reached(self, key: str, via: str | None, how: str, *, by_row: bool) -> None:
        if key not in self.reach.steps:
            self.reach.steps[key] = (via, how)
            self.queue.append((key, by_row))

    def _drain(self) -> None:
        while self.queue:
            key, by_row = self.queue.popleft()
            for target, how in self.graph.readers[key]:
                if not by_row:
                    self._reached(target, key, how, by_row=False)
                elif self._takes(target):
                    self._reached(target, key, how, by_row=self._has_rows(target))

    def _takes(self, target: str) -> bool:
        """Tell whether what a table or a row stage leads to holds the prompt, or cannot tell rows apart."""
        if target in self.graph.stages:
            digests = [self.graph.nodes[key].sha256 for key in self.graph.outputs(target)]
            tables = [sha256 for sha256 in digests if sha256 in self.tables]
            return not tables or any(sha256 in self.holding for sha256 in tables)
        node = self.graph.nodes[target]
        return node.kind != "file" or node.sha256 in self.holding

    def _has_rows(self, target: str) -> bool:
        """Tell whether rows are still apart there: in a file of a row stage, and in such a stage itself."""
        stage = self.graph.stages.get(target)
        return self.graph.nodes[target].kind == "file" if stage is None else stage.manifest.kind in ROW_STAGES
