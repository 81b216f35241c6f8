"""Make a workspace of manifests and small tables as large as asked: the material of the lineage benchmark and tests."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rangeline.lineage import (
    MANIFEST_NAME,
    artifact_ref,
    atomic_path,
    atomic_write,
    deferred_sync,
    write_json,
    write_manifest,
)
from rangeline.provenance.ledger import Note, append_note

JUDGE = {"model": "judge-model", "digest": "a" * 64, "rubric_sha256": "b" * 64}
TIME = "2026-01-01T03:15:00.000+00:00"
POOLS = {
    "policy": ("p1", "p2", "p3"),
    "warmup": ("w1",),
    "calibration": ("c1", "c2"),
    "audit": ("a1", "a2"),
    "evaluation": ("e1",),
}


def write_ids(path: Path, ids: Sequence[str], **columns: Sequence[object]) -> Path:
    """Write a table of prompt ids."""
    table = pa.table({"prompt_id": list(ids), **{name: list(values) for name, values in columns.items()}})
    with atomic_path(path) as partial:
        pq.write_table(table, partial)
    return path


def close(root: Path, folder: Path, kind: str, **about: object) -> Path:
    """Write a manifest and note it; return its path."""
    path = folder / MANIFEST_NAME
    ref = write_manifest(path, root, kind=kind, **about)  # type: ignore[arg-type]
    mlflow = {"run_id": f"run-of-{kind}"}
    manifest = {"path": ref.path, "sha256": ref.sha256}
    append_note(root, Note(kind=kind, started=TIME, ended=TIME, manifest=manifest, mlflow=mlflow))
    return path


def make_data(root: Path, *, more: Sequence[str] = ()) -> None:
    """Make raw rows, checked prompts, pools, warm-up and calibration; `more` are further policy prompts."""
    data = root / "data"
    pools = {**POOLS, "policy": (*POOLS["policy"], *more)}
    raw = data / "raw" / "rows.jsonl"
    every = [name for ids in pools.values() for name in ids] + ["dropped"]
    atomic_write(raw, "".join(json.dumps({"prompt_id": name}) + "\n" for name in every))
    prompts = write_ids(data / "prompts" / "prompts.parquet", every[:-1])
    write_json(data / "prompts" / "rejected.json", [{"prompt_id": "dropped", "reason": "wrong"}])
    outputs: dict[Path, int | None] = {prompts: len(every) - 1, data / "prompts" / "rejected.json": 1}
    checked = close(root, data / "prompts", "prompts", inputs=[raw], outputs=outputs)
    tables = {name: write_ids(data / "pools" / f"{name}.parquet", ids) for name, ids in pools.items()}
    outputs = {path: len(pools[name]) for name, path in tables.items()}
    split = close(root, data / "pools", "pools", inputs=[prompts], outputs=outputs, parents=[checked])
    weights = root / "models" / "warmup" / "policy" / "weights.bin"
    atomic_write(weights, "weights")
    start = close(
        root, root / "models" / "warmup", "warmup", outputs={weights: None}, parents=[split], inputs=[tables["warmup"]]
    )
    judged = write_ids(
        data / "calibration" / "calibration_truth.parquet", POOLS["calibration"], extracted=["1", "2"], truth=[1.0, 0.0]
    )
    scorer = data / "calibration" / "scorer.bin"
    atomic_write(scorer, "scorer")
    close(
        root,
        data / "calibration",
        "calibration",
        inputs=[tables["calibration"]],
        outputs={judged: 2, scorer: None},
        parents=[split, start],
        facts={"judge": JUDGE},
    )


def make_iteration(root: Path, run: str, number: int, drawn: Sequence[str], *, tables: int = 1) -> Path:
    """Make one iteration that drew some policy prompts and audited `a1`; return its manifest."""
    folder = root / "runs" / run / "iterations" / f"{number:06d}"
    outputs: dict[Path, int | None] = {
        write_ids(folder / f"policy_{i}.parquet", drawn, number=[number + i] * len(drawn)): len(drawn)
        for i in range(tables)
    }
    outputs[write_ids(folder / "audit.parquet", ["a1"])] = 1
    write_json(folder / "metrics.json", {"coverage/empirical": 0.9, "loss": number / 7})
    marker = {"files": {}, "run": run, "iteration": number}
    write_json(folder / "checkpoint.json", marker)
    outputs |= {folder / "metrics.json": None, folder / "checkpoint.json": None}
    before = root / "runs" / run / "iterations" / f"{number - 1:06d}" / MANIFEST_NAME
    base = [root / "data" / "pools", root / "models" / "warmup", root / "data" / "calibration"]
    return close(
        root,
        folder,
        "iteration",
        inputs=[root / "data" / "pools" / f"{name}.parquet" for name in ("policy", "audit")],
        outputs=outputs,
        parents=[*(place / MANIFEST_NAME for place in base), *([before] if number > 1 else [])],
        facts={"run": run, "iteration": number, "judge": JUDGE},
        parameters={"seed": 3},
    )


def make_evaluation(root: Path, run: str, number: int) -> Path:
    """Make an evaluation of an iteration's policy on the evaluation pool; return its manifest."""
    folder = root / "runs" / "_evaluations" / f"{run}-{number}"
    outputs: dict[Path, int | None] = {write_ids(folder / "samples.parquet", POOLS["evaluation"]): 1}
    parents = [root / "data" / "pools" / MANIFEST_NAME]
    parents.append(root / "runs" / run / "iterations" / f"{number:06d}" / MANIFEST_NAME)
    return close(
        root,
        folder,
        "evaluation",
        inputs=[root / "data" / "pools" / "evaluation.parquet"],
        outputs=outputs,
        parents=parents,
        facts={"policy": f"runs/{run}/checkpoints/{number:06d}"},
    )


def make_workspace(root: Path, *, iterations: int, tables: int = 1) -> int:
    """Make a whole workspace of one run; return its number of artifacts, manifests included."""
    with deferred_sync():
        make_data(root)
        for number in range(1, iterations + 1):
            make_iteration(root, "r", number, POOLS["policy"][:2], tables=tables)
    return sum(1 for path in root.rglob("*") if path.is_file() and ".rangeline" not in path.parts)


def marker_of(root: Path, run: str, number: int) -> str:
    """Return the sha256 by which the registry names a checkpoint."""
    return artifact_ref(root / "runs" / run / "iterations" / f"{number:06d}" / "checkpoint.json", root).sha256
