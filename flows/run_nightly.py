"""Flow `nightly`: new data, calibration, a training run, evaluation, promotion through the gates, retention.

1. A run that starts hours late is skipped: its night is over. So is one that finds another night or a training at work.
2. What arrived in the inbox or in DVC remotes is taken in; only new prompts are added and none changes its pool.
3. `prepare`, `warmup`, `calibrate`: made again only where data, settings, policy, judge or rubric ask for it.
4. `train` under the night's name, or that of a run that an earlier night left half done; then `report`. A night without
   news trains nothing.
5. The policy becomes `champion` only if coverage stood in every iteration and accuracy did not fall below that of the
   champion so far; promotion is the last step, so a failed night leaves yesterday's model serving.
6. Runs of old nights and grown caches go; what a champion's lineage needs stays.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from flows.calibrate_judge import CalibrateRequest, calibrate
from flows.common import DataRequest, TrainRequest
from flows.prepare_data import PrepareRequest, prepare
from flows.report_run import ReportRequest, report
from flows.train_policy import train
from flows.warm_up_policy import warmup
from rangeline.config import TRAINING_SECTIONS, PipelineConfig
from tasks.data import reproduce_stages
from tasks.evaluation import compare_policies, evaluate_policy
from tasks.lineage import read_settings_of
from tasks.nights import (
    evaluation_digests,
    hold_night,
    judge_accuracy,
    name_of_night,
    night_record,
    pools_before,
    require_no_move,
    serving_policy,
    stale_models,
    standing_gates,
    take_in_prompts,
    why_calibrate,
)
from tasks.records import checkpoint_of, promote_policy, record_evaluation
from tasks.reporting import logger
from tasks.retention import apply_retention, keep_champion_lineage

SKIPPED = "skipped"


class NightlyRequest(DataRequest):
    """What the nightly run needs to know; training settings are those of params.yaml."""

    max_delay_hours: float = Field(3.0, gt=0, le=24, description="A run that starts later than this is skipped")
    inbox: str = Field("data/inbox", description="Folder in which new prompts arrive: JSONL, CSV or Parquet")
    max_fall: float = Field(
        0.05, gt=0, lt=1, description="Fall of accuracy that must be ruled out before a policy may become champion"
    )
    keep_runs: int = Field(7, ge=1, description="Newest nightly runs that are kept, whatever became of them")
    keep_champions: int = Field(3, ge=2, description="Champions that are kept, the serving one included")
    max_cache_mb: float = Field(2000, gt=0, description="Above it the judge's verdicts or the anchors are dropped")


def is_late(scheduled: datetime | None, now: datetime, max_delay_hours: float) -> bool:
    """Return whether a run starts too long after the time it was scheduled for."""
    return scheduled is not None and now - scheduled > timedelta(hours=max_delay_hours)


def request_of(workspace: str, config: PipelineConfig, run: str | None) -> TrainRequest:
    """Return the training request that a workspace's own settings ask for."""
    return TrainRequest(workspace=workspace, run=run, **{name: getattr(config, name) for name in TRAINING_SECTIONS})


def make_data(workspace: str, config: PipelineConfig) -> str:
    """Bring pools, starting policy and calibration up to date; return why calibration was renewed or reused."""
    prepare(PrepareRequest(workspace=workspace))
    stale = stale_models(workspace)
    if "warmup" in stale:
        logger.warning("%s; warmed up anew", stale["warmup"])
        reproduce_stages(workspace, ("warmup",), force=True, alone=True)
    warmup(DataRequest(workspace=workspace))
    why = why_calibrate(workspace)
    if "calibrate" in stale:
        reproduce_stages(workspace, ("calibrate",), force=True, alone=True)
    calibrate(CalibrateRequest(workspace=workspace, alpha=config.intervals.alpha))
    logger.info("calibration %s", why)
    return why


def run_pipeline(workspace: str, config: PipelineConfig, run: str | None) -> dict[str, object]:
    """Run every flow in order, and promote the policy through its gates."""
    make_data(workspace, config)
    return train_and_promote(workspace, config, run, max_fall=NightlyRequest().max_fall)


def train_and_promote(workspace: str, config: PipelineConfig, run: str | None, *, max_fall: float) -> dict[str, Any]:
    """Train, report, compare with the policy that serves, and promote through the gates; return what was decided."""
    trained = train(request_of(workspace, config, run))
    name, version = str(trained["run"]), int(trained["version"])
    page, table, evaluated = report(ReportRequest(workspace=workspace, run=name, evaluate=config.evaluate))
    serving, baseline, why = serving_policy(workspace)
    if serving == version:
        baseline, why = "warmup", "it is the champion already: compared with the starting policy"
    before, after = evaluated["results"]["warmup"], evaluated["results"][name]
    if baseline != "warmup":
        before = evaluate_policy(workspace, config, baseline)
        record_evaluation(workspace, baseline, str(before.folder), before.metrics)
    gates, words = judge_accuracy(before, after, compare_policies(before, after, config), max_fall)
    # A run without intervals measured no coverage: the gate is undefined, which is never open.
    gates["coverage stood"] = trained["covered"] if isinstance(trained["covered"], bool) else None
    gates |= standing_gates(workspace, version, serving)
    alias = promote_policy(workspace, version, gates, evaluation_digests(before, after))
    if alias == "champion":
        keep_champion_lineage(workspace, checkpoint_of(workspace, version))
    closed = [gate for gate, is_open in gates.items() if is_open is not True]
    reason = f"{why}; {words}; {'closed: ' + ', '.join(closed) if closed else 'every gate is open'}"
    return {"run": name, "version": version, "alias": alias, "page": page, "table": table, "reason": reason}


@flow(name="nightly", description=__doc__)
def nightly(request: NightlyRequest = NightlyRequest()) -> str | State[str]:
    """Do the night's work; return the alias that the new policy got, `unchanged`, or `skipped`."""
    now = datetime.now(UTC)
    scheduled = flow_run.scheduled_start_time
    if is_late(scheduled, now, request.max_delay_hours):
        return skip(f"scheduled for {scheduled}, started {now}, more than {request.max_delay_hours:g} hours late")
    with hold_night(request.workspace) as holder:
        if holder is not None:
            return skip(holder)
        with night_record(request.workspace, f"nightly-{now:%Y-%m-%d}") as record:
            do_night(request, record)
    return str(record["outcome"])


def skip(reason: str) -> State[str]:
    """Say why a night is not done, and end the flow run as Completed under the name Skipped."""
    logger.warning("skipped: %s", reason)
    return Completed(name="Skipped", message=reason, data=SKIPPED)


def do_night(request: NightlyRequest, record: dict[str, Any]) -> None:
    """Do the steps of a night in order, and fill in its record as they are done."""
    workspace = request.workspace
    config = read_settings_of(workspace)
    before = pools_before(workspace)
    record["intake"] = take_in_prompts(workspace, request.inbox)
    record["calibration"] = make_data(workspace, config)
    record["prompts_added"] = require_no_move(workspace, before)
    name, same = name_of_night(workspace, config, str(record["night"]))
    if same is not None:
        record |= {"outcome": "unchanged", "reason": f"nothing is new: run '{same}' has these data and settings"}
    else:
        result = train_and_promote(workspace, config, name, max_fall=request.max_fall)
        record |= {key: result[key] for key in ("run", "version", "alias", "reason")}
        record["outcome"] = result["alias"]
    record["deleted"] = apply_retention(
        workspace,
        name,
        keep_runs=request.keep_runs,
        keep_champions=request.keep_champions,
        max_cache_mb=request.max_cache_mb,
    )
