"""Choose the key of a new workspace's split, and the settings that follow from the pools that it gives.

A keyed hash deals prompts out by shares, and on few prompts misses them. So keys of a fixed list are tried in order;
the choice looks at prompt ids and at whether there is a reference, never at answers. List and measure are ours.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rangeline.config import PipelineConfig
from rangeline.conformal.intervals import minimum_calibration_rows
from rangeline.errors import PoolError
from rangeline.prompts.duplicates import near_duplicate_clusters
from rangeline.prompts.pools import POOLS, split_pools
from rangeline.records import PromptRow
from rangeline.stages.label_plan import may_recalibrate, plan_iterations, wanted_prompts

_KEYS_TRIED = 200
_NEAR = 0.85
"""A key is taken at once where each pool gets this share of what it should."""


def settings_after_split(counts: Mapping[str, int], alpha: float) -> dict[str, Any]:
    """Return the settings that follow from the pools' sizes: iterations, and what broken overlap leads to.

    Where too few prompts are audited to calibrate on, broken overlap leads to wide intervals, not to a run that stops.
    """
    found: dict[str, Any] = {"train.iterations": plan_iterations(counts["policy"])}
    if not may_recalibrate(counts["audit"], alpha):
        for name, rule in PipelineConfig().overlap:
            if rule.consequence == "recalibrate":
                found[f"overlap.{name}"] = {"limit": rule.limit, "consequence": "widen"}
    return found


def choose_key(rows: Sequence[PromptRow], settings: Mapping[str, Any], *, stem: str) -> tuple[dict[str, int], str]:
    """Return the pools' sizes and the first key that brings them near their shares, or else the one that comes nearest.

    Raises
    ------
    PoolError
        When no key of the list gives every pool a prompt, and calibration the fewest that alpha needs.
    """
    clusters = near_duplicate_clusters(rows, threshold=PipelineConfig().data.near_duplicate_threshold)
    unlabelled = PipelineConfig().split.unlabelled.model_dump()
    labelled = sum(row.reference is not None for row in rows)
    wanted = wanted_prompts(labelled) | {name: share * (len(rows) - labelled) for name, share in unlabelled.items()}
    needed = {name: min(1, math.ceil(number)) for name, number in wanted.items()} | {
        "calibration": minimum_calibration_rows(settings["intervals.alpha"])
    }
    best: tuple[float, dict[str, int], str] = (0.0, {}, "")
    for number in range(1, _KEYS_TRIED + 1):
        key = stem if number == 1 else f"{stem}-{number}"
        split = split_pools(
            rows,
            cluster_N=clusters,
            labelled_shares=settings["split.labelled"],
            unlabelled_shares=unlabelled,
            key=key,
        )
        if any(split.counts[name] < least for name, least in needed.items()):
            continue
        nearness = min(split.counts[name] / number for name, number in wanted.items() if number)
        if nearness > best[0]:
            best = (nearness, {name: split.counts[name] for name in POOLS}, key)
        if nearness >= _NEAR:
            break
    if best[1]:
        return best[1], best[2]
    msg = (
        f"The prompts must fill every pool, calibration with {needed['calibration']}; got too few distinct ones among "
        f"{len(rows)} ({len(set(clusters))} clusters of near duplicates). Add prompts, or references."
    )
    raise PoolError(msg)
