"""Draw a reach as lines of a tree, as JSON and as Mermaid: what a person reads, a program reads, a page renders.

Files are drawn inside the stage that made them. Iterations of one run stand in one node, by their numbers.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rangeline.provenance.graph import Stage
from rangeline.provenance.reach import Reach

_LARGEST_MERMAID = 400
"""Nodes up to which Mermaid's own limits draw a chart."""


@dataclass
class Group:
    """One node of a drawing."""

    key: str
    title: str
    via: str | None
    how: str
    notes: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Title with the numbers of its iterations."""
        return f"{self.title}: iterations {_ranges(self.numbers)}" if self.numbers else self.title


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def groups_of(reach: Reach) -> dict[str, Group]:
    """Return the nodes of a drawing, each with the one that it was first reached from."""
    groups: dict[str, Group] = {}
    for key, (_, how) in reach.steps.items():
        node = reach.graph.nodes[key]
        if node.kind == "file":
            continue
        name = _group_key(reach, key)
        stage = reach.graph.stages.get(key)
        if name not in groups:
            via = _group_via(reach, key, name)
            title = f"run {stage.manifest.facts['run']}" if stage and _is_iteration(stage) else node.title
            groups[name] = Group(name, title, via if via in groups else None, how)
        group = groups[name]
        if stage is not None and _is_iteration(stage):
            group.numbers.append(int(stage.manifest.facts["iteration"]))
        elif stage is not None:
            group.notes.append(f"{stage.path} {node.sha256[:12]}{_made_at(stage)}")
    return groups


def _is_iteration(stage: Stage) -> bool:
    facts = stage.manifest.facts
    return stage.manifest.kind == "iteration" and "run" in facts and isinstance(facts.get("iteration"), int)


def _made_at(stage: Stage) -> str:
    entry = stage.entry
    if entry is None:
        return ""
    run = f" by flow run {entry.prefect['flow_run_name']}" if "flow_run_name" in entry.prefect else ""
    return f", {entry.ended}{run}"


def _group_key(reach: Reach, key: str) -> str:
    stage = reach.graph.stages.get(key)
    return f"run {stage.manifest.facts['run']}" if stage is not None and _is_iteration(stage) else key


def _group_via(reach: Reach, key: str, own: str) -> str | None:
    via = reach.steps[key][0]
    while via is not None:
        if reach.graph.nodes[via].kind != "file" and (name := _group_key(reach, via)) != own:
            return name
        before = reach.steps[via][0]
        if before is None and reach.graph.nodes[via].kind == "file":
            makers = [source for source, how in reach.graph.sources[via] if how == "made" and source in reach.steps]
            before = next((source for source in makers if _group_key(reach, source) != own), None)
        via = before
    return None


def holders(reach: Reach) -> list[str]:
    """Return the paths that hold the target at the start, of each version once."""
    return list(dict.fromkeys(reach.graph.nodes[key].path for key in reach.target.start))


def draw_tree(reach: Reach) -> list[str]:
    """Return the lines of the tree, and before it what was reached in one sentence."""
    groups = groups_of(reach)
    children: dict[str | None, list[Group]] = defaultdict(list)
    for group in groups.values():
        children[group.via].append(group)
    lines = [reach.target.title, f"  held by {_few(holders(reach))}", f"  reached {summary(reach)}"]
    if reach.unknown:
        lines.append(f"  ? bytes are gone, taken to hold it: {_few(reach.unknown)}")
    lines += [f"  ! not as the ledger noted it: {path}" for path in reach.graph.changed]

    def walk(parent: str | None, indent: str) -> Iterator[str]:
        for group in children[parent]:
            yield f"{indent}{group.label}"
            yield from (f"{indent}    {note}" for note in group.notes)
            yield from walk(group.key, indent + "  ")

    return [*lines, *walk(None, "  ")]


def _few(names: Sequence[str], count: int = 4) -> str:
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more if names else "nothing"


def summary(reach: Reach) -> str:
    """Return what was reached, in one sentence."""
    iterations = sum(_is_iteration(stage) for stage in reach.stages)
    models = [node.title.removeprefix("model ") for node in reach.models]
    counts = f"{len(reach.stages)} stages, {iterations} iterations, {len(reach.checkpoints)} checkpoints"
    return f"{counts}, {'no registered model' if not models else 'models ' + ', '.join(models)}"


def draw_json(reach: Reach) -> dict[str, Any]:
    """Return the reach as plain values: stages and files with how they were reached, checkpoints, models."""
    nodes = reach.graph.nodes

    def step(key: str) -> dict[str, Any]:
        via, how = reach.steps[key]
        from_node = None if via is None else nodes[via].title
        return {"path": nodes[key].path, "sha256": nodes[key].sha256, "how": how, "from": from_node}

    models = []
    for node in reach.models:
        model = reach.graph.models[node.key]
        models.append({"name": model.name, "version": model.version, "aliases": list(model.aliases)})
    return {
        "target": reach.target.title,
        "held_by": holders(reach),
        "stages": [
            {
                "kind": stage.manifest.kind,
                "title": nodes[stage.key].title,
                **step(stage.key),
                "ended": stage.entry.ended if stage.entry else None,
                "prefect": dict(stage.entry.prefect) if stage.entry else {},
                "mlflow": dict(stage.entry.mlflow) if stage.entry else {},
            }
            for stage in reach.stages
        ],
        "files": [step(node.key) for node in reach.nodes("file")],
        "checkpoints": reach.checkpoints,
        "models": models,
        "promotions": [node.title for node in reach.nodes("promotion")],
        "rows_unknown_in": list(reach.unknown),
        "changed": list(reach.graph.changed),
    }


def mermaid_text(text: str) -> str:
    """Return a text in Mermaid's own codes, so that it can close no label and begin no directive."""
    return re.sub(r"[^A-Za-z0-9 ._/-]", lambda match: f"#{ord(match[0])};", text)


def draw_mermaid(reach: Reach) -> str:
    """Return a Mermaid flowchart; beyond 400 nodes the last ones are counted in one."""
    groups = list(groups_of(reach).values())
    shown = groups[:_LARGEST_MERMAID]
    number = {group.key: f"n{i}" for i, group in enumerate(shown)}
    lines = ["flowchart LR", f'  start(["{mermaid_text(reach.target.title)}"])']
    for group in shown:
        name = number[group.key]
        lines.append(f'  {name}["{mermaid_text(group.label)}"]')
        source = number.get(group.via or "", "start")
        how = f"|{mermaid_text(group.how)}| " if group.how else ""
        lines.append(f"  {source} -->{how}{name}")
    if len(groups) > _LARGEST_MERMAID:
        lines.append(f'  more["and {len(groups) - len(shown)} more"]')
    return "\n".join(lines) + "\n"
