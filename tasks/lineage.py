"""Lineage tasks: open sessions on a workspace, check its calibration, write the report page."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.config import PipelineConfig
from rangeline.conformal.intervals import require_calibration_prompts
from rangeline.evaluation.comparison import PairedDifference
from rangeline.holding import hold
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.evaluation import EvaluationResult
from rangeline.stages.progress import Progress
from rangeline.stages.report_files import REPORT_FILES
from rangeline.stages.reporting import evaluations_of, write_report
from rangeline.stages.reward_plan import plan_rewards
from rangeline.stages.run import RunFolder, read_run
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import open_workspace
from tasks.audits import audit_target as audit_target
from tasks.notes import flow_started, note, prefect_ids
from tasks.records import referenced_checkpoints, tracked_as
from tasks.reporting import logger, show_markdown
from tasks.tracking import Tracker

Session = TrainingSession

_FAINT_AUC = 0.6
"""Below it a head hardly tells positive from negative anchors of prompts it was not trained on."""


def read_settings_of(workspace: str) -> PipelineConfig:
    """Read a workspace's settings."""
    return open_workspace(workspace)[1]


@contextmanager
def train_alone(workspace: str, run: str | None) -> Iterator[None]:
    """Hold a workspace for one training while the block runs: its store, its caches and its machine serve one.

    Raises
    ------
    BusyError
        When another training is at work there.
    """
    place, _ = open_workspace(workspace)
    about = {"run": run or "named by its settings", **prefect_ids()}
    with hold(place.training_lock, f"Workspace '{place.root}'", about=about):
        yield


def open_session(workspace: str, config: PipelineConfig, run: str | None, progress: Progress) -> TrainingSession:
    """Open a run, and say from where it goes on."""
    place, _ = open_workspace(workspace)
    session = TrainingSession(place, config, run=run, progress=progress)
    opened = session.opened
    for reason in opened.passed_over:
        logger.warning("passed over %s", reason)
    if opened.done:
        referenced = referenced_checkpoints(session)
        session.pinned = frozenset(referenced)
        for name, alias in referenced.items():
            logger.info("checkpoint %s stays whatever retention says: it is %s", name, alias)
    if opened.done >= config.train.iterations:
        logger.info("run %s is complete: %d iterations", opened.folder.name, opened.done)
    elif opened.done:
        logger.info("run %s resumes after iteration %d of %d", opened.folder.name, opened.done, config.train.iterations)
    else:
        logger.info("run %s starts at iteration 1 of %d", opened.folder.name, config.train.iterations)
    return session


@task(name="check calibration", cache_policy=NO_CACHE)
def check_calibration(workspace: str, alpha: float) -> dict[str, Any]:
    """Check that the calibration set can serve alpha, and show its report.

    Raises
    ------
    CalibrationError
        When it has too few rows.
    """
    place, _ = open_workspace(workspace)
    facts = dict(read_manifest(place.calibration / MANIFEST_NAME).facts)
    require_calibration_prompts(int(facts["prompts"]), alpha)
    table = (place.calibration / "reliability.json").read_text(encoding="utf-8")
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    show_markdown("calibration", f"## Calibration\n\n{listed}\n\n```json\n{table}\n```\n", "Scorer and calibration set")
    return facts


def needs_anchors(config: PipelineConfig) -> bool:
    """Return whether a reward source of these settings contrasts with anchors."""
    return "anchors" in plan_rewards(config).stages


@task(name="show metric head", cache_policy=NO_CACHE)
def show_head(workspace: str) -> dict[str, Any]:
    """Show how the metric head was trained, and warn where the conditions made no difference."""
    place, _ = open_workspace(workspace)
    facts = dict(read_manifest(place.metric_head / MANIFEST_NAME).facts)
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    show_markdown("metric-head", f"## Metric head\n\n{listed}\n", "Trained on anchors of the starting policy")
    logger.info(
        "metric head: held-out loss %.3f from %.3f, anchors ranked right %.3f",
        *(facts[name] for name in ("held_out_loss", "first_held_out_loss", "anchor_auc")),
    )
    if facts["anchor_auc"] < _FAINT_AUC:
        logger.warning(
            "metric head: it ranks held-out anchors little better than chance (%.3f): these conditions hardly lead "
            "this policy apart, and rewards will follow something else; write others in conditions/",
            facts["anchor_auc"],
        )
    return facts


def require_run(workspace: str, run: str) -> None:
    """Check that a run exists before anything is spent on it.

    Raises
    ------
    ConfigError
        When it does not; names the known ones.
    """
    place, _ = open_workspace(workspace)
    read_run(RunFolder(place.run(run)))


@task(name="write report", cache_policy=NO_CACHE)
def report_run(
    workspace: str, run: str, results: dict[str, EvaluationResult], paired: dict[str, PairedDifference]
) -> tuple[Path, list[tuple[str, str]]]:
    """Write the run's report page from the evaluations of `warmup` and of the run; return path and closing table."""
    place, _ = open_workspace(workspace)
    evaluations = evaluations_of(results["warmup"].metrics, results[run].metrics, paired)
    folder = RunFolder(place.run(run))
    path, table = write_report(place, folder, evaluations)
    rows = "\n".join(f"| {name} | {value.replace('|', '/')} |" for name, value in table)
    link = f"[{path.name}]({path.as_uri()}) on the machine that trained it, and in MLflow under `report/` of the run"
    show_markdown(f"report-{run}", f"{link}\n\n| | |\n|---|---|\n{rows}\n", f"Report of {run}")
    tracker = Tracker.open(place.root)
    made = [path, *(path.with_name(name) for name in REPORT_FILES)]
    if run_id := tracker.find_run("rangeline.run", tracked_as(folder)):
        for item in made:
            tracker.log_file(run_id, item, "report")
        made += tracker.local_artifacts(run_id, place.root)
    note(place.root, "report", files=made, started=flow_started(), mlflow_run_id=run_id)
    logger.info("report: %s", path)
    return path, table
