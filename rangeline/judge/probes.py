"""Questions that should not change a verdict: replies in another order, letters for words, the same question again.

Computes the share of rollouts whose verdict turns, of those that were answered both times without a tie.
flips = (1/M) sum_m [level_m != level'_m]
Divided by M, the rollouts with two verdicts; M is told beside it, and no rollout makes the share undefined, not 0.
Order: the replies are listed the other way round. Position: replies get letters, and the letters change places; a judge
that always says A turns every time. Repeat: the very same question in another company, past the cache.
Left out: other wordings of the question. The forms are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rangeline.judge.asking import ask_all
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import Answer, JudgeClient, OptionRequest
from rangeline.judge.columns import request_of
from rangeline.judge.coordinates import ChoiceCoordinate, Order
from rangeline.judge.rubric import Rubric

Shown = tuple[str, str, str]
"""Prompt, completion, and answers of the group."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Flips:
    """Verdicts that turned with what means nothing."""

    share: float | None
    """None where no rollout has two verdicts."""
    num_pairs: int
    """Rollouts with two verdicts."""
    num_asked: int


def order_flips(
    rubric: Rubric, item: ChoiceCoordinate, shown_N: Sequence[Shown], judge: JudgeClient, cache: VerdictCache | None
) -> Flips:
    """Ask with the replies listed in both orders; a question that lists none has them appended."""

    def both(shown: Shown) -> tuple[OptionRequest, OptionRequest]:
        if len(item.orders) == 2:
            return request_of(rubric, item, shown, "forward"), request_of(rubric, item, shown, "backward")
        return _listed(rubric, item, shown, item.options), _listed(rubric, item, shown, item.options[::-1])

    pairs = [both(shown) for shown in shown_N]
    answers = ask_all([request for pair in pairs for request in pair], judge, cache)
    return _flips([(_verdict(answers[a]), _verdict(answers[b])) for a, b in pairs])


def position_flips(
    rubric: Rubric, item: ChoiceCoordinate, shown_N: Sequence[Shown], judge: JudgeClient, cache: VerdictCache | None
) -> Flips:
    """Ask for a letter, with the letters given to the replies in both orders."""
    size = len(item.options)
    pairs = [
        (_lettered(rubric, item, shown, "forward"), _lettered(rubric, item, shown, "backward")) for shown in shown_N
    ]
    answers = ask_all([request for pair in pairs for request in pair], judge, cache)
    verdicts = []
    for a, b in pairs:
        second = _verdict(answers[b])
        verdicts.append((_verdict(answers[a]), None if second is None else size - 1 - second))
    return _flips(verdicts)


def repeat_flips(rubric: Rubric, item: ChoiceCoordinate, shown_N: Sequence[Shown], judge: JudgeClient) -> Flips:
    """Ask the very same questions twice, the second time one by one, past the cache."""
    requests = [request_of(rubric, item, shown) for shown in shown_N]
    first = ask_all(requests, judge, None)
    again = {request: ask_all([request], judge, None)[request] for request in dict.fromkeys(requests)}
    return _flips([(_verdict(first[request]), _verdict(again[request])) for request in requests])


def _listed(rubric: Rubric, item: ChoiceCoordinate, shown: Shown, options: Sequence[str]) -> OptionRequest:
    plain = request_of(rubric, item, shown)
    question = f"{plain.question.rstrip()}\nReply with one of: {', '.join(options)}."
    return OptionRequest(system=plain.system, question=question, options=plain.options, examples=plain.examples)


def _lettered(rubric: Rubric, item: ChoiceCoordinate, shown: Shown, order: Order) -> OptionRequest:
    plain = request_of(rubric, item, shown, order if len(item.orders) == 2 else "forward")
    options = item.options if order == "forward" else item.options[::-1]
    letters = tuple(_LETTERS[: len(options)])
    lines = "\n".join(f"{letter}) {option}" for letter, option in zip(letters, options, strict=True))
    question = f"{plain.question.rstrip()}\n{lines}\nReply with the letter alone."
    return OptionRequest(system=plain.system, question=question, options=letters)


def _verdict(answer: Answer) -> int | None:
    """Return the number of the best option; None where the judge failed or two lead together."""
    if answer.values is None:
        return None
    second, best = np.sort(answer.values)[-2:]
    return int(np.argmax(answer.values)) if best > second else None


def _flips(verdicts: Sequence[tuple[int | None, int | None]]) -> Flips:
    pairs = [(first, second) for first, second in verdicts if first is not None and second is not None]
    turned = [first != second for first, second in pairs]
    return Flips(float(np.mean(turned)) if turned else None, len(pairs), len(verdicts))
