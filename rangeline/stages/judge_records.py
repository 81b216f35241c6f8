"""What calibration keeps of its judge beside the states: verdicts, so that nobody pays for them twice, and the canary.

The verdicts of the judged pools are a Parquet file inside the versioned calibration: whoever pulls the data takes them
into the own file of verdicts and asks nobody again. The canary is what runs ask again, to see that the judge stayed.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from rangeline.errors import CalibrationError
from rangeline.judge.asking import ask_all
from rangeline.judge.cache import VerdictCache
from rangeline.judge.canary import Canary, choose_canary, require_unchanged
from rangeline.judge.client import JudgeClient, OptionRequest
from rangeline.judge_config import JudgeLimitsConfig
from rangeline.lineage import write_json
from rangeline.stages.judge_clients import VERDICTS_FILE
from rangeline.stages.judging import FrozenJudge, Judge
from rangeline.stages.tables import write_table

_CANARY = "canary.json"


def keep_judge(
    folder: Path, judge: Judge, asked: Sequence[OptionRequest], limits: JudgeLimitsConfig
) -> dict[Path, int | None]:
    """Write the verdicts that were given, and the canary; return the files. A synthetic judge needs neither."""
    if not isinstance(judge, FrozenJudge):
        return {}
    verdicts = write_verdicts(folder, asked, judge.model_digest, judge.cache)
    return {**verdicts, **write_canary(folder, asked, judge.client, judge.cache, limits)}


def write_verdicts(
    folder: Path, requests: Sequence[OptionRequest], digest: str, cache: VerdictCache
) -> dict[Path, int]:
    """Write the cached verdicts of the given questions; return the file and its rows."""
    found = cache.get_many(list(dict.fromkeys(request.key(digest) for request in requests)))
    write_table(folder / VERDICTS_FILE, {"key": list(found), "values": [list(values) for values in found.values()]})
    return {folder / VERDICTS_FILE: len(found)}


def write_canary(
    folder: Path, requests: Sequence[OptionRequest], judge: JudgeClient, cache: VerdictCache, limits: JudgeLimitsConfig
) -> dict[Path, int]:
    """Choose the canary among answered questions, see that the judge still says the same, and write it."""
    answers = ask_all(requests, judge, cache) if limits.canary_questions else {}
    canary = choose_canary(judge.digest, answers, limits.canary_questions) if answers else Canary(judge.digest, (), ())
    _require(canary, judge, limits, "at the end of calibration")
    write_json(folder / _CANARY, canary.to_json())
    return {folder / _CANARY: len(canary.requests)}


def require_same_judge(folder: Path, judge: JudgeClient, limits: JudgeLimitsConfig, when: str) -> None:
    """Ask the canary again and stop where the judge has changed.

    Raises
    ------
    CalibrationError
        When calibration kept no canary.
    JudgeDriftError
        When the judge is another, or says something else.
    """
    path = folder / _CANARY
    if not path.is_file():
        msg = f"Calibration must keep the judge's canary; got no '{path}'. Run 'rangeline calibrate' again."
        raise CalibrationError(msg)
    canary = Canary.from_json(json.loads(path.read_text(encoding="utf-8")))
    _require(canary, judge, limits, when)


def _require(canary: Canary, judge: JudgeClient, limits: JudgeLimitsConfig, when: str) -> None:
    require_unchanged(canary, judge, max_flips=limits.canary_flips, max_change=limits.canary_change, when=when)
