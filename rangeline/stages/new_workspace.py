"""Write a workspace for somebody's own data: commented settings, rubric, data folder, and what to do next.

The settings are the project's own `params.yaml` with its comments; only what depends on the data is replaced. Shares
and alpha follow from how many references there are, and the key of the split is the first of a fixed list under which
every pool gets a prompt and calibration gets enough: it looks at prompt ids alone, never at answers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from rangeline.config import PipelineConfig, build_config, read_settings
from rangeline.conformal.intervals import minimum_calibration_rows
from rangeline.errors import ConfigError, DataContractError, PoolError
from rangeline.lineage import atomic_write
from rangeline.prompts.contract import FIELDS, parse_rows, read_rows
from rangeline.prompts.duplicates import near_duplicate_clusters
from rangeline.prompts.pools import POOLS, split_pools
from rangeline.records import PromptRow
from rangeline.stages.workspace import PROJECT_HOME, Workspace
from rangeline.suites.registry import get_suite

_ENOUGH_TO_WARM_UP, _ENOUGH_FOR_A_TENTH, _FEWEST = 200, 20, 12
"""References from which some are spared for the warm-up; from which alpha is 0.1; with which anything can be told."""
_KEYS_TRIED = 200
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


def rubric_names() -> tuple[str, ...]:
    """Return the names of the rubrics to start from."""
    return tuple(sorted(path.stem for path in (PROJECT_HOME / "rubrics").glob("*.yaml")))


def create_workspace(root: Path, data: Path | None, wanted: NewWorkspace) -> dict[str, int]:
    """Write the workspace; return how many prompts each pool will get.

    Parameters
    ----------
    root
        Folder to make; one that already holds a `params.yaml` is left alone.
    data
        JSONL, CSV or Parquet of prompts; None writes a small example of sums, to be replaced.
    wanted
        Models, rubric, longest completion, and how the rows are read.

    Returns
    -------
    dict
        Prompts by pool, near duplicates kept together, as `rangeline prepare` will split them.

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
    text = fill_settings((PROJECT_HOME / "params.yaml").read_text(encoding="utf-8"), {**settings, "split.key": key})
    _write(workspace, text, raw, wanted, Path(source).with_suffix(".jsonl").name)
    build_config(read_settings(workspace.params), source=str(workspace.params))
    return counts


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
    if labelled < _FEWEST:
        msg = (
            f"'{source}' must hold at least {_FEWEST} references; got {labelled} in {len(rows)} rows. Answer some "
            "prompts yourself: they calibrate the judge and measure coverage."
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
    labelled = sum(row.reference is not None for row in rows)
    shares = {"warmup": 0.0, "source": 0.25, "calibration": 0.45, "audit": 0.15, "evaluation": 0.15}
    if labelled >= _ENOUGH_TO_WARM_UP:
        shares = {"warmup": 0.2, "source": 0.25, "calibration": 0.25, "audit": 0.15, "evaluation": 0.15}
    return {
        "data.generators": [],
        "data.files": [f"data/raw/{file}"],
        "split.labelled": shares,
        "policy.model": wanted.policy,
        "judge.model": wanted.judge,
        "judge.rubric": f"rubrics/{wanted.rubric}.yaml",
        "sampling.max_tokens": wanted.max_tokens,
        "warmup.epochs": 2 if shares["warmup"] else 0,
        "intervals.alpha": 0.1 if labelled >= _ENOUGH_FOR_A_TENTH else 0.2,
    }


def choose_key(rows: Sequence[PromptRow], settings: Mapping[str, Any], *, stem: str) -> tuple[dict[str, int], str]:
    """Return the pools' sizes and the first key under which all that a run needs have prompts enough.

    Raises
    ------
    PoolError
        When no key of the list gives every pool a prompt.
    """
    clusters = near_duplicate_clusters(rows, threshold=PipelineConfig().data.near_duplicate_threshold)
    needed = dict.fromkeys(POOLS, 1) | {
        "warmup": 1 if settings["warmup.epochs"] else 0,
        "calibration": minimum_calibration_rows(settings["intervals.alpha"]),
    }
    for number in range(1, _KEYS_TRIED + 1):
        key = stem if number == 1 else f"{stem}-{number}"
        split = split_pools(
            rows,
            cluster_N=clusters,
            labelled_shares=settings["split.labelled"],
            unlabelled_shares={"policy": 0.8, "ratio": 0.2},
            key=key,
        )
        if all(split.counts[name] >= least for name, least in needed.items()):
            return dict(split.counts), key
    msg = (
        f"The prompts must fill every pool, calibration with {needed['calibration']}; got too few distinct ones among "
        f"{len(rows)} ({len(set(clusters))} clusters of near duplicates). Add prompts, or references."
    )
    raise PoolError(msg)


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
