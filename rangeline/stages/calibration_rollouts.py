"""Roll out and judge the source and calibration pools, and refuse what could never calibrate before the judge is asked.

Answers are checked against references as soon as they are sampled, which costs nothing; the judge may cost money.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rangeline.config import PipelineConfig
from rangeline.conformal.intervals import minimum_calibration_rows
from rangeline.errors import CalibrationError
from rangeline.judge.client import OptionRequest
from rangeline.judge.columns import questions_of
from rangeline.records import JudgmentTable, PromptRow, RolloutSet
from rangeline.stages.data import read_pool
from rangeline.stages.judge_gate import gate_judge
from rangeline.stages.judging import (
    FrozenJudge,
    Judge,
    Verdicts,
    encode_rows,
    judge_all,
    load_sampler,
    plan_of,
    verify_rollouts,
)
from rangeline.stages.progress import Progress
from rangeline.stages.workspace import Workspace

JUDGED_POOLS = ("source", "calibration")


@dataclass(frozen=True, slots=True)
class SampledPool:
    """Rollouts of one labelled pool and what the checker says of them."""

    rows: dict[str, PromptRow]
    """By prompt id."""
    rollouts: RolloutSet
    verdicts: Verdicts


def sample_pools(workspace: Workspace, config: PipelineConfig, progress: Progress) -> dict[str, SampledPool]:
    """Roll the warmed-up policy out on the source and calibration pools, and check every answer."""
    policy, engine = load_sampler(config, workspace.warmup / "policy")
    found = {}
    for pool in JUDGED_POOLS:
        rows = read_pool(workspace, pool)
        by_id = {row.prompt_id: row for row in rows}
        rollouts = engine.generate(
            encode_rows(rows, policy.tokenizer),
            plan_of(config),
            run_seed=config.seed,
            iteration=0,
            purpose=f"calibrate/{pool}",
            progress=partial(progress, f"sample {pool}"),
        )
        found[pool] = SampledPool(by_id, rollouts, verify_rollouts(rollouts, by_id))
    return found


def require_checkable(pool: SampledPool, config: PipelineConfig) -> None:
    """Require that enough calibration prompts have a rollout whose truth is known.

    Raises
    ------
    CalibrationError
        When they cannot serve alpha, whatever the judge will say; tells why answers could not be checked.
    """
    alpha, known_N = config.intervals.alpha, np.isfinite(pool.verdicts.truth_N) & ~pool.verdicts.unscorable_N
    owners = np.array(pool.rollouts.prompt_id_N, dtype=object)
    usable, least = len(set(owners[known_N])), minimum_calibration_rows(alpha)
    if usable >= least:
        return
    reasons = Counter(reason for reason, known in zip(pool.verdicts.reason_N, known_N, strict=True) if not known)
    why = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
    step = "Add labelled prompts"
    if reasons.get("cut off", 0) > len(owners) / 10:
        step = f"Raise sampling.max_tokens, now {config.sampling.max_tokens}"
    msg = (
        f"Calibration must have {least} prompts with a checked answer for alpha={alpha}; got {usable} of "
        f"{len(pool.rows)} ({why or 'all answers checked'}, of {len(owners)} rollouts). {step}, or raise "
        "intervals.alpha in params.yaml. The judge was not asked yet."
    )
    raise CalibrationError(msg)


def missing_note(sampled: Mapping[str, SampledPool], config: PipelineConfig) -> str | None:
    """Return what to say where more rewards are missing than the coverage gate will let pass; None where it will.

    Parameters
    ----------
    sampled
        Pools by name.
    config
        Settings; `coverage.max_missing_share` and the completion cap are read.
    """
    unscored = sum(int(pool.verdicts.unscorable_N.sum()) for pool in sampled.values())
    total = sum(len(pool.verdicts.unscorable_N) for pool in sampled.values())
    if unscored <= config.coverage.max_missing_share * total:
        return None
    cut = sum(pool.verdicts.reason_N.count("cut off") for pool in sampled.values())
    return (
        f"{unscored} of {total} rollouts can have no reward, {cut} of them cut off at sampling.max_tokens="
        f"{config.sampling.max_tokens}; training will miss as many, and its coverage gate stay closed"
    )


def judge_pools(
    sampled: dict[str, SampledPool], judge: Judge, config: PipelineConfig, progress: Progress
) -> tuple[dict[str, tuple[RolloutSet, JudgmentTable, Verdicts]], list[OptionRequest], dict[str, Any]]:
    """Judge the pools; return them with the questions that were asked and the flips that the gate measured.

    Raises
    ------
    JudgeError
        When the judge is unsteady, or answers too little.
    """
    result: dict[str, tuple[RolloutSet, JudgmentTable, Verdicts]] = {}
    asked: list[OptionRequest] = []
    flips: dict[str, Any] = {}
    for name, pool in sampled.items():
        if isinstance(judge, FrozenJudge):
            # Before the pools are judged, which may cost money.
            shown = judge.shown(pool.rollouts, pool.rows, pool.verdicts)
            flips = flips or gate_judge(judge, shown, config.judge.limits)
            asked += questions_of(judge.rubric, shown)
        judgments = judge_all(judge, pool.rollouts, pool.rows, pool.verdicts, progress, f"judge {name}")
        result[name] = (pool.rollouts, judgments, pool.verdicts)
    return result, asked, flips
