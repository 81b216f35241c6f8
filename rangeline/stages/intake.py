"""Take in prompts that arrive in a folder: only new ones, each once, and none that says something else of an old one.

What is taken is written as one file below `data/raw/arrived`, which `ingest` reads after every other source, so that
old prompts stay where they were. A file that cannot be read is left alone and told; the next night looks again. A
row whose prompt is known is passed over; one that gives a known id another question or answer is refused.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeline.config import PipelineConfig
from rangeline.errors import BadInputError
from rangeline.lineage import atomic_write, digest_bytes
from rangeline.prompts.contract import parse_rows, read_rows
from rangeline.prompts.ingest import check_references
from rangeline.prompts.pools import POOLS
from rangeline.records import PromptRow
from rangeline.stages.data import read_pool, read_prompts, source_files
from rangeline.stages.workspace import Workspace
from rangeline.suites.registry import get_suite

READABLE = (".jsonl", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file or a row that was not taken."""

    file: str
    prompt_id: str | None
    """None where the whole file was refused."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What one look at the inbox gave."""

    new: tuple[str, ...]
    """Prompt ids that were added, in the order of files and rows."""
    num_known: int
    """Rows that were passed over, since the prompt is known as it stands."""
    refused: tuple[Refusal, ...]
    path: Path | None
    """The file that holds what is new; None where nothing is."""


def take_in(workspace: Workspace, config: PipelineConfig, inbox: Path) -> Intake:
    """Write what is new in a folder of JSONL, CSV and Parquet files to `data/raw/arrived`.

    Parameters
    ----------
    workspace, config
        Where, and with which sources so far.
    inbox
        Folder in which prompts arrive; may be absent. Links, hidden files and other kinds of files are left alone.

    Returns
    -------
    Intake
        New ids, counts and refusals; looking again at the same files adds nothing.
    """
    known = {row.prompt_id: row for row in known_prompts(workspace, config)}
    fresh: dict[str, Mapping[str, Any]] = {}
    refused: list[Refusal] = []
    passed_over = 0
    for path in _arrived_files(inbox):
        try:
            raw = read_rows(path)
            rows = parse_rows(raw, source=path.name)
            wrong = _wrong_references(rows)
        except BadInputError as error:
            refused.append(Refusal(path.name, None, str(error)))
            continue
        for row, fields in zip(rows, raw, strict=True):
            before = known.get(row.prompt_id)
            if before is not None and _says_the_same(before, row):
                passed_over += 1
            elif before is not None:
                reason = "known with another question, answer, suite, domain or share; give it another id"
                refused.append(Refusal(path.name, row.prompt_id, reason))
            elif row.prompt_id in wrong:
                refused.append(Refusal(path.name, row.prompt_id, wrong[row.prompt_id]))
            else:
                known[row.prompt_id], fresh[row.prompt_id] = row, fields
    target = _write(workspace, fresh.values()) if fresh else None
    return Intake(new=tuple(fresh), num_known=passed_over, refused=tuple(refused), path=target)


def known_prompts(workspace: Workspace, config: PipelineConfig) -> list[PromptRow]:
    """Return every prompt of the sources as they stand, those that ingest dropped included."""
    found: dict[str, PromptRow] = {}
    checked = workspace.prompts / "prompts.parquet"
    if checked.is_file():
        found = {row.prompt_id: row for row in read_prompts(checked)}
    for path in source_files(workspace, config):
        if path.is_file():
            found |= {row.prompt_id: row for row in parse_rows(read_rows(path), source=path.name)}
    return list(found.values())


def _arrived_files(inbox: Path) -> list[Path]:
    if not inbox.is_dir():
        return []
    return sorted(
        path
        for path in inbox.iterdir()
        if path.suffix in READABLE and not path.name.startswith(".") and path.is_file() and not path.is_symlink()
    )


def _wrong_references(rows: Iterable[PromptRow]) -> dict[str, str]:
    rows = list(rows)
    suites = {name: get_suite(name) for name in {row.suite for row in rows}}
    report = check_references(rows, suites, floor=0.0)
    return {item.prompt_id: f"its reference does not score right: {item.reason}" for item in report.rejected}


def _says_the_same(a: PromptRow, b: PromptRow) -> bool:
    return all(
        getattr(a, name) == getattr(b, name) for name in ("prompt", "suite", "domain", "reference", "share", "metadata")
    )


def _write(workspace: Workspace, rows: Iterable[Mapping[str, Any]]) -> Path:
    text = "".join(json.dumps(dict(row), ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    target = workspace.arrived / f"{digest_bytes(text.encode())[:16]}.jsonl"
    atomic_write(target, text)
    return target


def pool_table_of(workspace: Workspace) -> dict[str, str]:
    """Return the pool of each prompt that has one; empty before the first split."""
    if not all((workspace.pools / f"{name}.parquet").is_file() for name in POOLS):
        return {}
    return {row.prompt_id: name for name in POOLS for row in read_pool(workspace, name)}


def moved_prompts(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return each prompt that had a pool and now has another, or none, with both names."""
    now = {prompt_id: after.get(prompt_id, "none") for prompt_id in before}
    return {
        prompt_id: (before[prompt_id], now[prompt_id]) for prompt_id in before if now[prompt_id] != before[prompt_id]
    }
