"""What an iteration's completions look like: their lengths and rewards as numbers, and a table and a page of them all.

Everything is read from the files of the policy share. A reward is the centre of its interval; rewards that are missing
are in no mean and no spread. Numbers named `raw_` are of every reward, those beside them of what the filter kept.

Shapes: N rollouts flat, G rollouts of a group.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.evaluation.completion_page import completion_page
from rangeline.lineage import atomic_write
from rangeline.prompts.duplicates import text_of
from rangeline.records import BoolArray, FloatArray, PromptRow, RewardIntervals, RolloutSet
from rangeline.stages.tables import read_intervals, read_rollouts, read_table, write_table

TABLE_NAME, PAGE_NAME = "completions.parquet", "completions.html"

_NO_SPREAD = 1e-6
"""Rewards come from float32 models: a spread below their resolution is rounding."""


def completion_numbers(folder: Path, *, before: Path) -> dict[str, Any]:
    """Return lengths, tokens and rewards of the policy share.

    Parameters
    ----------
    folder, before
        Folders of the iteration and of the one before it, whose tokens are counted on.

    Returns
    -------
    dict
        None where nothing is there to be measured, such as the length of completions that ended by themselves.
    """
    rollouts = read_rollouts(folder / "policy_rollouts.parquet")
    intervals = read_intervals(folder / "policy_intervals.parquet")
    length_N = np.array([len(ids) for ids in rollouts.token_ids_N], dtype=np.float64)
    cut_N = np.array([reason == "length" for reason in rollouts.finish_reason_N], dtype=bool)
    prompt_tokens = sum(map(len, rollouts.prompt_token_ids_N))
    num_tokens = prompt_tokens + int(length_N.sum())
    earlier = before / "metrics.json"
    counted = json.loads(earlier.read_text(encoding="utf-8")) if earlier.is_file() else {}
    return {
        **_lengths("length", length_N),
        **_lengths("terminated_length", length_N[~cut_N]),
        "completion/truncated_share": float(cut_N.mean()) if len(cut_N) else None,
        "completion/num_tokens": num_tokens,
        "completion/total_tokens": num_tokens + counted.get("completion/total_tokens", 0),
        **_rewards(folder, intervals),
    }


def write_completions(folder: Path, rows: Mapping[str, PromptRow], *, title: str) -> None:
    """Write the completions of the policy share as a table and as a page.

    Parameters
    ----------
    folder
        The iteration's folder, advantages written.
    rows
        Prompts by id. The texts of problems that their owners keep private are left out of both files.
    title
        Heading of the page.
    """
    rollouts = read_rollouts(folder / "policy_rollouts.parquet")
    intervals = read_intervals(folder / "policy_intervals.parquet")
    credit = read_table(folder / "advantages.parquet")
    ids, missing_N = rollouts.prompt_id_N, intervals.missing_N
    private = [bool(rows[prompt_id].metadata.get("private")) for prompt_id in ids]
    columns: dict[str, Any] = {
        "prompt_id": list(ids),
        "prompt": [None if hide else text_of(rows[name]) for hide, name in zip(private, ids, strict=True)],
        "sample": list(rollouts.sample_N),
        "completion": [None if hide else text for hide, text in zip(private, rollouts.completion_N, strict=True)],
        "num_tokens": [len(row) for row in rollouts.token_ids_N],
        "finish_reason": list(rollouts.finish_reason_N),
        "source": _sources(folder, rollouts),
        "lower": np.where(missing_N, np.nan, intervals.lower_N),
        "upper": np.where(missing_N, np.nan, intervals.upper_N),
        "kept": _kept(folder, len(rollouts)).tolist(),
        "advantage": credit["advantage"].to_numpy(),
        "midpoint_advantage": credit["midpoint"].to_numpy(),
    }
    write_table(folder / TABLE_NAME, columns)
    table = read_table(folder / TABLE_NAME).to_pylist()
    atomic_write(folder / PAGE_NAME, completion_page(table, title=title))


def _lengths(name: str, length_N: FloatArray) -> dict[str, float | None]:
    some = len(length_N) > 0
    return {
        f"completion/mean_{name}": float(length_N.mean()) if some else None,
        f"completion/min_{name}": float(length_N.min()) if some else None,
        f"completion/max_{name}": float(length_N.max()) if some else None,
    }


def _rewards(folder: Path, intervals: RewardIntervals) -> dict[str, Any]:
    valid_N, kept_N = ~intervals.missing_N, _kept(folder, len(intervals))
    source_N = np.array(_sources(folder, intervals), dtype=object)
    numbers: dict[str, Any] = {}
    for prefix, chosen_N in (("raw_", valid_N), ("", valid_N & kept_N)):
        center = intervals.center_N[chosen_N]
        numbers[f"reward/{prefix}mean"] = float(center.mean()) if len(center) else None
        numbers[f"reward/{prefix}std"] = float(center.std()) if len(center) else None
        numbers[f"reward/{prefix}zero_spread_share"] = _zero_spread_share(intervals, chosen_N)
    names = sorted({str(name) for name in source_N if name})
    for name in names if len(names) > 1 else []:
        center = intervals.center_N[valid_N & kept_N & (source_N == name)]
        numbers[f"reward/{name}/mean"] = float(center.mean()) if len(center) else None
        numbers[f"reward/{name}/std"] = float(center.std()) if len(center) else None
    return numbers


def _zero_spread_share(intervals: RewardIntervals, chosen_N: BoolArray) -> float | None:
    """Return the share of groups of two or more rewards whose rewards are all alike; None without such a group."""
    groups: dict[str, list[float]] = {}
    centers = intervals.center_N.tolist()
    for i in np.flatnonzero(chosen_N).tolist():
        groups.setdefault(intervals.prompt_id_N[i], []).append(centers[i])
    spreads = [max(values) - min(values) for values in groups.values() if len(values) > 1]
    return sum(spread <= _NO_SPREAD for spread in spreads) / len(spreads) if spreads else None


def _kept(folder: Path, num: int) -> BoolArray:
    table = read_table(folder / "policy_intervals.parquet")
    return np.array(table["kept"].to_pylist() if "kept" in table.column_names else [True] * num, dtype=bool)


def _sources(folder: Path, records: RolloutSet | RewardIntervals) -> list[str]:
    table = read_table(folder / "policy_intervals.parquet")
    return table["source"].to_pylist() if "source" in table.column_names else [""] * len(records)
