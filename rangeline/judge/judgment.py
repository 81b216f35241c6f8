"""Ask a judge about rollouts, and turn its answers into judgment states.

Computes the level of every rubric coordinate for every rollout: the state Z of the reward interval.
A choice coordinate takes the reply of the highest log p(reply | question), averaged over both orders of the replies
where the question lists them; a score coordinate bins a number; agreement, majority and rank compare a rollout with the
others of its group, by prompt id.
Log-probabilities are not divided by reply length; where a rubric asks for it, the log-probabilities for a content-free
completion are subtracted.
A judge that fails on a question makes the rollout missing, with the reason, never a level; the forms of state and
correction are this project's own, because the literature on judged reward intervals leaves them open.

Shapes: N rollouts, O options, K coordinates.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rangeline.errors import BadInputError, JudgeError
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import JudgeClient
from rangeline.judge.columns import Column, ask_columns
from rangeline.judge.coordinates import (
    AgreementCoordinate,
    AskedCoordinate,
    ChoiceCoordinate,
    MajorityCoordinate,
    RankCoordinate,
    ScoreCoordinate,
)
from rangeline.judge.groups import agreement_shares, majority_levels, rank_shares, tallies
from rangeline.judge.rubric import Rubric
from rangeline.records import UNKNOWN, JudgmentTable, RolloutSet


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares above which a judge is of no use, and the run stops."""

    missing_share: float = 0.5
    """In [0, 1]; of the rollouts."""
    unknown_share: float = 1.0
    """In [0, 1]; of the levels of rollouts that are not missing. At 1, only UNKNOWN everywhere is too much."""


def judge_rollouts(  # noqa: PLR0913 - the limits are the eighth; they belong to this call alone
    rollouts: RolloutSet,
    *,
    prompt_text: Mapping[str, str],
    extracted_N: Sequence[str | None],
    rubric: Rubric,
    judge: JudgeClient,
    cache: VerdictCache | None,
    progress: Callable[[int, int], None] | None = None,
    limits: Limits = Limits(),
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
        Answers questions.
    cache
        Verdicts of earlier calls; None asks always.
    progress
        Called with (distinct questions answered, distinct questions in all).
    limits
        More missing rollouts, or more UNKNOWN, than this are an error.

    Raises
    ------
    BadInputError
        If `extracted_N` has another length, or a prompt id has no text.
    JudgeError
        If there are no rollouts, too many are missing, too much is UNKNOWN, the judge cannot answer the rubric, or its
        budget is spent.

    Notes
    -----
    A lead of the best reply that is zero, or below the coordinate's `unknown_margin`, is UNKNOWN.
    """
    _check(rollouts, prompt_text, extracted_N)
    require_answerable(rubric, judge)
    columns = ask_columns(rubric, shown(rollouts, prompt_text, extracted_N), judge, cache, progress=progress)
    ended = zip(extracted_N, rollouts.finish_reason_N, strict=True)
    formed_N = [int(answer is not None and reason == "stop") for answer, reason in ended]
    levels_NK = np.full((len(rollouts), len(rubric.coordinates)), UNKNOWN, dtype=np.int8)
    for k, item in enumerate(rubric.coordinates):
        if isinstance(item, AskedCoordinate):
            levels_NK[:, k] = columns[item.name].level_N
        elif isinstance(item, AgreementCoordinate | RankCoordinate):
            shares = (
                agreement_shares(rollouts.prompt_id_N, extracted_N)
                if isinstance(item, AgreementCoordinate)
                else rank_shares(rollouts.prompt_id_N, columns[item.of].rating_N)
            )
            levels_NK[:, k] = [UNKNOWN if share is None else bisect_right(item.cuts, share) for share in shares]
        elif isinstance(item, MajorityCoordinate):
            levels_NK[:, k] = majority_levels(rollouts.prompt_id_N, extracted_N)
        else:
            levels_NK[:, k] = formed_N
    missing_N = np.zeros(len(rollouts), dtype=bool)
    for column in columns.values():
        missing_N |= np.array([bool(reason) for reason in column.reason_N], dtype=bool)
    levels_NK[missing_N] = UNKNOWN
    table = JudgmentTable(
        prompt_id_N=rollouts.prompt_id_N,
        levels_NK=levels_NK,
        missing_N=missing_N,
        coordinates=tuple(item.name for item in rubric.coordinates),
        num_levels=tuple(len(item.levels) for item in rubric.coordinates),
        judge_digest=judge_digest(judge, rubric),
    )
    _require_usable(table, columns, limits)
    return table


def shown(
    rollouts: RolloutSet, prompt_text: Mapping[str, str], extracted_N: Sequence[str | None]
) -> list[tuple[str, str, str]]:
    """Return what a judge may see of each rollout: its prompt, its completion, and the answers of its group."""
    texts = [prompt_text[prompt_id] for prompt_id in rollouts.prompt_id_N]
    return list(zip(texts, rollouts.completion_N, tallies(rollouts.prompt_id_N, extracted_N), strict=True))


def judge_digest(judge: JudgeClient, rubric: Rubric) -> str:
    """Return the identity of a judge with its rubric: states of two digests must never be mixed."""
    return hashlib.sha256(f"{judge.digest} {rubric.digest}".encode()).hexdigest()


def require_answerable(rubric: Rubric, judge: JudgeClient) -> None:
    """Check, before anything is spent, that a judge can answer every question of a rubric.

    Raises
    ------
    JudgeError
        If a coordinate needs log-probabilities and the judge only picks, or a written score and the judge only scores.
    """
    for item in rubric.coordinates:
        scored = isinstance(item, ChoiceCoordinate) and (item.prior_correction or item.unknown_margin > 0)
        if judge.gives == "picks" and scored:
            msg = (
                f"'judge' must give log-probabilities for '{item.name}', whose unknown_margin or prior_correction is "
                f"made of them; got one that picks (rubric '{rubric.name}'). Remove them, or set judge.ask=logprobs."
            )
            raise JudgeError(msg)
        if judge.gives == "logprobs" and isinstance(item, ScoreCoordinate):
            msg = (
                f"'judge' must write to answer score '{item.name}'; got one whose replies are scored (rubric "
                f"'{rubric.name}'). Set judge.ask=structured or text, or make it a choice."
            )
            raise JudgeError(msg)


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


def _require_usable(table: JudgmentTable, columns: Mapping[str, Column], limits: Limits) -> None:
    missing_share = float(table.missing_N.mean())
    if missing_share > limits.missing_share:
        i = int(np.flatnonzero(table.missing_N)[0])
        reasons = Counter(reason for column in columns.values() for reason in column.reason_N if reason)
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        msg = (
            f"'judge' must answer for all but a share of {limits.missing_share:g} of the rollouts; got "
            f"{missing_share:.3f} missing (the first in row {i}, prompt '{table.prompt_id_N[i]}'; {why}). "
            "Check the judge on a few rows: 'rangeline judge try'."
        )
        raise JudgeError(msg)
    unknown_share = table.unknown_share
    if unknown_share == 1.0:
        msg = (
            f"'judge' must know something; got UNKNOWN for every coordinate of {len(table.prompt_id_N)} rollouts. "
            "Lower unknown_margin, reword the rubric, or choose another judge."
        )
        raise JudgeError(msg)
    if unknown_share > limits.unknown_share:
        msg = (
            f"'judge' must know all but a share of {limits.unknown_share:g} of the levels; got {unknown_share:.3f} "
            "UNKNOWN. Lower unknown_margin, reword the rubric, or choose another judge."
        )
        raise JudgeError(msg)
