"""Say what so many labels can carry: shares and alpha for a number of references, and what pools cannot promise.

Split conformal intervals of n prompts are bounded from n >= 1/alpha - 1 on (the standard rule). That is an edge, not a
place to stand: prompts whose rollouts are all cut off or unrated are lost, and an estimated density ratio counts the
rest unequally. The margins here, twice that number and the shares by size, are ours.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rangeline.config import PipelineConfig
from rangeline.conformal.intervals import minimum_calibration_rows

FEWEST_REFERENCES = 12
"""With fewer nothing can be told."""
_MARGIN = 2
"""Times the fewest calibration prompts: half may be lost, or count for nothing under the density ratio."""
_FEW_EVALUATED = 30
"""Prompts below which a measured accuracy is uncertain by some twenty points."""
_EPOCHS, _FEWEST_ITERATIONS, _MOST_ITERATIONS, _A_ROUND = 2, 4, 20, 16


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """How labelled prompts are divided, and the miss rate that they can serve."""

    alpha: float
    warmup: float
    source: float
    calibration: float
    audit: float
    evaluation: float

    @property
    def shares(self) -> dict[str, float]:
        """Return the shares by pool, as `split.labelled`."""
        names = ("warmup", "source", "calibration", "audit", "evaluation")
        return {name: getattr(self, name) for name in names}


_PLANS = (
    (200, LabelPlan(0.1, warmup=0.2, source=0.25, calibration=0.25, audit=0.15, evaluation=0.15)),
    (45, LabelPlan(0.1, warmup=0.0, source=0.2, calibration=0.4, audit=0.2, evaluation=0.2)),
    (20, LabelPlan(0.2, warmup=0.0, source=0.2, calibration=0.4, audit=0.2, evaluation=0.2)),
    (FEWEST_REFERENCES, LabelPlan(0.3, warmup=0.0, source=0.2, calibration=0.5, audit=0.15, evaluation=0.15)),
)
"""By the fewest references: each leaves calibration the margin."""


def plan_labels(num_references: int) -> LabelPlan:
    """Return shares and alpha for a number of references; those of the smallest size where there are fewer still.

    Examples
    --------
    >>> plan_labels(20).alpha, round(20 * plan_labels(20).calibration)
    (0.2, 8)
    """
    return next((plan for fewest, plan in _PLANS if num_references >= fewest), _PLANS[-1][1])


def wanted_prompts(num_references: int) -> dict[str, int]:
    """Return how many prompts each labelled pool should get of so many references."""
    return {name: round(share * num_references) for name, share in plan_labels(num_references).shares.items()}


def plan_iterations(num_policy_prompts: int) -> int:
    """Return iterations that show each prompt about twice, between 4 and 20.

    Examples
    --------
    >>> plan_iterations(32), plan_iterations(10_000)
    (4, 20)
    """
    return min(max(math.ceil(_EPOCHS * num_policy_prompts / _A_ROUND), _FEWEST_ITERATIONS), _MOST_ITERATIONS)


def may_recalibrate(num_audited: int, alpha: float) -> bool:
    """Return whether so many audited prompts could become the calibration set themselves, with the same margin."""
    return num_audited >= _MARGIN * minimum_calibration_rows(alpha)


def label_problems(counts: Mapping[str, int], config: PipelineConfig) -> tuple[str, ...]:
    """Return why a run whose rewards come from a calibrated judge would stop before its first iteration.

    Parameters
    ----------
    counts
        Prompts by pool.
    config
        Settings; alpha is read.
    """
    alpha = config.intervals.alpha
    least = minimum_calibration_rows(alpha)
    if counts["calibration"] >= least:
        return ()
    return (
        f"the calibration pool must hold {least} prompts for alpha={alpha}; it has {counts['calibration']}. Add "
        "references, raise split.labelled.calibration, or raise intervals.alpha",
    )


def label_limits(counts: Mapping[str, int], config: PipelineConfig) -> tuple[str, ...]:
    """Return what pools of these sizes cannot promise, a sentence each; empty where there are labels enough.

    Parameters
    ----------
    counts
        Prompts by pool.
    config
        Settings: alpha, the gate's fewest prompts and rows, group size, and what broken overlap leads to.
    """
    alpha, gate, group = config.intervals.alpha, config.coverage, config.sampling.group_size
    calibration, audit, evaluation = counts["calibration"], counts["audit"], counts["evaluation"]
    least, said = minimum_calibration_rows(alpha), []
    if least <= calibration < _MARGIN * least:
        said.append(
            f"Calibration has {calibration} prompts, and alpha={alpha} needs {least} that can be used: a run stops "
            f"where more than {calibration - least} are lost to cut-off or unrated rollouts. {_MARGIN * least} are "
            "safer."
        )
    if calibration and (spread := _coverage_spread(calibration, alpha)) >= 0.05:
        said.append(
            f"A calibration set of {calibration} prompts is lucky or unlucky: the coverage it gives differs from "
            f"{1 - alpha:g} by about {100 * spread:.0f} points either way."
        )
    needed = max(gate.min_prompts, math.ceil(gate.min_rows / group))
    if min(audit, config.train.audit_prompts) < needed:
        said.append(
            f"Coverage will have no verdict: an iteration audits {min(audit, config.train.audit_prompts)} prompts, and "
            f"the gate asks for {needed}. It stays closed, and no policy is promoted."
        )
    rules = [name for name, rule in config.overlap if rule.consequence == "recalibrate"]
    if rules and audit < least:
        said.append(
            f"Recalibration needs {least} audited prompts; there are {audit}. Where overlap.{rules[0]} breaks, the run "
            "stops: its consequence 'widen' goes on with wide intervals."
        )
    if evaluation < _FEW_EVALUATED:
        said.append(
            f"Accuracy before and after is measured on {evaluation} prompts: only very large changes can be told from "
            "chance."
        )
    return tuple(said)


def _coverage_spread(num_prompts: int, alpha: float) -> float:
    """Return one standard deviation of the coverage that so many exchangeable rows realise: a beta distribution's."""
    hits = min(math.ceil((num_prompts + 1) * (1 - alpha)), num_prompts)
    misses = num_prompts + 1 - hits
    return math.sqrt(hits * misses / ((num_prompts + 1) ** 2 * (num_prompts + 2)))
