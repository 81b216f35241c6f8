"""A few questions asked again at the start and the end of every run: a judge that changed must not go on judging.

Computes the share of verdicts that turned, and the mean absolute change of the log-probabilities.
flips = (1/Q) sum_q [argmax v_q != argmax v'_q]; change = mean over questions and options of |v - v'|.
Divided by the questions that were answered now; more than half unanswered is no comparison.
A digest says that a judge claims to be another; the canary sees one that claims to be the same: a hosted model that was
replaced, other kernels, another template. Both are ours. The cache is not asked, or it would answer for the old judge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rangeline.errors import CalibrationError, JudgeDriftError, JudgeError
from rangeline.judge.client import Answer, JudgeClient, OptionRequest, wait_for

_SCORE_TURNS = 0.1
"""A score that moves by this much has turned."""


@dataclass(frozen=True, slots=True)
class Canary:
    """Questions, and what the judge said to them at calibration."""

    judge_digest: str
    requests: tuple[OptionRequest, ...]
    values: tuple[tuple[float, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return a form for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Canary":
        """Return what `to_json` wrote.

        Raises
        ------
        CalibrationError
            If it is of another form.
        """
        try:
            requests = tuple(
                OptionRequest(
                    system=item["system"],
                    question=item["question"],
                    options=tuple(item["options"]),
                    examples=tuple((question, reply) for question, reply in item["examples"]),
                )
                for item in data["requests"]
            )
            values = tuple(tuple(float(value) for value in row) for row in data["values"])
            return cls(str(data["judge_digest"]), requests, values)
        except (KeyError, TypeError, ValueError) as error:
            msg = f"The judge's canary must hold requests and values; got {error!r}. Run 'rangeline calibrate' again."
            raise CalibrationError(msg) from error


@dataclass(frozen=True, slots=True)
class Drift:
    """How a judge differs from what it said before."""

    num_questions: int
    """Answered now."""
    flips: float
    """Share of verdicts that turned."""
    change: float
    """Mean absolute change of the values; of a judge that picks, it says no more than `flips`."""


def choose_canary(judge_digest: str, answers: Mapping[OptionRequest, Answer], count: int) -> Canary:
    """Take up to `count` answered questions, spread evenly over all of them by key, whatever their order was."""
    answered = [(item.key(judge_digest), item, answer.values) for item, answer in answers.items() if answer.values]
    answered.sort(key=lambda row: row[0])
    chosen = [answered[i * len(answered) // count] for i in range(count)] if count < len(answered) else answered
    return Canary(judge_digest, tuple(row[1] for row in chosen), tuple(row[2] or () for row in chosen))


def measure_drift(canary: Canary, judge: JudgeClient) -> Drift:
    """Ask the questions again and compare.

    Raises
    ------
    JudgeError
        If the judge answers fewer than half of them.
    """
    if not canary.requests:
        return Drift(0, 0.0, 0.0)
    answers = wait_for(judge.ask(canary.requests))
    pairs = [(old, new.values) for old, new in zip(canary.values, answers, strict=True) if new.values is not None]
    if 2 * len(pairs) < len(answers):
        reasons = sorted({answer.reason for answer in answers if answer.values is None})
        msg = (
            f"'judge' must answer half of its canary; got {len(pairs)} of {len(answers)} ({'; '.join(reasons[:3])}). "
            "See that the judge is there and as it was."
        )
        raise JudgeError(msg)
    flips = [_turned(old, new) for old, new in pairs]
    changes = [np.abs(np.subtract(old, new)).mean() if len(old) == len(new) else np.inf for old, new in pairs]
    return Drift(len(pairs), float(np.mean(flips)), float(np.mean(changes)))


def require_unchanged(canary: Canary, judge: JudgeClient, *, max_flips: float, max_change: float, when: str) -> Drift:
    """Stop where the judge is another than at calibration.

    Parameters
    ----------
    canary
        From calibration.
    judge
        The judge now.
    max_flips
        Largest share of turned verdicts.
    max_change
        Largest mean change of log-probabilities, in nats; picks have none.
    when
        For the message, such as "at the start of run 'a'".

    Raises
    ------
    JudgeDriftError
        If it claims another digest, or its verdicts differ by more than the limits.
    """
    if judge.digest != canary.judge_digest:
        msg = (
            f"'judge' must be the one of calibration, {canary.judge_digest[:12]}; got {judge.digest[:12]} ({when}). "
            "Run 'rangeline calibrate' again."
        )
        raise JudgeDriftError(msg)
    drift = measure_drift(canary, judge)
    if drift.flips > max_flips or (judge.gives == "logprobs" and drift.change > max_change):
        msg = (
            f"'judge' must say what it said at calibration, but for a share of {max_flips:g} and {max_change:g} nats; "
            f"got {drift.flips:.3f} of {drift.num_questions} verdicts turned and a mean change of {drift.change:.3f} "
            f"({when}). "
            "Bring the old judge back, or run 'rangeline calibrate' again."
        )
        raise JudgeDriftError(msg)
    return drift


def _turned(old: Sequence[float], new: Sequence[float]) -> bool:
    if len(old) != len(new):
        return True
    if len(old) == 1:
        return abs(old[0] - new[0]) >= _SCORE_TURNS
    return bool(np.argmax(old) != np.argmax(new))
