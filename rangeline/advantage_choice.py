"""Choice of the estimator from labelled rollouts: whose credit points where the truth points, a little further on.

Computes, for each candidate, the cosine between the credit that it gives and the credit that true rewards would give,
on labelled groups reweighed towards better rollouts, and takes the candidate with the largest cosine.
The credit of a rollout is ``g_i = p_i sum_j p_j f(h_i + h_j) (r_i - r_j)``, its expected push under shares p, and
``p_i`` is ``exp(tilt Y_i)`` divided by its sum over the group; the cosine is taken over all groups at once.
All of it is ours. Without a tilt the plain middle wins too often: most pairs of today are easy, and what decides is how
the best rollouts of a group are told apart, which a slightly better policy shows.

Shapes: N rollouts flat, G the valid rollouts of one group with a known truth.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rangeline.advantages import (
    DEFAULT_FORM,
    DEFAULT_REFERENCE_WIDTH,
    Estimator,
    Form,
    Reduction,
    pair_weights,
    point_of,
)
from rangeline.errors import BadInputError
from rangeline.records import FloatArray, RewardIntervals

TILT = 3.0
"""A policy that favours a reward of 1 over one of 0 by 20 times more than the one that drew the rollouts."""
_TIE = 1e-9
"""Cosines that differ by rounding alone are equal."""
_PAIR_QUANTILE = 0.25
_UPPER_WIDTH = 1.5
"""Ends of intervals differ by less than their middles where both are wide, and bear a larger reference width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An estimator with its settings; `reference_width` has no meaning for `dr_grpo`."""

    estimator: Estimator
    reduction: Reduction
    reference_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen candidate, with what it was chosen by."""

    chosen: Candidate
    scores: tuple[tuple[Candidate, float], ...]
    """Cosine of each candidate, in [-1, 1]; 0 where neither credit nor truth differs within a group."""
    num_groups: int
    """Labelled groups of two or more valid rollouts."""

    def to_json(self) -> dict[str, Any]:
        """Return the choice as plain values for JSON."""
        scores = [{**asdict(candidate), "score": score} for candidate, score in self.scores]
        return {"chosen": asdict(self.chosen), "scores": scores, "num_groups": self.num_groups}


def _groups(prompt_id_N: Sequence[str], use_N: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    rows_of: dict[str, list[int]] = {}
    for row in np.flatnonzero(use_N).tolist():
        rows_of.setdefault(prompt_id_N[row], []).append(row)
    # By prompt id, so that the order of rows or groups cannot change a bit of a score.
    return [np.array(rows) for _, rows in sorted(rows_of.items()) if len(rows) > 1]


def auto_reference_width(intervals: RewardIntervals) -> float:
    """Return half the lower quartile of ``h_i + h_j`` over pairs of distinct valid rollouts of one group.

    A pair as sure as the surest quarter then keeps a gaussian weight of .14 or more, and a pair twice as wide loses its
    say. Where that quartile is 0, or no group has a pair, the default width is returned. Ours.

    >>> from rangeline.records import RewardIntervals
    >>> point = dict(unbounded_N=[False] * 2, missing_N=[False] * 2, support=(0.0, 1.0), source="s")
    >>> intervals = RewardIntervals(prompt_id_N=("a", "a"), lower_N=[0, 0], upper_N=[0.5, 1], **point)
    >>> auto_reference_width(intervals)
    0.375
    """
    half_N = intervals.half_width_N
    sums = [
        (half_N[rows][:, None] + half_N[rows][None, :])[np.triu_indices(len(rows), k=1)]
        for rows in _groups(intervals.prompt_id_N, ~intervals.missing_N)
    ]
    width = float(np.quantile(np.concatenate(sums), _PAIR_QUANTILE)) / 2 if sums else 0.0
    return width if width > 0 else DEFAULT_REFERENCE_WIDTH


def standard_candidates(reference_width: float) -> tuple[Candidate, ...]:
    """Return the candidates of ``auto``: the paper's rule, one for optimism at the top, one for uniform widths.

    ``range`` on the middles at the width given; ``range_root`` on the upper ends at 1.5 times that width; and
    ``dr_grpo`` on the middles, which is ``range`` at an infinite width.
    """
    return (
        Candidate(estimator="range", reduction="middle", reference_width=reference_width),
        Candidate(estimator="range_root", reduction="upper", reference_width=_UPPER_WIDTH * reference_width),
        Candidate(estimator="dr_grpo", reduction="middle", reference_width=reference_width),
    )


def _push(point_G: FloatArray, weight_GG: FloatArray | float, share_G: FloatArray, *, root: bool) -> FloatArray:
    value_G = (weight_GG * (point_G[:, None] - point_G[None, :])) @ share_G
    spread = float(np.sqrt(share_G @ value_G**2))
    if root:
        value_G = value_G / np.sqrt(spread) if spread > np.finfo(np.float32).eps else np.zeros_like(value_G)
    return np.asarray(share_G * value_G, dtype=np.float64)


def alignment(
    intervals: RewardIntervals,
    truth_N: ArrayLike,
    candidate: Candidate,
    *,
    weight_N: ArrayLike | None = None,
    tilt: float = TILT,
    form: Form = DEFAULT_FORM,
) -> float:
    """Compute the cosine of a candidate's credit with that of the truth, over all labelled groups.

    Parameters
    ----------
    intervals
        Rewards of N labelled rollouts, as the policy to be trained would see them.
    truth_N
        [N] true rewards; NaN where unknown. Rows without interval or truth are left out.
    candidate
        ``range``, ``range_root`` or ``dr_grpo`` with its point and width.
    weight_N
        [N] weight of each rollout's group, at least 0, the same for all of a group; None weighs groups alike.
    tilt
        At least 0. Rollouts count in proportion to ``exp(tilt truth)`` in their group; 0 is the policy that drew them.
    form
        Name of f.

    Returns
    -------
    float
        In [-1, 1]; 0 where all credits or all truths are equal within every group.

    Raises
    ------
    BadInputError
        Lengths differ, or the candidate's estimator has no pairwise form.
    """
    truth = np.asarray(truth_N, dtype=np.float64)
    weight = np.ones(len(intervals)) if weight_N is None else np.asarray(weight_N, dtype=np.float64)
    if not truth.shape == weight.shape == (len(intervals),) or candidate.estimator not in (
        "range",
        "range_root",
        "dr_grpo",
    ):
        msg = (
            f"'truth_N' and 'weight_N' must have one value for each of {len(intervals)} rollouts, and the candidate be "
            f"range, range_root or dr_grpo; got {truth.shape}, {weight.shape}, {candidate.estimator}. Correct the call."
        )
        raise BadInputError(msg)
    weights, root = pair_weights(form, candidate.reference_width), candidate.estimator == "range_root"
    point_N = point_of(candidate.reduction)(intervals.lower_N, intervals.upper_N)
    product = own = true = 0.0
    for rows in _groups(intervals.prompt_id_N, ~intervals.missing_N & np.isfinite(truth)):
        rows = rows[np.lexsort((intervals.upper_N[rows], intervals.lower_N[rows], truth[rows]))]
        share_G = np.exp(tilt * (truth[rows] - truth[rows].max()))
        share_G /= share_G.sum()
        weight_GG = 1.0 if candidate.estimator == "dr_grpo" else weights(intervals.half_width_N[rows])
        push_G = _push(point_N[rows], weight_GG, share_G, root=root)
        wanted_G = _push(truth[rows], 1.0, share_G, root=False)
        counted = float(weight[rows[0]])
        product, own = product + counted * float(push_G @ wanted_G), own + counted * float(push_G @ push_G)
        true += counted * float(wanted_G @ wanted_G)
    # Below this the sums of squares have lost digits, and nothing real is that small.
    if min(own, true) < np.finfo(np.float64).tiny / np.finfo(np.float64).eps:
        return 0.0
    return float(product / np.sqrt(own) / np.sqrt(true))


def choose(
    intervals: RewardIntervals,
    truth_N: ArrayLike,
    candidates: Sequence[Candidate],
    *,
    weight_N: ArrayLike | None = None,
    tilt: float = TILT,
    form: Form = DEFAULT_FORM,
) -> Choice:
    """Return the candidate with the largest alignment; of equals, the first.

    Parameters and errors are those of `alignment`. Labelled rollouts alone are used: no reward of an unlabelled prompt
    can be.
    """
    scores = tuple(
        (item, alignment(intervals, truth_N, item, weight_N=weight_N, tilt=tilt, form=form)) for item in candidates
    )
    best = max(score for _, score in scores)
    known_N = ~intervals.missing_N & np.isfinite(np.asarray(truth_N, dtype=np.float64))
    return Choice(
        chosen=next(item for item, score in scores if score >= best - _TIE),
        scores=scores,
        num_groups=len(_groups(intervals.prompt_id_N, known_N)),
    )
