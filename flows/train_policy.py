"""Flow `train`: sample, judge, bound, hold the coverage gate, update; iteration after iteration.

A killed run goes on from its last complete iteration when the same command is given again. Ctrl-C or SIGTERM asks it
to stop after the iteration in hand; a second one ends it at once. One training at a time works in a workspace: another
is refused with the holder named. When the gate closes,
the iteration does not update the policy until `on_alarm` says what to do: continue and mark it, pause for a person,
recalibrate on the audited rollouts, or stop. Overlap rules whose consequence is to recalibrate or to stop close the
gate too, and are followed whatever `on_alarm` says, unless it stops the run first.
With a reward source that asks no judge there are no intervals: the iteration samples, scores and updates, and
coverage is reported as not measured. Anchors and metric head are made first where a reward source needs them.
"""

from prefect import flow

from flows.common import TrainRequest
from flows.coverage_alarm import answer_alarm
from flows.make_anchors import make_anchors
from rangeline.config import PipelineConfig
from rangeline.errors import OverlapError, StoppedError
from tasks.calibration import (
    bound_rewards,
    broken_overlap,
    gates_held,
    hold_gate,
    judge_states,
    recalibrate,
    report_coverage,
    score_rewards,
)
from tasks.lineage import Session, needs_anchors, open_session, read_settings_of, train_alone
from tasks.policy import sample_rollouts, update_policy
from tasks.records import end_tracking, record_iteration, register_policy, start_tracking, unrecorded
from tasks.reporting import flow_progress, logger
from tasks.stopping import StopRequest, stop_asked

_STOPPING = "stopping after the iteration in hand; a second signal stops at once, and that iteration is made again"


@flow(name="train", description=__doc__)
def train(request: TrainRequest = TrainRequest()) -> dict[str, str | int | bool]:
    """Train a policy; return the run's name, its last iteration, its registered version and whether coverage stood."""
    with train_alone(request.workspace, request.run):
        return _train(request)


def _train(request: TrainRequest) -> dict[str, str | int | bool]:
    config = request.over(read_settings_of(request.workspace))
    if needs_anchors(config):
        make_anchors(request.workspace)
    with flow_progress("train") as progress, open_session(request.workspace, config, request.run, progress) as session:
        run_id = start_tracking(session)
        ended, covered = "FAILED", gates_held(session)
        try:
            for number in unrecorded(session):
                record_iteration(session, number, run_id)
            with stop_asked(lambda signal: logger.warning("%s: %s", signal.name, _STOPPING)) as stop:
                for number in session.remaining:
                    progress.overall((number - 1) / config.train.iterations)
                    progress("iteration", number - 1, config.train.iterations)
                    covered = run_iteration(session, number, config) and covered
                    record_iteration(session, number, run_id)
                    if stop and number < config.train.iterations:
                        ended = "KILLED"
                        end_early(session, number, stop)
            ended = "FINISHED"
        finally:
            end_tracking(session, run_id, ended)
        last = max(config.train.iterations, session.opened.done)
        version = register_policy(session, run_id, last)
        name = session.opened.folder.name
        stood: str | bool = covered if session.plan.needs_judge else "not measured"
    return {"run": name, "iteration": last, "version": version, "covered": stood}


def end_early(session: Session, number: int, stop: StopRequest) -> None:
    """Leave a run after a complete iteration, because somebody asked.

    Raises
    ------
    StoppedError
        Always; the message says how to go on.
    """
    session.stop(number)
    name, last = session.opened.folder.name, session.config.train.iterations
    msg = (
        f"Run '{name}' must reach iteration {last}; got a signal to stop, and stopped after iteration {number}, which "
        "is complete. The same command goes on from there."
    )
    error = StoppedError(msg)
    error.exit_code = stop.exit_code
    raise error


def run_iteration(session: Session, number: int, config: PipelineConfig) -> bool:
    """Do one iteration; return whether the coverage gate held, true where the reward source has none to hold.

    Raises
    ------
    CoverageAlarmError
        When it did not and the run is to stop.
    OverlapError
        When an overlap rule that says stop is broken.
    """
    sample_rollouts(session, number)
    if not session.plan.needs_judge:
        # No interval was promised, so there is no coverage to hold a gate against.
        score_rewards(session, number)
        update_policy(session, number)
        return True
    judge_states(session, number)
    bound_rewards(session, number)
    outcome = hold_gate(session, number, *report_coverage(session, number))
    refuse_overlap(number, broken_overlap(session, number, "stop"), str(outcome.page_path))
    if not outcome.success:
        chosen = answer_alarm(session, number, outcome, config.train.on_alarm)
        if chosen == "recalibrate" or broken_overlap(session, number, "recalibrate"):
            recalibrate(session, number)
    update_policy(session, number)
    return bool(outcome.success)


def refuse_overlap(number: int, broken: tuple[str, ...], page: str) -> None:
    """Stop before the update where an overlap rule says so."""
    if broken:
        msg = (
            f"Source and target states must overlap; iteration {number} failed: {' '.join(broken)} ({page}) Calibrate "
            "anew, or set another consequence of that rule: the same command resumes before this iteration."
        )
        raise OverlapError(msg)
