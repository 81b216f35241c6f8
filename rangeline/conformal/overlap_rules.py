"""Overlap rules: how far each diagnostic may go, and what follows; and intervals widened where one is broken.

Holds the diagnostics of an overlap report against their limits, and widens intervals to their whole support.
A rule is ``value >= limit``, ``value <= limit``, or ``1 / limit <= value <= limit`` for the mean source weight.
Effective rows are the effective sample size itself; all else is a share, a shape, an area or a mean weight.
Left out of the paper, which has no such rule: nothing; limits and consequences are our choice.

Four consequences. ``warn`` marks the iteration. ``widen`` gives the rollouts concerned the whole support of rewards and
flags them unbounded: an interval that holds the old one covers wherever that did, so coverage cannot fall.
``recalibrate`` and ``stop`` say that no interval of the iteration is to be believed: the alarm state is then
`no_overlap`.

Shapes: N rollouts, S source rows, K coordinates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rangeline.errors import CalibrationError
from rangeline.records import BoolArray, OverlapFinding, OverlapReport, RewardIntervals

Consequence = Literal["warn", "widen", "recalibrate", "stop"]

_RECALIBRATE = "Recalibrate on fresh labels (rangeline calibrate, or train.on_alarm=recalibrate)"
_MORE_ROWS = "Label more calibration prompts"
_SLOWER = "let the policy move more slowly (objective.learning_rate)"
_RULES: dict[str, tuple[str, str, str]] = {
    "ess_share": ("at least", "effective sample share", f"{_RECALIBRATE}, or {_SLOWER}."),
    "effective_rows": ("at least", "number of effective rows", f"{_MORE_ROWS}: intervals cover too much and are wide."),
    "max_weight_share": ("at most", "largest share of one calibration row", f"{_MORE_ROWS}, or merge rare levels."),
    "clipped_share": ("at most", "share of clipped calibration weights", f"Raise intervals.log_cap, or {_SLOWER}."),
    "clipped_target_share": ("at most", "share of clipped target weights", f"Raise intervals.log_cap, or {_SLOWER}."),
    "classifier_auc": ("at most", "AUC of source against target", f"{_RECALIBRATE}: the policy has moved far."),
    "unseen_target_share": ("at most", "share of target states that the source never showed", f"{_RECALIBRATE}."),
    "pareto_k": (
        "at most",
        "Pareto shape of the largest weights",
        f"{_MORE_ROWS}: a mean of such weights is unstable.",
    ),
    "mean_source_weight": (
        "within a factor of",
        "mean source weight",
        "Compare intervals.ratio=logistic and boosting.",
    ),
    "unbounded_share": ("at most", "share of unbounded intervals", f"{_MORE_ROWS}, raise alpha, or {_SLOWER}."),
    "separable": ("at most", "sign that no state is in both pools", f"{_RECALIBRATE}."),
}
"""Kind of limit, what is measured, what a person can do."""
DIAGNOSTICS = tuple(_RULES)
OF_STATES = ("unseen_target_share", "clipped_target_share")
"""Diagnostics that say which target states they concern; the others speak of all of them."""


def judge_overlap(
    report: OverlapReport, *, unbounded_share: float | None, rules: Mapping[str, tuple[float, Consequence]]
) -> tuple[OverlapFinding, ...]:
    """Hold an overlap report against the rules.

    Parameters
    ----------
    report
        Diagnostics of the ratio.
    unbounded_share
        Share of the policy's rollouts whose interval is unbounded; None without a rollout.
    rules
        Limit and consequence by diagnostic; those without a rule are not judged.

    Returns
    -------
    tuple of OverlapFinding
        One a rule, in the order of `DIAGNOSTICS`, whether broken or not.

    Raises
    ------
    CalibrationError
        A rule is for something that is no diagnostic.

    Examples
    --------
    >>> sorted(set(OF_STATES) - set(DIAGNOSTICS))
    []
    """
    if unknown := sorted(set(rules) - set(DIAGNOSTICS)):
        msg = f"'rules' must be for one of {', '.join(DIAGNOSTICS)}; got '{unknown[0]}'. Correct the overlap settings."
        raise CalibrationError(msg)
    findings = []
    for name in DIAGNOSTICS:
        if name not in rules:
            continue
        kind, what, step = _RULES[name]
        limit, consequence = rules[name]
        low = {"at least": limit, "at most": None, "within a factor of": 1 / limit if limit else None}[kind]
        around = " around 1" if kind == "within a factor of" else ""
        findings.append(
            OverlapFinding(
                diagnostic=name,
                words=f"the {what} must be {kind} {limit:g}{around}",
                value=_value(report, name, unbounded_share),
                low=low,
                high=None if kind == "at least" else limit,
                consequence=consequence,
                next_step=step,
            )
        )
    return tuple(findings)


def _value(report: OverlapReport, name: str, unbounded_share: float | None) -> float | None:
    if name == "unbounded_share":
        return unbounded_share
    value = report.ess if name == "effective_rows" else getattr(report, name)
    return None if value is None else float(value)


def concerned_N(
    findings: Sequence[OverlapFinding], levels_NK: ArrayLike, *, source_SK: ArrayLike, clipped_N: BoolArray
) -> BoolArray:
    """Say which rollouts the broken rules with the consequence `widen` concern.

    Parameters
    ----------
    findings
        Outcome of the rules.
    levels_NK
        [N, K] states of the rollouts.
    source_SK
        [S, K] states that the source showed.
    clipped_N
        [N] bool, True where a rollout's own weight was clipped.

    Returns
    -------
    numpy.ndarray
        [N] bool. Unseen states and clipped weights concern the rollouts that have them; all else concerns all.
    """
    levels = np.asarray(levels_NK)
    broken = {finding.diagnostic for finding in findings if finding.is_broken and finding.consequence == "widen"}
    concerned = np.full(len(levels), bool(broken - set(OF_STATES)))
    if "unseen_target_share" in broken:
        seen = set(map(tuple, np.asarray(source_SK).tolist()))
        concerned |= np.array([tuple(state) not in seen for state in levels.tolist()], dtype=bool)
    if "clipped_target_share" in broken:
        concerned |= clipped_N
    return concerned


def widen(intervals: RewardIntervals, concerned_N: ArrayLike) -> RewardIntervals:
    """Give the concerned rollouts the whole support, flagged unbounded; what is missing stays missing.

    Parameters
    ----------
    intervals
        N intervals with a bounded support.
    concerned_N
        [N] bool.

    Returns
    -------
    RewardIntervals
        Each interval holds the one it replaces, so that none that covered ceases to.

    Raises
    ------
    CalibrationError
        The support has no bounds.
    """
    if intervals.support is None:
        msg = f"'intervals' must have a bounded support to be widened; got none ({intervals.source}). Leave them as is."
        raise CalibrationError(msg)
    concerned = np.asarray(concerned_N, dtype=bool) & ~intervals.missing_N
    low, high = intervals.support
    return replace(
        intervals,
        lower_N=np.where(concerned, low, intervals.lower_N),
        upper_N=np.where(concerned, high, intervals.upper_N),
        unbounded_N=intervals.unbounded_N | concerned,
    )
