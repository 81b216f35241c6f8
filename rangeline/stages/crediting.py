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
from rangeline.policy.processes import Policy
from rangeline.policy.report import step_numbers, update_numbers
from rangeline.policy.supervised import SupervisedRow
from rangeline.records import Advantages, BoolArray, FloatArray, RolloutSet
from rangeline.rewards.registry import source_facts
from rangeline.rollout.selection import take_rollouts
from rangeline.stages.estimator import ChosenEstimator, set_estimator
from rangeline.stages.reward_plan import RewardPlan
from rangeline.stages.rewarding import RewardedShare
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


def write_share(folder: Path, share: RewardedShare, sampled: RolloutSet) -> None:
    """Write what the reward sources said of an iteration's policy share, and its rollouts if more than the sampled."""
    if share.rollouts is not sampled:
        write_rollouts(folder / "policy_rollouts.parquet", share.rollouts)
    columns: dict[str, Any] = {
        "source": share.source_N,
        "domain": share.domain_N,
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


def read_taught(folder: Path, config: PipelineConfig) -> tuple[TaughtRow, ...]:
    """Return the texts to learn beside the policy gradient, each weighted and scaled as its source's advantages are.

    Both terms of such a source are one objective: a factor of one alone would turn its gradient.
    """
    path = folder / "taught.parquet"
    if not path.is_file():
        return ()
    # Texts that are learned alone have no advantages to keep step with.
    alone = source_facts(config.reward.source).is_supervised
    scale = _scale_kept(folder) or 1.0
    ids = read_intervals(folder / "policy_intervals.parquet").prompt_id_N
    weight_of = dict(zip(ids, _weights(folder, config, len(ids)).tolist(), strict=True))
    return tuple(
        TaughtRow(
            prompt_id=row["prompt_id"],
            prompt_ids=tuple(row["prompt_ids"]),
            target_ids=tuple(row["target_ids"]),
            weight=row["weight"] * (1.0 if alone else scale * weight_of[row["prompt_id"]]),
        )
        for row in read_table(path).to_pylist()
    )


def _weights(folder: Path, config: PipelineConfig, num_rollouts: int) -> FloatArray:
    """Return the factor of each rollout's advantage: that of its source times that of its domain."""
    sources, domains = (_column(folder, name, [""] * num_rollouts) for name in ("source", "domain"))
    by_source, by_domain = config.reward.weights, config.reward.domain_weights
    pairs = zip(sources, domains, strict=True)
    return np.array([by_source.get(source, 1.0) * by_domain.get(domain, 1.0) for source, domain in pairs])


def _scale_kept(folder: Path) -> float | None:
    """Return what an iteration's advantages were multiplied by; None for no factor, or no advantages yet."""
    path = folder / "credit.json"
    if not path.is_file():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))["advantage/scale"]
    return None if kept is None else float(kept)


def _scale_factor(kind: str, before: Path, value_N: FloatArray, midpoint_N: FloatArray) -> float | None:
    """Return what advantages are multiplied by; None while nothing asks for a factor, or nothing can give one."""
    if kind == "none":
        return None
    kept = _scale_kept(before) if kind == "match_initial" else None
    return kept if kept is not None else matching_factor(value_N, midpoint_N)


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
    weight_N = _weights(folder, config, len(everything))
    advantages = replace(raw, value_N=np.where(raw.active_N, raw.value_N * weight_N, 0.0))
    write_advantages(folder / "advantages.parquet", advantages, midpoint=midpoint.value_N)
    facts = _facts(everything, advantages, midpoint, kept_N, (config.advantages.form, settings.reference_width))
    write_json(folder / "credit.json", {**facts, "advantage/scale": factor})
    return bool((advantages.value_N != 0).any()) or any(row.weight != 0 for row in read_taught(folder, config))


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
        # Where nothing was rewarded, as where texts are learned, there are no advantages to have a size.
        "advantage/rms": root_mean_square(advantages.value_N) if valid.any() else None,
        "advantage/midpoint_rms": root_mean_square(midpoint.value_N) if valid.any() else None,
    }


def update_policy(folder: Path, config: PipelineConfig, plan: RewardPlan, worker: Policy) -> dict[str, Any]:
    """Update the policy from an iteration's advantages and texts to learn; return the numbers of the update.

    One optimiser call takes the kept rollouts of all sources; with `reward.optimiser_calls: per_source` each source has
    one of its own, in order of appearance, whose numbers carry the source's name and whose normaliser counts its own
    rollouts. What each optimiser step said is written to `steps.json`.
    """
    taught = read_taught(folder, config)
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


def _teach(worker: Policy, taught: Sequence[TaughtRow]) -> dict[str, Any]:
    if not taught:
        return {"skipped": True}
    if any(row.weight != 1.0 for row in taught):
        msg = "'weight' must be 1 where texts are learned alone; got another. Give each text once."
        raise BadInputError(msg)
    rows = [SupervisedRow(prompt_ids=row.prompt_ids, target_ids=row.target_ids) for row in taught]
    report = asdict(worker.supervised_step(rows))
    report.pop("seconds")
    return {**report, "skipped": False}
