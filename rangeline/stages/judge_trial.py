"""Try a rubric on a few rows before anything is spent on many: what the judge says, and what all rows would cost."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeline.config import PipelineConfig
from rangeline.errors import DataContractError
from rangeline.judge.budget import Spending
from rangeline.judge.columns import ask_columns, questions_of
from rangeline.judge.judgment import Limits, judge_rollouts, require_answerable, shown
from rangeline.judge.rubric import Rubric
from rangeline.judge.server_client import ServerJudge
from rangeline.records import UNKNOWN, JudgmentTable, RolloutSet
from rangeline.stages.judge_clients import open_client, read_rubric
from rangeline.stages.workspace import Workspace

_FIELDS = ("prompt", "completion")


@dataclass(frozen=True, slots=True)
class TriedRow:
    """What a judge says of one row."""

    completion: str
    levels: Mapping[str, str]
    """Name of the level of each coordinate; UNKNOWN, or missing with its reason."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came out."""

    rows: tuple[TriedRow, ...]
    num_rows_of_file: int
    num_questions_of_file: int
    """Distinct questions that the whole file would take."""
    spent: Spending | None
    """What the trial cost; None for a judge that costs nothing."""


def try_rubric(workspace: Workspace, config: PipelineConfig, rubric: Path, file: Path, *, rows: int = 5) -> Trial:
    """Judge the first rows of a JSONL file by a rubric; nothing is cached, and no limit stops it.

    Parameters
    ----------
    workspace, config
        Which judge.
    rubric
        Rubric file.
    file
        A JSON object a line with `prompt` and `completion`, and where wanted `prompt_id` (the group) and `answer` (the
        extracted one).
    rows
        How many rows are judged.

    Raises
    ------
    DataContractError
        When the file has no such rows.
    ModelLoadError
        When the rubric or the model cannot be read.
    JudgeError
        When the judge cannot answer the rubric, or its budget is spent.
    """
    read = read_rubric(rubric, str(rubric))
    data = _read_rows(file)
    client = open_client(workspace, config.judge, trust_remote_code=config.policy.trust_remote_code)
    require_answerable(read, client)
    before = client.purse.spent if isinstance(client, ServerJudge) else None
    rollouts, texts, answers = _as_rollouts(data[:rows])
    table = judge_rollouts(
        rollouts,
        prompt_text=texts,
        extracted_N=answers,
        rubric=read,
        judge=client,
        cache=None,
        limits=Limits(missing_share=1.0, unknown_share=1.0),
    )
    reasons: dict[int, str] = {}
    if table.missing_N.any():
        for name, column in ask_columns(read, shown(rollouts, texts, answers), client, None).items():
            for i, reason in enumerate(column.reason_N):
                if reason:
                    reasons.setdefault(i, f"{name}: {reason}")
    tried = [_tried(read, rollouts.completion_N[i], table, i, reasons.get(i)) for i in range(len(rollouts))]
    spent = None
    if isinstance(client, ServerJudge) and before is not None:
        now = client.purse.spent
        spent = Spending(
            now.calls - before.calls,
            now.prompt_tokens - before.prompt_tokens,
            now.reply_tokens - before.reply_tokens,
            now.money - before.money,
        )
    everything, all_texts, all_answers = _as_rollouts(data)
    questions = questions_of(read, shown(everything, all_texts, all_answers))
    return Trial(tuple(tried), len(data), len(set(questions)), spent)


def _tried(rubric: Rubric, completion: str, table: JudgmentTable, i: int, reason: str | None) -> TriedRow:
    levels = {}
    for item, level in zip(rubric.coordinates, table.levels_NK[i].tolist(), strict=True):
        if table.missing_N[i]:
            levels[item.name] = f"missing ({reason or 'answered when asked again'})"
        else:
            levels[item.name] = "UNKNOWN" if level == UNKNOWN else item.levels[level]
    return TriedRow(completion, levels)


def _read_rows(file: Path) -> list[dict[str, Any]]:
    rows = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"Rows file '{file}' must be readable JSONL; got {error}. Correct its path."
        raise DataContractError(msg) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in _FIELDS):
            msg = f"Rows must be JSON objects with texts {list(_FIELDS)}; got {line[:80]!r} ({file}, line {number})."
            raise DataContractError(msg)
        rows.append(row)
    if not rows:
        msg = f"Rows file '{file}' must hold at least one row; got none. Add some."
        raise DataContractError(msg)
    return rows


def _as_rollouts(rows: list[dict[str, Any]]) -> tuple[RolloutSet, dict[str, str], list[str | None]]:
    ids = tuple(str(row.get("prompt_id", row["prompt"])) for row in rows)
    size = len(rows)
    rollouts = RolloutSet(
        prompt_id_N=ids,
        sample_N=tuple(range(size)),
        completion_N=tuple(row["completion"] for row in rows),
        prompt_token_ids_N=((),) * size,
        token_ids_N=((),) * size,
        sampled_logprobs_N=((),) * size,
        finish_reason_N=tuple("stop" for _ in rows),
        policy_version=0,
    )
    texts = {prompt_id: row["prompt"] for prompt_id, row in zip(ids, rows, strict=True)}
    return rollouts, texts, [None if row.get("answer") is None else str(row["answer"]) for row in rows]
