"""Data stages: generate problems, check prompts, split them into disjoint pools. Deterministic, so DVC can own them."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError, DataContractError
from rangeline.lineage import MANIFEST_NAME, atomic_path, atomic_write, read_manifest, write_json, write_manifest
from rangeline.prompts.contract import parse_rows, read_rows, rows_to_table, table_to_rows
from rangeline.prompts.duplicates import near_duplicate_clusters, text_of
from rangeline.prompts.ingest import check_references, generate_problems
from rangeline.prompts.pools import POOLS, prove_disjoint, require_pools, split_pools
from rangeline.records import PromptRow
from rangeline.stages.sources import apply_findings, read_benchmarks
from rangeline.stages.tables import read_table
from rangeline.stages.workspace import Workspace
from rangeline.suites.candidate_world import World, make_world, world_prompts
from rangeline.suites.registry import get_suite


def write_prompts(path: Path, rows: Sequence[PromptRow]) -> None:
    """Write prompt rows as Parquet."""
    with atomic_path(path) as partial:
        pq.write_table(rows_to_table(rows), partial)


def read_prompts(path: Path) -> tuple[PromptRow, ...]:
    """Read prompt rows from Parquet."""
    return table_to_rows(read_table(path))


def generate(workspace: Workspace, config: PipelineConfig) -> None:
    """Write the problems of the configured generators and world to `data/generated`."""
    generators = [item.model_dump() for item in config.data.generators]
    made = generate_problems(generators, config.seed, reply=config.data.reply) if generators else ()
    problems = [asdict(row) for row in made]
    outputs: dict[Path, int | None] = {}
    settings = config.data.world
    if settings is not None:
        world = make_world(settings.design, settings.words, seed=config.seed)
        problems += world_prompts(world, settings.model_dump(), settings.candidates)
        write_json(workspace.world, world.to_json())
        outputs[workspace.world] = None
    target = workspace.generated / "problems.jsonl"
    atomic_write(target, "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in problems))
    write_manifest(
        workspace.generated / MANIFEST_NAME,
        workspace.root,
        kind="generated",
        outputs={target: len(problems), **outputs},
        parameters={
            "seed": config.seed,
            "generators": generators,
            "reply": config.data.reply,
            "world": None if settings is None else settings.model_dump(),
        },
    )


def read_world(workspace: Workspace) -> World:
    """Read the hidden order of a workspace's world.

    Raises
    ------
    ConfigError
        When the workspace has no world.
    """
    if not workspace.world.is_file():
        msg = f"'data.world' must be set and prepared; got no '{workspace.world}'. Set it and run 'rangeline prepare'."
        raise ConfigError(msg)
    return World.from_json(json.loads(workspace.world.read_text(encoding="utf-8")))


def source_files(workspace: Workspace, config: PipelineConfig) -> list[Path]:
    """Return the files that prompts come from: generated problems, `data.files`, and what arrived since, in order.

    Raises
    ------
    ConfigError
        When a file lies outside `data/raw`, or there is no source at all.
    """
    files = []
    for name in config.data.files:
        path = (workspace.root / name).resolve()
        if not path.is_relative_to(workspace.raw.resolve()):
            msg = f"'data.files' must lie in '{workspace.raw}'; got '{name}'. Copy the file there, so that DVC sees it."
            raise ConfigError(msg)
        files.append(path)
    if config.data.generators or config.data.world:
        files.insert(0, workspace.generated / "problems.jsonl")
    files += sorted(workspace.arrived.glob("*.jsonl"))
    if not files and not config.data.benchmarks:
        msg = "'data' must name generators, benchmarks, files or a world; got none. Set data.files in params.yaml."
        raise ConfigError(msg)
    return files


def ingest(workspace: Workspace, config: PipelineConfig) -> None:
    """Check every prompt against the data contract and its reference against the real checker; write `data/prompts`."""
    files = source_files(workspace, config)
    rows: list[PromptRow] = []
    for path in files:
        rows.extend(parse_rows(read_rows(path), source=path.name))
    measured, benchmarks = read_benchmarks(workspace, config)
    rows.extend(measured)
    suites = {name: get_suite(name) for name in {row.suite for row in rows}}
    report = check_references(rows, suites, floor=config.data.reference_floor)
    rejected = {item.prompt_id for item in report.rejected}
    kept, findings = apply_findings([row for row in rows if row.prompt_id not in rejected], config)
    clusters = near_duplicate_clusters(kept, threshold=config.data.near_duplicate_threshold)
    target, rejects = workspace.prompts / "prompts.parquet", workspace.prompts / "rejected.json"
    write_prompts(target, kept)
    write_json(rejects, [{"prompt_id": item.prompt_id, "reason": item.reason} for item in report.rejected])
    found = workspace.prompts / "findings.json"
    write_json(found, [asdict(item) for item in findings])
    cluster_file = workspace.prompts / "clusters.json"
    write_json(cluster_file, dict(zip((row.prompt_id for row in kept), clusters, strict=True)))
    parents = [workspace.generated / MANIFEST_NAME] if config.data.generators or config.data.world else []
    write_manifest(
        workspace.prompts / MANIFEST_NAME,
        workspace.root,
        kind="prompts",
        inputs=files,
        outputs={target: len(kept), rejects: len(rejected), found: len(findings), cluster_file: len(kept)},
        parents=parents,
        parameters=config.data.model_dump(mode="json"),
        facts={
            "labelled": sum(row.reference is not None for row in kept),
            "unlabelled": sum(row.reference is None for row in kept),
            "rejected": len(rejected),
            "findings": dict(Counter(item.kind for item in findings)),
            "benchmarks": benchmarks,
            "reference_share_right": report.passed_share,
            "clusters": len(set(clusters)),
        },
    )


def _previous_pools(workspace: Workspace, config: PipelineConfig) -> dict[str, str] | None:
    """Return where each prompt was before, so that new data moves no old prompt; None where that does not bind.

    DVC keeps `data/pools` while the stage runs (`persist`). Other shares or another key mean another split.
    """
    if not (workspace.pools / MANIFEST_NAME).is_file():
        return None
    if read_manifest(workspace.pools / MANIFEST_NAME).parameters != config.split.model_dump(mode="json"):
        return None
    return {row.prompt_id: name for name in POOLS for row in read_pool(workspace, name)}


def split(workspace: Workspace, config: PipelineConfig) -> None:
    """Split the prompts into disjoint pools by keyed hash of their cluster; write `data/pools` with the proof."""
    rows = read_prompts(workspace.prompts / "prompts.parquet")
    cluster_file = workspace.prompts / "clusters.json"
    clusters = json.loads(cluster_file.read_text(encoding="utf-8"))
    result = split_pools(
        rows,
        cluster_N=tuple(clusters[row.prompt_id] for row in rows),
        labelled_shares=config.split.labelled.model_dump(),
        unlabelled_shares=config.split.unlabelled.model_dump(),
        key=config.split.key,
        previous=_previous_pools(workspace, config),
    )
    proof = prove_disjoint(result)
    require_pools(result, ("policy", "source", "calibration", "ratio", "audit", "evaluation"))
    outputs: dict[Path, int | None] = {}
    for name in POOLS:
        members = result.rows(name)
        write_prompts(workspace.pools / f"{name}.parquet", members)
        outputs[workspace.pools / f"{name}.parquet"] = len(members)
    excluded = workspace.pools / "excluded.json"
    write_json(excluded, [{"prompt_id": item.row.prompt_id, "reason": item.reason} for item in result.excluded])
    outputs[excluded] = len(result.excluded)
    write_manifest(
        workspace.pools / MANIFEST_NAME,
        workspace.root,
        kind="pools",
        inputs=(workspace.prompts / "prompts.parquet", cluster_file),
        outputs=outputs,
        parents=(workspace.prompts / MANIFEST_NAME,),
        parameters=config.split.model_dump(mode="json"),
        facts={"counts": result.counts, "proof": proof},
    )


def read_pool(workspace: Workspace, name: str) -> tuple[PromptRow, ...]:
    """Read one pool.

    Raises
    ------
    DataContractError
        When the pools have not been made.
    """
    path = workspace.pools / f"{name}.parquet"
    if not path.is_file():
        msg = f"Pool '{name}' must exist; got no '{path}'. Run 'rangeline prepare' first."
        raise DataContractError(msg)
    return read_prompts(path)


def pool_table(workspace: Workspace) -> dict[str, list[dict[str, Any]]]:
    """Return plain rows of every pool, for the expectation suite."""
    clusters = json.loads((workspace.prompts / "clusters.json").read_text(encoding="utf-8"))
    return {
        name: [
            {
                "prompt_id": row.prompt_id,
                "prompt_text": text_of(row),
                "suite": row.suite,
                "reference": row.reference,
                "cluster": clusters[row.prompt_id],
            }
            for row in read_pool(workspace, name)
        ]
        for name in POOLS
    }


def pool_counts(workspace: Workspace) -> dict[str, int]:
    """Return the number of prompts of each pool, from the manifest."""
    return dict(read_manifest(workspace.pools / MANIFEST_NAME).facts["counts"])
