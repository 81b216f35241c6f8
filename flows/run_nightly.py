"""Flow `nightly`: new data, calibration, a training run, evaluation, promotion through the gates.

1. A run that starts hours late is skipped: its night is over, and the next one would collide.
2. `prepare`, `warmup`, `calibrate`: DVC makes again only what new data or settings ask for.
3. `train` under the night's name, so that a retry resumes; then `report`, which evaluates start and end.
4. The policy becomes `champion` only if coverage stood in every iteration and accuracy did not fall.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from flows.calibrate_judge import CalibrateRequest, calibrate
from flows.common import DataRequest, TrainRequest
from flows.prepare_data import PrepareRequest, prepare
from flows.report_run import ReportRequest, report
from flows.train_policy import train
from flows.warm_up_policy import warmup
from rangeline.config import PipelineConfig
from tasks.lineage import read_settings_of
from tasks.records import promote_policy
from tasks.reporting import logger

_UNSCORED_MARGIN = 0.02


class NightlyRequest(DataRequest):
    """What the nightly run needs to know; training settings are those of params.yaml."""

    max_delay_hours: float = Field(3.0, gt=0, description="A run that starts later than this is skipped")


def is_late(scheduled: datetime | None, now: datetime, max_delay_hours: float) -> bool:
    """Return whether a run starts too long after the time it was scheduled for."""
    return scheduled is not None and now - scheduled > timedelta(hours=max_delay_hours)


def request_of(workspace: str, config: PipelineConfig, run: str | None) -> TrainRequest:
    """Return the training request that a workspace's own settings ask for."""
    names = (
        *("train", "rollout", "reward", "intervals", "advantages", "objective"),
        *("coverage", "overlap", "processes", "lora"),
    )
    return TrainRequest(workspace=workspace, run=run, **{name: getattr(config, name) for name in names})


def run_pipeline(workspace: str, config: PipelineConfig, run: str | None) -> dict[str, object]:
    """Run every flow in order, and promote the policy through its gates."""
    prepare(PrepareRequest(workspace=workspace))
    warmup(DataRequest(workspace=workspace))
    calibrate(CalibrateRequest(workspace=workspace, alpha=config.intervals.alpha))
    trained = train(request_of(workspace, config, run))
    page, table, evaluated = report(
        ReportRequest(workspace=workspace, run=str(trained["run"]), evaluate=config.evaluate)
    )
    change = evaluated["paired"].get("all")
    gates = {
        # A run without intervals measured no coverage: the gate is undefined, which is never open.
        "coverage stood": trained["covered"] if isinstance(trained["covered"], bool) else None,
        "accuracy did not fall": None if change is None else change.mean >= 0,
        "unscored answers did not rise": unscored_did_not_rise(evaluated["results"], str(trained["run"])),
    }
    alias = promote_policy(workspace, int(trained["version"]), gates)
    return {"run": trained["run"], "version": trained["version"], "alias": alias, "page": page, "table": table}


def unscored_did_not_rise(results: Mapping[str, Any], run: str) -> bool:
    """Return whether the share of answers that could not be scored stayed within two points of the start's.

    They leave the mean accuracy, so a policy that is cut off more often could look better than it is.
    """
    before, after = (results[name].metrics["all"]["missing_share"] for name in ("warmup", run))
    return bool(after <= before + _UNSCORED_MARGIN)


@flow(name="nightly", description=__doc__)
def nightly(request: NightlyRequest = NightlyRequest()) -> str:
    """Do the night's work; return the alias that the new policy got, or `skipped`."""
    now = datetime.now(UTC)
    if is_late(flow_run.scheduled_start_time, now, request.max_delay_hours):
        logger.warning("skipped: scheduled for %s, started %s", flow_run.scheduled_start_time, now)
        return "skipped"
    config = read_settings_of(request.workspace)
    result = run_pipeline(request.workspace, config, f"nightly-{now:%Y-%m-%d}")
    return str(result["alias"])
