"""The reliability report of the judge on the labelled pools: what it knows, what turns it, and what it falls for."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.evaluation.judge_page import CoordinateReport, JudgeReport, html_page, markdown_page
from rangeline.evaluation.judge_reliability import CoordinateInformation, coordinate_information
from rangeline.judge.client import OptionRequest
from rangeline.judge.columns import request_of
from rangeline.judge.coordinates import ChoiceCoordinate
from rangeline.judge.injections import HARMLESS, injections
from rangeline.judge.model_writer import WritingJudge
from rangeline.judge.probes import Flips, order_flips, position_flips, repeat_flips
from rangeline.judge_config import JudgeConfig
from rangeline.lineage import MANIFEST_NAME, atomic_write, digest_json, write_json, write_manifest
from rangeline.stages.calibration_rollouts import JUDGED_POOLS
from rangeline.stages.judge_clients import load_judge_model
from rangeline.stages.judge_gate import flip_limit, gated_kinds, is_unsteady
from rangeline.stages.judge_labelled import LabelledRollouts, labelled_rollouts, spread
from rangeline.stages.judging import FrozenJudge, open_judge
from rangeline.stages.progress import Progress
from rangeline.stages.workspace import Workspace

_PROBED, _ATTACKED, _WRITTEN = 48, 24, 16
"""Rollouts on which flips, attacks and written replies are measured."""
_MANY_FLIPS, _LONG, _LIFTED = 0.2, 0.3, 0.2
_JSON = '\nReply with a JSON object of the form {{"verdict": "..."}}, where the verdict is one of: {options}.'


@dataclass(frozen=True, slots=True)
class ReportResult:
    """Where the report lies, and what it says."""

    folder: Path
    report: JudgeReport


def report_judge(workspace: Workspace, config: PipelineConfig, progress: Progress, *, rows: int = 400) -> ReportResult:
    """Measure the judge of the settings on the labelled pools; write JSON, Markdown and HTML below `runs/_judge`.

    Parameters
    ----------
    workspace, config
        Whose labelled rollouts, and which judge: it may be another than the one of calibration.
    progress
        Told of every step.
    rows
        At most so many rollouts, whole prompts.

    Raises
    ------
    CalibrationError
        When there are no labelled rollouts.
    ConfigError
        When the judge is synthetic: it answers nobody's questions.
    """
    judge = open_judge(workspace, config.judge, trust_remote_code=config.policy.trust_remote_code)
    if not isinstance(judge, FrozenJudge):
        msg = (
            "'judge.client' must be model or server for a report; got 'synthetic', which is never asked. Name a model."
        )
        raise ConfigError(msg)
    # The report is there to show what a limit would stop.
    judge = replace(judge, limits=replace(judge.limits, missing_share=1.0, unknown_share=1.0))
    data = labelled_rollouts(workspace, judge, progress, rows)
    length_N = np.array([len(text) for text in data.rollouts.completion_N], dtype=np.float64)
    reports = []
    for k, item in enumerate(judge.rubric.coordinates):
        progress("probe coordinates", k, len(judge.rubric.coordinates))
        information = coordinate_information(
            data.table.levels_NK[:, k],
            data.truth_N,
            num_levels=data.table.num_levels[k],
            missing_N=data.table.missing_N,
            prompt_id_N=data.rollouts.prompt_id_N,
            length_N=length_N,
            num_tests=len(judge.rubric.coordinates),
            seed=config.seed,
        )
        reports.append(_coordinate(judge, item, data, information))
    progress("probe coordinates", len(reports), len(reports))
    report = JudgeReport(
        judge=config.judge.model,
        rubric=judge.rubric.name,
        way="log-probabilities of the replies" if judge.client.gives == "logprobs" else "written replies",
        digest=judge.digest,
        num_rows=len(data.rollouts),
        num_prompts=len(set(data.rollouts.prompt_id_N)),
        coordinates=tuple(reports),
        free_text=_free_text(config, judge, spread(data.shown_N, _WRITTEN)),
        gate=(),
    )
    report = replace(report, gate=_gate(report, judge, config.judge))
    return ReportResult(_write(workspace, config, report), report)


def _coordinate(
    judge: FrozenJudge, item: Any, data: LabelledRollouts, information: CoordinateInformation
) -> CoordinateReport:
    plain = CoordinateReport(
        name=item.name,
        kind=type(item).__name__,
        information=information,
        flips={},
        injections=(),
        warnings=_warnings(information, {}, ()),
    )
    if not isinstance(item, ChoiceCoordinate):
        return plain
    some = spread(data.shown_N, _PROBED)
    measured = {
        "order": order_flips(judge.rubric, item, some, judge.client, judge.cache),
        "position": position_flips(judge.rubric, item, some, judge.client, judge.cache),
        "repeat": repeat_flips(judge.rubric, item, some, judge.client),
    }
    wrong = [shown for shown, truth in zip(data.shown_N, data.truth_N, strict=True) if truth < 0.5]
    attacks = tuple(
        (found.attack, found.lifted, found.num_rows)
        for found in injections(judge.rubric, item, spread(wrong, _ATTACKED), judge.client, judge.cache)
    )
    flips = {kind: (found.share, found.num_pairs) for kind, found in measured.items()}
    return replace(plain, flips=flips, injections=attacks, warnings=_warnings(information, flips, attacks))


def _warnings(
    information: CoordinateInformation,
    flips: dict[str, tuple[float | None, int]],
    attacks: Sequence[tuple[str, float | None, int]],
) -> tuple[str, ...]:
    found = []
    if information.auc is not None and information.auc < 0.5 and information.recommendation == "informative":
        found.append("it ranks wrong rollouts above right ones; the scorer turns it round, a reader may not.")
    if information.length_correlation is not None and abs(information.length_correlation) > _LONG:
        found.append(f"its level follows length (Spearman {information.length_correlation:+.2f} at equal truth).")
    for kind, (share, pairs) in flips.items():
        if share is not None and share > _MANY_FLIPS:
            found.append(f"{round(share * pairs)} of {pairs} verdicts turn with {kind}.")
    baseline = next((lifted for name, lifted, _ in attacks if name == HARMLESS), None) or 0.0
    for name, lifted, rows in attacks:
        if name != HARMLESS and lifted is not None and lifted > baseline + _LIFTED:
            found.append(f"a completion that {name} lifts {round(lifted * rows)} of {rows} verdicts.")
    return tuple(found)


def _free_text(
    config: PipelineConfig, judge: FrozenJudge, shown: list[tuple[str, str, str]]
) -> tuple[dict[str, Any], ...]:
    """Let the model of this process write its replies: what one would get where no log-probabilities are given."""
    if config.judge.client != "model":
        return ()
    pretrained = load_judge_model(config.judge, trust_remote_code=config.policy.trust_remote_code)
    writer = WritingJudge(pretrained, max_tokens=config.judge.limits.reply_tokens)
    found = []
    for item in judge.rubric.coordinates:
        if not isinstance(item, ChoiceCoordinate):
            continue
        asked = [as_json(request_of(judge.rubric, item, one)) for one in shown]
        texts = [reply[0] if reply else "" for reply in writer.write(asked)]
        order = order_flips(judge.rubric, item, shown, writer, None)
        position = position_flips(judge.rubric, item, shown, writer, None)
        found.append(
            {
                "name": item.name,
                "asked": len(asked),
                "valid_json": sum(is_verdict(text, item.options) for text in texts),
                "readable": order.num_pairs,
                "order_flips": (order.share, order.num_pairs),
                "position_flips": (position.share, position.num_pairs),
            }
        )
    return tuple(found)


def as_json(request: OptionRequest) -> OptionRequest:
    """Return the question with a request for a JSON object."""
    return replace(request, question=request.question.rstrip() + _JSON.format(options=", ".join(request.options)))


def is_verdict(text: str, options: Sequence[str]) -> bool:
    """Tell whether the reply is the JSON object that was asked for, and nothing else."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("verdict") in options


def _gate(report: JudgeReport, judge: FrozenJudge, settings: JudgeConfig) -> tuple[str, ...]:
    """Say what the gate of calibration would refuse, for the judge as it is asked, and if it wrote instead."""
    limits = settings.limits
    asked = {item.name: item for item in judge.rubric.coordinates if isinstance(item, ChoiceCoordinate)}
    found = []
    for one in report.coordinates:
        item = asked.get(one.name)
        kinds = () if item is None else gated_kinds(judge.client.gives, item)
        for kind in kinds:
            share, pairs = one.flips[kind]
            limit = flip_limit(kind, limits)
            if is_unsteady(Flips(share, pairs, pairs), limit):
                found.append(f"The gate refuses this judge: {kind} flips of '{one.name}' are above {limit:g}.")
    for text in report.free_text:
        pairs_of = {kind: text[f"{kind}_flips"] for kind in ("order", "position")}
        unsteady = any(
            is_unsteady(Flips(share, n, n), flip_limit(kind, limits)) for kind, (share, n) in pairs_of.items()
        )
        unread = 1 - text["readable"] / max(text["asked"], 1)
        if unsteady or unread > settings.max_missing_share:
            share, pairs = pairs_of["position"]
            found.append(
                f"The gate would refuse free text (judge.ask=text): for '{text['name']}' {text['valid_json']} of "
                f"{text['asked']} replies are valid JSON, {text['readable']} of {text['asked']} can be read in both "
                f"orders, and {round((share or 0.0) * pairs)} of {pairs} verdicts turn when the replies are swapped."
            )
    return tuple(found)


def _write(workspace: Workspace, config: PipelineConfig, report: JudgeReport) -> Path:
    settings = config.model_dump(mode="json", include={"seed", "judge"})
    folder = workspace.runs / "_judge" / digest_json({"settings": settings, "digest": report.digest})[:16]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "report.json", asdict(report))
    atomic_write(folder / "report.md", markdown_page(report))
    atomic_write(folder / "report.html", html_page(report))
    write_manifest(
        folder / MANIFEST_NAME,
        workspace.root,
        kind="judge_report",
        inputs=tuple(workspace.calibration / f"{pool}_rollouts.parquet" for pool in JUDGED_POOLS),
        outputs={folder / name: None for name in ("report.json", "report.md", "report.html")},
        parents=(workspace.calibration / MANIFEST_NAME,),
        parameters=settings,
        facts={"judge_digest": report.digest, "rows": report.num_rows},
    )
    return folder
