"""Ask a judge many questions: each distinct one once, known verdicts from the cache, fresh ones into it.

What is answered is stored before anything is raised, so that a run that stops here loses nothing it paid for.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rangeline.errors import JudgeBudgetError, JudgeError
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import OVER_BUDGET, Answer, JudgeClient, OptionRequest, wait_for

_REQUESTS_PER_CHUNK = 256
"""Verdicts reach the cache, and the caller hears of progress, after so many."""
_ENOUGH_FAILURES = 64
"""So many questions of one chunk without a single answer: the judge is not there, and asking on costs time only."""


def ask_all(
    requests: Sequence[OptionRequest],
    judge: JudgeClient,
    cache: VerdictCache | None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[OptionRequest, Answer]:
    """Return the answer to every distinct request.

    Parameters
    ----------
    requests
        Questions, in any order and number.
    judge
        Who answers.
    cache
        Verdicts of earlier calls; None asks always. Failures are never stored.
    progress
        Called with (distinct questions answered, distinct questions in all).

    Raises
    ------
    JudgeBudgetError
        If the budget does not cover all questions; answers so far are in the cache.
    JudgeError
        If an answer has another number of values than its question has options, or a whole chunk has failed.
    """
    distinct = list(dict.fromkeys(requests))
    key_of = {request: request.key(judge.digest) for request in distinct}
    known = cache.get_many(list(key_of.values())) if cache is not None else {}
    answers = {request: Answer(known[key]) for request, key in key_of.items() if key in known}
    # Questions that begin alike come together, and the judge reads what they share once.
    todo = sorted((item for item in distinct if item not in answers), key=lambda item: (item.system, item.question))
    for start in range(0, len(todo), _REQUESTS_PER_CHUNK):
        part = todo[start : start + _REQUESTS_PER_CHUNK]
        fresh = {
            request: _checked(request, answer) for request, answer in zip(part, wait_for(judge.ask(part)), strict=True)
        }
        answers.update(fresh)
        if cache is not None:
            cache.put_many({key_of[item]: given.values for item, given in fresh.items() if given.values is not None})
        _require_going_on(fresh, done=start + len(part), wanted=len(todo))
        if progress is not None:
            progress(len(answers), len(distinct))
    return answers


def count_reasons(answers: Mapping[OptionRequest, Answer]) -> Counter[str]:
    """Count the failed questions by reason."""
    return Counter(answer.reason for answer in answers.values() if answer.values is None)


def _checked(request: OptionRequest, answer: Answer) -> Answer:
    if answer.values is None:
        return answer
    wanted = len(request.options) or 1
    if len(answer.values) != wanted:
        msg = (
            f"'judge' must give {wanted} log-probabilities; got {len(answer.values)} (question "
            f"{request.question[:80]!r}). Correct the judge."
        )
        raise JudgeError(msg)
    return answer if np.isfinite(answer.values).all() else Answer(None, "not finite")


def _require_going_on(fresh: Mapping[OptionRequest, Answer], *, done: int, wanted: int) -> None:
    reasons = count_reasons(fresh)
    if reasons[OVER_BUDGET]:
        msg = (
            f"'judge.budget' must cover every question; got {wanted - done + reasons[OVER_BUDGET]} of {wanted} "
            "unasked. What was answered is cached: raise the budget and run again."
        )
        raise JudgeBudgetError(msg)
    if sum(reasons.values()) == len(fresh) >= _ENOUGH_FAILURES:
        reason, count = reasons.most_common(1)[0]
        msg = (
            f"'judge' must answer some questions; got none of the last {len(fresh)}, {count} of them with "
            f"'{reason}'. Look at 'rangeline judge try', and at the judge's own log."
        )
        raise JudgeError(msg)
