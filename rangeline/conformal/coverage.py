"""Coverage of reward intervals on held-out labelled rollouts, with a band that respects prompts.

Computes the share of valid rows whose truth lies in its interval, and the wider envelope of two bands around it.
The bands are a bootstrap over prompts and an exact binomial one on the effective number of rows, N over the design
effect; the share is divided by valid rows only, never by all rows.
Left out of the paper, which reports coverage without a band: nothing; the band and the verdict are ours, because
rollouts of one prompt agree with each other, and a sample that is covered throughout must not get a band of no width.

Shapes: N rollouts flat, V valid rows, P prompts, R resamples.
"""

from collections.abc import Hashable, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv  # type: ignore[import-untyped]

from rangeline.errors import CalibrationError
from rangeline.records import BoolArray, CoverageReport, FloatArray, RewardIntervals
from rangeline.seeds import stream

_PROMPTS_TO_SEE_AGREEMENT = 6
"""Fewer prompts with a miss, or with a hit, say nothing of how far rows of one prompt agree."""
_ROUNDING = 1e-9
"""A truth that set the cutoff lies on the edge of its own interval, give or take rounding: still inside."""

Status = Literal["covered", "under_coverage", "over_coverage", "too_little_evidence"]
AlarmState = Literal["covered", "under_coverage", "over_coverage", "no_overlap", "concept_drift", "too_little_evidence"]


def covered_N(intervals: RewardIntervals, truth_N: ArrayLike) -> tuple[BoolArray, BoolArray]:
    """Tell which rows are covered and which can be judged at all.

    Parameters
    ----------
    intervals
        Reward intervals of N rollouts.
    truth_N
        [N] known rewards; NaN where the truth is unknown.

    Returns
    -------
    tuple of numpy.ndarray
        [N] bool covered, the closed interval holds the truth within 1e-9, False where not valid; [N] bool valid, False
        where the reward or the truth is missing.

    Raises
    ------
    CalibrationError
        Lengths differ, or a truth is infinite.
    """
    truth = np.asarray(truth_N, dtype=np.float64)
    if truth.shape != (len(intervals),):
        msg = f"'truth_N' must have shape ({len(intervals)},); got {truth.shape}. Give one truth a rollout, or NaN."
        raise CalibrationError(msg)
    bad = np.flatnonzero(np.isinf(truth))
    if bad.size:
        i = int(bad[0])
        msg = f"'truth_N' must be finite or NaN; got {truth[i]} (row {i}). Correct the reference reward."
        raise CalibrationError(msg)
    valid = ~intervals.missing_N & ~np.isnan(truth)
    inside = (truth >= intervals.lower_N - _ROUNDING) & (truth <= intervals.upper_N + _ROUNDING)
    return valid & inside, valid


def _prompt_sums(value_N: FloatArray, prompt_id_N: Sequence[Hashable]) -> tuple[FloatArray, FloatArray]:
    code_of: dict[Hashable, int] = {}
    code_N = [code_of.setdefault(prompt_id, len(code_of)) for prompt_id in prompt_id_N]
    count_P = np.bincount(code_N).astype(np.float64)
    sum_P = np.bincount(code_N, weights=value_N).astype(np.float64)
    order = np.lexsort((sum_P, count_P))  # resamples then do not depend on the order of the rows
    return sum_P[order], count_P[order]


def _bootstrap_band(
    sum_P: FloatArray, count_P: FloatArray, tail: float, *, num_resamples: int, seed: int
) -> tuple[float, float]:
    num_prompts = len(sum_P)
    times_RP = stream(seed, "clustered_band").multinomial(
        num_prompts, np.full(num_prompts, 1 / num_prompts), size=num_resamples
    )
    low, high = np.quantile((times_RP @ sum_P) / (times_RP @ count_P), [tail, 1 - tail])
    return float(low), float(high)


def _effective_rows(sum_P: FloatArray, count_P: FloatArray) -> float:
    num_rows, num_prompts = float(count_P.sum()), len(count_P)
    mean = float(sum_P.sum()) / num_rows
    row_variance = mean * (1 - mean) / num_rows
    few = min(int((sum_P < count_P).sum()), int((sum_P > 0).sum()))
    if num_prompts < 2 or row_variance <= 0 or few < _PROMPTS_TO_SEE_AGREEMENT:
        return float(num_prompts)  # agreement cannot be seen: as if every prompt were one row
    residual_P = sum_P - mean * count_P
    prompt_variance = num_prompts / (num_prompts - 1) * float((residual_P**2).sum()) / num_rows**2
    design_effect = prompt_variance / row_variance
    return num_rows / max(design_effect, 1.0)


def _exact_band(mean: float, num: float, tail: float) -> tuple[float, float]:
    hits = mean * num
    low = float(betaincinv(hits, num - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, num - hits, 1 - tail)) if hits < num else 1.0
    return low, high


def clustered_band(
    value_N: ArrayLike,
    prompt_id_N: Sequence[Hashable],
    *,
    confidence: float,
    num_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Compute a two-sided band of a mean of values in [0, 1], rows clustered by prompt.

    The envelope of a percentile bootstrap over whole prompts and of a Clopper-Pearson band on the effective number of
    rows, N over the design effect (never more than N; the number of prompts where all values agree).

    Parameters
    ----------
    value_N
        [N] booleans or numbers in [0, 1], none missing; at least one row.
    prompt_id_N
        [N] prompt of each row; sizes may differ.
    confidence
        Two-sided confidence in (0, 1).
    num_resamples, seed
        Bootstrap resamples and their seed.

    Returns
    -------
    tuple of float
        Lower and upper end, in [0, 1]; independent of the order of rows.

    Raises
    ------
    CalibrationError
        There is no row, lengths differ, a value lies outside [0, 1], or confidence lies outside (0, 1).
    """
    value = np.asarray(value_N, dtype=np.float64)
    if not 0 < confidence < 1:
        msg = f"'confidence' must lie in (0, 1); got {confidence}. Correct the coverage settings."
        raise CalibrationError(msg)
    if value.shape != (len(prompt_id_N),) or not len(value):
        msg = f"'value_N' must have one value for each of 1 or more rows; got {value.shape} for {len(prompt_id_N)} ids."
        raise CalibrationError(msg)
    bad = np.flatnonzero(~((value >= 0) & (value <= 1)))
    if bad.size:
        i = int(bad[0])
        msg = f"'value_N' must lie in [0, 1]; got {value[i]} (row {i}, prompt '{prompt_id_N[i]}'). Drop missing rows."
        raise CalibrationError(msg)
    sum_P, count_P = _prompt_sums(value, prompt_id_N)
    tail = (1 - confidence) / 2
    boot = _bootstrap_band(sum_P, count_P, tail, num_resamples=num_resamples, seed=seed)
    mean = float(sum_P.sum() / count_P.sum())
    exact = _exact_band(mean, _effective_rows(sum_P, count_P), tail)
    return min(boot[0], exact[0]), max(boot[1], exact[1])


def _status(band: tuple[float, float] | None, target: float, *, enough: bool) -> Status:
    if band is None or not enough:
        return "too_little_evidence"
    if band[1] < target:
        return "under_coverage"
    return "over_coverage" if band[0] > target else "covered"


def coverage_report(  # noqa: PLR0913
    intervals: RewardIntervals,
    truth_N: ArrayLike,
    *,
    alpha: float,
    confidence: float = 0.95,
    ess_share: float,
    min_rows: int,
    min_prompts: int,
    seed: int = 0,
) -> CoverageReport:
    """Report the coverage of one iteration on held-out labelled rollouts.

    Parameters
    ----------
    intervals
        Reward intervals of N held-out rollouts of the current policy.
    truth_N
        [N] known rewards, NaN where unknown; such rows and rows of missing reward are not valid.
    alpha
        Miscoverage level; the target is 1 - alpha.
    confidence
        Two-sided confidence of the band.
    ess_share
        Effective sample size of the calibration weights over their number, carried into the report.
    min_rows, min_prompts
        Valid rows and prompts below which the verdict is ``too_little_evidence``.
    seed
        Seed of the bootstrap.

    Returns
    -------
    CoverageReport
        Status ``under_coverage`` where the whole band lies below the target, ``over_coverage`` where it lies above,
        ``too_little_evidence`` below the floors or without a valid row, else ``covered``.

    Raises
    ------
    CalibrationError
        Lengths differ, a truth is infinite, or alpha or confidence lies outside (0, 1).
    """
    for name, share in (("alpha", alpha), ("confidence", confidence)):
        if not 0 < share < 1:
            msg = f"'{name}' must lie in (0, 1); got {share}. Correct the coverage settings."
            raise CalibrationError(msg)
    covered, valid = covered_N(intervals, truth_N)
    rows = np.flatnonzero(valid)
    ids = [intervals.prompt_id_N[i] for i in rows]
    some = len(rows) > 0
    band = clustered_band(covered[rows], ids, confidence=confidence, seed=seed) if some else None
    target, num_prompts = 1 - alpha, len(set(ids))
    return CoverageReport(
        empirical=float(covered[rows].mean()) if some else None,
        band_lower=band[0] if band else None,
        band_upper=band[1] if band else None,
        band_confidence=confidence,
        target=target,
        num_rows=len(rows),
        num_prompts=num_prompts,
        missing_share=float(intervals.missing_N.mean()) if len(intervals) else 1.0,
        mean_width=float((intervals.upper_N - intervals.lower_N)[rows].mean()) if some else None,
        unbounded_share=float(intervals.unbounded_N[rows].mean()) if some else None,
        ess_share=ess_share,
        status=_status(band, target, enough=len(rows) >= min_rows and num_prompts >= min_prompts),
    )


def alarm_state(report_status: Status, monitor_verdict: Status, *, drift_alarm: bool, no_overlap: bool) -> AlarmState:
    """Put everything known of coverage into one state: the first of these that holds.

    1. ``concept_drift``: the truth given the state has changed; no weights repair that, only fresh labels do.
    2. ``no_overlap``: too few calibration rows carry the weight for any interval to be believed, covered or not;
       `conformal.overlap_rules` says when.
    3. ``under_coverage``: said by the run's monitor or by this iteration's report.
    4. ``over_coverage``: said by either; intervals are wider than asked.
    5. ``covered``: said by either.
    6. ``too_little_evidence``: nothing can be said yet, which is no alarm and no clearance.

    Parameters
    ----------
    report_status
        Verdict of this iteration's report; it has its own confidence at each look.
    monitor_verdict
        Verdict of the monitor on the whole run; only this one has a false-alarm rate over all looks.
    drift_alarm
        Whether the drift martingale has raised its alarm.
    no_overlap
        Whether an overlap rule is broken whose consequence is to recalibrate or to stop.

    Returns
    -------
    AlarmState
        One of the six.

    Raises
    ------
    CalibrationError
        A verdict is unknown.

    Examples
    --------
    >>> alarm_state("covered", "under_coverage", drift_alarm=False, no_overlap=False)
    'under_coverage'
    """
    verdicts = (report_status, monitor_verdict)
    for name, verdict in zip(("report_status", "monitor_verdict"), verdicts, strict=True):
        if verdict not in get_args(Status):
            msg = f"'{name}' must be one of {', '.join(get_args(Status))}; got '{verdict}'. Pass the verdict's status."
            raise CalibrationError(msg)
    if drift_alarm:
        return "concept_drift"
    if no_overlap:
        return "no_overlap"
    order: tuple[Status, ...] = ("under_coverage", "over_coverage", "covered")
    return next((state for state in order if state in verdicts), "too_little_evidence")
