"""Ask a judge the questions of a rubric, and turn its answers into one column of levels a coordinate.

Computes the level and the rating of every rollout, by coordinate that a judge is asked about.
A choice takes the reply of the highest value, averaged over both orders of the replies where the question lists them;
the rating is sum_l l exp(v_l) / sum_l exp(v_l). A score is binned, and is its own rating.
Nothing else is divided; where a rubric asks for it, the values for a content-free completion are subtracted.
Left out: what could be made of the other tokens' probabilities. A failed question has no level and no rating.

Shapes: N rollouts, O options.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rangeline.judge.asking import ask_all
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import Answer, JudgeClient, OptionRequest
from rangeline.judge.coordinates import CONTENT_FREE, AskedCoordinate, ChoiceCoordinate, Order
from rangeline.judge.rubric import Rubric
from rangeline.records import UNKNOWN, FloatArray, LevelArray


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One coordinate of N rollouts as the judge was asked about it."""

    level_N: LevelArray
    """UNKNOWN where the judge could not tell; also where it failed."""
    rating_N: FloatArray
    """Expected level, or score; NaN where UNKNOWN or failed."""
    reason_N: tuple[str, ...]
    """Why the judge failed; empty where it did not."""


def request_of(
    rubric: Rubric, item: AskedCoordinate, shown: tuple[str, str, str], order: Order = "forward"
) -> OptionRequest:
    """Return the question about one rollout, shown as prompt, completion and answers of its group."""
    prompt, completion, group = shown
    return OptionRequest(
        system=rubric.system,
        question=item.render(prompt, completion, group=group, order=order),
        options=item.options if isinstance(item, ChoiceCoordinate) else (),
        examples=tuple(
            (item.render(given.prompt, given.completion, group="", order=order), given.reply) for given in item.examples
        ),
    )


def ask_columns(
    rubric: Rubric,
    shown_N: Sequence[tuple[str, str, str]],
    judge: JudgeClient,
    cache: VerdictCache | None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Column]:
    """Ask every choice and score coordinate about N rollouts.

    Parameters
    ----------
    rubric, judge, cache, progress
        As of `judge_rollouts`.
    shown_N
        Prompt, completion and answers of the group of each rollout.

    Returns
    -------
    dict
        A column for the name of each coordinate that is asked.
    """
    asked = [item for item in rubric.coordinates if isinstance(item, AskedCoordinate)]
    requests = questions_of(rubric, shown_N)
    answers = ask_all(requests, judge, cache, progress) if requests else {}
    return {item.name: _column(rubric, item, shown_N, answers) for item in asked}


def questions_of(rubric: Rubric, shown_N: Sequence[tuple[str, str, str]]) -> list[OptionRequest]:
    """Return every question that a rubric asks about N rollouts, orders and corrections included."""
    asked = [item for item in rubric.coordinates if isinstance(item, AskedCoordinate)]
    return [
        request_of(rubric, item, shown, order)
        for item in asked
        for order in _orders(item)
        for shown in _all(item, shown_N)
    ]


def _orders(item: AskedCoordinate) -> tuple[Order, ...]:
    return item.orders if isinstance(item, ChoiceCoordinate) else ("forward",)


def _all(item: AskedCoordinate, shown_N: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    corrected = isinstance(item, ChoiceCoordinate) and item.prior_correction
    return [*shown_N, *((prompt, CONTENT_FREE, group) for prompt, _, group in shown_N if corrected)]


def _column(
    rubric: Rubric,
    item: AskedCoordinate,
    shown_N: Sequence[tuple[str, str, str]],
    answers: Mapping[OptionRequest, Answer],
) -> Column:
    value_NO, reasons = _values(rubric, item, shown_N, answers)
    if isinstance(item, ChoiceCoordinate):
        if item.prior_correction:
            prior_NO, prior_reasons = _values(rubric, item, _all(item, shown_N)[len(shown_N) :], answers)
            value_NO = value_NO - prior_NO
            reasons = [first or second for first, second in zip(reasons, prior_reasons, strict=True)]
        level_N, rating_N = choose(value_NO, num_levels=len(item.replies), margin=item.unknown_margin)
    else:
        rating_N = value_NO[:, 0]
        level_N = np.array([bisect_right(item.cuts, value) for value in rating_N], dtype=np.int8)
    failed_N = np.array([bool(reason) for reason in reasons], dtype=bool)
    level_N[failed_N], rating_N[failed_N] = UNKNOWN, np.nan
    return Column(level_N, rating_N, tuple(reasons))


def _values(
    rubric: Rubric,
    item: AskedCoordinate,
    shown_N: Sequence[tuple[str, str, str]],
    answers: Mapping[OptionRequest, Answer],
) -> tuple[FloatArray, list[str]]:
    """Return values averaged over the orders, 0 where one of them failed, and why it did."""
    size = len(item.options) if isinstance(item, ChoiceCoordinate) else 1
    value_NO, reasons = np.zeros((len(shown_N), size)), []
    for i, shown in enumerate(shown_N):
        given = [answers[request_of(rubric, item, shown, order)] for order in _orders(item)]
        reasons.append(next((answer.reason for answer in given if answer.values is None), ""))
        if not reasons[-1]:
            value_NO[i] = np.mean([answer.values or () for answer in given], axis=0)
    return value_NO, reasons


def choose(value_NO: FloatArray, *, num_levels: int, margin: float) -> tuple[LevelArray, FloatArray]:
    """Return the level of the highest value, and the expected level.

    Parameters
    ----------
    value_NO
        Log-probabilities; a last column beyond the levels is the reply that means UNKNOWN.
    num_levels
        Levels of the coordinate.
    margin
        A lead below it, or of zero, is UNKNOWN.

    Returns
    -------
    tuple
        int8 levels, and sum of level times exp(value), renormalised over the levels; NaN where UNKNOWN.

    Examples
    --------
    >>> choose(np.array([[-1.0, -3.0], [-2.0, -2.0]]), num_levels=2, margin=0.0)[0].tolist()
    [0, -1]
    """
    second_N, best_N = np.sort(value_NO, axis=1)[:, -2:].T
    lead_N, best_level_N = best_N - second_N, value_NO.argmax(axis=1)
    unknown_N = (lead_N <= 0) | (lead_N < margin) | (best_level_N >= num_levels)
    known_NO = value_NO[:, :num_levels]
    weight_NO = np.exp(known_NO - known_NO.max(axis=1, keepdims=True))
    rating_N = (weight_NO * np.arange(num_levels)).sum(axis=1) / weight_NO.sum(axis=1)
    rating_N[unknown_N] = np.nan
    return np.where(unknown_N, UNKNOWN, best_level_N).astype(np.int8), rating_N
