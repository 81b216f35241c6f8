"""Prompts on which the judge fails every time: counted, named, and after a few draws not asked about any more.

A judge that answers for no rollout of a prompt would be asked again, and fail again, whenever the prompt is drawn. Its
rollouts are missing either way, never 0; a quarantined prompt costs no further call. The counts lie in the iteration's
folder, so that a resumed run goes on as an undisturbed one.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from rangeline.lineage import write_json
from rangeline.records import UNKNOWN, BoolArray, JudgmentTable, RolloutSet

QUARANTINE_NAME = "quarantine.json"
PATIENCE = 3
"""Draws in a row without one answer after which a prompt is not asked about any more."""


def read_silence(folder: Path) -> dict[str, int]:
    """Return, by prompt, the draws in a row without one answer, as an iteration left them; empty where none had any."""
    path = folder / QUARANTINE_NAME
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def write_silence(folder: Path, silence: Mapping[str, int]) -> None:
    """Write the counts of an iteration; no file stands for no count."""
    if silence:
        write_json(folder / QUARANTINE_NAME, dict(silence))
    else:
        (folder / QUARANTINE_NAME).unlink(missing_ok=True)


def quarantined(silence: Mapping[str, int]) -> frozenset[str]:
    """Return the prompts that are not asked about any more."""
    return frozenset(prompt_id for prompt_id, draws in silence.items() if draws >= PATIENCE)


def count_silence(
    silence: Mapping[str, int], prompt_id_N: Collection[str], unanswered_N: BoolArray, scorable_N: BoolArray
) -> dict[str, int]:
    """Take in one share of an iteration; return the new counts.

    Parameters
    ----------
    silence
        Counts so far.
    prompt_id_N
        Prompt of each of N rollouts.
    unanswered_N
        True where the judge gave no state.
    scorable_N
        True where it should have: what was cut off before an answer says nothing of the judge.

    Returns
    -------
    dict[str, int]
        One more for a prompt without one answer; a prompt that got one is forgotten, and one in quarantine stays.
    """
    found = dict(silence)
    held = quarantined(silence)
    ids = np.array(list(prompt_id_N), dtype=object)
    for prompt_id in dict.fromkeys(prompt_id_N):
        mine = (ids == prompt_id) & scorable_N
        if prompt_id in held or not mine.any():
            continue
        if unanswered_N[mine].all():
            found[prompt_id] = found.get(prompt_id, 0) + 1
        else:
            found.pop(prompt_id, None)
    return found


def without(rollouts: RolloutSet, prompts: Collection[str]) -> BoolArray:
    """Return which of N rollouts are to be asked about; all of them where nothing else would be left."""
    kept_N = np.array([prompt_id not in prompts for prompt_id in rollouts.prompt_id_N], dtype=bool)
    return kept_N if kept_N.any() else np.ones(len(rollouts), dtype=bool)


def spread(table: JudgmentTable, rollouts: RolloutSet, kept_N: BoolArray) -> JudgmentTable:
    """Return the states of all N rollouts from those of the kept ones; the others are missing."""
    levels_NK = np.full((len(rollouts), table.levels_NK.shape[1]), UNKNOWN, dtype=table.levels_NK.dtype)
    levels_NK[kept_N] = table.levels_NK
    missing_N = np.ones(len(rollouts), dtype=bool)
    missing_N[kept_N] = table.missing_N
    return replace(table, prompt_id_N=rollouts.prompt_id_N, levels_NK=levels_NK, missing_N=missing_N)
