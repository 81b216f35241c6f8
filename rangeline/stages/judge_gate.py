"""The gate before calibration: a judge whose verdicts turn with the order of replies, or from call to call, is refused.

A missing or UNKNOWN share above its limit has stopped the run by then; this is for the judge that always has an answer.
"""

from collections.abc import Callable, Sequence
from typing import Any

from rangeline.errors import JudgeUnreliableError
from rangeline.judge.client import Gives
from rangeline.judge.coordinates import ChoiceCoordinate
from rangeline.judge.probes import Flips, order_flips, position_flips, repeat_flips
from rangeline.judge_config import JudgeLimitsConfig
from rangeline.stages.judging import FrozenJudge

_MIN_PAIRS = 4
"""Fewer rollouts with two verdicts say nothing about a share."""


def gate_judge(
    judge: FrozenJudge, shown_N: Sequence[tuple[str, str, str]], limits: JudgeLimitsConfig
) -> dict[str, dict[str, Any]]:
    """Measure the flips of every choice coordinate on a few rollouts; return them by coordinate.

    Parameters
    ----------
    judge
        Ready to ask.
    shown_N
        What it may see of the labelled rollouts; `limits.gate_rollouts` of them, spread evenly, are asked about.
    limits
        Largest shares of flips.

    Raises
    ------
    JudgeUnreliableError
        When a share is above its limit.

    Notes
    -----
    Of a judge that gives log-probabilities, order flips are measured only where the question lists its replies: it is
    otherwise never shown an order, and is never asked for a letter.
    """
    count = min(limits.gate_rollouts, len(shown_N))
    some = [shown_N[i * len(shown_N) // count] for i in range(count)]
    found: dict[str, dict[str, Any]] = {}
    for item in judge.rubric.coordinates:
        if not isinstance(item, ChoiceCoordinate) or not some:
            continue
        measured = {kind: _PROBES[kind](judge, item, some) for kind in gated_kinds(judge.client.gives, item)}
        for kind, flips in measured.items():
            require_steady(item.name, kind, flips, flip_limit(kind, limits))
        found[item.name] = {kind: {"share": flips.share, "pairs": flips.num_pairs} for kind, flips in measured.items()}
    return found


_PROBES: dict[str, Callable[[FrozenJudge, ChoiceCoordinate, Sequence[tuple[str, str, str]]], Flips]] = {
    "repeat": lambda judge, item, some: repeat_flips(judge.rubric, item, some, judge.client),
    "order": lambda judge, item, some: order_flips(judge.rubric, item, some, judge.client, judge.cache),
    "position": lambda judge, item, some: position_flips(judge.rubric, item, some, judge.client, judge.cache),
}
_CAUSES = {
    "repeat": "when it is asked again",
    "order": "when its replies are listed the other way round",
    "position": "when its replies change letters",
}


def gated_kinds(gives: Gives, item: ChoiceCoordinate) -> tuple[str, ...]:
    """Return what is measured before a judge is let in: all of a judge that picks."""
    if gives == "picks":
        return ("repeat", "order", "position")
    return ("repeat", "order") if len(item.orders) == 2 else ("repeat",)


def flip_limit(kind: str, limits: JudgeLimitsConfig) -> float:
    """Return the largest share of flips of a kind."""
    return limits.repeat_flips if kind == "repeat" else limits.order_flips


def require_steady(name: str, kind: str, flips: Flips, limit: float) -> None:
    """Stop where too many verdicts of a coordinate turn.

    Raises
    ------
    JudgeUnreliableError
        When the share is above the limit, on enough rollouts.
    """
    if is_unsteady(flips, limit):
        msg = (
            f"Verdicts of '{name}' must turn for at most a share of {limit:g} {_CAUSES[kind]}; got {flips.share:.3f} "
            f"of {flips.num_pairs}. Reword the question or leave its '{{options}}' out ('rangeline judge try' shows "
            "verdicts), ask by log-probabilities, or take another judge."
        )
        raise JudgeUnreliableError(msg)


def is_unsteady(flips: Flips, limit: float) -> bool:
    """Tell whether a share of flips is above its limit, on enough rollouts to say so."""
    return flips.share is not None and flips.num_pairs >= _MIN_PAIRS and flips.share > limit
