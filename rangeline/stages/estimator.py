"""Which estimator an iteration uses: the one that is set, or the one that labelled rollouts choose.

The choice is made anew each iteration, on audits of recent iterations; while there are few, the source and calibration
rollouts of the first policy fill up. All are frozen or lie in folders of earlier iterations, so that a resumed run
chooses alike. The truth of this iteration's rollouts, of any share, has no part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rangeline.advantage_choice import Candidate, auto_reference_width, choose, standard_candidates
from rangeline.advantages import DEFAULT_REFERENCE_WIDTH
from rangeline.config import AdvantageConfig
from rangeline.conformal.adaptive import BlendedCalibration, blend, join_calibration
from rangeline.conformal.intervals import CalibrationSet, reward_intervals, weighted_cutoffs
from rangeline.records import RewardIntervals
from rangeline.stages.adaptation import Repair
from rangeline.stages.run import RECENT_ITERATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEstimator:
    """Settings of the advantages with nothing left open."""

    settings: Candidate
    record: dict[str, Any] | None
    """What was chosen automatically, and by which scores; None where everything was set."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LabelledRows:
    """Labelled rollouts of the first policy, scored."""

    source: CalibrationSet
    """Their scorer has seen them, so they help to choose and never set a cutoff."""
    calibration: CalibrationSet


def labelled_intervals(rows: CalibrationSet, blended: BlendedCalibration, alpha: float) -> RewardIntervals:
    """Bound scored rows as the rollouts of an iteration are bounded."""
    cutoff = weighted_cutoffs(
        blended.rows.nonconformity_C,
        blended.ratio.log_ratio(blended.rows.levels_CK) + blended.log_discount_C,
        blended.ratio.log_ratio(rows.levels_CK),
        alpha,
    )
    missing = np.zeros(len(rows), dtype=bool)
    return reward_intervals(rows.score_C, rows.scale_C, cutoff, prompt_id_N=rows.prompt_id_C, missing_N=missing)


def is_open(settings: AdvantageConfig) -> bool:
    """Tell whether labelled rows have to settle the estimator or its width."""
    return settings.estimator == "auto" or settings.reference_width == "auto"


def set_estimator(settings: AdvantageConfig) -> ChosenEstimator:
    """Return the settings as they are; what they leave open is the paper's rule at the default width.

    That is the case where no source gives intervals with a width: rewards are then points, for which ``range`` of any
    width is Dr.GRPO.
    """
    estimator, width = settings.estimator, settings.reference_width
    chosen = Candidate(
        estimator="range" if estimator == "auto" else estimator,
        reduction="middle" if estimator == "auto" else settings.reduction,
        reference_width=DEFAULT_REFERENCE_WIDTH if width == "auto" else width,
    )
    return ChosenEstimator(settings=chosen, record=None)


def choose_estimator(
    settings: AdvantageConfig,
    labelled: LabelledRows,
    recent: Sequence[CalibrationSet],
    *,
    repair: Repair,
    alpha: float,
) -> ChosenEstimator:
    """Settle `estimator: auto` and `reference_width: auto` for one iteration.

    Parameters
    ----------
    settings
        Of the run.
    labelled
        Rollouts of the first policy; their widths, under the plain cutoff, set an automatic reference width for the
        whole run, and their groups count in the choice by the share of recent iterations that are still missing.
    recent
        Audited rollouts of up to `RECENT_ITERATIONS` iterations before, one set each.
    repair
        What the intervals of this iteration are made from.
    alpha
        The promised miscoverage level.

    Returns
    -------
    ChosenEstimator
        With a record of what was chosen; as `set_estimator` gives it where nothing is open.
    """
    if not is_open(settings):
        return set_estimator(settings)
    first, width = join_calibration([labelled.source, labelled.calibration]), settings.reference_width
    if width == "auto":
        plain = blend(labelled.calibration, [], ratio=None, discount=1.0)
        width = auto_reference_width(labelled_intervals(first, plain, alpha))
    if settings.estimator != "auto":
        fixed = Candidate(estimator=settings.estimator, reduction=settings.reduction, reference_width=width)
        return ChosenEstimator(settings=fixed, record={"reference_width": width})
    # Older audits come from too different a policy; until there are as many, the first policy's rollouts help.
    first_weight = max(0.0, 1 - len(recent) / RECENT_ITERATIONS)
    # A prompt that is audited twice has two groups, of two policies.
    parts = [_renamed(part, f"{i}:") for i, part in enumerate([first, *recent])]
    rows = join_calibration(parts)
    choice = choose(
        labelled_intervals(rows, repair.blended, repair.level.alpha),
        rows.truth_C,
        standard_candidates(width),
        weight_N=np.concatenate([np.full(len(first), first_weight), np.ones(len(rows) - len(first))]),
        form=settings.form,
    )
    return ChosenEstimator(
        settings=choice.chosen, record={"reference_width": width, "first_weight": first_weight, **choice.to_json()}
    )


def _renamed(rows: CalibrationSet, prefix: str) -> CalibrationSet:
    return CalibrationSet.build(
        [prefix + prompt_id for prompt_id in rows.prompt_id_C],
        rows.levels_CK,
        score_C=rows.score_C,
        scale_C=rows.scale_C,
        truth_C=rows.truth_C,
    )
