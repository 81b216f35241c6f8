"""Ask a judge about rollouts, and turn its answers into judgment states.

Computes the level of every rubric coordinate for every rollout: the state Z of the reward interval.
A choice coordinate takes the reply of the highest log p(reply | question); an agreement coordinate counts equal
extracted answers over the group's rollouts, extracted or not, by prompt id.
Log-probabilities are not divided by reply length; where a rubric asks for it, the log-probabilities for a content-free
completion are subtracted.
A judge that gives no finite log-probability makes the rollout missing, never a level; the forms of state and
correction are this project's own, because the literature on judged reward intervals leaves them open.

Shapes: N rollouts, O options, K coordinates.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rangeline.errors import BadInputError, JudgeError
from rangeline.judge.cache import VerdictCache
from rangeline.judge.option_scorer import OptionRequest, OptionScorer
from rangeline.judge.rubric import CONTENT_FREE, AgreementCoordinate, ChoiceCoordinate, Rubric
from rangeline.records import UNKNOWN, BoolArray, JudgmentTable, LevelArray, RolloutSet

_REQUESTS_PER_CHUNK = 256
"""Verdicts reach the cache, and the caller hears of progress, after so many."""


def judge_rollouts(  # noqa: PLR0913 - the limit of missing rows is the eighth; it belongs to this call alone
    rollouts: RolloutSet,
    *,
    prompt_text: Mapping[str, str],
    extracted_N: Sequence[str | None],
    rubric: Rubric,
    judge: OptionScorer,
    cache: VerdictCache | None,
    progress: Callable[[int, int], None] | None = None,
    max_missing_share: float = 0.5,
) -> JudgmentTable:
    """Return the judgment state of every rollout.

    Parameters
    ----------
    rollouts
        N rollouts, in any order; groups are formed by prompt id.
    prompt_text
        Text of each prompt id, as the judge shall read it.
    extracted_N
        Final answer of each completion in canonical form; None where there is none.
    rubric
        K coordinates.
    judge
        Scores replies.
    cache
        Verdicts of earlier calls; None asks always.
    progress
        Called with (distinct questions answered, distinct questions in all).
    max_missing_share
        In [0, 1]; more missing rollouts than this are an error.

    Raises
    ------
    BadInputError
        If `extracted_N` has another length, or a prompt id has no text.
    JudgeError
        If there are no rollouts, too many are missing, or every coordinate of every rollout is UNKNOWN.

    Notes
    -----
    A lead of the best reply that is zero, or below the coordinate's `unknown_margin`, is UNKNOWN.
    """
    _check(rollouts, prompt_text, extracted_N)
    texts = [prompt_text[prompt_id] for prompt_id in rollouts.prompt_id_N]
    choices = [item for item in rubric.coordinates if isinstance(item, ChoiceCoordinate)]
    asked = [
        _request(rubric, item, text, completion)
        for item in choices
        for text, completion in zip(texts, rollouts.completion_N, strict=True)
    ]
    priors = [_request(rubric, item, text, CONTENT_FREE) for item in choices if item.prior_correction for text in texts]
    verdicts = _ask(list(dict.fromkeys([*asked, *priors])), judge, cache, progress)
    levels_NK = np.full((len(rollouts), len(rubric.coordinates)), UNKNOWN, dtype=np.int8)
    missing_N = np.zeros(len(rollouts), dtype=bool)
    for k, item in enumerate(rubric.coordinates):
        if isinstance(item, ChoiceCoordinate):
            levels_NK[:, k], failed_N = _choice_levels(rubric, item, texts, rollouts.completion_N, verdicts)
            missing_N |= failed_N
        elif isinstance(item, AgreementCoordinate):
            shares = agreement_shares(rollouts.prompt_id_N, extracted_N)
            levels_NK[:, k] = [UNKNOWN if share is None else bisect_right(item.cuts, share) for share in shares]
        else:
            ended = zip(extracted_N, rollouts.finish_reason_N, strict=True)
            levels_NK[:, k] = [answer is not None and reason == "stop" for answer, reason in ended]
    levels_NK[missing_N] = UNKNOWN
    table = JudgmentTable(
        prompt_id_N=rollouts.prompt_id_N,
        levels_NK=levels_NK,
        missing_N=missing_N,
        coordinates=tuple(item.name for item in rubric.coordinates),
        num_levels=tuple(len(item.levels) for item in rubric.coordinates),
        judge_digest=judge_digest(judge, rubric),
    )
    _require_usable(table, max_missing_share)
    return table


def judge_digest(judge: OptionScorer, rubric: Rubric) -> str:
    """Return the identity of a judge with its rubric: states of two digests must never be mixed."""
    return hashlib.sha256(f"{judge.digest} {rubric.digest}".encode()).hexdigest()


def agreement_shares(prompt_id_N: Sequence[str], extracted_N: Sequence[str | None]) -> list[float | None]:
    """Return, per rollout, the share of its group's rollouts that have the same extracted answer.

    Parameters
    ----------
    prompt_id_N
        Group of each rollout, in any order.
    extracted_N
        Answers; None where nothing was extracted, which agrees with nothing but counts in the group.

    Returns
    -------
    list
        Values in (0, 1]; None where nothing was extracted.

    Examples
    --------
    >>> agreement_shares(["p", "q", "p", "p", "p"], ["7", "7", "7", None, "8"])
    [0.5, 1.0, 0.5, None, 0.25]
    """
    size = Counter(prompt_id_N)
    votes = Counter(zip(prompt_id_N, extracted_N, strict=True))
    return [
        None if answer is None else votes[prompt_id, answer] / size[prompt_id]
        for prompt_id, answer in zip(prompt_id_N, extracted_N, strict=True)
    ]


def _request(rubric: Rubric, item: ChoiceCoordinate, prompt: str, completion: str) -> OptionRequest:
    return OptionRequest(system=rubric.system, question=item.render(prompt, completion), options=item.replies)


def _ask(
    requests: Sequence[OptionRequest],
    judge: OptionScorer,
    cache: VerdictCache | None,
    progress: Callable[[int, int], None] | None,
) -> dict[OptionRequest, tuple[float, ...]]:
    key_of = {request: request.key(judge.digest) for request in requests}
    known = cache.get_many(list(key_of.values())) if cache is not None else {}
    verdicts = {request: known[key] for request, key in key_of.items() if key in known}
    # Questions that begin alike come together, and the judge reads what they share once.
    todo = sorted((item for item in requests if item not in verdicts), key=lambda item: (item.system, item.question))
    for start in range(0, len(todo), _REQUESTS_PER_CHUNK):
        part = todo[start : start + _REQUESTS_PER_CHUNK]
        fresh = dict(zip(part, judge.score(part), strict=True))
        for request, values in fresh.items():
            if len(values) != len(request.options):
                msg = (
                    f"'judge' must give {len(request.options)} log-probabilities; got {len(values)} (question "
                    f"{request.question[:80]!r}). Correct the judge."
                )
                raise JudgeError(msg)
        verdicts.update(fresh)
        if cache is not None:
            cache.put_many({key_of[item]: values for item, values in fresh.items() if np.isfinite(values).all()})
        if progress is not None:
            progress(len(verdicts), len(requests))
    return verdicts


def _choice_levels(
    rubric: Rubric,
    item: ChoiceCoordinate,
    texts: Sequence[str],
    completion_N: Sequence[str],
    verdicts: Mapping[OptionRequest, tuple[float, ...]],
) -> tuple[LevelArray, BoolArray]:
    pairs = list(zip(texts, completion_N, strict=True))
    logprob_NO = np.array([verdicts[_request(rubric, item, text, completion)] for text, completion in pairs])
    if item.prior_correction:
        logprob_NO = logprob_NO - np.array([verdicts[_request(rubric, item, text, CONTENT_FREE)] for text in texts])
    failed_N = ~np.isfinite(logprob_NO).all(axis=1)
    logprob_NO[failed_N] = 0.0
    second_N, best_N = np.sort(logprob_NO, axis=1)[:, -2:].T
    lead_N = best_N - second_N
    unknown_N = (lead_N <= 0) | (lead_N < item.unknown_margin)
    return np.where(unknown_N, UNKNOWN, logprob_NO.argmax(axis=1)).astype(np.int8), failed_N


def _check(rollouts: RolloutSet, prompt_text: Mapping[str, str], extracted_N: Sequence[str | None]) -> None:
    if len(extracted_N) != len(rollouts):
        msg = f"'extracted_N' must have one entry a rollout; got {len(extracted_N)} for {len(rollouts)} rollouts."
        raise BadInputError(msg)
    for i, prompt_id in enumerate(rollouts.prompt_id_N):
        if prompt_id not in prompt_text:
            msg = f"'prompt_text' must hold every prompt; got none for '{prompt_id}' (row {i}). Give its text."
            raise BadInputError(msg)
    if not len(rollouts):
        msg = "'rollouts' must hold at least one rollout; got 0. Sample some before judging."
        raise JudgeError(msg)


def _require_usable(table: JudgmentTable, max_missing_share: float) -> None:
    missing_share = float(table.missing_N.mean())
    if missing_share > max_missing_share:
        i = int(np.flatnonzero(table.missing_N)[0])
        msg = (
            f"'judge' must answer for all but a share of {max_missing_share:g} of the rollouts; got "
            f"{missing_share:.3f} missing (the first in row {i}, prompt '{table.prompt_id_N[i]}'). "
            "Check the judge on a few rows."
        )
        raise JudgeError(msg)
    if table.unknown_share == 1.0:
        msg = (
            f"'judge' must know something; got UNKNOWN for every coordinate of {len(table.prompt_id_N)} rollouts. "
            "Lower unknown_margin, reword the rubric, or choose another judge."
        )
        raise JudgeError(msg)
