"""Records to Parquet and back: whole files, written atomically, equal bytes for equal records."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rangeline.errors import DataContractError
from rangeline.lineage import atomic_write
from rangeline.records import Advantages, FloatArray, JudgmentTable, RewardIntervals, RolloutSet

_REMEMBERED_BYTES = 1 << 20
"""Larger files are read each time: the tables of one iteration are asked for by several stages, and mostly small."""


def write_table(path: Path, columns: Mapping[str, Any], *, about: Mapping[str, str] | None = None) -> None:
    """Write named columns of one length, with optional text facts in the file's metadata."""
    # from_pandas: NaN, which marks what is missing in an array, is null in the file.
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    table = pa.table(arrays).replace_schema_metadata(dict(about or {}))
    # A small table takes longer to find its file system than to be written.
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    atomic_write(path, sink.getvalue().to_pybytes())


def read_table(path: Path) -> pa.Table:
    """Read a Parquet file.

    Raises
    ------
    DataContractError
        When it is absent or no whole Parquet file.
    """
    return _ask(path).table


class _Known:
    """A table that was read, and the rollouts in it; neither can be changed, so that both can be shared."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @cached_property
    def rollouts(self) -> RolloutSet:
        values: dict[str, Any] = {name: tuple(self.table[name].to_pylist()) for name in self.table.column_names}
        for name in ("prompt_token_ids_N", "token_ids_N", "sampled_logprobs_N"):
            values[name] = tuple(tuple(row) for row in values[name])
        return RolloutSet(**values, policy_version=int(about(self.table, "policy_version")))


def _ask(path: Path) -> _Known:
    try:
        stat = path.stat()
        if stat.st_size > _REMEMBERED_BYTES:
            return _read(path)
        return _remembered(path, (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    except FileNotFoundError as error:
        msg = f"Table '{path}' must exist; got no such file. Run the stage that writes it."
        raise DataContractError(msg) from error
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"Table '{path}' must be a Parquet file; got {error}. Restore it, or make it again."
        raise DataContractError(msg) from error


def _read(path: Path) -> _Known:
    # A file, not a data set: a folder of that name is no table, and looking for one takes time.
    with pq.ParquetFile(pa.BufferReader(path.read_bytes())) as file:
        return _Known(file.read(use_threads=False))


@lru_cache(maxsize=32)
def _remembered(path: Path, identity: tuple[int, ...]) -> _Known:
    """Read a small file once as long as it is the same file."""
    del identity
    return _read(path)


def about(table: pa.Table, name: str) -> str:
    """Return a text fact of a table."""
    return dict(table.schema.metadata or {})[name.encode()].decode()


def write_rollouts(path: Path, rollouts: RolloutSet) -> None:
    """Write a rollout set."""
    columns = {item.name: list(getattr(rollouts, item.name)) for item in fields(rollouts) if item.name.endswith("_N")}
    columns["sampled_logprobs_N"] = [np.asarray(v, dtype=np.float32) for v in rollouts.sampled_logprobs_N]
    write_table(path, columns, about={"policy_version": str(rollouts.policy_version)})


def read_rollouts(path: Path) -> RolloutSet:
    """Read a rollout set."""
    return _ask(path).rollouts


def write_judgments(path: Path, judgments: JudgmentTable) -> None:
    """Write a judgment table, a column a coordinate."""
    levels = {f"level:{name}": judgments.levels_NK[:, k] for k, name in enumerate(judgments.coordinates)}
    write_table(
        path,
        {"prompt_id": list(judgments.prompt_id_N), "missing": judgments.missing_N, **levels},
        about={"judge_digest": judgments.judge_digest, "num_levels": ",".join(map(str, judgments.num_levels))},
    )


def read_judgments(path: Path) -> JudgmentTable:
    """Read a judgment table."""
    table = read_table(path)
    names = [name for name in table.column_names if name.startswith("level:")]
    return JudgmentTable(
        prompt_id_N=tuple(table["prompt_id"].to_pylist()),
        levels_NK=np.column_stack([table[name].to_numpy() for name in names]),
        missing_N=table["missing"].to_numpy(zero_copy_only=False),
        coordinates=tuple(name.removeprefix("level:") for name in names),
        num_levels=tuple(int(v) for v in about(table, "num_levels").split(",")),
        judge_digest=about(table, "judge_digest"),
    )


def write_intervals(path: Path, intervals: RewardIntervals, **columns: Sequence[Any]) -> None:
    """Write reward intervals, with further columns row for row."""
    support = intervals.support
    write_table(
        path,
        {
            "prompt_id": list(intervals.prompt_id_N),
            "lower": intervals.lower_N,
            "upper": intervals.upper_N,
            "unbounded": intervals.unbounded_N,
            "missing": intervals.missing_N,
            **columns,
        },
        about={"source": intervals.source, "support": "" if support is None else f"{support[0]},{support[1]}"},
    )


def read_intervals(path: Path) -> RewardIntervals:
    """Read reward intervals."""
    table = read_table(path)
    support = about(table, "support")
    low, _, high = support.partition(",")
    return RewardIntervals(
        prompt_id_N=tuple(table["prompt_id"].to_pylist()),
        lower_N=table["lower"].to_numpy(),
        upper_N=table["upper"].to_numpy(),
        unbounded_N=table["unbounded"].to_numpy(zero_copy_only=False),
        missing_N=table["missing"].to_numpy(zero_copy_only=False),
        support=(float(low), float(high)) if support else None,
        source=about(table, "source"),
    )


def write_advantages(path: Path, advantages: Advantages, **columns: FloatArray) -> None:
    """Write advantages, with further columns row for row."""
    write_table(
        path,
        {
            "prompt_id": list(advantages.prompt_id_N),
            "advantage": advantages.value_N,
            "active": advantages.active_N,
            **columns,
        },
        about={"estimator": advantages.estimator},
    )


def read_advantages(path: Path) -> Advantages:
    """Read advantages."""
    table = read_table(path)
    return Advantages(
        prompt_id_N=tuple(table["prompt_id"].to_pylist()),
        value_N=table["advantage"].to_numpy(),
        active_N=table["active"].to_numpy(zero_copy_only=False),
        estimator=about(table, "estimator"),
    )
