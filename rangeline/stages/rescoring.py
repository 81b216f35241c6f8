"""Score old completions with the present checkers, without a model, and say what changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeline.errors import ConfigError
from rangeline.lineage import MANIFEST_NAME, read_manifest, write_json, write_manifest
from rangeline.stages.benchmarking import read_result
from rangeline.stages.scoring import metrics_of, scored_columns
from rangeline.stages.tables import read_table, write_table
from rangeline.stages.workspace import Workspace

_COMPARED = ("extracted", "status", "verdict", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """What the present checkers say of old completions."""

    folder: Path
    """`rescored` below the benchmark's folder: samples, metrics, changes and a manifest."""
    num_completions: int
    changes: list[dict[str, Any]]
    """Completions that are read or judged otherwise: prompt id, sample, and each field before and after."""
    moved: dict[str, tuple[float | None, float | None]]
    """Measures whose value moved: before and after."""


def rescore(workspace: Workspace, folder: Path) -> Rescored:
    """Score the completions of a finished benchmark again; its own files stay as they are.

    Raises
    ------
    ConfigError
        When the folder holds no finished benchmark.
    """
    folder = folder if folder.is_absolute() else _find(workspace, folder)
    rows, before = read_result(folder)
    asked = read_manifest(folder / MANIFEST_NAME).parameters
    old = read_table(folder / "samples.parquet")
    target = folder / "rescored"
    write_table(target / "samples.parquet", scored_columns(old, rows, bert_model=asked["bert_model"]))
    new = read_table(target / "samples.parquet")
    measured = metrics_of(
        new,
        rows,
        samples=asked["samples"],
        ks=tuple(asked["ks"]),
        bert_model=asked["bert_model"],
        confidence=asked["confidence"],
        seed=asked["seed"],
    )
    metrics = {**before, **measured}
    changes = [
        {
            "prompt_id": was["prompt_id"],
            "sample": was["sample"],
            **{name: [was[name], now[name]] for name in _COMPARED if was[name] != now[name]},
        }
        for was, now in zip(old.to_pylist(), new.to_pylist(), strict=True)
        if any(was[name] != now[name] for name in _COMPARED)
    ]
    values = {
        name: (before["estimates"].get(name, {}).get("value"), estimate["value"])
        for name, estimate in metrics["estimates"].items()
    }
    moved = {name: pair for name, pair in values.items() if pair[0] != pair[1]}
    write_json(target / "metrics.json", metrics)
    write_json(target / "changes.json", {"changes": changes, "moved": moved})
    write_manifest(
        target / MANIFEST_NAME,
        workspace.root,
        kind="rescored",
        inputs=(folder / "samples.parquet", folder / "problems.parquet"),
        outputs={target / name: None for name in ("samples.parquet", "metrics.json", "changes.json")},
        parents=(folder / MANIFEST_NAME,),
    )
    return Rescored(folder=target, num_completions=new.num_rows, changes=changes, moved=moved)


def _find(workspace: Workspace, folder: Path) -> Path:
    places = (folder.resolve(), workspace.root / folder, workspace.root / "runs" / "_benchmarks" / folder)
    found = next((place for place in places if (place / "metrics.json").is_file()), None)
    if found is None:
        msg = (
            f"'{folder}' must be the folder of a finished benchmark; got none of that name. Name one that was printed."
        )
        raise ConfigError(msg)
    return found
