"""Which estimator a run uses: the one that is set, or the one that its source and calibration rows choose.

The choice reads frozen labelled rollouts alone, so it is the same in every sitting of a run, and after a recalibration.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rangeline.advantage_choice import Candidate, auto_reference_width, choose, standard_candidates
from rangeline.config import AdvantageConfig
from rangeline.conformal.adaptive import join_calibration
from rangeline.conformal.intervals import CalibrationSet, reward_intervals, weighted_cutoffs
from rangeline.errors import ConfigError
from rangeline.records import RewardIntervals


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEstimator:
    """Settings of the advantages with nothing left open."""

    settings: Candidate
    record: dict[str, Any] | None
    """What was chosen automatically, and by which scores; None where everything was set."""


def labelled_intervals(rows: CalibrationSet, calibration: CalibrationSet, alpha: float) -> RewardIntervals:
    """Bound labelled rows by the cutoff of the calibration rows, as the first policy's rollouts would be."""
    cutoff = weighted_cutoffs(calibration.nonconformity_C, np.zeros(len(calibration)), np.zeros(len(rows)), alpha)
    missing = np.zeros(len(rows), dtype=bool)
    return reward_intervals(rows.score_C, rows.scale_C, cutoff, prompt_id_N=rows.prompt_id_C, missing_N=missing)


def choose_estimator(
    settings: AdvantageConfig, source: CalibrationSet, calibration: CalibrationSet, *, alpha: float
) -> ChosenEstimator:
    """Settle `estimator: auto` and `reference_width: auto` on the frozen labelled rows.

    Parameters
    ----------
    settings
        Of the run.
    source, calibration
        Rollouts of the two pools, scored, with their true rewards. Both choose; the calibration rows alone set the
        cutoff, since the scorer has seen the source.
    alpha
        Miscoverage level of the intervals.
    """
    if settings.estimator != "auto" and settings.reference_width != "auto":
        return set_estimator(settings)
    rows = join_calibration([source, calibration])
    intervals = labelled_intervals(rows, calibration, alpha)
    set_width = settings.reference_width
    width = auto_reference_width(intervals) if set_width == "auto" else set_width
    if settings.estimator == "auto":
        choice = choose(intervals, rows.truth_C, standard_candidates(width), form=settings.form)
        return ChosenEstimator(settings=choice.chosen, record={"reference_width": width, **choice.to_json()})
    fixed = Candidate(estimator=settings.estimator, reduction=settings.reduction, reference_width=width)
    return ChosenEstimator(settings=fixed, record={"reference_width": width})


def set_estimator(settings: AdvantageConfig) -> ChosenEstimator:
    """Return settings that leave nothing open; others raise ConfigError, since only labelled rows can settle them."""
    estimator, width = settings.estimator, settings.reference_width
    if estimator == "auto" or width == "auto":
        msg = (
            f"'estimator' and 'reference_width' must be set where nothing is labelled; got '{estimator}' and "
            f"'{width}' (advantages). Choose them on the calibration rows first."
        )
        raise ConfigError(msg)
    return ChosenEstimator(
        settings=Candidate(estimator=estimator, reduction=settings.reduction, reference_width=width), record=None
    )
