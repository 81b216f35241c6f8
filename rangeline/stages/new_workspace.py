"""Write a workspace for somebody's own data: commented settings, rubric, data folder, and what to do next.

The settings are the project's own `params.yaml` with its comments; only what depends on the data is replaced. Shares,
alpha and what broken overlap leads to follow from how many references there are (`label_plan`); the key of the split
is one under which the pools come near their shares (`pool_key`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from rangeline.config import build_config
from rangeline.errors import ConfigError, DataContractError
from rangeline.lineage import atomic_write
from rangeline.prompts.contract import FIELDS, parse_rows, read_rows
from rangeline.records import PromptRow
from rangeline.stages.label_plan import (
    FEWEST_REFERENCES,
    label_limits,
    plan_labels,
)
from rangeline.stages.pool_key import choose_key, settings_after_split
from rangeline.stages.workspace import PROJECT_HOME, Workspace
from rangeline.suites.registry import get_suite

_IGNORED = (".prefect/", ".rangeline/", "runs/", "comparisons/", "models/", "mlruns/", "workspaces/")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkspace:
    """What a person wants."""

    policy: str
    """Model to train, as `policy.model`."""
    judge: str
    """Model that judges, as `judge.model`."""
    rubric: str = "correctness"
    """Name of a file of `rubrics/`, without ending."""
    max_tokens: int = 256
    suite: str = ""
    """How answers are read and checked, for rows that do not say; empty: they do."""
    prompt_field: str = "prompt"
    reference_field: str = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedWorkspace:
    """What was made, and what it cannot promise."""

    prompts: dict[str, int]
    """By pool, as `rangeline prepare` will split them."""
    left_out: int
    """Prompts of no pool: near duplicates of prompts elsewhere, or words that an evaluation prompt shares."""
    alpha: float
    iterations: int
    limits: tuple[str, ...]
    """A sentence each."""


def rubric_names() -> tuple[str, ...]:
    """Return the names of the rubrics to start from."""
    return tuple(sorted(path.stem for path in (PROJECT_HOME / "rubrics").glob("*.yaml")))


def create_workspace(root: Path, data: Path | None, wanted: NewWorkspace) -> CreatedWorkspace:
    """Write the workspace; return how many prompts each pool will get, and what so few labels cannot promise.

    Parameters
    ----------
    root
        Folder to make; one that already holds a `params.yaml` is left alone.
    data
        JSONL, CSV or Parquet of prompts; None writes a small example of sums, to be replaced.
    wanted
        Models, rubric, longest completion, and how the rows are read.

    Raises
    ------
    ConfigError
        When the folder is in use, or there is no such rubric or suite.
    DataContractError
        When the data cannot be read as prompts, or all or nearly none of them have a reference.
    """
    workspace = Workspace(root.resolve())
    if workspace.params.exists():
        msg = f"'{root}' must be a new workspace; got one with a params.yaml. Name another folder, or edit that file."
        raise ConfigError(msg)
    if wanted.rubric not in rubric_names():
        msg = f"'rubric' must be one of {', '.join(rubric_names())}; got '{wanted.rubric}'. Name one to start from."
        raise ConfigError(msg)
    source = data.name if data else "example.jsonl"
    raw = example_rows() if data is None else as_contract(read_rows(data), wanted, stem=data.stem)
    rows = parse_rows(raw, source=source)
    for name in sorted({row.suite for row in rows}):
        get_suite(name)
    _require_both_kinds(rows, source)
    settings = settings_for(rows, wanted, Path(source).with_suffix(".jsonl").name)
    counts, key = choose_key(rows, settings, stem=workspace.root.name)
    settings |= {"split.key": key, **settings_after_split(counts, settings["intervals.alpha"])}
    text = fill_settings((PROJECT_HOME / "params.yaml").read_text(encoding="utf-8"), settings)
    config = build_config(yaml.safe_load(text), source=str(workspace.params))
    _write(workspace, text, raw, wanted, Path(source).with_suffix(".jsonl").name)
    return CreatedWorkspace(
        prompts=counts,
        left_out=len(rows) - sum(counts.values()),
        alpha=config.intervals.alpha,
        iterations=config.train.iterations,
        limits=label_limits(counts, config),
    )


def example_rows() -> list[dict[str, Any]]:
    """Return ninety sums in the form of the data contract, thirty of them with a reference."""
    pairs = [(a, b) for a in range(11, 29) for b in (3, 14, 25, 36, 47)]
    return [
        {
            "prompt_id": f"sum-{a}-{b}",
            "prompt": f"What is {a} + {b}? Reply with the number alone.",
            "suite": "reasoning_gym",
            "domain": "sums",
            **({"reference": str(a + b)} if i % 3 == 0 else {}),
        }
        for i, (a, b) in enumerate(pairs)
    ]


def as_contract(raw: Sequence[Mapping[str, Any]], wanted: NewWorkspace, *, stem: str) -> list[dict[str, Any]]:
    """Return rows with the names of the data contract: renamed, and filled where id or suite are absent.

    An absent id is made from the file's name and the prompt, so that it stays the same when rows are added. Fields that
    the contract does not know are kept below `metadata`.
    """
    renamed = {wanted.prompt_field: "prompt", wanted.reference_field: "reference"}
    rows = []
    for item in raw:
        fields = {renamed.get(name, name): value for name, value in item.items()}
        other = {name: value for name, value in fields.items() if name not in FIELDS}
        row = {name: value for name, value in fields.items() if name in FIELDS}
        if other:
            row["metadata"] = {**other, **(row.get("metadata") or {})}
        text = json.dumps(row.get("prompt"), ensure_ascii=False, sort_keys=True)
        row.setdefault("prompt_id", f"{stem}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}")
        if wanted.suite:
            row.setdefault("suite", wanted.suite)
        if isinstance(row.get("reference"), int | float) and not isinstance(row.get("reference"), bool):
            row["reference"] = str(row["reference"])
        rows.append(row)
    return rows


def _require_both_kinds(rows: Sequence[PromptRow], source: str) -> None:
    labelled = sum(row.reference is not None for row in rows)
    if labelled < FEWEST_REFERENCES:
        msg = (
            f"'{source}' must hold at least {FEWEST_REFERENCES} references; got {labelled} in {len(rows)} rows. Answer "
            "some prompts yourself: they calibrate the judge and measure coverage."
        )
        raise DataContractError(msg)
    if len(rows) - labelled < 2:
        msg = (
            f"'{source}' must hold prompts without a reference, which the policy trains on; got {len(rows) - labelled} "
            f"of {len(rows)}. Add prompts, or leave out the reference of those to train on."
        )
        raise DataContractError(msg)


def settings_for(rows: Sequence[PromptRow], wanted: NewWorkspace, file: str) -> dict[str, Any]:
    """Return the settings that differ from the project's, by dotted name."""
    plan = plan_labels(sum(row.reference is not None for row in rows))
    return {
        "data.generators": [],
        "data.files": [f"data/raw/{file}"],
        "split.labelled": plan.shares,
        "policy.model": wanted.policy,
        "judge.model": wanted.judge,
        "judge.rubric": f"rubrics/{wanted.rubric}.yaml",
        "sampling.max_tokens": wanted.max_tokens,
        "warmup.epochs": 2 if plan.warmup else 0,
        "intervals.alpha": plan.alpha,
    }


def fill_settings(text: str, values: Mapping[str, Any]) -> str:
    r"""Replace settings in commented YAML, each in its place; all comments but those inside a replaced value stay.

    Parameters
    ----------
    text
        YAML of sections, each a mapping.
    values
        By dotted name of two parts. Values go in as JSON, which is YAML.

    Raises
    ------
    ConfigError
        When a setting does not stand in the text.

    Examples
    --------
    >>> fill_settings("a: {b: 1, c: 2}\nd:\n  e: 3 # why\n", {"a.c": 5, "d.e": [7]})
    'a: {b: 1, c: 5}\nd:\n  e: [7] # why\n'
    """
    root = yaml.compose(text)
    places = {
        f"{section.value}.{field.value}": value
        for section, fields in (root.value if isinstance(root, yaml.MappingNode) else ())
        if isinstance(fields, yaml.MappingNode)
        for field, value in fields.value
    }
    if absent := [name for name in values if name not in places]:
        msg = f"Setting '{absent[0]}' must stand in params.yaml; got no such line. Restore that file."
        raise ConfigError(msg)
    for name in sorted(values, key=lambda name: places[name].start_mark.index, reverse=True):
        start, end = places[name].start_mark.index, places[name].end_mark.index
        kept = len(text[start:end].rstrip())  # a block ends where the next line begins
        text = text[:start] + json.dumps(values[name], ensure_ascii=False) + text[start + kept :]
    return text


def _write(
    workspace: Workspace, params: str, raw: Sequence[Mapping[str, Any]], wanted: NewWorkspace, file: str
) -> None:
    head = (
        "# Written by 'rangeline init'; yours to edit. 'rangeline estimate' says what a run costs, 'rangeline doctor'\n"
        "# whether it can run here, 'rangeline demo' runs it all.\n"
    )
    home = PROJECT_HOME
    for folder in ("rubrics", "conditions"):
        for path in sorted((home / folder).glob("*.yaml")):
            if folder == "conditions" or path.stem == wanted.rubric:
                atomic_write(workspace.root / folder / path.name, path.read_text(encoding="utf-8"))
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in raw)
    atomic_write(workspace.raw / file, lines)
    atomic_write(workspace.root / "dvc.yaml", (home / "dvc.yaml").read_text(encoding="utf-8"))
    atomic_write(workspace.root / ".gitignore", "\n".join(_IGNORED) + "\n")
    atomic_write(workspace.params, head + params)
