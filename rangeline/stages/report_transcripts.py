"""The rollouts that a report shows: a bounded sample of prompts, each with state, interval, credit and verdict."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from rangeline.evaluation.run_summary import Transcript, TranscriptRollout, Verdict
from rangeline.prompts.duplicates import text_of
from rangeline.records import UNKNOWN, JudgmentTable, PromptRow
from rangeline.rollout.selection import take_rollouts
from rangeline.stages.judging import verify_rollouts
from rangeline.stages.tables import read_intervals, read_judgments, read_rollouts, read_table

_FIRST, _TURNED, _AUDITED = 4, 2, 2
"""Prompts shown of an iteration: its first ones, more on which a sign was turned, and audited ones."""
_SHOWN_ITERATIONS = 4


def shown_iterations(done: int) -> list[int]:
    """Return the iterations whose rollouts are shown: the first, the last, and some evenly between.

    >>> shown_iterations(16)
    [1, 6, 11, 16]
    """
    gaps = _SHOWN_ITERATIONS - 1
    return sorted({1 + round((done - 1) * i / gaps) for i in range(_SHOWN_ITERATIONS)}) if done else []


def transcripts_of(folder: Path, number: int, rows: Mapping[str, PromptRow]) -> list[Transcript]:
    """Return the transcripts of one iteration: its first prompts, some with turned signs, some audited ones.

    Problems that their owners keep private, and prompts that are in no pool any more, are left out.

    Parameters
    ----------
    folder, number
        A finished iteration.
    rows
        Prompts by id.
    """
    credit = read_table(folder / "advantages.parquet")
    advantage, midpoint = credit["advantage"].to_pylist(), credit["midpoint"].to_pylist()
    owners = credit["prompt_id"].to_pylist()
    turned = {name for name, a, m in zip(owners, advantage, midpoint, strict=True) if (a or 0.0) * (m or 0.0) < 0}
    told = [name for name in dict.fromkeys(owners) if name in rows and not rows[name].metadata.get("private")]
    first = told[:_FIRST]
    more = [name for name in told[_FIRST:] if name in turned][:_TURNED]
    reasons = {**dict.fromkeys(first, ""), **dict.fromkeys(more, "shown because a sign was turned")}
    shown = _share(folder, number, "policy", rows, reasons, (advantage, midpoint))
    return shown + _audited(folder, number, rows)


def _audited(folder: Path, number: int, rows: Mapping[str, PromptRow]) -> list[Transcript]:
    if not (folder / "audit_intervals.parquet").is_file():
        return []
    owners = read_table(folder / "audit_intervals.parquet")["prompt_id"].to_pylist()
    told = [name for name in dict.fromkeys(owners) if name in rows and not rows[name].metadata.get("private")]
    none: list[float | None] = [None] * len(owners)
    return _share(folder, number, "audit", rows, dict.fromkeys(told[:_AUDITED], ""), (none, none))


def _share(
    folder: Path,
    number: int,
    share: Literal["policy", "audit"],
    rows: Mapping[str, PromptRow],
    reasons: Mapping[str, str],
    credit: tuple[Sequence[float | None], Sequence[float | None]],
) -> list[Transcript]:
    rollouts = read_rollouts(folder / f"{share}_rollouts.parquet")
    intervals = read_intervals(folder / f"{share}_intervals.parquet")
    judged = folder / f"{share}_judgments.parquet"
    judgments = read_judgments(judged) if judged.is_file() else None
    # Rows of prompts that are not shown may be of pools that are there no more.
    known = {name: rows[name] for name in reasons}
    members = {name: [i for i, owner in enumerate(rollouts.prompt_id_N) if owner == name] for name in known}
    # What is drawn beyond the judged rollouts, to refill a batch, has no judgment of its own.
    states = {i: _state(judgments, i) for own in members.values() for i in own if _has_state(judgments, i)}
    result = []
    for name, row in known.items():
        truth = verify_rollouts(take_rollouts(rollouts, members[name]), known).truth_N
        result.append(
            Transcript(
                prompt=text_of(row),
                reference=row.reference,
                iteration=number,
                share=share,
                reason=reasons[name],
                rollouts=tuple(
                    TranscriptRollout(
                        completion=rollouts.completion_N[i],
                        state=states.get(i, "not judged"),
                        lower=None if intervals.missing_N[i] else float(intervals.lower_N[i]),
                        upper=None if intervals.missing_N[i] else float(intervals.upper_N[i]),
                        # The 0 that the update takes for a missing reward is no credit of 0.
                        advantage=None if intervals.missing_N[i] else credit[0][i],
                        midpoint_advantage=None if intervals.missing_N[i] else credit[1][i],
                        verdict=_verdict(row, float(value)),
                        finish=rollouts.finish_reason_N[i],
                        truth=None if math.isnan(value) else float(value),
                    )
                    for i, value in zip(members[name], truth, strict=True)
                ),
            )
        )
    return result


def _has_state(judgments: JudgmentTable | None, row: int) -> bool:
    return judgments is not None and row < len(judgments.missing_N)


def _state(judgments: JudgmentTable | None, row: int) -> str:
    if judgments is None or judgments.missing_N[row]:
        return "no judgment"
    levels = zip(judgments.coordinates, judgments.levels_NK[row], strict=True)
    return ", ".join(f"{name} {'UNKNOWN' if level == UNKNOWN else int(level)}" for name, level in levels)


def _verdict(row: PromptRow, truth: float) -> Verdict:
    if row.reference is None:
        return "unlabelled"
    if math.isnan(truth):
        return "missing"
    if truth == 1:
        return "right"
    return "partial" if truth > 0 else "wrong"
