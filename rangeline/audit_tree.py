"""What an audit found: findings of files, nodes of manifests, and their tree in lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "changed", "missing", "pruned", "outside", "superseded"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one file."""

    path: str
    status: Status
    detail: str

    @property
    def is_failure(self) -> bool:
        """True when the file is not what its manifest says; one that was pruned or superseded is no failure."""
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
            mark = {"ok": "✓", "pruned": "-", "superseded": "-"}.get(finding.status, "✗")
            if finding.status != "ok" or verbose:
                lines.append(f"{indent}  {mark} {finding.path}: {finding.detail}")
        for child in item.children:
            add(child, indent + "  ")

    add(node, "")
    return lines
