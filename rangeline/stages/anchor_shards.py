"""Shards of anchors on disk: hidden states in safetensors, and a Parquet index of which row is whose."""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from rangeline.errors import AnchorError, DataContractError
from rangeline.lineage import MANIFEST_NAME, atomic_write, digest_bytes, digest_file
from rangeline.records import RolloutSet
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.metric_head import MetricHead, shape_from
from rangeline.rollout.representation import HiddenArray
from rangeline.stages.tables import about, read_table, write_table

_COLUMNS = ("prompt_id", "role", "shard", "row", "completion", "token_ids", "finish_reason", "condition")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Shard:
    """The queries and anchors of some prompts, row for row."""

    key: str
    """Digest of all that they depend on."""
    rollouts: RolloutSet
    role_N: tuple[str, ...]
    """query, positive or negative."""
    condition_N: tuple[str, ...]
    """Digest of the conditions of the row's prompt."""
    hidden_NH: HiddenArray
    """float32 representations."""


@dataclass(frozen=True, slots=True)
class StoredShard:
    """Where a shard lies in the cache."""

    hidden: Path
    index: Path


def find_shard(cache: Path, key: str) -> StoredShard | None:
    """Return a finished shard of the cache; None where it is absent, half written or damaged."""
    stored = StoredShard(cache / f"{key}.safetensors", cache / f"{key}.parquet")
    if not (stored.hidden.is_file() and stored.index.is_file()):
        return None
    try:
        sha256 = about(read_table(stored.index), "hidden_sha256")
    except (DataContractError, KeyError):
        return None
    return stored if digest_file(stored.hidden) == sha256 else None


def write_shard(cache: Path, shard: Shard) -> StoredShard:
    """Write a shard into the cache; its index comes last and tells that it is whole.

    Raises
    ------
    AnchorError
        When a representation is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(shard.hidden_NH).all(axis=1))
    if bad.size:
        i = int(bad[0])
        msg = (
            f"Representations must be finite; got others ({shard.role_N[i]}, prompt "
            f"'{shard.rollouts.prompt_id_N[i]}'). Check the starting policy: its hidden states are not numbers."
        )
        raise AnchorError(msg)
    content = save({"hidden": np.ascontiguousarray(shard.hidden_NH)})
    stored = StoredShard(cache / f"{shard.key}.safetensors", cache / f"{shard.key}.parquet")
    atomic_write(stored.hidden, content)
    columns = {
        "prompt_id": list(shard.rollouts.prompt_id_N),
        "role": list(shard.role_N),
        "row": list(range(len(shard.rollouts))),
        "completion": list(shard.rollouts.completion_N),
        "token_ids": [list(ids) for ids in shard.rollouts.token_ids_N],
        "finish_reason": list(shard.rollouts.finish_reason_N),
        "condition": list(shard.condition_N),
    }
    write_table(stored.index, columns, about={"hidden_sha256": digest_bytes(content), "key": shard.key})
    return stored


def keep_only(cache: Path, shards: Sequence[StoredShard]) -> None:
    """Remove what a finished stage does not need: shards of former settings."""
    wanted = {path for shard in shards for path in (shard.hidden, shard.index)}
    for path in cache.glob("*"):
        if path not in wanted:
            path.unlink(missing_ok=True)


def put_together(folder: Path, shards: Sequence[StoredShard], pool_of: Mapping[str, str]) -> dict[Path, int | None]:
    """Write the shards and one index into a folder; return its files with their numbers of rows.

    Parameters
    ----------
    folder
        Where the anchors go.
    shards
        In order.
    pool_of
        Pool of each prompt.
    """
    # Anything left by a longer former list of shards would be no part of the index.
    shutil.rmtree(folder, ignore_errors=True)
    outputs: dict[Path, int | None] = {}
    columns: dict[str, list[Any]] = {name: [] for name in (*_COLUMNS, "pool", "key")}
    for number, shard in enumerate(shards):
        target = folder / f"hidden-{number:05d}.safetensors"
        atomic_write(target, shard.hidden.read_bytes())
        table = read_table(shard.index)
        outputs[target] = table.num_rows
        for name in _COLUMNS:
            columns[name] += [number] * table.num_rows if name == "shard" else table[name].to_pylist()
        columns["pool"] += [pool_of[item] for item in table["prompt_id"].to_pylist()]
        columns["key"] += [about(table, "key")] * table.num_rows
    index = folder / "index.parquet"
    write_table(index, columns)
    return outputs | {index: len(columns["prompt_id"])}


def load_anchors(folder: Path, *, skip_pools: Collection[str] = ()) -> AnchorSet:
    """Read the anchors of a workspace.

    Parameters
    ----------
    folder
        `data/anchors`.
    skip_pools
        Pools whose prompts are left out.

    Raises
    ------
    AnchorError
        When they have not been made, a shard is damaged, or a prompt has not its K and M rows.
    """
    if not (folder / MANIFEST_NAME).is_file():
        msg = f"Anchors must be made first; got no '{folder / MANIFEST_NAME}'. Run 'rangeline anchors'."
        raise AnchorError(msg)
    table = read_table(folder / "index.parquet").to_pydict()
    hidden = {number: _hidden(folder / f"hidden-{number:05d}.safetensors") for number in sorted(set(table["shard"]))}
    found: dict[str, dict[str, list[HiddenArray]]] = {}
    names = ("prompt_id", "role", "shard", "row", "pool")
    for prompt_id, role, shard, row, pool in zip(*(table[name] for name in names), strict=True):
        if pool not in skip_pools:
            roles = found.setdefault(prompt_id, {"positive": [], "negative": [], "query": []})
            roles[role].append(hidden[shard][row])
    if not found:
        msg = (
            f"Anchors must hold prompts of pools beside {sorted(skip_pools)}; got none ('{folder}'). Set anchors.pools."
        )
        raise AnchorError(msg)
    prompt_ids = tuple(sorted(found))
    arrays = {}
    for role in ("positive", "negative", "query"):
        rows = [found[item][role] for item in prompt_ids]
        if len({len(item) for item in rows}) > 1:
            odd = next(item for item, own in zip(prompt_ids, rows, strict=True) if len(own) != len(rows[0]))
            msg = f"Every prompt must have as many {role} rows; got another number (prompt '{odd}'). Make them again."
            raise AnchorError(msg)
        arrays[role] = np.array(rows, dtype=np.float32)
    return AnchorSet(
        prompt_id_P=prompt_ids,
        positive_PKH=arrays["positive"],
        negative_PKH=arrays["negative"],
        query_PMH=arrays["query"],
    )


def _hidden(path: Path) -> HiddenArray:
    try:
        array: HiddenArray = load_file(path)["hidden"]
    except (OSError, SafetensorError, KeyError) as error:
        msg = f"Shard '{path}' must be safetensors with 'hidden'; got {error}. Restore it from DVC, or make it again."
        raise AnchorError(msg) from error
    return array


def load_head(folder: Path) -> MetricHead:
    """Read the frozen metric head of a workspace.

    Raises
    ------
    AnchorError
        When it has not been trained, or its files are damaged.
    """
    try:
        shape = shape_from(dict(json.loads((folder / "head.json").read_text(encoding="utf-8")))["shape"])
        return MetricHead.from_bytes((folder / "head.safetensors").read_bytes(), shape)
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"The metric head must be trained first; got '{error}' ('{folder}'). Run 'rangeline anchors'."
        raise AnchorError(msg) from error
