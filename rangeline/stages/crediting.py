"""From reward intervals to advantages, and from advantages to the batches that the policy is updated with."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.advantage_scale import matching_factor, root_mean_square, scaled
from rangeline.advantages import Form, compute_advantages, count_sign_flips, median_pair_weight
from rangeline.config import PipelineConfig
from rangeline.errors import BadInputError
from rangeline.lineage import write_json
from rangeline.policy.batch import TaughtRow
from rangeline.policy.report import step_numbers, update_numbers
from rangeline.policy.supervised import SupervisedRow
from rangeline.policy.worker import PolicyWorker
from rangeline.records import Advantages, BoolArray, FloatArray
from rangeline.rewards.registry import source_facts
from rangeline.rollout.selection import take_rollouts
from rangeline.stages.estimator import ChosenEstimator, set_estimator
from rangeline.stages.rewarding import RewardedShare, RewardPlan
from rangeline.stages.tables import (
    read_advantages,
    read_intervals,
    read_rollouts,
    read_table,
    write_advantages,
    write_intervals,
    write_rollouts,
    write_table,
)

STEPS_NAME = "steps.json"
"""Where the numbers of every optimiser step of an update lie."""


def write_share(folder: Path, share: RewardedShare) -> None:
    """Write what the reward sources said of an iteration's policy share."""
    write_rollouts(folder / "policy_rollouts.parquet", share.rollouts)
    columns: dict[str, Any] = {
        "source": share.source_N,
        "kept": share.kept_N,
        "trained_tokens": share.trained_tokens_N,
    }
    write_intervals(folder / "policy_intervals.parquet", share.intervals, **columns)
    facts = {"kept_share": float(share.kept_N.mean()), **share.facts}
    write_json(folder / "reward.json", {f"reward/{name}": value for name, value in facts.items()})
    if share.state:
        write_json(folder / "reward_state.json", {name: dict(state) for name, state in share.state.items()})
    if share.taught:
        names = ("prompt_id", "prompt_ids", "target_ids", "weight")
        write_table(folder / "taught.parquet", {name: [getattr(row, name) for row in share.taught] for name in names})


def _column(folder: Path, name: str, default: Sequence[Any]) -> list[Any]:
    """Return a column of the policy intervals; tables that only hold intervals keep every rollout whole."""
    table = read_table(folder / "policy_intervals.parquet")
    return table[name].to_pylist() if name in table.column_names else list(default)


def _taught(folder: Path, config: PipelineConfig) -> tuple[TaughtRow, ...]:
    """Return the texts to learn beside the policy gradient, each weighted as the advantages of its source are."""
    ids = read_intervals(folder / "policy_intervals.parquet").prompt_id_N
    # Texts that are learned alone have no advantages to keep step with.
    weights = {} if source_facts(config.reward.source).is_supervised else config.reward.weights
    source_of: dict[str, Any] = dict(zip(ids, _column(folder, "source", [""] * len(ids)), strict=True))
    path = folder / "taught.parquet"
    if not path.is_file():
        return ()
    return tuple(
        TaughtRow(
            prompt_id=row["prompt_id"],
            prompt_ids=tuple(row["prompt_ids"]),
            target_ids=tuple(row["target_ids"]),
            weight=row["weight"] * weights.get(source_of[row["prompt_id"]], 1.0),
        )
        for row in read_table(path).to_pylist()
    )


def _scale_factor(kind: str, before: Path, value_N: FloatArray, midpoint_N: FloatArray) -> float | None:
    """Return what advantages are multiplied by; None while nothing asks for a factor, or nothing can give one."""
    if kind == "none":
        return None
    path = before / "credit.json"
    if kind == "match_initial" and path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))["advantage/scale"]
        if kept is not None:
            return float(kept)
    return matching_factor(value_N, midpoint_N)


def credit_share(folder: Path, config: PipelineConfig, *, before: Path, chosen: ChosenEstimator | None = None) -> bool:
    """Turn the policy share's intervals into advantages, beside the midpoint's; return whether there is a signal.

    Parameters
    ----------
    folder, before
        Folders of the iteration and of the one before it, which holds the scale of `match_initial`.
    config
        Settings of the run.
    chosen
        The estimator with nothing left open; None takes the one that is set.
    """
    everything = read_intervals(folder / "policy_intervals.parquet")
    kept_N = np.array(_column(folder, "kept", [True] * len(everything)), dtype=bool)
    source_N = np.array(_column(folder, "source", [""] * len(everything)), dtype=object)
    # What left the batch leaves its group's mean and spread as well.
    intervals = replace(everything, missing_N=everything.missing_N | ~kept_N)
    chosen = chosen or set_estimator(config.advantages)
    settings = chosen.settings
    if chosen.record is not None:
        write_json(folder / "choice.json", chosen.record)
    raw = compute_advantages(
        intervals,
        estimator=settings.estimator,
        reduction=settings.reduction,
        form=config.advantages.form,
        reference_width=settings.reference_width,
        alpha=config.intervals.alpha,
    )
    midpoint = compute_advantages(intervals, estimator="dr_grpo", reduction="middle")
    factor = _scale_factor(config.advantages.advantage_scale, before, raw.value_N, midpoint.value_N)
    raw = scaled(raw, factor)
    weight_N = np.array([config.reward.weights.get(name, 1.0) for name in source_N])
    advantages = replace(raw, value_N=np.where(raw.active_N, raw.value_N * weight_N, 0.0))
    write_advantages(folder / "advantages.parquet", advantages, midpoint=midpoint.value_N)
    facts = _facts(everything, advantages, midpoint, kept_N, (config.advantages.form, settings.reference_width))
    write_json(folder / "credit.json", {**facts, "advantage/scale": factor})
    return bool((advantages.value_N != 0).any()) or any(row.weight != 0 for row in _taught(folder, config))


def _facts(
    intervals: Any, advantages: Advantages, midpoint: Advantages, kept_N: BoolArray, pair: tuple[Form, float]
) -> dict[str, Any]:
    valid = ~intervals.missing_N & kept_N
    form, width = pair
    return {
        "reward/missing_share": float(intervals.missing_N.mean()),
        "reward/mean_center": float(intervals.center_N[valid].mean()) if valid.any() else None,
        "interval/policy_width": float(2 * intervals.half_width_N[valid].mean()) if valid.any() else None,
        "advantage/active_share": float((advantages.value_N != 0).mean()),
        "advantage/sign_flips": count_sign_flips(advantages.value_N, midpoint.value_N),
        "advantage/median_pair_weight": median_pair_weight(intervals, form=form, reference_width=width),
        "advantage/rms": root_mean_square(advantages.value_N),
        "advantage/midpoint_rms": root_mean_square(midpoint.value_N),
    }


def update_policy(folder: Path, config: PipelineConfig, plan: RewardPlan, worker: PolicyWorker) -> dict[str, Any]:
    """Update the policy from an iteration's advantages and texts to learn; return the numbers of the update.

    One optimiser call takes the kept rollouts of all sources; with `reward.optimiser_calls: per_source` each source has
    one of its own, in order of appearance, whose numbers carry the source's name and whose normaliser counts its own
    rollouts. What each optimiser step said is written to `steps.json`.
    """
    taught = _taught(folder, config)
    if plan.is_supervised:
        return _teach(worker, taught)
    rollouts = read_rollouts(folder / "policy_rollouts.parquet")
    advantages = read_advantages(folder / "advantages.parquet")
    num = len(rollouts)
    kept = _column(folder, "kept", [True] * num)
    source = _column(folder, "source", [plan.source] * num)
    trained = _column(folder, "trained_tokens", [len(ids) for ids in rollouts.token_ids_N])
    rows = [i for i in range(num) if kept[i]]
    names = list(dict.fromkeys(source[i] for i in rows))
    separate = config.reward.optimiser_calls == "per_source" and len(names) > 1
    calls = [[i for i in rows if source[i] == name] for name in names] if separate else [rows]
    facts: dict[str, Any] = {}
    steps: list[dict[str, Any]] = []
    skipped = True
    for call in calls:
        if not call:
            continue
        chosen = take_rollouts(rollouts, call)
        ids = set(chosen.prompt_id_N)
        batch = worker.batch(
            chosen,
            _take_advantages(advantages, call),
            max_tokens=config.sampling.max_tokens,
            trained_tokens=[trained[i] for i in call],
            taught=[row for row in taught if row.prompt_id in ids],
        )
        report = worker.update(batch)
        if report.skipped:
            continue
        skipped = False
        prefix = f"{source[call[0]]}/" if separate else ""
        facts |= {f"{prefix}{name}": value for name, value in update_numbers(report).items()}
        for item in report.by_step:
            numbers = step_numbers(item)
            steps.append({"step": item.step, **{f"{prefix}{name}": value for name, value in numbers.items()}})
    write_json(folder / STEPS_NAME, steps)
    # An update that was not made has no loss; its zeros are no measurements.
    return {"skipped": True} if skipped else {**facts, "skipped": False}


def _take_advantages(advantages: Advantages, rows: Sequence[int]) -> Advantages:
    index = np.asarray(rows, dtype=np.int64)
    return Advantages(
        prompt_id_N=tuple(advantages.prompt_id_N[i] for i in rows),
        value_N=advantages.value_N[index],
        active_N=advantages.active_N[index],
        estimator=advantages.estimator,
    )


def _teach(worker: PolicyWorker, taught: Sequence[TaughtRow]) -> dict[str, Any]:
    if not taught:
        return {"skipped": True}
    if any(row.weight != 1.0 for row in taught):
        msg = "'weight' must be 1 where texts are learned alone; got another. Give each text once."
        raise BadInputError(msg)
    rows = [SupervisedRow(prompt_ids=row.prompt_ids, target_ids=row.target_ids) for row in taught]
    report = asdict(worker.supervised_step(rows))
    report.pop("seconds")
    return {**report, "skipped": False}
